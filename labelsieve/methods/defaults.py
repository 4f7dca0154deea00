"""What a robust training takes where nobody says: its samples, batch size, epochs and learning rates.

The command line and RobustClassifier both take them from here. On a GPU the command line trains pictures as the paper
does: 200 epochs, with its rates.
"""

from __future__ import annotations

import numpy as np

from labelsieve.engine.schedule import Schedule
from labelsieve.types import BoolArray, IntArray

WORST_RATIO = 0.95  # an estimate of all noise would keep nothing
LEARNING_RATE = 5e-3  # of few epochs: five times the paper's


def auto_batch_size(samples: int) -> int:
    """128 as in the paper, less for small data so that an epoch has a few steps."""
    return int(np.clip(samples // 16, 32, 128))


def auto_epochs(samples: int, batch_size: int, *, pictures: bool = False) -> int:
    """20 epochs; more, up to 60, where they are so short that this makes few steps. Pictures take the most to learn."""
    return int(np.clip((640 if pictures else 160) // -(-samples // batch_size), 20, 60))


def training_sets(selected: BoolArray, candidate: BoolArray, given: IntArray) -> tuple[IntArray, IntArray]:
    """S and C of algorithm 3. A class of which nothing was selected would be lost: then all its samples are in S."""
    chosen = selected | np.isin(given, np.setdiff1d(given, given[selected]))
    return np.flatnonzero(chosen), np.flatnonzero(candidate & ~chosen)


def one_drop(epochs: int, rate: float = LEARNING_RATE) -> Schedule:
    """Adam, a tenth of the rate for the last quarter."""
    last = epochs * 3 // 4
    return Schedule(epochs, ((0, rate), (last, rate / 10)) if last else ((0, rate),))
