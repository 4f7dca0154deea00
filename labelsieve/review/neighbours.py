"""Samples to compare a suspect with: identical samples, and the nearest selected samples of a class.

Neighbours are found among `POOL_SIZE` selected samples of a class, by tiny pictures, words or standardised cells. They
are read at the first request for the class.
"""

from __future__ import annotations

import math
import re
import threading
import zlib
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from labelsieve.labels_csv import LabelColumns
from labelsieve.report.samples import Row, Samples, Text
from labelsieve.types import SELECTED, FloatArray, IntArray, Kind

POOL_SIZE = 160  # samples per class: they are read while a person waits
DUPLICATES_WAIT = 10.0  # seconds
MAX_POOLS = 200  # classes whose samples stay in memory
HASHED_WORDS = 2048  # length of the vectors that texts are compared by
MAX_WORDS = 2000  # of a text


class Duplicates:
    """Identical samples, found by a thread at the first request: with many pictures that takes a while."""

    def __init__(self, columns: LabelColumns, samples: Samples) -> None:
        self.columns, self.samples = columns, samples
        self._group: IntArray = np.arange(len(columns))  # the first row of each group
        self._rows: dict[int, list[int]] = {}
        self._ready = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def wait(self, seconds: float) -> bool:
        """Whether they have been found within `seconds`."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._find, daemon=True)
                self._thread.start()
        return self._ready.wait(seconds)

    def of(self, row: int) -> list[int]:
        """The rows of samples identical to `row`, including itself."""
        return self._rows.get(int(self._group[row]), [row])

    def unique(self, rows: IntArray) -> IntArray:
        """The first row of each group of identical samples."""
        _, first = np.unique(self._group[rows], return_index=True)
        return rows[np.sort(first)]

    def labels(self, rows: list[int]) -> list[list[int]]:
        """Class codes and their number in `rows`, the most frequent first."""
        codes, counts = np.unique(self.columns.label[rows], return_counts=True)
        order = np.argsort(-counts, kind="stable")
        return [[int(codes[i]), int(counts[i])] for i in order]

    def _find(self) -> None:
        try:
            groups = self.samples.duplicates()
        except Exception:  # decoders and disks raise any error; the review works without duplicates
            groups = []
        for group in groups:
            self._rows[group[0]] = group
            self._group[group] = group[0]
        self._ready.set()


class Neighbours:
    def __init__(self, columns: LabelColumns, samples: Samples, duplicates: Duplicates) -> None:
        self.columns, self.samples, self.duplicates = columns, samples, duplicates
        self._pools: OrderedDict[int, tuple[IntArray, FloatArray]] = OrderedDict()
        self._lock = threading.Lock()

    def nearest(self, row: int, label: int, count: int = 4) -> list[int]:
        """Rows of selected samples of class `label`, the nearest first, without the sample itself."""
        if label < 0:
            return []
        features_of_row = self.describe(row)
        with self._lock:
            rows, features = self._pool(label)
        rows = self._without(row, rows, label)
        if not len(rows):
            return []
        if features_of_row is None:
            return [int(r) for r in rows[rows != row][:count]]
        scaled = weighted(np.vstack([features, features_of_row[None]]), self.samples.kind)
        distance = np.linalg.norm(scaled[:-1] - scaled[-1], axis=1)
        distance[rows == row] = np.inf
        best = np.argsort(distance, kind="stable")[:count]
        return [int(rows[i]) for i in best if math.isfinite(distance[i])]

    def _without(self, row: int, rows: IntArray, label: int) -> IntArray:
        """The pool with an identical sample, if there is one, instead of the sample itself."""
        columns = self.columns
        others = (i for i in self.duplicates.of(row) if i != row and columns.label[i] == label)
        return np.where(rows == row, next((i for i in others if columns.verdict[i] == SELECTED), row), rows)

    def describe(self, row: int) -> NDArray[np.float32] | None:
        """A sample as numbers; None if it cannot be read."""
        if self.samples.kind == "pictures":
            pixels = self.samples.pixels(row)
            return None if pixels is None else pixels.ravel()
        sample = self.samples.show(row)
        if isinstance(sample, Text):
            return bag_of_words(sample.text)
        return cells_as_numbers(sample.cells) if isinstance(sample, Row) else None

    def _pool(self, label: int) -> tuple[IntArray, FloatArray]:
        if label in self._pools:
            self._pools.move_to_end(label)
            return self._pools[label]
        members = np.flatnonzero((self.columns.label == label) & (self.columns.verdict == SELECTED))
        # Finding identical pictures reads every file, which may take too long.
        if self.samples.kind != "pictures" and self.duplicates.wait(DUPLICATES_WAIT):
            members = self.duplicates.unique(members)
        if len(members) > POOL_SIZE:
            members = np.sort(np.random.default_rng(label).choice(members, POOL_SIZE, replace=False))
        described = [(row, features) for row in members.tolist() if (features := self.describe(row)) is not None]
        rows = np.array([row for row, _ in described], dtype=np.int64)
        width = len(described[0][1]) if described else 1
        features = np.array([f for _, f in described], dtype=np.float32).reshape(len(rows), width)
        self._pools[label] = rows, features
        if len(self._pools) > MAX_POOLS:
            self._pools.popitem(last=False)
        return rows, features


def bag_of_words(text: str) -> NDArray[np.float32]:
    """Logarithmic counts of hashed words."""
    bag = np.zeros(HASHED_WORDS, dtype=np.float32)
    for word in re.findall(r"\w+", text.lower())[:MAX_WORDS]:
        bag[zlib.crc32(word.encode("utf-8", "replace")) % HASHED_WORDS] += 1
    return np.log1p(bag)


def cells_as_numbers(cells: tuple[tuple[str, str], ...]) -> NDArray[np.float32]:
    """Two features per cell: its number, and a hash of its text if it is not a number."""
    out = np.zeros((len(cells), 2), dtype=np.float32)
    for i, (_, cell) in enumerate(cells):
        try:
            value = float(cell)
            out[i, 0] = value if math.isfinite(value) and abs(value) < 1e30 else 0.0
        except ValueError:
            out[i, 1] = 1 + zlib.crc32(cell.encode("utf-8", "replace")) % 997
    return out.ravel()


def weighted(features: FloatArray, kind: Kind) -> FloatArray:
    """Scaled features: rare words weigh more, all columns of a table weigh the same. The last row is the sample."""
    if kind == "text":
        common = (features > 0).sum(axis=0)
        features = features * np.log((1 + len(features)) / (1 + common) + 1)
        length = np.linalg.norm(features, axis=1, keepdims=True)
        return np.asarray(features / np.maximum(length, 1e-9))
    if kind == "table":
        numbers, signs = features[:, 0::2], features[:, 1::2]
        spread = numbers.std(axis=0)
        scaled = (numbers - numbers.mean(axis=0)) / np.where(spread > 0, spread, 1)
        differs = (signs != signs[-1]).astype(np.float32)
        return np.concatenate([scaled, differs], axis=1)
    return features
