"""The classifier that is used when none is given, by what the samples are.

Texts: TF-IDF and logistic regression. Sparse: logistic regression. Dense: a support vector machine while that is a
matter of seconds, then extremely randomised trees. These two selected best among the quick ones on small tables
(digits, breast cancer, wine; symmetric and pair noise): they neither memorise single wrong labels nor miss curved
boundaries.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# Training a kernel machine takes the square of the samples: above this it is no longer a matter of seconds.
KERNEL_SAMPLES = 5_000
CLASSIFIERS = ("boosting", "forest", "logistic", "nearest", "neighbours", "svm", "tfidf", "trees")


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


def default_estimator(x: Any) -> Any:
    from scipy.sparse import issparse
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MaxAbsScaler

    if is_text(x):
        from sklearn.feature_extraction.text import TfidfVectorizer

        return make_pipeline(TfidfVectorizer(sublinear_tf=True), LogisticRegression(max_iter=1000))
    if issparse(x):
        return make_pipeline(MaxAbsScaler(), LogisticRegression(max_iter=1000))
    if len(x) <= KERNEL_SAMPLES:
        return named_classifier("svm")
    from sklearn.ensemble import ExtraTreesClassifier

    # Larger leaves for more samples keep the forest's memory bounded.
    return ExtraTreesClassifier(200, min_samples_leaf=max(3, len(x) // 20_000))


def named_classifier(name: str) -> Any:
    """What `--model` on the command line calls so."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if name in ("nearest", "neighbours"):
        from sklearn.neighbors import KNeighborsClassifier

        # The nearest one alone repeats its label, right or wrong: it memorises, as the theory assumes.
        return (
            KNeighborsClassifier(1) if name == "nearest" else make_pipeline(StandardScaler(), KNeighborsClassifier(10))
        )
    if name == "forest":
        from sklearn.ensemble import RandomForestClassifier

        return RandomForestClassifier(200)
    if name == "boosting":
        from sklearn.ensemble import HistGradientBoostingClassifier

        return HistGradientBoostingClassifier()
    if name == "trees":
        from sklearn.ensemble import ExtraTreesClassifier

        return ExtraTreesClassifier(200, min_samples_leaf=3)
    if name == "svm":
        from sklearn.svm import SVC

        return make_pipeline(StandardScaler(), SVC())
    from sklearn.linear_model import LogisticRegression

    if name == "logistic":
        return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    from sklearn.feature_extraction.text import TfidfVectorizer

    return make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(C=10, max_iter=1000)
    )
