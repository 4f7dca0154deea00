"""Samples to compare a suspect with: its duplicates, and the nearest selected samples of a class.

Neighbours are found by the embeddings of the run. A run without embeddings compares `POOL_SIZE` samples of the class by
tiny pictures, words or standardised cells, which are read at the first request for the class.
"""

from __future__ import annotations

import math
import re
import threading
import zlib
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.embedding_cache import Rows
from labelsieve.data.similar import unit_rows
from labelsieve.labels_csv import Duplicates, LabelColumns
from labelsieve.report.samples import Row, Samples, Text
from labelsieve.types import SELECTED, FloatArray, IntArray, Kind

POOL_SIZE = 160  # samples per class: they are read while a person waits
EMBEDDED_POOL_SIZE = 20_000  # samples per class if they are embedded: reading them takes a tenth of a second
MAX_POOLS = 200  # classes whose samples stay in memory
HASHED_WORDS = 2048  # length of the vectors that texts are compared by
MAX_WORDS = 2000  # of a text


class Neighbours:
    """The nearest selected samples of a class: by the embeddings of the run, else by simple features."""

    def __init__(
        self, columns: LabelColumns, samples: Samples, duplicates: Duplicates, embedding: Rows | None = None
    ) -> None:
        self.columns, self.samples, self.duplicates, self.embedding = columns, samples, duplicates, embedding
        self._pool = lru_cache(MAX_POOLS)(self._read_pool)
        self._lock = threading.Lock()  # a pool is read once, even if several requests need it

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
        scaled = np.vstack([features, features_of_row[None]])
        if self.embedding is None:
            scaled = weighted(scaled, self.samples.kind)
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
        if self.embedding is not None:
            return unit_rows(self.embedding, np.array([row])).ravel()
        if self.samples.kind == "pictures":
            pixels = self.samples.pixels(row)
            return None if pixels is None else pixels.ravel()
        sample = self.samples.show(row)
        if isinstance(sample, Text):
            return bag_of_words(sample.text)
        return cells_as_numbers(sample.cells) if isinstance(sample, Row) else None

    def _read_pool(self, label: int) -> tuple[IntArray, FloatArray]:
        """Selected samples of a class that can be read, and their features."""
        members = np.flatnonzero((self.columns.label == label) & (self.columns.verdict == SELECTED))
        members = self.duplicates.unique(members)
        size = POOL_SIZE if self.embedding is None else EMBEDDED_POOL_SIZE
        if len(members) > size:
            members = np.sort(np.random.default_rng(label).choice(members, size, replace=False))
        if self.embedding is not None:
            return members, unit_rows(self.embedding, members)
        described = [(row, features) for row in members.tolist() if (features := self.describe(row)) is not None]
        rows = np.array([row for row, _ in described], dtype=np.int64)
        width = len(described[0][1]) if described else 1
        return rows, np.array([f for _, f in described], dtype=np.float32).reshape(len(rows), width)


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
