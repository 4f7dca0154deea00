"""Trainings of a selection with scikit-learn classifiers, in this process, in threads or in processes.

Probabilities come from `predict_proba`, else from a softmax of `decision_function`, else `predict` counts as certain.
Decision functions have any scale; those that would be certain of most samples (a perceptron's) are scaled down first.
Predictions are computed in chunks and reduced to a few numbers per sample: memory is O(n) plus one chunk.

An executor is None, "threads", "processes", a number of workers, or an object with `map`
(`concurrent.futures`, `multiprocessing.Pool`). Each training has its own seed and results keep the order of the jobs,
so that the result does not depend on the number of workers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from labelsieve.data.resources import usable_cores
from labelsieve.errors import InputError
from labelsieve.frames import is_pandas
from labelsieve.models.stored_classifier import softmax
from labelsieve.progress import counted
from labelsieve.scoring import likeliest
from labelsieve.types import TOP_CLASSES, FloatArray, IntArray, Job, Samples, Scores, Selection, Trainer

Item = TypeVar("Item")
Result = TypeVar("Result")

CHUNK_CELLS = 2_000_000  # probabilities in memory at once: 16 MB
SCALE_SAMPLES = 1000  # samples whose margins determine the scale of a decision function
CERTAIN_LOG_ODDS = 36.0  # 1 - p is 0 in double precision
SURE_LOG_ODDS = 5.0  # a probability of 99 %
COLUMN_SAMPLES = 200  # samples whose prediction determines the columns of a decision function
SMALLEST_PROBABILITY = 1e-12  # a probability of 0 has a loss of 27.6, not infinity
RESPONSES = ("predict_proba", "decision_function", "predict")  # the best one first
EXECUTORS = ("threads", "processes")


@runtime_checkable
class Shaped(Protocol):
    """An array, a sparse matrix or a data frame."""

    shape: Any

    def __getitem__(self, index: Any) -> Any:
        """Return some samples."""


def take(x: Any, index: IntArray) -> Any:
    """Samples of an array, a sparse matrix, a data frame, or a sequence, which may be the user's own."""
    if isinstance(x, Samples):
        return x.subset(index)
    if is_pandas(x):
        return x.iloc[index]
    return x[index] if isinstance(x, Shaped) else [x[i] for i in index.tolist()]


def copy_with_seed(estimator: Any, seed: int) -> Any:
    """A fresh copy whose every `random_state`, also of nested steps, is `seed`."""
    from sklearn.base import clone

    copy = clone(estimator)
    names = [name for name in copy.get_params() if name == "random_state" or name.endswith("__random_state")]
    return copy.set_params(**dict.fromkeys(names, seed % 2**32)) if names else copy


def limit_neighbours(model: Any, samples: int) -> None:
    """Lower every `n_neighbors`, also of nested steps, to the number of training samples."""
    numbers = {name: value for name, value in model.get_params().items() if name.split("__")[-1] == "n_neighbors"}
    many = [name for name, value in numbers.items() if isinstance(value, int) and value > samples]
    if many:
        model.set_params(**dict.fromkeys(many, samples))


def response(model: Any) -> tuple[str, Any]:
    """The name and the method of the best response that a classifier has; only `predict` is always there."""
    return next((name, method) for name in RESPONSES if (method := getattr(model, name, None)) is not None)


def decisions(model: Any, x: Any, known: IntArray) -> FloatArray | None:
    """The decision function, if there is no `predict_proba` and it has one column per class."""
    name, method = response(model)
    if name != "decision_function":
        return None
    scores = np.asarray(method(x), dtype=np.float64)
    return scores if scores.ndim == 1 or _has_one_per_class(scores, model, x, known) else None


def decision_scale(model: Any, x: Any, known: IntArray) -> float:
    """The factor of a decision function: 1, unless most samples would have the probability 1 in double precision. Then
    the median sample gets 99 %."""
    scores = decisions(model, x, known)
    if scores is None or len(scores) == 0 or not np.isfinite(scores).all():
        return 1.0
    margins = np.abs(scores) if scores.ndim == 1 else -np.diff(-np.partition(-scores, 1, axis=1)[:, :2], axis=1)
    median = float(np.median(margins))
    return SURE_LOG_ODDS / median if median > CERTAIN_LOG_ODDS else 1.0


def probabilities(model: Any, x: Any, known: IntArray, *, scale: float = 1.0) -> FloatArray:
    """Probabilities [n, len(known)] from the best method that the classifier has."""
    name, method = response(model)
    if name == "predict_proba":
        return np.asarray(method(x), dtype=np.float64)
    scores = decisions(model, x, known)
    if scores is not None:
        return softmax(scale * scores)
    return np.asarray(np.asarray(model.predict(x))[:, None] == known[None, :], dtype=np.float64)


def _has_one_per_class(scores: FloatArray, model: Any, x: Any, known: IntArray) -> bool:
    """Whether each column belongs to a class. Columns of SVC(decision_function_shape="ovo") belong to pairs, and three
    classes have three pairs, so the predictions must agree; not all of them, as ties may be broken differently."""
    if scores.shape[1] != len(known):
        return False
    some = np.arange(min(COLUMN_SAMPLES, len(scores)))
    return bool((known[scores[some].argmax(axis=1)] == np.asarray(model.predict(take(x, some)))).mean() > 0.5)


