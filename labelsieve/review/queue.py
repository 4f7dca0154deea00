"""Which samples come when: the rows that pass a filter, the most suspicious first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from labelsieve.labels_csv import LabelColumns
from labelsieve.types import VERDICTS, BoolArray, IntArray

SHOW = ("suspects", "all", *VERDICTS)
REMEMBERED = 16


@dataclass(frozen=True)
class Filter:
    """What to look at. `given` and `suggested` are class codes; None lets every class pass."""

    show: str = "suspects"
    given: int | None = None
    suggested: int | None = None
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if self.show not in SHOW:
            raise ValueError(f"show must be one of {', '.join(SHOW)}")
        if not (0 <= self.low <= 1 and 0 <= self.high <= 1):
            raise ValueError("suspicion lies between 0 and 1")


def passing(columns: LabelColumns, wanted: Filter) -> BoolArray:
    if wanted.show == "suspects":
        mask = columns.suspect()
    elif wanted.show == "all":
        mask = np.ones(len(columns), dtype=bool)
    else:
        mask = columns.verdict == VERDICTS.index(wanted.show)
    if wanted.given is not None:
        mask = mask & (columns.label == wanted.given)
    if wanted.suggested is not None:
        mask = mask & (columns.suggested == wanted.suggested)
    if wanted.low > 0 or wanted.high < 1:
        suspicion = np.nan_to_num(columns.suspicion, nan=-1.0)
        mask = mask & (suspicion >= wanted.low) & (suspicion <= wanted.high)
    return mask


class Queues:
    """Queues by filter, the latest few remembered: a key press then only looks things up.

    A queue does not change while decisions are made, so that a position means the same sample after a refresh.
    """

    def __init__(self, columns: LabelColumns) -> None:
        self.columns = columns
        self._kept: OrderedDict[Filter, IntArray] = OrderedDict()
        self._lock = threading.Lock()  # every request is answered in a thread of its own

    def rows(self, wanted: Filter) -> IntArray:
        with self._lock:
            if wanted in self._kept:
                self._kept.move_to_end(wanted)
                return self._kept[wanted]
            rows = self.columns.ranked(np.flatnonzero(passing(self.columns, wanted)))
            self._kept[wanted] = rows
            if len(self._kept) > REMEMBERED:
                self._kept.popitem(last=False)
            return rows

    def next_open(self, wanted: Filter, start: int, decided: BoolArray, *, step: int = 1) -> int | None:
        """The first position from `start` on (backwards with step -1) whose sample is not decided."""
        rows = self.rows(wanted)
        chunk = 4096
        position = start
        while 0 <= position < len(rows):
            if step > 0:
                part = decided[rows[position : position + chunk]]
                if not part.all():
                    return position + int(np.argmin(part))
            else:
                part = decided[rows[max(position - chunk + 1, 0) : position + 1]][::-1]
                if not part.all():
                    return position - int(np.argmin(part))
            position += step * chunk
        return None
