"""Pictures as rows of numbers for quick classifiers: which way edges run in each part of them, and the colours there.

Histograms of oriented gradients: Dalal and Triggs, "Histograms of oriented gradients for human detection", CVPR 2005.
Two grids of cells, a fine and a coarse one, so that a few hundred pictures suffice to learn from; the number of columns
is the same for pictures of any size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.types import FloatArray

DIRECTIONS = 9
GRIDS, COLOUR_GRID = (8, 4), 4  # cells a side
MOST_SIDE = 64  # pixels: larger pictures are averaged down to less than twice that
STRONGEST = 0.2  # of one direction, so that a single line does not drown the rest
AT_ONCE = 256  # pictures in memory as numbers


def edge_features(pictures: Any) -> NDArray[np.float32]:
    """[n, height, width, channels] bytes, or what gives such slices, to [n, columns]."""
    blocks = [_features(np.asarray(pictures[start : start + AT_ONCE])) for start in range(0, len(pictures), AT_ONCE)]
    return np.concatenate(blocks)


def _features(pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
    n, height, width, channels = pictures.shape
    k = max(1, min(height, width) // MOST_SIDE)
    cut = pictures[:, : height // k * k, : width // k * k].reshape(n, height // k, k, width // k, k, channels)
    pixels = cut.mean(axis=(2, 4), dtype=np.float32) / 255
    down, right = np.gradient(pixels.mean(axis=3), axis=(1, 2))
    strength, angle = np.hypot(right, down), (np.arctan2(down, right) % np.pi) * (DIRECTIONS / np.pi)
    # A gradient counts for the two directions it lies between, by how near it is.
    half = DIRECTIONS / 2
    directed = np.stack(
        [strength * np.maximum(0, 1 - np.abs((angle - d + half) % DIRECTIONS - half)) for d in range(DIRECTIONS)],
        axis=3,
    )
    parts = [_normalised(_in_cells(directed, grid)).reshape(n, -1) for grid in GRIDS]
    return np.concatenate([*parts, cell_means(pixels, COLOUR_GRID).reshape(n, -1)], axis=1).astype(np.float32)


def cell_means(values: FloatArray, cells: int) -> FloatArray:
    """[n, height, width, channels]: means over such cells as `_in_cells` sums."""
    return _in_cells(values, cells) / _in_cells(np.ones_like(values[:1, :, :, :1]), cells)


def _in_cells(values: FloatArray, cells: int) -> FloatArray:
    """Sums over a grid of cells of nearly equal size, as many a side as there are pixels at most."""
    for axis in (1, 2):
        side = values.shape[axis]
        bounds = np.linspace(0, side, min(cells, side) + 1).round().astype(int)
        values = np.add.reduceat(values, bounds[:-1], axis=axis)
    return values


def _normalised(cells: FloatArray) -> FloatArray:
    """Every four neighbours by their common strength, so that bright and dull pictures are alike."""
    if min(cells.shape[1:3]) > 1:
        corners = (cells[:, :-1, :-1], cells[:, 1:, :-1], cells[:, :-1, 1:], cells[:, 1:, 1:])
        cells = np.concatenate(corners, axis=3)
    return np.asarray(np.minimum(cells / np.sqrt((cells**2).sum(axis=3, keepdims=True) + 1e-3), STRONGEST))
