"""Any scikit-learn classifier answers selection's trainings.

Probabilities come from `predict_proba`, else from a softmax of `decision_function`, else `predict` counts as certain.
Decision functions have any scale: those that would be certain of most samples (a perceptron's) are brought down first.
They are asked for in chunks and reduced at once to a few numbers a sample: memory is O(n) plus one chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from labelsieve.errors import InputError
from labelsieve.execute.local import run_all
from labelsieve.scoring import likeliest
from labelsieve.types import LEADERS, FloatArray, IntArray, Job, Scores, Trainer

CHUNK_CELLS = 2_000_000  # probabilities held at once: 16 MB
SCALED_BY = 1000  # samples whose margins tell the scale of a decision function
CERTAIN = 36.0  # log-odds that leave nothing of 1 - p in double precision
SURE = 5.0  # those of 99 %
ASKED = 200  # samples whose prediction tells what the columns of a decision function are
SMALLEST = 1e-12  # a probability of 0 has a loss of 27.6, not infinity


def take(x: Any, index: IntArray) -> Any:
    """Samples of an array, a sparse matrix, a data frame or a plain sequence."""
    if hasattr(x, "iloc"):
        return x.iloc[index]
    if hasattr(x, "shape"):
        return x[index]
    return [x[i] for i in index]


def softmax(scores: FloatArray) -> FloatArray:
    """Rows to probabilities; one column is the log-odds of the second of two classes."""
    if scores.ndim == 1:
        scores = np.stack([np.zeros_like(scores), scores], axis=1)
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def seeded(estimator: Any, seed: int) -> Any:
    """A fresh copy whose every `random_state`, also of nested steps, is `seed`."""
    from sklearn.base import clone

    copy = clone(estimator)
    names = [name for name in copy.get_params() if name == "random_state" or name.endswith("__random_state")]
    return copy.set_params(**dict.fromkeys(names, seed % 2**32)) if names else copy


def decisions(model: Any, x: Any, known: IntArray) -> FloatArray | None:
    """Log-odds, or what stands for them, where the classifier has a decision function with a column a class."""
    if hasattr(model, "predict_proba") or not hasattr(model, "decision_function"):
        return None
    scores = np.asarray(model.decision_function(x), dtype=np.float64)
    return scores if scores.ndim == 1 or _one_a_class(scores, model, x, known) else None


def decision_scale(model: Any, x: Any, known: IntArray) -> float:
    """What a decision function is multiplied by: 1, unless most samples would be certain to the last bit, which tells
    them apart no more. Then half of them are sure at 99 %."""
    scores = decisions(model, x, known)
    if scores is None or len(scores) == 0 or not np.isfinite(scores).all():
        return 1.0
    margins = np.abs(scores) if scores.ndim == 1 else -np.diff(-np.partition(-scores, 1, axis=1)[:, :2], axis=1)
    median = float(np.median(margins))
    return SURE / median if median > CERTAIN else 1.0


def probabilities(model: Any, x: Any, known: IntArray, *, scale: float = 1.0) -> FloatArray:
    """[n, len(known)], from the best thing the classifier offers."""
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(x), dtype=np.float64)
    scores = decisions(model, x, known)
    if scores is not None:
        return softmax(scale * scores)
    return np.asarray(np.asarray(model.predict(x))[:, None] == known[None, :], dtype=np.float64)


def _one_a_class(scores: FloatArray, model: Any, x: Any, known: IntArray) -> bool:
    """Does each column speak for a class? Those of SVC(decision_function_shape="ovo") speak for pairs: three, too, of
    three classes, so what is predicted is asked as well. Ties may be decided otherwise, therefore most is enough."""
    if scores.shape[1] != len(known):
        return False
    some = np.arange(min(ASKED, len(scores)))
    return bool((known[scores[some].argmax(axis=1)] == np.asarray(model.predict(take(x, some)))).mean() > 0.5)


class OneClass:
    """Stands in where the samples to train on hold one class only, which most classifiers refuse."""

    def predict_proba(self, x: Any) -> FloatArray:
        return np.ones((x.shape[0] if hasattr(x, "shape") else len(x), 1))


def fit(estimator: Any, x: Any, labels: IntArray, seed: int) -> tuple[Any, IntArray]:
    """(trained model, the codes its columns stand for)."""
    present = np.unique(labels)
    if len(present) < 2:
        return OneClass(), present
    model = seeded(estimator, seed)
    model.fit(x, labels)
    # A classifier with nothing but fit and predict answers with the labels it was shown.
    return model, np.asarray(getattr(model, "classes_", present), dtype=np.int64)


def reduce(given: IntArray, probability: FloatArray, known: IntArray, classes: int) -> Scores:
    """One chunk's probabilities to Scores; a class the training set lacked has probability 0."""
    if not np.isfinite(probability).all():
        raise InputError(
            "estimator: it returned probabilities that are NaN or infinite; scale the features or change it"
        )
    column = np.full(classes, -1, dtype=np.int64)
    column[known] = np.arange(len(known))
    at = column[given]
    rows = np.arange(len(given))
    of_given = np.where(at >= 0, probability[rows, at], 0.0)
    best = probability.argmax(axis=1)
    loss = -np.log(np.clip(of_given, SMALLEST, 1.0))
    found = likeliest(probability, best)
    leaders, shares = known[found], np.take_along_axis(probability, found, axis=1)
    lacking = np.setdiff1d(np.arange(classes), known)[: max(0, min(LEADERS, classes) - leaders.shape[1])]
    return Scores(
        predicted=known[best], probability=of_given, confidence=probability[rows, best], loss=loss,
        leaders=np.hstack([leaders, np.tile(lacking, (len(given), 1))]).astype(np.int32),
        shares=np.hstack([shares, np.zeros((len(given), len(lacking)))]).astype(np.float32),
    )  # fmt: skip


def chunks(index: IntArray, size: int) -> Iterator[IntArray]:
    for start in range(0, len(index), size):
        yield index[start : start + size]


def train_and_score_one(x: Any, estimator: Any, classes: int, job: Job) -> Scores:
    """Train on `job.train`, score `job.score`."""
    if len(job.train) == 0:
        raise InputError(f"{job.name}: there is no sample to train on")
    # Products of small float32 matrices raise "invalid value" now and then though all is finite in and out: the library
    # behind them computes with what lies in its buffer. Whether what matters is finite, `reduce` sees.
    with np.errstate(invalid="ignore"):
        model, known = fit(estimator, take(x, job.train), job.labels[job.train], job.seed)
        size = max(1, CHUNK_CELLS // len(known))
        scale = decision_scale(model, take(x, job.score[:SCALED_BY]), known) if len(job.score) else 1.0
        parts = [
            reduce(job.labels[part], probabilities(model, take(x, part), known, scale=scale), known, classes)
            for part in chunks(job.score, size)
        ]
    if not parts:
        empty = np.zeros(0)
        return Scores(np.zeros(0, dtype=np.int64), empty, empty, empty)
    return Scores.joined(parts)


@dataclass
class SklearnTrainer(Trainer):
    """Trains scikit-learn classifiers on samples `x` (anything the estimator takes and that can be indexed)."""

    x: Any
    estimator: Any
    classes: int
    executor: Any = None

    def train_and_score(self, jobs: Sequence[Job]) -> list[Scores]:
        from threadpoolctl import threadpool_limits

        # Their products are small: threads of the linear algebra wait for each other longer than they compute, texts
        # several times as long, and far longer beside other work.
        with threadpool_limits(1, user_api="blas"):
            return run_all(partial(train_and_score_one, self.x, self.estimator, self.classes), jobs, self.executor)
