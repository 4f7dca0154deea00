"""How pictures are changed while a network learns from them: mirrored and shifted, shifted alone, or not at all.

Mirroring doubles what natural pictures teach, and takes away what tells classes apart that differ by left and right
(digits, arrows). `auto` looks at the pictures: has the nearest neighbour of a mirrored picture its label less often
than the nearest neighbour of the picture itself? Neighbours nearer than the mirrored picture's do not count, for they
may be copies: photographs taken in a row have each other, and their mirror images have nobody.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.edges import cell_means
from labelsieve.errors import InputError
from labelsieve.types import FloatArray, IntArray

MODES = ("auto", "mirror", "shift", "none")
MOST = 1_000  # pictures that are compared with each other
SIDE = 16  # pixels a side that are compared
CERTAIN = 4.0  # standard deviations: photographs and noise stay below 3, digits have 18 (tests/engine/test_augment.py)
AT_ONCE = 64  # pictures decoded at a time


class Mirrored(NamedTuple):
    """Share of neighbours with the same label, of pictures and of mirrored ones, and how sure the difference is."""

    plain: float
    mirrored: float
    deviations: float

    @property
    def harms(self) -> bool:
        return self.deviations >= CERTAIN


def check_augment(mode: str) -> None:
    if mode not in MODES:
        raise InputError(f"augment {mode!r} is not known: choose {', '.join(MODES[:-1])} or {MODES[-1]}")


def mirror_test(pictures: Any, labels: IntArray, among: IntArray) -> Mirrored:
    """`pictures`: uint8 [n, height, width, channels], or what gives such blocks; `among`: those that are looked at."""
    chosen = np.sort(np.random.default_rng(0).permutation(among)[:MOST])
    if len(chosen) < 2:
        return Mirrored(0.0, 0.0, 0.0)
    small = shrunk(pictures, chosen)
    rows, turned = directions(small), directions(small[:, :, ::-1])
    between, across = 1 - rows @ rows.T, 1 - turned @ rows.T
    for distances in (between, across):
        np.fill_diagonal(distances, np.inf)
    between[between < across.min(axis=1, keepdims=True)] = np.inf
    given = labels[chosen]
    plain, mirrored = given[between.argmin(axis=1)] == given, given[across.argmin(axis=1)] == given
    lost, won = int((plain & ~mirrored).sum()), int((mirrored & ~plain).sum())
    # McNemar's test: pictures that agree both ways, or neither way, say nothing.
    return Mirrored(float(plain.mean()), float(mirrored.mean()), (lost - won) / max(1, lost + won) ** 0.5)


def shrunk(pictures: Any, chosen: IntArray) -> NDArray[np.float32]:
    """Averages over a grid of at most SIDE x SIDE cells."""
    starts = range(0, len(chosen), AT_ONCE)
    blocks = (np.asarray(pictures[chosen[at : at + AT_ONCE]]).astype(np.float32) for at in starts)
    return np.concatenate([cell_means(block, SIDE) for block in blocks]).astype(np.float32, copy=False)


def directions(small: FloatArray) -> NDArray[np.float32]:
    """Rows of length 1 around 0, so that bright and dull pictures of the same are alike."""
    rows = small.reshape(len(small), -1).astype(np.float32)
    rows -= rows.mean(axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6))
