"""Samples that are there more than once, exactly: their labels beside each other tell more than any model.

They are looked for once, at the first question, by a thread of their own: with many pictures that takes a while, and
nobody should wait for it with a key pressed.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from labelsieve.labels_csv import LabelColumns
from labelsieve.report.samples import Samples
from labelsieve.types import IntArray


class Twins:
    def __init__(self, columns: LabelColumns, samples: Samples) -> None:
        self.columns, self.samples = columns, samples
        self._group: IntArray = np.arange(len(columns))  # the first row of each row's group
        self._rows: dict[int, list[int]] = {}
        self._ready = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def known(self, wait: float) -> bool:
        """Whether they were found within `wait` seconds."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._find, daemon=True)
                self._thread.start()
        return self._ready.wait(wait)

    def of(self, row: int) -> list[int]:
        """The rows of the same sample, itself among them; itself alone as long as nothing is known."""
        return self._rows.get(int(self._group[row]), [row])

    def once(self, rows: IntArray) -> IntArray:
        """One row, the first, of each different sample."""
        _, first = np.unique(self._group[rows], return_index=True)
        return rows[np.sort(first)]

    def labels(self, rows: list[int]) -> list[list[int]]:
        """Class codes and how often each was given, the most frequent first."""
        codes, counts = np.unique(self.columns.label[rows], return_counts=True)
        order = np.argsort(-counts, kind="stable")
        return [[int(codes[i]), int(counts[i])] for i in order]

    def about(self, row: int) -> dict[str, Any]:
        """How often a sample is there, and with which labels."""
        rows = self.of(row)
        return {"times": len(rows), "labels": self.labels(rows)}

    def _find(self) -> None:
        try:
            groups = self.samples.same() if self.samples.same is not None else []
        except Exception:  # a decoder's or a disk's whatever: this is a help, and its absence stops nobody
            groups = []
        for group in groups:
            self._rows[group[0]] = group
            self._group[group] = group[0]
        self._ready.set()
