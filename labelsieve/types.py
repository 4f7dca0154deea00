"""Data types that the packages share. They are small and frozen and need numpy only.

    source --LabelledData--> selection --Selection--> robust training --> report --> review

None of them contains true labels (CONTRIBUTING.md says which modules use them).
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch
    from torch import Tensor

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]

Kind = Literal["pictures", "table", "text"]

# Codes of `Selection.verdict`; the names are what labels.csv shows.
CANDIDATE, SELECTED, REMOVED = 0, 1, 2
VERDICTS = ("candidate", "selected", "removed")


class Samples(ABC):
    """Samples that are more than an array, such as pictures on disk or an encoded table."""

    @abstractmethod
    def subset(self, index: IntArray) -> Self:
        """Return the samples with these indices."""


def some_of(x: Any, index: IntArray) -> Any:
    """Return the samples with these indices, of any kind of samples."""
    return x.subset(index) if isinstance(x, Samples) else x[index]


def evenly_spaced(count: int, most: int) -> IntArray:
    """Return `most` of the indices 0 to `count` - 1, evenly spaced; all of them if there are no more."""
    return np.unique(np.linspace(0, max(count - 1, 0), min(most, count)).astype(np.int64))


class Skipped(NamedTuple):
    """A sample that is not used, and the reason, such as an unreadable file or a missing label."""

    id: str
    reason: str


@dataclass(frozen=True)
class LabelledData:
    """Samples in input order. `y` holds codes, positions in `classes`, which has the class names of the source."""

    x: Any
    y: IntArray
    classes: tuple[Any, ...]
    ids: NDArray[np.str_]
    kind: Kind
    name: str = "data"
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()  # for the user
    groups: IntArray | None = None  # code per sample; samples with equal codes are never on both sides of a split
    equal_files: IntArray | None = None  # code per sample, equal if the files of the samples have equal bytes
    why_unknown: WhyUnknown | None = None  # why no classifier can estimate the noise of these labels
    embedding: Any = None  # rows of numbers that a pretrained model computed from the samples
    duplicates: IntArray | None = None  # position of the first sample that equals or nearly equals each sample
    outlier: BoolArray | None = None  # whether a sample is far from all others; None without an embedding

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: IntArray) -> LabelledData:
        """Return these samples, in this order."""
        arrays = {name: getattr(self, name) for name in ("y", "ids", "groups", "equal_files")}
        taken = {name: array[rows] for name, array in arrays.items() if array is not None}
        return replace(self, x=some_of(self.x, rows), **taken)

    def features(self) -> LabelledData:
        """Return the data as a model reads it: its embeddings as a table, or the samples themselves."""
        return self if self.embedding is None else replace(self, x=self.embedding, kind="table", embedding=None)


@dataclass(frozen=True)
class Job:
    """One training for the selection: train on some samples, score others.

    `labels` are the codes of the given labels of all samples; `train` and `score` are indices. With `keep_best` the
    epoch that agrees best with the given labels of the scored samples is used, otherwise the last one. An epoch reads
    at least `epoch_samples` samples: fewer are repeated, so that a small `train` is not a shorter training. A trainer
    without epochs ignores both.
    """

    name: str
    labels: IntArray
    train: IntArray
    score: IntArray
    seed: int
    keep_best: bool = False
    epoch_samples: int = 0

    def digest(self) -> str:
        """Return a short hash of everything that the scores depend on, apart from the samples and the model."""
        found = hashlib.sha256(json.dumps([self.name, self.seed, self.keep_best, self.epoch_samples]).encode())
        for indices in (self.labels, self.train, self.score):
            found.update(np.ascontiguousarray(indices, dtype="<i8").tobytes())
        return found.hexdigest()[:16]


AUGMENT = ("auto", "mirror", "shift", "none")  # how pictures are augmented in training
TOP_CLASSES = 4  # classes stored per sample: nearly as good an average as all classes, in O(n) memory


@dataclass(frozen=True)
class Scores:
    """The scores of a training for the samples in `Job.score`, in that order. They take O(n) memory, not n x c.

    `top_classes` are the most probable classes of a sample, the predicted one first, and `top_probs` their
    probabilities, both [samples, at most TOP_CLASSES]. Without them only the predicted class is used.
    """

    predicted: IntArray
    probability: FloatArray  # of the given label
    confidence: FloatArray  # of the predicted label
    loss: FloatArray  # cross-entropy of the given label
    top_classes: NDArray[np.integer[Any]] | None = None
    top_probs: FloatArray | None = None

    def numbers(self) -> dict[str, Any]:
        """The arrays with one number per sample, by name."""
        return {name: getattr(self, name) for name in ("predicted", "probability", "confidence", "loss")}

    def arrays(self) -> dict[str, Any]:
        """The arrays that are not None, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def sha256(self) -> str:
        """A hash of all arrays."""
        found = hashlib.sha256()
        for name, value in self.arrays().items():
            found.update(name.encode() + np.ascontiguousarray(value).tobytes())
        return found.hexdigest()

    def take(self, rows: IntArray | slice) -> Scores:
        return Scores(**{name: value[rows] for name, value in self.arrays().items()})

    @staticmethod
    def concatenate(parts: Sequence[Scores]) -> Scores:
        """Concatenate scores. Arrays that one of the parts does not have are left out."""
        names = [name for name in parts[0].arrays() if all(name in part.arrays() for part in parts)]
        return Scores(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


class Trainer(ABC):
    """Runs the trainings that a selection asks for: scikit-learn classifiers, networks, or tasks of a cluster.

    `train_and_score` receives all jobs that may run at the same time, so that a trainer can run them together. The
    other methods do nothing unless a trainer has a use for them.
    """

    epochs: int = 0  # of each training; 0 if the models have none
    on_gpu: bool = False  # the trainings run on a GPU
    on_epoch: Callable[[dict[str, Any]], None] | None = None  # receives the state of the trainings after each epoch
    on_trained: Callable[..., None] | None = None  # receives each job when it is done, if the models have no epochs
    on_history: Callable[[list[dict[str, Any]]], None] | None = None  # receives the history lines of finished trainings

    @abstractmethod
    def train_and_score(self, jobs: Sequence[Job]) -> list[Scores]:
        """Train one model per job and return its scores, in the order of the jobs."""

    def checkpoint_every_epoch(self) -> None:  # noqa: B027
        """Write a checkpoint after every epoch, so that a lost process repeats at most one."""


class Store(ABC):
    """The samples of a data set, from which training and scoring read batches.

    A code says how a sample is augmented. A store has `codes` of them, numbered from 0; the upper half are the mirrored
    ones if `mirrors` is true. The code `plain` changes nothing.
    """

    device: torch.device
    shape: tuple[int, ...]  # of one sample as a network sees it, channels first
    codes: int = 1
    plain: int = 0
    mirrors: bool = False
    averages_views: bool = False  # set it to average over two views in scoring, if pictures of one size are mirrored
    scale: Tensor | None = None  # per channel of pictures: a batch holds pixel * scale + offset, pixel is 0 to 255
    offset: Tensor | None = None
    centre: Tensor | None = None  # the mean row, if the samples are rows of numbers
    streams: bool = False  # batches come from the host, so that a CUDA graph cannot capture a step

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples."""

    @abstractmethod
    def batch(self, index: Tensor, code: Tensor) -> Tensor:
        """Return the samples index [n, B], augmented by code [n, B], as [B, n * channels, ...]."""

    @property
    def views(self) -> tuple[int, ...]:
        """The codes that scoring averages over."""
        return (self.plain,)

    @property
    def nbytes(self) -> int:
        """Bytes of the samples that are held in memory; 0 if they stay on disk."""
        return 0

    def expect(self, index_batches: Iterable[Any], code_batches: Iterable[Any]) -> None:  # noqa: B027
        """Receive the batches that training will ask for next, so that a streaming store can read ahead."""

    def disable_mirroring(self) -> None:
        """Stop mirroring samples."""
        if self.mirrors:
            self.codes //= 2
            self.mirrors = False


class Trust(StrEnum):
    """How far to trust a noise estimate. Each level is defined by a measured error (benchmarks/real-noise.md)."""

    TRUSTWORTHY = "trustworthy"  # the ratio is off by less than 0.03 in at least 95 % of the measured cases
    FAIR = "fair"  # read the interval, not the ratio alone
    ROUGH = "rough"  # the interval is wide: noise and the classifier's own errors cannot be separated
    UNKNOWN = "unknown"  # the predictions say nothing about the labels; `why_unknown` says why


class WhyUnknown(StrEnum):
    """Why a noise estimate says nothing."""

    RANDOM = "random"  # predictions agree with the labels no more often than by chance
    LEAK = "leak"  # a column repeats the given labels, wrong ones included, so every classifier agrees with them
    OUTCOME = "outcome"  # equal cases end differently: a label that differs from a good prediction need not be wrong


@dataclass(frozen=True)
class NoiseEstimate:
    """How many labels are wrong and which classes are confused: the result of `selection/noise_model.py`."""

    ratio: float  # share of wrong labels
    low: float  # 95 % interval of `ratio`
    high: float
    trust: Trust
    why_unknown: WhyUnknown | None = None
    explanation: str = ""  # one sentence for people; code must not depend on its wording
    classifier_error: float = float("nan")  # share of samples that the held-out predictions get wrong
    transition: FloatArray = field(default_factory=lambda: np.empty((0, 0)))  # rows: true classes, sum to 1
    prior: FloatArray = field(default_factory=lambda: np.empty(0))  # share of each true class
    surest_limit: float = 1.0  # most wrong labels among the surest predictions, if it was measured (weak classifiers)

    @property
    def known(self) -> bool:
        """Whether the ratio and the interval say anything."""
        return self.trust is not Trust.UNKNOWN

    def record(self) -> dict[str, Any]:
        """The scalar fields, for JSON."""
        found = {name: str(value) if isinstance(value, str) else value for name, value in vars(self).items()}
        error = None if np.isnan(self.classifier_error) else self.classifier_error
        del found["transition"], found["prior"]
        return found | {"classifier_error": error, "known": self.known}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> NoiseEstimate:
        """Read `record()` back.

        If the file was changed by hand, a trust level that does not exist counts as rough, and a value that is not
        a proportion as unknown.
        """
        trust = next((level for level in Trust if level == record.get("trust")), Trust.ROUGH)
        why = next((reason for reason in WhyUnknown if reason == record.get("why_unknown")), None)
        if trust is Trust.UNKNOWN and why is None:
            why = WhyUnknown.RANDOM

        def number(key: str, default: float = float("nan")) -> float:
            value = record.get(key)
            return float(value) if isinstance(value, int | float) and abs(value) <= 1 else default

        ratio, low, high, error = map(number, ("ratio", "low", "high", "classifier_error"))
        text, limit = str(record.get("explanation", "")), number("surest_limit", 1.0)
        return cls(ratio, low, high, trust, why, text, error, surest_limit=limit)

    @classmethod
    def of_history(cls, history: object) -> NoiseEstimate | None:
        """The last estimate in the history of a selection; None if it has none (protocol "paper", a changed file)."""
        lines = history if isinstance(history, list | tuple) else []
        records = [line.get("estimate") for line in lines if isinstance(line, Mapping)]
        return next((cls.from_record(record) for record in reversed(records) if isinstance(record, Mapping)), None)


@dataclass(frozen=True)
class ScoredVerdicts:
    """The verdicts on the samples in input order, and their held-out scores.

    The scores are the mean over all iterations, or the last ones with protocol "paper". They are -1 and NaN if a sample
    was never scored. `iteration` is the one since which the verdict holds, 0 for a candidate.
    """

    verdict: NDArray[np.int8]
    iteration: NDArray[np.int16]
    predicted: IntArray
    probability: FloatArray
    confidence: FloatArray
    loss: FloatArray


# A label that is likely wrong gets no suggestion if the predicted class has less than this share of the wrong cases:
# the sample may belong to none of the classes (the Roman numerals of benchmarks/real-noise.md).
LEAST_SUGGESTED_SHARE = 0.5


def fits_no_class(suspicion: FloatArray, suggested_probability: FloatArray) -> BoolArray:
    """Whether labels are likely wrong and the suggestion is not likely either; False if a probability is nan."""
    return np.asarray((suspicion > 0.5) & (suggested_probability < LEAST_SUGGESTED_SHARE * suspicion))


@dataclass(frozen=True)
class Selection(ScoredVerdicts):
    """The result of a selection, one entry per sample in input order.

    If predicted and given label differ, the predicted one is the suggestion. `suggested_probability`, the probability
    that the predicted label is the true one, is nan if nothing was estimated (protocol "paper"); `suspicion` is then
    the plain mean over a sample's scores.
    """

    suspicion: FloatArray
    noise_ratio: float
    transition_matrix: FloatArray
    expected_precision: float  # of the selected set: 1 - its noise ratio
    expected_recall: float
    history: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = field(default=())
    suggested_probability: FloatArray = field(default_factory=lambda: np.array(np.nan))

    @property
    def selected(self) -> BoolArray:
        return np.asarray(self.verdict == SELECTED)

    @property
    def candidate(self) -> BoolArray:
        return np.asarray(self.verdict == CANDIDATE)

    @property
    def removed(self) -> BoolArray:
        return np.asarray(self.verdict == REMOVED)

    @property
    def noise(self) -> NoiseEstimate | None:
        """The noise estimate without its matrices; None if the selection made none (protocol "paper")."""
        return NoiseEstimate.of_history(self.history)

    @property
    def noise_known(self) -> bool:
        """Whether the noise ratio and the expected precision say anything; a ratio is always given."""
        return self.noise is None or self.noise.known

    def is_suspect(self, given: IntArray) -> BoolArray:
        """Samples with another label to consider, the predicted one: the suspects, selected or not."""
        return np.asarray((self.predicted >= 0) & (self.predicted != given))

    def no_class(self, given: IntArray) -> BoolArray:
        """Suspects that may belong to none of the classes; none without a posterior (protocol "paper")."""
        return self.is_suspect(given) & fits_no_class(self.suspicion, self.suggested_probability)
