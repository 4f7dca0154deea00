"""Where INCV stands after an iteration: everything needed to take it up again, as arrays and plain JSON."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.errors import InputError
from labelsieve.types import CANDIDATE, REMOVED, SELECTED, FloatArray, IntArray

NOT_JUDGED = "its labels are not judged"  # in the note on a class, by which the pages know it again


@dataclass(frozen=True)
class INCVState:
    """After `done` iterations. One entry a sample unless noted."""

    verdict: NDArray[np.int8]
    iteration: NDArray[np.int16]
    predicted: IntArray
    probability: FloatArray
    confidence: FloatArray
    loss: FloatArray
    suspicion: FloatArray  # mean over the held-out looks a sample got; nan before the first
    looks: NDArray[np.int16]
    wrong: FloatArray  # P(given label is wrong) as iteration 1 judges it (`calibrate`); nan where it does not
    share: FloatArray  # P(predicted label is the true one | given label is wrong); nan where `wrong` is
    transition: FloatArray  # c x c
    left: FloatArray  # c x c: candidates by true class (estimated) and given label
    kept: FloatArray  # the same of the selected
    done: int = 0
    noise_ratio: float = float("nan")
    right: float = 0.0  # expected number of right labels among the selected
    precision_cap: float = 1.0  # proposition 2, where there are too many classes for more
    remove_ratio: float = 0.0
    best_until: int = 1
    unmixes: bool = False  # whether undoing the noise in the networks' predictions helped in iteration 1
    stopped: bool = False
    history: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def start(cls, n: int, classes: int) -> INCVState:
        """Nothing selected, everything candidate."""
        return cls(
            verdict=np.full(n, CANDIDATE, dtype=np.int8),
            iteration=np.zeros(n, dtype=np.int16),
            predicted=np.full(n, -1, dtype=np.int64),
            probability=np.full(n, np.nan),
            confidence=np.full(n, np.nan),
            loss=np.full(n, np.nan),
            suspicion=np.full(n, np.nan),
            looks=np.zeros(n, dtype=np.int16),
            wrong=np.full(n, np.nan),
            share=np.full(n, np.nan),
            transition=np.eye(classes),
            left=np.zeros((classes, classes)),
            kept=np.zeros((classes, classes)),
        )

    @property
    def selected(self) -> IntArray:
        return np.flatnonzero(self.verdict == SELECTED)

    @property
    def candidates(self) -> IntArray:
        return np.flatnonzero(self.verdict == CANDIDATE)

    @property
    def removed(self) -> IntArray:
        return np.flatnonzero(self.verdict == REMOVED)

    @property
    def unjudged(self) -> NDArray[np.bool_]:
        """Labels of classes that are too rare to be learnt, where the others were judged."""
        unknown = np.isnan(self.wrong)
        return unknown & (not unknown.all())

    def to_arrays(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """(arrays, JSON-able rest)."""
        arrays: dict[str, NDArray[Any]] = {}
        meta: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, np.ndarray):
                arrays[f.name] = value
            else:
                meta[f.name] = list(value) if isinstance(value, tuple) else value
        if np.isnan(self.noise_ratio):
            meta["noise_ratio"] = None  # JSON has no NaN
        return arrays, meta

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> INCVState:
        """The state that `to_arrays` took apart."""
        missing = {f.name for f in fields(cls)} - set(arrays) - set(meta)
        if missing:
            raise InputError(f"the stored state of the selection lacks {', '.join(sorted(missing))}; start it anew")
        rest = {**meta, "history": tuple(meta["history"]), "notes": tuple(meta["notes"])}
        if rest["noise_ratio"] is None:
            rest["noise_ratio"] = float("nan")
        values: dict[str, Any] = {f.name: arrays[f.name] if f.name in arrays else rest[f.name] for f in fields(cls)}
        return cls(**values)