def fit(estimator: Any, x: Any, labels: IntArray, seed: int, weight: FloatArray | None = None) -> tuple[Any, IntArray]:
    """Return the trained model and the class codes of its columns. `weight` is that of each sample."""
    present = np.unique(labels)
    if len(present) < 2:  # most classifiers refuse to train on one class
        from sklearn.dummy import DummyClassifier

        return DummyClassifier().fit(x, labels), present
    model = copy_with_seed(estimator, seed)
    limit_neighbours(model, len(labels))
    model.fit(x, labels, **({} if weight is None else {"sample_weight": weight}))
    try:
        known = model.classes_
    except AttributeError:  # a classifier with only fit and predict returns the labels of its training samples
        known = present
    return model, np.asarray(known, dtype=np.int64)


def reduce(given: IntArray, probability: FloatArray, known: IntArray, classes: int) -> Scores:
    """Reduce the probabilities of a chunk to Scores; a class without training samples has probability 0."""
    if not np.isfinite(probability).all():
        raise InputError("estimator: its probabilities are NaN or infinite; scale the features or choose another")
    column = np.full(classes, -1, dtype=np.int64)
    column[known] = np.arange(len(known))
    at = column[given]
    rows = np.arange(len(given))
    of_given = np.where(at >= 0, probability[rows, at], 0.0)
    best = probability.argmax(axis=1)
    loss = -np.log(np.clip(of_given, SMALLEST_PROBABILITY, 1.0))
    found = likeliest(probability, best)
    top_classes, top_probs = known[found], np.take_along_axis(probability, found, axis=1)
    absent = np.setdiff1d(np.arange(classes), known)[: max(0, min(TOP_CLASSES, classes) - top_classes.shape[1])]
    return Scores(
        predicted=known[best], probability=of_given, confidence=probability[rows, best], loss=loss,
        top_classes=np.hstack([top_classes, np.tile(absent, (len(given), 1))]).astype(np.int32),
        top_probs=np.hstack([top_probs, np.zeros((len(given), len(absent)))]).astype(np.float32),
    )  # fmt: skip


def train_and_score_one(x: Any, estimator: Any, classes: int, job: Job) -> Scores:
    """Train on `job.train`, score `job.score`."""
    if len(job.train) == 0:
        raise InputError(f"{job.name}: no samples to train on; use more samples")
    # Products of small float32 matrices sometimes raise "invalid value" although inputs and outputs are finite: the
    # library computes with uninitialised parts of its buffer. `reduce` checks that the probabilities are finite.
    with np.errstate(invalid="ignore"):
        model, known = fit(estimator, take(x, job.train), job.labels[job.train], job.seed)
        size = max(1, CHUNK_CELLS // len(known))
        scale = decision_scale(model, take(x, job.score[:SCALE_SAMPLES]), known) if len(job.score) else 1.0
        parts = [
            reduce(job.labels[part], probabilities(model, take(x, part), known, scale=scale), known, classes)
            for part in np.split(job.score, range(size, len(job.score), size))
            if len(part)
        ]
    if not parts:
        empty = np.zeros(0)
        return Scores(np.zeros(0, dtype=np.int64), empty, empty, empty)
    return Scores.concatenate(parts)


@runtime_checkable
class HasMap(Protocol):
    """An executor such as those of `concurrent.futures` and `multiprocessing`."""

    def map(self, task: Any, items: Any) -> Any: ...


def check_executor(executor: Any) -> None:
    """Raise InputError unless `executor` is one of the known kinds."""
    if executor is None or executor in EXECUTORS or isinstance(executor, HasMap):
        return
    if isinstance(executor, int) and not isinstance(executor, bool) and executor >= 1:
        return
    raise InputError(
        f"unknown executor {executor!r}; use None, {', '.join(EXECUTORS)}, a number of workers, or an object with map"
    )


def run_all(task: Callable[[Item], Result], items: Sequence[Item], executor: Any = None) -> Iterator[Result]:
    """Yield `task(item)` for each item, run by the executor."""
    check_executor(executor)
    if executor is None or len(items) < 2 or executor == 1:
        return map(task, items)
    if isinstance(executor, HasMap):
        return iter(executor.map(task, items))

    from joblib import Parallel, delayed

    workers = min(executor if isinstance(executor, int) else usable_cores(), len(items))
    if executor == "threads" and workers > 1:
        task = partial(_in_thread, task)
    prefer = "threads" if executor == "threads" else "processes"
    parallel = Parallel(n_jobs=workers, prefer=prefer, return_as="generator")
    return iter(parallel(delayed(task)(item) for item in items))


def _in_thread(task: Callable[[Item], Result], item: Item) -> Result:
    """Run a task beside others: each keeps to its own core."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="openmp"):  # a limit of this thread
        return task(item)


@contextmanager
def _shared_filters() -> Iterator[None]:
    """Restore the warning filters after forests in threads: they set them at the same time, and warn of empty ones."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`sklearn.utils.parallel.delayed`", category=UserWarning)
        yield


