"""The state of INCV after an iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.selection.noise_model import NoiseModel
from labelsieve.types import CANDIDATE, REMOVED, SELECTED, FloatArray, IntArray, ScoredVerdicts


@dataclass(frozen=True)
class INCVState(ScoredVerdicts):
    """The state after `done` iterations. One entry per sample unless noted."""

    order: FloatArray  # ranks the labels, most suspicious last: mean over a sample's held-out scores, nan before them
    looks: NDArray[np.int16]  # number of held-out scores
    wrong: FloatArray  # P(given label is wrong), mean over the scores; nan without a noise model
    predicted_right: FloatArray  # P(predicted label is the true one | given label is wrong)
    transition: FloatArray  # c x c, with the estimated noise ratio
    model: NoiseModel | None = None  # of iteration 1; None for protocol "paper"
    done: int = 0
    noise_ratio: float = float("nan")
    remove_ratio: float = 0.0
    best_until: int = 1
    stopped: bool = False
    history: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def start(cls, n: int, classes: int) -> INCVState:
        """Nothing is selected, every sample is a candidate."""
        names = ("probability", "confidence", "loss", "order", "wrong", "predicted_right")
        unknown: dict[str, Any] = {name: np.full(n, np.nan) for name in names}
        return cls(
            verdict=np.full(n, CANDIDATE, dtype=np.int8),
            iteration=np.zeros(n, dtype=np.int16),
            predicted=np.full(n, -1, dtype=np.int64),
            looks=np.zeros(n, dtype=np.int16),
            transition=np.eye(classes),
            **unknown,
        )

    def expected_precision(self) -> float:
        """The expected share of right labels among the selected ones."""
        return float(1 - np.mean(self.wrong[self.selected])) if len(self.selected) else 0.0

    @property
    def selected(self) -> IntArray:
        return np.flatnonzero(self.verdict == SELECTED)

    @property
    def candidates(self) -> IntArray:
        return np.flatnonzero(self.verdict == CANDIDATE)

    @property
    def removed(self) -> IntArray:
        return np.flatnonzero(self.verdict == REMOVED)
