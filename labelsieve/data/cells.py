"""Cells of a column as numbers: numbers as they are, dates and times as days.

A column written by people has odd cells. Where nearly all that is filled in are numbers (or dates), the few others
count as missing; `Numbers.odd` knows them, so that somebody can be told. How a number or a date is written (`Form`) is
a matter of the column, never of a cell: 1,234 and 3/4/2024 alone may mean either of two things. So is what stands
around numbers (units.py), such as 12 % or $ 1'200. A time of the day (14:05) is a part of one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.units import LIKELY, NOTHING, Around, bare, learn, scale
from labelsieve.types import IntArray

NEARLY_ALL = 0.9  # of the filled cells: then the column is what these are
# 19.08; 19,08; 2024-12-31; 31.12.2024; ...; 31 Dec 2024; Dec 31, 2024; 14:05
Form = Literal["number", "comma", "date", "d.m.y", "d/m/y", "m/d/y", "d mon y", "mon d y", "clock"]
DECIMALS: tuple[Form, ...] = ("number", "comma")
DATES: tuple[Form, ...] = ("date", "d.m.y", "d/m/y", "m/d/y", "d mon y", "mon d y", "clock")
MONTHS = "january february march april may june july august september october november december".split()

DAY = 86_400e6  # microseconds
MOST_LOOKED_AT = 10_000  # different cells that show what stands around numbers
CENTURY = 30  # years of two digits below are of this century, as spreadsheets take them
TIME = r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(:(?P<second>\d\d(\.\d{1,6})?))?( ?(?P<half>[AaPp])[Mm])?"
CLOCK = f"(,? +{TIME})?"
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
COMMA = re.compile(r"[+-]?(([1-9]\d{0,2}(\.\d{3})+|\d+)(,\d*)?|,\d+)([eE][+-]?\d+)?", re.ASCII)
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}", re.ASCII)  # or a decimal comma: nobody can tell
LISTED = re.compile(r"[+-]?\d+(,\d+){2,}(\.\d*)?", re.ASCII)  # 1,234,567 or 1,2,3: commas that are no decimal points
WITH_COMMA, WITH_POINT = re.compile(".*,.*"), re.compile(r".*\..*")
DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII)


@dataclass(frozen=True)
class Numbers:
    """A column read as float64, nan where a cell is empty or odd."""

    values: NDArray[np.float64]
    form: Form
    odd: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # rows that are filled with neither
    words: tuple[str, ...] = ()  # what stands in them, each once, the first seen first
    around: Around = NOTHING  # what the cells have beside their digits

    @property
    def filled(self) -> int:
        """How many cells hold a number."""
        return int(np.sum(~np.isnan(self.values)))

    @property
    def what(self) -> Literal["number", "date"]:
        return what_is(self.form)


def what_is(form: Form) -> Literal["number", "date"]:
    return "date" if form in DATES else "number"


def read_numbers(
    values: Any, form: Form | None = None, *, commas: bool = False, around: Around | None = None
) -> Numbers | None:
    """A pyarrow column as numbers or days; as `form` with `around`, or as what most of its cells are. None: it is
    neither.

    `commas`: where a comma may stand for a decimal point or set thousands apart, it is the point.
    """
    if form is not None and values.null_count == len(values):
        return Numbers(np.full(len(values), np.nan), form)
    typed = _typed(values)
    if typed is not None:
        bare_units = around is not None and around.family  # of which unit are they?
        return typed if form is None or (what_is(form) == typed.what and not bare_units) else None
    if not is_text(values.type):
        return None
    read = _Texts.of(values)
    if form is None:
        return _with_something_around(read, commas, plainly=_most_fitting(read, commas))
    return read.numbers(form) if form in DATES else read.without(around or NOTHING, form).numbers(form)


# Before the comma there may be a currency, and marks between thousands.
_SOME_COMMA = r"^[^0-9,]{0,8}[0-9.'’ \x{a0}\x{2009}\x{202f}]*,[0-9]"


def clearly_commas(values: Any) -> bool:
    """Are these numbers with decimal commas that could be nothing else?"""
    import pyarrow.compute as pc

    if not is_text(values.type) or not pc.any(pc.match_substring_regex(values, _SOME_COMMA)).as_py():
        return False  # known without looking at a million texts one by one
    found = read_numbers(values)
    return found is not None and found.form == "comma"


def _with_something_around(read: _Texts, commas: bool, plainly: Numbers | None) -> Numbers | None:
    """As numbers with a currency or unit, or with marks between thousands, where these are more than `plainly`."""
    if plainly is not None and (plainly.what == "date" or not re.search("[0-9]", "".join(plainly.words))):
        return plainly
    if not read.filled or read.likely() < NEARLY_ALL * read.filled:
        return plainly
    around = learn(read.cells(MOST_LOOKED_AT), commas=commas)
    if around is None:
        return plainly
    found = _most_fitting(read.without(around), commas, DECIMALS)
    if found is None or (plainly is not None and plainly.filled >= found.filled):
        return plainly
    return found


def _most_fitting(read: _Texts, commas: bool, forms: Sequence[Form] | None = None) -> Numbers | None:
    """As the form that reads the most cells, and nearly all of them."""
    least = NEARLY_ALL * read.filled
    fit = (form for form in forms or _SHAPES if read.filled and read.count(_SHAPES[form]) >= least)
    found = [read.numbers(form) for form in fit]
    fitting = [one for one in found if one.filled and one.filled >= least and _is_proven(one.form, read, commas)]
    return max(fitting, key=lambda one: one.filled, default=None)  # the first of equals


def _is_proven(form: Form, read: _Texts, commas: bool) -> bool:
    """Does the column show that it is written so, where another reading is as good?"""
    if form == "comma":
        return _are_decimal(read, commas)
    if form in ("d/m/y", "m/d/y"):
        return _order_is_known(form, read)
    return True


def _are_decimal(read: _Texts, commas: bool) -> bool:
    """Do commas stand for decimal points?"""
    if read.count(LISTED):
        return False
    points = read.count(COMMA, WITH_COMMA)
    # 1.234 beside 1,5 may be a number with a point and a slip; beside 1.234,5 it is a thousand.
    if points <= read.count(NUMBER, WITH_POINT) and not read.count(COMMA, WITH_COMMA, WITH_POINT):
        return False
    return points > 0 and (commas or points > read.count(THOUSANDS))


def _order_is_known(form: Form, read: _Texts) -> bool:
    """Are there days above the 12th, which are no months, and nearly all in the same place?"""
    as_days, as_months = (~np.isnan(read.numbers(order).values) for order in ("d/m/y", "m/d/y"))
    days, months = int(np.sum(as_days & ~as_months)), int(np.sum(as_months & ~as_days))
    return (days if form == "d/m/y" else months) > NEARLY_ALL * (days + months)


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
    form: Form = "clock" if is_a.is_time(kind) else "date"
    return Numbers(_floats(values.cast(ticks, safe=False).cast(pa.int64())) / DAY, form)


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
    bare: Any  # these in Arrow, without blanks at their ends: it looks at a million of them in no time
    around: Around = NOTHING  # what `bare` lacks
    scale: NDArray[np.float64] | None = None  # by what their numbers are multiplied, where their units differ

    @classmethod
    def of(cls, values: Any) -> _Texts:
        import pyarrow as pa
        import pyarrow.compute as pc

        codes, distinct = distinct_values(values)
        bare = pc.utf8_trim_whitespace(pa.array(distinct, pa.large_string()))
        nothing = _nothing()
        empty = np.array([text.strip() in nothing for text in distinct], dtype=np.bool_)
        return cls(distinct, codes, empty, bare)

    @property
    def filled(self) -> int:
        return int(np.sum(self._of_rows(~self.empty, False)))

    def likely(self) -> int:
        """How many rows may be numbers with something around them."""
        return self.count(LIKELY)

    def cells(self, most: int) -> dict[str, int]:
        """What stands in the rows, and in how many: all of it, or so many that are far between."""
        counts = np.bincount(self.codes[self.codes >= 0], minlength=len(self.distinct))
        at = np.flatnonzero(~self.empty)
        at = at[:: max(1, len(at) // most)]
        return dict(zip(self.bare.take(at).to_pylist(), counts[at].tolist(), strict=True))

    def without(self, around: Around, form: Form | None = None) -> _Texts:
        """These with their numbers alone, as far as they are none of that `form` already."""
        import pyarrow as pa

        told_apart = around.thousands != "." and not around.family  # a bare number can be taken as it is
        if form is not None and told_apart and np.all(self._are(_SHAPES[form]) | self.empty):
            return self
        written = self.bare.to_pylist()
        texts = [text if gap else (bare(text, around) or text) for text, gap in zip(written, self.empty, strict=True)]
        scales = np.array([scale(text, around) for text in written]) if around.family else None
        return replace(self, bare=pa.array(texts, pa.large_string()), around=around, scale=scales)

    def count(self, *shapes: re.Pattern[str]) -> int:
        """In how many rows stands something of all these shapes?"""
        return int(np.sum(self._of_rows(self._are(*shapes), False)))

    def _are(self, *shapes: re.Pattern[str]) -> NDArray[np.bool_]:
        """Which of the distinct ones are."""
        import pyarrow.compute as pc

        found = ~self.empty
        for shape in shapes:
            fits = pc.match_substring_regex(self.bare, f"^(?:{shape.pattern})$")
            found = found & np.asarray(fits.to_numpy(zero_copy_only=False), dtype=np.bool_)
        return found

    def numbers(self, form: Form) -> Numbers:
        known, fitting = np.full(len(self.distinct), np.nan), np.flatnonzero(self._are(_SHAPES[form]))
        for at, text in zip(fitting.tolist(), self.bare.take(fitting).to_pylist(), strict=True):
            known[at] = _READERS[form](text)
        if self.scale is not None:
            known *= self.scale
        strange = np.isnan(known) & ~self.empty
        rows = np.flatnonzero(self._of_rows(strange, False))
        seen = dict.fromkeys(self.codes[rows].tolist())
        words = tuple(self.distinct[code] for code in seen)
        return Numbers(self._of_rows(known, np.nan), form, rows, words, self.around)

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


def _comma_number(text: str) -> float:
    return float(text.replace(".", "").replace(",", ".")) if COMMA.fullmatch(text) else np.nan


def _parts(first: str, mark: str, second: str) -> re.Pattern[str]:
    """A date whose year comes last."""
    part = r"\d{1,2}"
    return re.compile(rf"(?P<{first}>{part}){mark}(?P<{second}>{part}){mark}(?P<year>\d{{4}}|\d\d){CLOCK}", re.ASCII)


DAY_OF_MONTH = r"(?P<day>\d{1,2})(?:st|nd|rd|th|\.)?"
_CLOCK = re.compile(TIME, re.ASCII)
MONTH = r"(?P<month>[A-Za-z]{3,9})\.?"

_PARTS: dict[Form, re.Pattern[str]] = {
    "d.m.y": _parts("day", r"\.", "month"),
    "d/m/y": _parts("day", "/", "month"),
    "m/d/y": _parts("month", "/", "day"),
    "d mon y": re.compile(rf"{DAY_OF_MONTH}[ -]?{MONTH}[ -](?P<year>\d{{4}}|\d\d){CLOCK}", re.ASCII),
    "mon d y": re.compile(rf"{MONTH} ?{DAY_OF_MONTH},? (?P<year>\d{{4}}){CLOCK}", re.ASCII),
}


def _days_by_parts(text: str, pattern: re.Pattern[str]) -> float:
    found = pattern.fullmatch(text)
    if found is None:
        return _days(text)
    year = int(found["year"])
    if len(found["year"]) == 2:
        if len(found["day"] + found["month"]) < 4:  # 1.2.10 may be a version
            return np.nan
        year += 2000 if year < CENTURY else 1900
    try:
        day = datetime(year, _month(found["month"]), int(found["day"]), tzinfo=UTC)
    except ValueError:
        return np.nan
    return (day - BEGINNING).days + _part_of_day(found)


def _time(text: str) -> float:
    found = _CLOCK.fullmatch(text)
    return _part_of_day(found) if found is not None else np.nan


def _month(text: str) -> int:
    """0, which is none, for a word with which none begins."""
    if text.isdigit():
        return int(text)
    return next((i for i, name in enumerate(MONTHS, start=1) if name.startswith(text.lower())), 0)


def _part_of_day(found: re.Match[str]) -> float:
    """0 where no time is given, nan where it is none."""
    hour, minute, second = int(found["hour"] or 0), int(found["minute"] or 0), float(found["second"] or 0)
    if found["half"]:
        if not 1 <= hour <= 12:
            return np.nan
        hour = hour % 12 + 12 * (found["half"] in "pP")
    if hour > 23 or minute > 59 or second >= 60:
        return np.nan
    return (3600 * hour + 60 * minute + second) / 86_400


_READERS: dict[Form, Callable[[str], float]] = {
    "number": _number,
    "comma": _comma_number,
    "date": _days,
    "clock": _time,
    **{form: partial(_days_by_parts, pattern=pattern) for form, pattern in _PARTS.items()},
}
# ISO dates, which mean one thing everywhere, may stand among others.
_SHAPES: dict[Form, re.Pattern[str]] = {
    "number": NUMBER,
    "comma": COMMA,
    "date": DATE,
    "clock": _CLOCK,
    **{form: re.compile(f"{pattern.pattern}|{DATE.pattern}") for form, pattern in _PARTS.items()},
}
