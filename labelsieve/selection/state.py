"""The arguments of a selection, and its state after an iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.selection.noise_model import NoiseModel
from labelsieve.selection.settings import INCVSettings
from labelsieve.types import CANDIDATE, REMOVED, SELECTED, FloatArray, IntArray, ScoredVerdicts, Scores


@dataclass(frozen=True)
class Problem:
    """The arguments of a selection that every step needs."""

    given: IntArray
    classes: int
    settings: INCVSettings
    seed: int
    name: str = "incv"
    names: Sequence[Any] | None = None
    groups: IntArray | None = None

    def job_seeds(self, k: int, places: Sequence[int]) -> list[int]:
        """A seed for each training of iteration `k`, split by split; those of the first split never change."""
        splits = range(self.settings.repeats)
        return [job_seed(self.seed, k, place, *((s,) if s else ())) for s in splits for place in places]


def job_seed(seed: int, *place: int) -> int:
    """A seed for each training, the same wherever and whenever it runs."""
    return int(np.random.SeedSequence([seed, *place]).generate_state(1)[0] >> 1)


@dataclass(frozen=True)
class INCVState(ScoredVerdicts):
    """The state after `done` iterations. One entry per sample unless noted."""

    suspicion: FloatArray  # P(given label is wrong); without a noise model a mean that only ranks; nan before a score
    suggested_probability: FloatArray  # P(predicted label is the true one); nan without a noise model
    times_scored: NDArray[np.int16]  # number of held-out scores (protocol "paper")
    transition: FloatArray  # c x c, with the estimated noise ratio
    model: NoiseModel | None = None  # None for protocol "paper"
    mean: Scores | None = None  # of `averaged_over` held-out predictions of every sample (protocol "auto")
    averaged_over: int = 0
    usual_agreement: float = 0.0  # of the predictions of iteration 1 with the labels, above chance (protocol "auto")
    done: int = 0
    noise_ratio: float = float("nan")
    remove_ratio: float | None = None  # None: no limit
    best_until: int = 1
    stopped: bool = False
    history: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def start(cls, n: int, classes: int) -> INCVState:
        """Nothing is selected, every sample is a candidate."""
        unknown: dict[str, Any] = {
            name: np.full(n, np.nan)
            for name in ("probability", "confidence", "loss", "suspicion", "suggested_probability")
        }  # fmt: skip
        return cls(
            verdict=np.full(n, CANDIDATE, dtype=np.int8),
            iteration=np.zeros(n, dtype=np.int16),
            predicted=np.full(n, -1, dtype=np.int64),
            times_scored=np.zeros(n, dtype=np.int16),
            transition=np.eye(classes),
            **unknown,
        )

    def with_noise(
        self, settings: INCVSettings, ratio: float, transition: FloatArray, limit: float | None, notes: Sequence[str]
    ) -> INCVState:
        """Keep the noise that was found, and what follows from it: the limit of removals and the epochs that select."""
        return replace(
            self,
            noise_ratio=ratio,
            transition=transition,
            remove_ratio=limit,
            best_until=settings.best_until(ratio),
            notes=(*self.notes, *notes),
        )

    def with_verdicts(self, verdict: NDArray[np.int8]) -> INCVState:
        """The state after one more iteration with these verdicts; `iteration` changes where the verdict does."""
        k = self.done + 1
        iteration = np.where(verdict == self.verdict, self.iteration, k)
        iteration = np.where(verdict == CANDIDATE, 0, iteration).astype(np.int16)
        return replace(self, verdict=verdict, iteration=iteration, done=k)

    def stop(self, reason: str) -> INCVState:
        return replace(self, stopped=True, notes=(*self.notes, f"stopped after iteration {self.done}: {reason}"))

    def expected_precision(self) -> float:
        """The expected share of right labels among the selected ones, by the noise model."""
        return float(1 - np.mean(self.suspicion[self.selected])) if len(self.selected) else 0.0

    @property
    def selected(self) -> IntArray:
        return np.flatnonzero(self.verdict == SELECTED)

    @property
    def candidates(self) -> IntArray:
        return np.flatnonzero(self.verdict == CANDIDATE)

    @property
    def removed(self) -> IntArray:
        return np.flatnonzero(self.verdict == REMOVED)
