"""Defaults of a robust training: samples, batch size, epochs and learning rates.

The command line and RobustClassifier share them. On a GPU the command line trains pictures as in the paper: 200 epochs
with its learning rates.
"""

from __future__ import annotations

import numpy as np

from labelsieve.engine.schedule import Schedule
from labelsieve.types import BoolArray, IntArray

WORST_RATIO = 0.95  # limit of an estimated noise ratio: with 1.0 no sample would be used
LEARNING_RATE = 5e-3  # for few epochs; the paper's 1e-3 is for 200


def auto_batch_size(samples: int) -> int:
    """Return 128 as in the paper, or less for small data so that an epoch has several steps."""
    return int(np.clip(samples // 16, 32, 128))


def auto_epochs(samples: int, batch_size: int, *, pictures: bool = False) -> int:
    """Return 20 epochs, or up to 60 if epochs have few steps. Pictures need more steps than rows of numbers."""
    return int(np.clip((640 if pictures else 160) // -(-samples // batch_size), 20, 60))


def training_sets(selected: BoolArray, candidate: BoolArray, given: IntArray) -> tuple[IntArray, IntArray]:
    """Return S and C of algorithm 3. If no sample of a class was selected, all its samples are in S."""
    chosen = selected | np.isin(given, np.setdiff1d(given, given[selected]))
    return np.flatnonzero(chosen), np.flatnonzero(candidate & ~chosen)


def one_drop(epochs: int, rate: float = LEARNING_RATE) -> Schedule:
    """Return a schedule for Adam with a tenth of the rate in the last quarter."""
    last = epochs * 3 // 4
    return Schedule(epochs, ((0, rate), (last, rate / 10)) if last else ((0, rate),))
