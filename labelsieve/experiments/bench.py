"""The pictures an experiment runs on, and the labels it gives them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve import noise as corruption
from labelsieve.engine import PictureStore, stage_pictures
from labelsieve.errors import InputError
from labelsieve.experiments.cells import Cell
from labelsieve.experiments.records import digest
from labelsieve.types import IntArray

CORRUPTION, HALVES = 1, 2  # streams of a seed's random numbers


@dataclass(frozen=True)
class Bench:
    """`true` corrupts and measures, nothing else; the test labels are asked for by `evaluate` alone."""

    pictures: NDArray[np.uint8]
    true: IntArray
    test_pictures: NDArray[np.uint8]
    _test_labels: IntArray = field(repr=False)
    class_names: tuple[str, ...]
    name: str

    @property
    def classes(self) -> int:
        return len(self.class_names)

    def test_labels(self) -> IntArray:
        return self._test_labels

    @cached_property
    def digest(self) -> str:
        return digest(self.pictures, self.test_pictures)

    def open_store(self, device: str) -> PictureStore:
        return stage_pictures(self.pictures, device, augment=True)

    def thumbnails(self, indices: NDArray[Any]) -> NDArray[np.uint8]:
        return np.asarray(self.pictures[indices])

    def given(self, cell: Cell) -> IntArray:
        """The labels a cell trains on: the same for every method at that noise and seed."""
        if cell.noise.pattern == "none" or cell.noise.ratio == 0:
            return self.true.copy()
        rng = np.random.default_rng([cell.seed, CORRUPTION])
        return np.asarray(corruption.corrupt(self.true, cell.noise.transition(self.classes), rng), dtype=np.int64)

    def halves(self, cell: Cell) -> tuple[IntArray, IntArray]:
        """Section 5.1's D_1 and D_2."""
        order = np.random.default_rng([cell.seed, HALVES]).permutation(len(self.true))
        middle = (len(order) + 1) // 2
        return np.sort(order[:middle]), np.sort(order[middle:])


def open_bench(name: str, folder: Path | str | None) -> Bench:
    """`synthetic`, or `cifar10` from its folder."""
    if name == "synthetic":
        return synthetic()
    from labelsieve.data.cifar import CIFAR10_CLASSES, arrays

    if folder is None:
        raise InputError("give --data DIR, a folder with CIFAR-10: `labelsieve data fetch cifar10 --to DIR` fills one")
    x, y, x_test, y_test = arrays(folder)
    return Bench(x, y, x_test, y_test, CIFAR10_CLASSES, "cifar10")


def synthetic(
    *, classes: int = 4, samples: int = 320, test_samples: int = 100, side: int = 8, mistakes: int = 5, seed: int = 0
) -> Bench:
    """Small pictures that a small network tells apart; the first few labels are wrong, as in real data."""
    rng = np.random.default_rng(seed)
    colours = np.array([[c >> 2 & 1, c >> 1 & 1, c & 1] for c in range(classes)]) * 60 + 90
    patterns = colours[:, None, None] + rng.uniform(-40, 40, (classes, side, side, 3))
    patterns = (patterns + patterns[:, :, ::-1]) / 2  # a flipped picture is of the same class
    labels = rng.permutation(np.arange(samples + test_samples) % classes)
    pictures = np.clip(patterns[labels] + rng.normal(0, 25, (len(labels), side, side, 3)), 0, 255).astype(np.uint8)
    labels[:mistakes] = (labels[:mistakes] + 1) % classes  # what `cifar10-errors` is to find
    return Bench(
        pictures[:samples],
        labels[:samples],
        pictures[samples:],
        labels[samples:],
        tuple(f"class {i}" for i in range(classes)),
        "synthetic",
    )
