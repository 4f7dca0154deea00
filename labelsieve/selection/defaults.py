"""The classifier that is used when none is given, by what the samples are.

Texts: TF-IDF of what data/text.py counts, and logistic regression. Sparse: logistic regression. Tables: a random
forest. On the real and made tables of benchmarks/table-classifiers.md it selects and ranks best, and cries wolf least
on clean but hard ones.
Wide arrays, as networks' features are, tell little in each column and much in all: there a support vector machine is
better by far, while it is a matter of seconds; then extremely randomised trees.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labelsieve.errors import InputError

WIDE_COLUMNS = 100  # more than this is no longer a table that somebody wrote
# Training a kernel machine takes the square of the samples: above this it is no longer a matter of seconds.
KERNEL_SAMPLES = 5_000
LEAF_SHARE = 20_000  # larger leaves for more samples keep a forest's memory bounded
EDGES = "edges"  # reads pictures, as data/edges.py describes them
CLASSIFIERS = ("boosting", EDGES, "forest", "logistic", "nearest", "neighbours", "svm", "tfidf", "trees")


def is_text(x: Any) -> bool:
    """A sequence of strings: not a table, whatever its shape says."""
    if isinstance(x, str) or (hasattr(x, "iloc") and getattr(x, "ndim", 1) > 1):
        return False
    if isinstance(x, np.ndarray) and (x.ndim != 1 or x.dtype.kind not in "OUT"):
        return False
    try:
        return len(x) > 0 and all(isinstance(value, str) for value in x)
    except TypeError:
        return False


def default_name(samples: int, columns: int) -> str:
    """For rows of numbers."""
    if columns <= WIDE_COLUMNS:
        return "forest"
    return "svm" if samples <= KERNEL_SAMPLES else "trees"


def default_estimator(x: Any) -> Any:
    from scipy.sparse import issparse

    if is_text(x):
        return named_classifier("tfidf")
    if issparse(x):
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import MaxAbsScaler

        return make_pipeline(MaxAbsScaler(), LogisticRegression(max_iter=1000))
    return named_classifier(default_name(len(x), int(np.prod(np.shape(x)[1:]))), len(x))


def named_classifier(name: str, samples: int = 0, *, sparse: bool = False) -> Any:
    """What `--model` on the command line calls so, for so many samples; of `sparse` rows no mean is taken away, which
    would fill them."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler(with_mean=not sparse)
    if name in ("nearest", "neighbours"):
        from sklearn.neighbors import KNeighborsClassifier

        # The nearest one alone repeats its label, right or wrong: it memorises, as the theory assumes.
        return KNeighborsClassifier(1) if name == "nearest" else make_pipeline(scaler, KNeighborsClassifier(10))
    if name == "forest":
        from sklearn.ensemble import RandomForestClassifier

        # Leaves of one sample repeat single wrong labels.
        return RandomForestClassifier(100, min_samples_leaf=max(2, samples // LEAF_SHARE))
    if name == "boosting":
        if sparse:
            able = ", ".join(repr(other) for other in CLASSIFIERS if other not in (name, EDGES, "tfidf"))
            raise InputError(f"estimator: {name!r} reads no sparse rows: choose one of {able}, or give X.toarray()")
        from sklearn.ensemble import HistGradientBoostingClassifier

        return HistGradientBoostingClassifier()
    if name == "trees":
        from sklearn.ensemble import ExtraTreesClassifier

        return ExtraTreesClassifier(200, min_samples_leaf=max(3, samples // LEAF_SHARE))
    if name in ("svm", EDGES):
        from sklearn.svm import SVC

        return make_pipeline(scaler, SVC(C=3 if name == EDGES else 1))
    from sklearn.linear_model import LogisticRegression

    if name == "logistic":
        return make_pipeline(scaler, LogisticRegression(max_iter=1000))
    from sklearn.feature_extraction.text import TfidfVectorizer

    from labelsieve.data.text import tokens

    return make_pipeline(TfidfVectorizer(analyzer=tokens, sublinear_tf=True), LogisticRegression(C=10, max_iter=1000))
