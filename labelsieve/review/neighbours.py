"""What the sample looks like beside samples whose labels are trusted: its nearest selected neighbours in a class.

Cheap on purpose: some selected samples of a class (`POOL`), compared by tiny pictures, words or standardised cells.
They are read once a class, at the first question. Texts and rows that are there more than once stand for one.
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
from labelsieve.review.duplicate_samples import Twins
from labelsieve.types import SELECTED, FloatArray, IntArray

POOL = 160
PATIENCE = 10.0  # seconds to wait for what is the same
REMEMBERED = 200  # classes
WORDS = 2048  # hashed words a text is described by


class Neighbours:
    def __init__(self, columns: LabelColumns, samples: Samples, twins: Twins | None = None) -> None:
        self.columns, self.samples = columns, samples
        self.twins = twins or Twins(columns, samples)
        self._pools: OrderedDict[int, tuple[IntArray, FloatArray]] = OrderedDict()
        self._order: IntArray | None = None
        self._lock = threading.Lock()

    def nearest(self, row: int, label: int, count: int = 4) -> list[int]:
        """Rows of `label`'s pool, the nearest first, never the sample itself."""
        if label < 0:
            return []
        mine = self.describe(row)
        with self._lock:
            rows, features = self._pool(label)
        rows = self._but(row, rows, label)
        if not len(rows):
            return []
        if mine is None:
            return [int(r) for r in rows[rows != row][:count]]
        both = weighted(np.vstack([features, mine[None]]), self.samples.kind)
        distance = np.linalg.norm(both[:-1] - both[-1], axis=1)
        distance[rows == row] = np.inf
        best = np.argsort(distance, kind="stable")[:count]
        return [int(rows[i]) for i in best if math.isfinite(distance[i])]

    def _but(self, row: int, rows: IntArray, label: int) -> IntArray:
        """The pool with another one of its kind, where there is one, in the place of the sample itself."""
        columns, twins = self.columns, (i for i in self.twins.of(row) if i != row)
        others = (i for i in twins if columns.label[i] == label and columns.verdict[i] == SELECTED)
        return np.where(rows == row, next(others, row), rows)

    def describe(self, row: int) -> NDArray[np.float32] | None:
        """A sample as numbers that can be compared; None where it cannot be read."""
        if self.samples.kind == "pictures":
            pixels = self.samples.pixels(row)
            return None if pixels is None else pixels.ravel()
        seen = self.samples.show(row)
        if isinstance(seen, Text):
            return bag_of_words(seen.text)
        if isinstance(seen, Row):
            return cells_as_numbers(seen.cells)
        return None

    def _pool(self, label: int) -> tuple[IntArray, FloatArray]:
        if label in self._pools:
            self._pools.move_to_end(label)
            return self._pools[label]
        members = np.flatnonzero((self.columns.label == label) & (self.columns.verdict == SELECTED))
        # Whether pictures are the same is asked of every file, which may take longer than anybody waits.
        if self.samples.kind != "pictures" and self.twins.known(PATIENCE):
            members = self.twins.once(members)
        if len(members) > POOL:
            members = np.sort(np.random.default_rng(label).choice(members, POOL, replace=False))
        described = [(row, features) for row in members.tolist() if (features := self.describe(row)) is not None]
        rows = np.array([row for row, _ in described], dtype=np.int64)
        width = len(described[0][1]) if described else 1
        features = np.array([f for _, f in described], dtype=np.float32).reshape(len(rows), width)
        self._pools[label] = rows, features
        if len(self._pools) > REMEMBERED:
            self._pools.popitem(last=False)
        return rows, features


def bag_of_words(text: str) -> NDArray[np.float32]:
    """Counts of hashed words, damped."""
    bag = np.zeros(WORDS, dtype=np.float32)
    for word in re.findall(r"\w+", text.lower())[:2000]:
        bag[zlib.crc32(word.encode("utf-8", "replace")) % WORDS] += 1
    return np.log1p(bag)


def cells_as_numbers(cells: tuple[tuple[str, str], ...]) -> NDArray[np.float32]:
    """A number cell as itself, any other as a sign that equal texts share; two columns a cell keep the kinds apart."""
    out = np.zeros((len(cells), 2), dtype=np.float32)
    for i, (_, cell) in enumerate(cells):
        try:
            value = float(cell)
            out[i, 0] = value if math.isfinite(value) and abs(value) < 1e30 else 0.0
        except ValueError:
            out[i, 1] = 1 + zlib.crc32(cell.encode("utf-8", "replace")) % 997
    return out.ravel()


def weighted(features: FloatArray, kind: str) -> FloatArray:
    """Rare words count more; columns of a table count alike."""
    if kind == "text":
        common = (features > 0).sum(axis=0)
        features = features * np.log((1 + len(features)) / (1 + common) + 1)
        length = np.linalg.norm(features, axis=1, keepdims=True)
        return np.asarray(features / np.maximum(length, 1e-9))
    if kind == "table":
        numbers, signs = features[:, 0::2], features[:, 1::2]
        spread = numbers.std(axis=0)
        scaled = (numbers - numbers.mean(axis=0)) / np.where(spread > 0, spread, 1)
        differs = (signs != signs[-1]).astype(np.float32)  # against the sample itself, which stands last
        return np.concatenate([scaled, differs], axis=1)
    return features
