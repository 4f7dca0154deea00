"""Whether mirroring pictures in training changes their labels.

Mirroring helps with natural pictures, but classes such as digits and arrows differ by left and right. The test compares
nearest neighbours: does the neighbour of a mirrored picture have its label less often than the neighbour of the picture
itself? Neighbours that are nearer than the nearest one of the mirrored picture are ignored: photographs taken in a row
are neighbours of each other, but not of their mirror images.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.edges import cell_means
from labelsieve.errors import InputError
from labelsieve.types import AUGMENT, FloatArray, IntArray

MOST_COMPARED = 1_000  # pictures
GRID = 16  # cells per side that are compared
HARMFUL_DEVIATIONS = 4.0  # photographs and noise stay below 3, digits have 18: tests/engine/test_augment.py
DECODED_AT_ONCE = 64  # pictures


class Mirrored(NamedTuple):
    """Share of neighbours with the same label, for pictures and for mirrored ones, and the deviations between them."""

    plain: float
    mirrored: float
    deviations: float

    @property
    def harms(self) -> bool:
        return self.deviations >= HARMFUL_DEVIATIONS


def check_augment(mode: str) -> None:
    if mode not in AUGMENT:
        raise InputError(f"unknown augment {mode!r}; choose {', '.join(AUGMENT[:-1])} or {AUGMENT[-1]}")


def mirror_test(pictures: Any, labels: IntArray, among: IntArray) -> Mirrored:
    """Compare up to 1,000 of the pictures `among`; `pictures` is uint8 [n, height, width, channels] or a sequence."""
    chosen = np.sort(np.random.default_rng(0).permutation(among)[:MOST_COMPARED])
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
    # McNemar's test: only pictures that agree in one of the two ways count.
    return Mirrored(float(plain.mean()), float(mirrored.mean()), (lost - won) / max(1, lost + won) ** 0.5)


def shrunk(pictures: Any, chosen: IntArray) -> NDArray[np.float32]:
    """Averages over a grid of at most GRID x GRID cells."""
    starts = range(0, len(chosen), DECODED_AT_ONCE)
    blocks = (np.asarray(pictures[chosen[at : at + DECODED_AT_ONCE]]).astype(np.float32) for at in starts)
    return np.concatenate([cell_means(block, GRID) for block in blocks]).astype(np.float32, copy=False)


def directions(small: FloatArray) -> NDArray[np.float32]:
    """Centred rows of length 1, so that brightness and contrast do not matter."""
    rows = small.reshape(len(small), -1).astype(np.float32)
    rows -= rows.mean(axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6))
