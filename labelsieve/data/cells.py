"""Cells of a column as numbers: numbers as they are, dates and times as days.

A column written by people has odd cells. Where nearly all that is filled in are numbers (or ISO dates), the few others
count as missing; `Numbers.odd` knows them, so that somebody can be told.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labelsieve.types import IntArray

NEARLY_ALL = 0.9  # of the filled cells: then the column is what these are
Form = Literal["number", "date"]

DAY = 86_400e6  # microseconds
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII)


@dataclass(frozen=True)
class Numbers:
    """A column read as float64, nan where a cell is empty or odd."""

    values: NDArray[np.float64]
    form: Form
    odd: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # rows that are filled with neither
    words: tuple[str, ...] = ()  # what stands in them, each once, the first seen first

    @property
    def filled(self) -> int:
        """How many cells hold a number."""
        return int(np.sum(~np.isnan(self.values)))


def read_numbers(values: Any, form: Form | None = None) -> Numbers | None:
    """A pyarrow column as numbers or days; as `form`, or as what most of its cells are. None: it is neither."""
    if form is not None and values.null_count == len(values):
        return Numbers(np.full(len(values), np.nan), form)
    typed = _typed(values)
    if typed is not None:
        return typed if form in (None, typed.form) else None
    if not is_text(values.type):
        return None
    read = _Texts.of(values)
    for wanted, number in _READERS.items():
        found = read.numbers(wanted, number)
        if form == wanted or (form is None and found.filled and found.filled >= NEARLY_ALL * read.filled):
            return found
    return None


def _typed(values: Any) -> Numbers | None:
    """What Arrow has recognised already."""
    import pyarrow as pa

    kind = values.type
    is_a = pa.types
    if is_a.is_integer(kind) or is_a.is_floating(kind) or is_a.is_boolean(kind) or is_a.is_decimal(kind):
        return Numbers(_floats(values), "number")
    if is_a.is_date(kind) or is_a.is_timestamp(kind):
        ticks: Any = pa.timestamp("us", tz=kind.tz if is_a.is_timestamp(kind) else None)
    elif is_a.is_time(kind):
        ticks = pa.time64("us")
    elif is_a.is_duration(kind):
        ticks = pa.duration("us")
    else:
        return None
    return Numbers(_floats(values.cast(ticks, safe=False).cast(pa.int64())) / DAY, "date")


def _floats(values: Any) -> NDArray[np.float64]:
    import pyarrow as pa

    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


def is_text(kind: Any) -> bool:
    """Plain strings. A dictionary (a categorical column) was meant as categories by whoever wrote it."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


@dataclass(frozen=True)
class _Texts:
    """A column of strings, each distinct one looked at once."""

    distinct: list[str]
    codes: IntArray  # -1: null
    empty: NDArray[np.bool_]  # of the distinct ones

    @classmethod
    def of(cls, values: Any) -> _Texts:
        codes, distinct = distinct_values(values)
        nothing = _nothing()
        empty = np.array([text.strip() in nothing for text in distinct], dtype=np.bool_)
        return cls(distinct, codes, empty)

    @property
    def filled(self) -> int:
        return int(np.sum(self._of_rows(~self.empty, False)))

    def numbers(self, form: Form, number: Callable[[str], float]) -> Numbers:
        known = np.array([np.nan if gap else number(text.strip()) for text, gap in self._pairs()], dtype=np.float64)
        strange = np.isnan(known) & ~self.empty
        rows = np.flatnonzero(self._of_rows(strange, False))
        seen = dict.fromkeys(self.codes[rows].tolist())
        return Numbers(self._of_rows(known, np.nan), form, rows, tuple(self.distinct[code] for code in seen))

    def _pairs(self) -> list[tuple[str, bool]]:
        return list(zip(self.distinct, self.empty.tolist(), strict=True))

    def _of_rows(self, known: NDArray[Any], gap: Any) -> NDArray[Any]:
        return np.append(known, gap).astype(known.dtype)[self.codes]  # -1 is the last


def distinct_values(values: Any) -> tuple[IntArray, list[Any]]:
    """Each row's code (-1: null) and what the codes stand for."""
    import pyarrow as pa

    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    try:
        coded = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    except pa.ArrowNotImplementedError:  # lists and their like
        coded = pa.array([None if value is None else str(value) for value in whole.to_pylist()]).dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):  # too long for one
        coded = coded.unify_dictionaries()
        codes = np.concatenate([_codes(chunk) for chunk in coded.chunks]) if coded.num_chunks else np.zeros(0, np.int64)
        return codes, coded.chunk(0).dictionary.to_pylist() if coded.num_chunks else []
    return _codes(coded), coded.dictionary.to_pylist()


def _codes(coded: Any) -> IntArray:
    return np.asarray(coded.indices.fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64)


@cache
def _nothing() -> frozenset[str]:
    """What Arrow takes for an empty cell among numbers: "", NA, NULL and their like."""
    import pyarrow.csv as pc

    return frozenset(pc.ConvertOptions().null_values)


def _number(text: str) -> float:
    return float(text) if NUMBER.fullmatch(text) else np.nan


def _days(text: str) -> float:
    if not DATE.fullmatch(text):
        return np.nan
    try:
        moment = datetime.fromisoformat(text)
        since = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - BEGINNING
    except (ValueError, OverflowError):  # the 31st of February
        return np.nan
    return since.total_seconds() / 86_400


_READERS: dict[Form, Callable[[str], float]] = {"number": _number, "date": _days}