@dataclass
class SklearnTrainer(Trainer):
    """Trains scikit-learn classifiers on the samples `x`, which the estimator must accept and which can be indexed."""

    x: Any
    estimator: Any
    classes: int
    executor: Any = None

    def train_and_score(self, jobs: Sequence[Job]) -> list[Scores]:
        from threadpoolctl import threadpool_limits

        # The matrices are small: threads of the linear algebra library wait for each other longer than they compute.
        filters = _shared_filters() if self.executor == "threads" else nullcontext()
        with threadpool_limits(1, user_api="blas"), filters:
            found = run_all(partial(train_and_score_one, self.x, self.estimator, self.classes), jobs, self.executor)
            answers = []
            for job, scores in zip(jobs, found, strict=True):
                answers.append(scores)
                if self.on_trained is not None:
                    self.on_trained(job)
            return answers


# ---------------------------------------------------------------- one more training, to predict new samples

# A label that is more likely wrong than right is not trained on. With 0.8, support vector machines are more accurate on
# tables, texts less (benchmarks/final-classifier.md). On a held-out part of banking77's training file with 30 % wrong
# labels, limits of 0.1, 0.3 and 0.5 and weights by probability below 0.5 have accuracies within 0.004
# (benchmarks/text-speed.md).
MOST_SUSPICION = 0.5
LEAST_WEIGHT = 0.1  # of a sample in a forest: no class is lost (benchmarks/final-classifier.md)
# In a support vector machine. With 0.1 it loses more by right labels that look wrong: benchmarks/final-pictures.md.
LEAST_KERNEL_WEIGHT = 0.5


def trusted_rows(suspicion: FloatArray, labels: IntArray) -> IntArray:
    """Return the samples whose labels are probably right; a class whose labels are all suspicious keeps them."""
    trusted = ~(suspicion > MOST_SUSPICION)
    lost = np.setdiff1d(labels, labels[trusted])
    return np.flatnonzero(trusted | np.isin(labels, lost))


def suspicion_weights(suspicion: FloatArray, least: float = LEAST_WEIGHT) -> FloatArray:
    """Return the weights of samples in a classifier that learns from all of them."""
    right = 1 - np.nan_to_num(suspicion, nan=0.0)
    return np.maximum(np.sqrt(np.maximum(right, 0.0)), least)


@dataclass(frozen=True)
class TrainingSet:
    """The samples that a classifier is trained on."""

    rows: IntArray
    weight: FloatArray | None = None  # of each of these samples; None: all count the same

    @classmethod
    def choose(cls, estimator: Any, labels: IntArray, selection: Selection) -> TrainingSet:
        """The trusted samples, or all samples with a weight of the square root of 1 - suspicion.

        Random forests (benchmarks/final-classifier.md) and support vector machines, which are those on edges
        (benchmarks/final-pictures.md), have weights: they average over many labels, so they lose more by missing right
        labels than by wrong ones. A machine in a pipeline, as for tables, was not measured. With protocol "paper"
        suspicion is not a probability: the selected samples are trusted.
        """
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.svm import SVC
        from sklearn.utils.validation import has_fit_parameter

        if selection.noise is None:
            return cls(trusted_rows(np.where(selection.selected, 0.0, 1.0), labels))
        least = {RandomForestClassifier: LEAST_WEIGHT, SVC: LEAST_KERNEL_WEIGHT}
        kind = next((kind for kind in least if isinstance(estimator, kind)), None)
        if kind is None or not has_fit_parameter(estimator, "sample_weight"):
            return cls(trusted_rows(selection.suspicion, labels))
        return cls(np.arange(len(labels)), suspicion_weights(selection.suspicion, least[kind]))

    def __str__(self) -> str:
        return counted(len(self.rows), "sample") + (
            ", suspicious ones with less weight" if self.weight is not None else ""
        )


@dataclass(frozen=True)
class Refit:
    """A classifier that was trained on the samples of a selection."""

    model: Any
    known: IntArray  # the class codes of its columns
    scale: float  # of its decision function, if it has no probabilities

    @classmethod
    def train(cls, estimator: Any, x: Any, labels: IntArray, samples: TrainingSet, seed: int) -> Refit:
        """Train a copy of `estimator`."""
        from threadpoolctl import threadpool_limits

        rows = samples.rows
        with threadpool_limits(1, user_api="blas"), np.errstate(invalid="ignore"):  # as for a selection
            model, known = fit(estimator, take(x, rows), labels[rows], seed, samples.weight)
            return cls(model, known, decision_scale(model, take(x, rows[:SCALE_SAMPLES]), known))

    def predict_proba(self, x: Any, classes: int) -> FloatArray:
        """Return the probability of each class for each sample, [n, classes]."""
        found = probabilities(self.model, x, self.known, scale=self.scale)
        full = np.zeros((len(found), classes))
        full[:, self.known] = found
        return full
