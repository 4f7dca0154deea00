"""Features of pictures for fast classifiers: the directions of edges and the colours in each part of a picture.

Histograms of oriented gradients: Dalal and Triggs, "Histograms of oriented gradients for human detection", CVPR 2005.
There are two grids of cells, a fine and a coarse one, so that a few hundred pictures are enough to learn from. The
number of columns is the same for pictures of any size. Pictures are read in chunks, so that any number of them fits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.pictures import PictureSequence
from labelsieve.types import FloatArray, evenly_spaced

DIRECTIONS = 9  # bins of 20 degrees (Dalal and Triggs)
GRIDS, COLOUR_GRID = (8, 4), 4  # cells per side: a few hundred pictures are enough (benchmarks/few-pictures.md)
MAX_SIDE = 64  # pixels: larger pictures are averaged down to less than twice that
MAX_STRENGTH = 0.2  # of one direction, so that a single line does not hide the rest (Dalal and Triggs)
AT_ONCE = 256  # pictures in memory as numbers
# Above this number of pictures their rows are projected on the first principal components: 0.5 kB per picture instead
# of 8.5 kB, with the same accuracy: benchmarks/edges-classifiers.md.
FULL_ROWS, COMPONENTS = 5_000, 128


Pictures = NDArray[np.uint8] | PictureSequence  # [n, height, width, channels]


@dataclass(frozen=True)
class EdgeFeatures:
    """How pictures become rows: learned from the training pictures, used for new ones."""

    mean: NDArray[np.float32] | None = None  # of the columns, if the rows are projected
    components: NDArray[np.float32] | None = None  # [columns, components]

    @classmethod
    def learn(cls, pictures: Pictures) -> EdgeFeatures:
        """Learn mean and principal components from `FULL_ROWS` pictures, evenly spread, if there are more of them."""
        if len(pictures) <= FULL_ROWS:
            return cls()
        from sklearn.decomposition import PCA

        chosen = evenly_spaced(len(pictures), FULL_ROWS)
        blocks = [_features(np.asarray(pictures[chosen[at : at + AT_ONCE]])) for at in range(0, len(chosen), AT_ONCE)]
        pca = PCA(COMPONENTS, svd_solver="randomized", random_state=0).fit(np.concatenate(blocks))
        scale = np.sqrt(pca.explained_variance_.mean())  # rows with a variance of 1 suit the default width of kernels
        return cls(pca.mean_.astype(np.float32), (pca.components_.T / scale).astype(np.float32))

    def rows(self, pictures: Pictures) -> NDArray[np.float32]:
        """Return the features of pictures as [n, columns]."""
        starts = range(0, len(pictures), AT_ONCE)
        return np.concatenate([self._chunk(np.asarray(pictures[at : at + AT_ONCE])) for at in starts])

    def _chunk(self, pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
        rows = _features(pictures)
        if self.mean is None or self.components is None:
            return rows
        return np.asarray((rows - self.mean) @ self.components)


def count_columns(channels: int, height: int, width: int) -> int:
    """Return the number of features of a picture, before they are projected."""
    cells = [(min(grid, height), min(grid, width)) for grid in GRIDS]
    blocks = sum(4 * (down - 1) * (right - 1) if min(down, right) > 1 else down * right for down, right in cells)
    return DIRECTIONS * blocks + min(COLOUR_GRID, height) * min(COLOUR_GRID, width) * channels


def _features(pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
    n, height, width, channels = pictures.shape
    k = max(1, min(height, width) // MAX_SIDE)
    cut = pictures[:, : height // k * k, : width // k * k].reshape(n, height // k, k, width // k, k, channels)
    pixels = cut.mean(axis=(2, 4), dtype=np.float32) / 255
    down, right = np.gradient(pixels.mean(axis=3), axis=(1, 2))
    strength, angle = np.hypot(right, down), (np.arctan2(down, right) % np.pi) * (DIRECTIONS / np.pi)
    # A gradient counts for the two nearest directions, weighted by distance.
    half = DIRECTIONS / 2
    directed = np.stack(
        [strength * np.maximum(0, 1 - np.abs((angle - d + half) % DIRECTIONS - half)) for d in range(DIRECTIONS)],
        axis=3,
    )
    parts = [_normalised(_in_cells(directed, grid)).reshape(n, -1) for grid in GRIDS]
    return np.concatenate([*parts, cell_means(pixels, COLOUR_GRID).reshape(n, -1)], axis=1).astype(np.float32)


def cell_means(values: FloatArray, cells: int) -> FloatArray:
    """Return the means of values [n, height, width, channels] over a grid of cells."""
    return _in_cells(values, cells) / _in_cells(np.ones_like(values[:1, :, :, :1]), cells)


def _in_cells(values: FloatArray, cells: int) -> FloatArray:
    """Return the sums over a grid of cells of nearly equal size, at most one cell per pixel."""
    for axis in (1, 2):
        side = values.shape[axis]
        bounds = np.linspace(0, side, min(cells, side) + 1).round().astype(int)
        values = np.add.reduceat(values, bounds[:-1], axis=axis)
    return values


def _normalised(cells: FloatArray) -> FloatArray:
    """Divide every four neighbours by their common strength, so that the brightness of a picture does not matter."""
    if min(cells.shape[1:3]) > 1:
        corners = (cells[:, :-1, :-1], cells[:, 1:, :-1], cells[:, :-1, 1:], cells[:, 1:, 1:])
        cells = np.concatenate(corners, axis=3)
    return np.asarray(np.minimum(cells / np.sqrt((cells**2).sum(axis=3, keepdims=True) + 1e-3), MAX_STRENGTH))
