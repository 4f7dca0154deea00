"""The few things that walk between the rooms: small, frozen, numpy only.

    source --LabelledData--> selection --Selection--> robust training --> report --> review

True labels are in none of them (CONTRIBUTING.md says where those are).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]

Kind = Literal["pictures", "table", "text"]

# Codes of `Selection.verdict`; the names are what labels.csv shows.
CANDIDATE, SELECTED, REMOVED = 0, 1, 2
VERDICTS = ("candidate", "selected", "removed")


class Skipped(NamedTuple):
    """A sample that is left out, and why (it cannot be read, has no label, no text): it never stops a run."""

    id: str
    reason: str


@dataclass(frozen=True)
class LabelledData:
    """Samples in input order. `y` holds codes into `classes`, which keeps the users' own names."""

    x: Any
    y: IntArray
    classes: tuple[Any, ...]
    ids: NDArray[np.str_]
    kind: Kind
    name: str = "data"
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()  # what is odd about it
    groups: IntArray | None = None  # one code a sample; those with the same are never on both sides of a split

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Job:
    """One training that selection asks for: train on these, score those.

    `labels` are the given labels (codes) of *all* samples; `train` and `score` index into them.
    With `keep_best` the epoch with the best agreement on the scored samples' given labels does the
    scoring, otherwise the last one; a trainer without epochs ignores it.
    """

    name: str
    labels: IntArray
    train: IntArray
    score: IntArray
    seed: int
    keep_best: bool = False


LEADERS = 4  # classes a look keeps of each sample: nearly as good an average as all of them, in O(n)


@dataclass(frozen=True)
class Scores:
    """What a training says of each sample in `Job.score`, in that order: O(n), never n x c.

    `leaders` are a sample's likeliest classes, the predicted one first, and `shares` their probabilities, both
    [samples, at most LEADERS]; a trainer that does not tell them is taken at its predicted class alone.
    """

    predicted: IntArray
    probability: FloatArray  # of the given label
    confidence: FloatArray  # of the predicted label
    loss: FloatArray  # cross-entropy of the given label
    leaders: NDArray[np.integer[Any]] | None = None
    shares: FloatArray | None = None

    def arrays(self) -> dict[str, Any]:
        """What it holds, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def sha256(self) -> str:
        """What they are known by."""
        found = hashlib.sha256()
        for name, value in self.arrays().items():
            found.update(name.encode() + np.ascontiguousarray(value).tobytes())
        return found.hexdigest()

    def take(self, rows: IntArray | slice) -> Scores:
        return Scores(**{name: value[rows] for name, value in self.arrays().items()})

    @staticmethod
    def joined(parts: Sequence[Scores]) -> Scores:
        """One after the other; what some part lacks is left out."""
        names = [name for name in parts[0].arrays() if all(name in part.arrays() for part in parts)]
        return Scores(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


class Trainer(Protocol):
    """Answers trainings: a scikit-learn classifier, a torch network, many GPUs, a cluster.

    It is handed every job that may run at the same time, so that it can run them in lockstep.
    """

    def train_and_score(self, jobs: Sequence[Job]) -> list[Scores]: ...


@dataclass(frozen=True)
class Selection:
    """What selection found, one entry a sample in input order.

    `predicted`, `probability`, `confidence` and `loss` are the last held-out scores a sample got
    (-1 and nan where it never got any); `iteration` is when its verdict fell (0: still candidate).
    """

    verdict: NDArray[np.int8]
    iteration: NDArray[np.int16]
    predicted: IntArray
    probability: FloatArray
    confidence: FloatArray
    loss: FloatArray
    suspicion: FloatArray
    noise_ratio: float
    transition_matrix: FloatArray
    expected_precision: float  # of the selected set: 1 - its noise ratio
    expected_recall: float
    history: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = field(default=())

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
    def noise_known(self) -> bool:
        """Whether the noise ratio, and what is expected of the selected, say anything; a ratio there is in any case,
        for whoever must reckon with one."""
        estimate = self.history[0].get("estimate", {}) if self.history else {}
        return bool(estimate.get("known", True))

    def doubted(self, given: IntArray) -> BoolArray:
        """Samples with another label to consider, the predicted one: the suspects."""
        return np.asarray((self.predicted >= 0) & (self.predicted != given) & (self.verdict != SELECTED))
