"""Cells of a column as numbers. Dates become days since 1970.

The form (`Form`) belongs to the column, not to a cell: 3/4/2024 alone can be two dates, and 1,234 two numbers. If
nearly all cells of a column have one form, the other cells count as missing. `advise` recognises amounts and dates that
are not read, for a note.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labelsieve.csv_files import missing_values
from labelsieve.types import IntArray

NEARLY_ALL = 0.9  # share of the filled cells; a tenth leaves room for "n.a.", "?" and typing errors
# 19.08   19,08   2024-12-31   31.12.2024   31/12/2024   12/31/2024
Form = Literal["number", "comma", "date", "d.m.y", "d/m/y", "m/d/y"]
MICROSECONDS_PER_DAY = 86_400e6  # dates become days since 1970
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_ISO = r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)?)?"
_TIME = r"( +\d{1,2}:\d\d(:\d\d)?)?"
PATTERNS: dict[Form, str] = {
    "number": NUMBER.pattern,
    "comma": r"[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?",
    "date": _ISO,
    # ISO dates are unambiguous and may occur among others.
    "d.m.y": rf"\d{{1,2}}\.\d{{1,2}}\.\d{{4}}{_TIME}|{_ISO}",
    "d/m/y": rf"\d{{1,2}}/\d{{1,2}}/\d{{4}}{_TIME}|{_ISO}",
    "m/d/y": rf"\d{{1,2}}/\d{{1,2}}/\d{{4}}{_TIME}|{_ISO}",
}
_FORMATS: dict[Form, str] = {"d.m.y": "%d.%m.%Y", "d/m/y": "%d/%m/%Y", "m/d/y": "%m/%d/%Y"}
_SOME_COMMA = r"^\s*[+-]?[0-9]*,[0-9]"
_MAYBE_THOUSANDS = r"[+-]?[1-9]\d{0,2},\d{3}"


@dataclass(frozen=True)
class Numbers:
    """A column as float64. Empty and invalid cells are NaN."""

    values: NDArray[np.float64]
    form: Form
    invalid_rows: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    invalid_texts: tuple[str, ...] = ()  # the different texts in these rows, in order of appearance

    @property
    def filled(self) -> int:
        """Number of cells with a number."""
        return int(np.sum(~np.isnan(self.values)))

    @property
    def is_date(self) -> bool:
        return self.form not in ("number", "comma")


def read_numbers(values: Any, form: Form | None = None, *, commas: bool = False) -> Numbers | None:
    """A pyarrow column as numbers in this form, or in the form of nearly all its cells; None if there is none.

    `commas`: commas before three digits are decimal commas. Otherwise they could separate thousands.
    """
    if form is not None and values.null_count == len(values):
        return Numbers(np.full(len(values), np.nan), form)
    typed = _typed(values)
    if typed is not None:
        return typed if form is None or (form not in ("number", "comma")) == typed.is_date else None
    if not is_text(values.type):
        return None
    cells = _Cells.of(values)
    return cells.parse(form) if form is not None else _best(cells, commas)


def has_decimal_commas(values: Any) -> bool:
    """Whether a column has numbers with decimal commas, and no other reading is possible."""
    import pyarrow.compute as pc

    if not is_text(values.type) or not pc.any(pc.match_substring_regex(values, _SOME_COMMA)).as_py():
        return False  # the fast answer for nearly all columns
    found = read_numbers(values)
    return found is not None and found.form == "comma"


def is_text(kind: Any) -> bool:
    """Whether a type is plain text. A dictionary (a categorical column) stays a category."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _best(cells: _Cells, commas: bool) -> Numbers | None:
    """The column in the form that fits most cells, if it fits nearly all."""
    least = NEARLY_ALL * cells.filled
    forms: list[Form] = [
        form for form in PATTERNS if cells.filled and cells.rows(cells.matches(PATTERNS[form])) >= least
    ]
    if "comma" in forms and not _are_decimal_commas(cells, commas):
        forms.remove("comma")
    found = {form: numbers for form in forms if (numbers := cells.parse(form)).filled >= max(least, 1)}
    days, months = found.get("d/m/y"), found.get("m/d/y")
    if days is not None and months is not None and days.filled == months.filled:
        del found["d/m/y"], found["m/d/y"]  # no day above 12 shows the order
    return max(found.values(), key=lambda numbers: numbers.filled, default=None)  # the first of equals


def _are_decimal_commas(cells: _Cells, commas: bool) -> bool:
    with_comma = cells.matches(PATTERNS["comma"]) & cells.matches(".*,.*")
    return bool(with_comma.any() and (commas or (with_comma & ~cells.matches(_MAYBE_THOUSANDS)).any()))


def _typed(values: Any) -> Numbers | None:
    """The column if pyarrow has recognised numbers, dates or times."""
    import pyarrow as pa

    kind, is_a = values.type, pa.types
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
    form: Form = "number" if is_a.is_time(kind) or is_a.is_duration(kind) else "date"
    return Numbers(_floats(values.cast(ticks, safe=False).cast(pa.int64())) / MICROSECONDS_PER_DAY, form)


def _floats(values: Any) -> NDArray[np.float64]:
    import pyarrow as pa

    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


@dataclass(frozen=True)
class _Cells:
    """A column of texts. Every different text is parsed once."""

    distinct: list[str]
    codes: IntArray  # of the rows; -1: null
    empty: NDArray[np.bool_]  # of the distinct texts
    stripped: Any  # the distinct texts in pyarrow, without spaces at the start and end

    @classmethod
    def of(cls, values: Any) -> _Cells:
        import pyarrow as pa
        import pyarrow.compute as pc

        codes, distinct = distinct_values(values)
        stripped = pc.utf8_trim_whitespace(pa.array(distinct, pa.large_string()))
        empty = np.array([text.strip() in missing_values() for text in distinct], dtype=np.bool_)
        return cls(distinct, codes, empty, stripped)

    @property
    def filled(self) -> int:
        return self.rows(~self.empty)

    def rows(self, which: NDArray[np.bool_]) -> int:
        """Number of rows with one of these distinct texts."""
        return int(np.sum(self._per_row(which, False)))

    def matches(self, pattern: str) -> NDArray[np.bool_]:
        """The distinct texts that match a pattern completely."""
        import pyarrow.compute as pc

        found = pc.match_substring_regex(self.stripped, f"^(?:{pattern})$")
        return ~self.empty & np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.bool_)

    def parse(self, form: Form) -> Numbers:
        known, matching = np.full(len(self.distinct), np.nan), np.flatnonzero(self.matches(PATTERNS[form]))
        for at, text in zip(matching.tolist(), self.stripped.take(matching).to_pylist(), strict=True):
            known[at] = _parse(text, form)
        invalid = np.flatnonzero(self._per_row(np.isnan(known) & ~self.empty, False))
        texts = tuple(self.distinct[code] for code in dict.fromkeys(self.codes[invalid].tolist()))
        return Numbers(self._per_row(known, np.nan), form, invalid, texts)

    def _per_row(self, values: NDArray[Any], null: Any) -> NDArray[Any]:
        return np.append(values, null).astype(values.dtype)[self.codes]  # -1 is the last one


def distinct_values(values: Any) -> tuple[IntArray, list[Any]]:
    """The code of each row (-1: null), and the value of each code."""
    import pyarrow as pa

    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    try:
        coded = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    except pa.ArrowNotImplementedError:  # lists and similar types
        coded = pa.array([None if value is None else str(value) for value in whole.to_pylist()]).dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):  # too long for one array
        coded = coded.unify_dictionaries()
        codes = np.concatenate([_codes(chunk) for chunk in coded.chunks]) if coded.num_chunks else np.zeros(0, np.int64)
        return codes, coded.chunk(0).dictionary.to_pylist() if coded.num_chunks else []
    return _codes(coded), coded.dictionary.to_pylist()


def _codes(coded: Any) -> IntArray:
    return np.asarray(coded.indices.cast("int64").fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64)


def _parse(text: str, form: Form) -> float:
    """A cell that matches the pattern of its form; NaN for a date that does not exist."""
    if form == "number":
        return float(text)
    if form == "comma":
        return float(text.replace(",", "."))
    try:
        if "-" in text:
            moment = datetime.fromisoformat(text)
        else:
            day, _, time = text.partition(" ")
            moment = datetime.strptime(day, _FORMATS[form])
            if time := time.strip():
                hour, minute, *second = map(int, time.split(":"))
                moment = moment.replace(hour=hour, minute=minute, second=second[0] if second else 0)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return (moment - EPOCH).total_seconds() / 86_400
    except (ValueError, OverflowError):  # February 31
        return float("nan")


# ---------------------------------------------------------------- texts that a person can turn into numbers

# A number with a currency, a unit or thousands separators: €48,463, 45kg, 5 km/h, 1'200 or 1.902,50; not a code such as
# #12, 12B or 3XL. After a space, any short word is a unit. The letters of a code are mostly capitals, so that a unit
# of one letter, such as g, is a small letter.
_SPACE = " \u00a0\u202f"  # the last two do not break a line
_DIGITS, _CURRENCY = rf"\d[\d.,'{_SPACE}]*", "([$¢£¥€₩₪₫₹₺₽฿]|USD|EUR|GBP|CHF)"
_UNIT = (
    "([%‰°]|°[CF]|[ghklms]|(?i:[kcm]m|m[²³]|[km]g|lbs?|oz|[cm]l|ft|mi|sec|min|hrs?|days?|years?|kmh|mph|[kmgt]b|[kmg]?hz|"
    "kwh?|mah|cc|hp))"
)
_MONTH = "(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}"
_NO_UNIT = rf"(?!(?i:st|nd|rd|th|{_MONTH})\b)"
AMOUNT = (
    rf"[+-]?({_CURRENCY}\s*{_DIGITS}[kKmMbB]?|{_DIGITS}({_CURRENCY}|{_UNIT}|\s{_NO_UNIT}[^\W\d_]\w{{0,4}})(/\w{{1,4}})?|"
    rf"\d{{1,3}}(,\d{{3}})+(\.\d+)?|\d{{1,3}}(['{_SPACE}]\d{{3}})+([.,]\d+)?|"
    r"\d{1,3}(\.\d{3})+,\d+|\d{1,3}(\.\d{3}){2})"  # three points would be an address such as 192.168.100.101
)
# A date or a time that is none of the forms above: 3/4/2024, 31.12.24, 5 Jan 2024 or 5:12:33.
_CLOCK = r"\d{1,3}:[0-5]\d(:[0-5]\d([.,]\d+)?)?(\s?[ap]\.?m\.?)?"
_DAY, _YEAR = r"(0?[1-9]|[12]\d|3[01])", r"(\d{4}|\d\d)"  # or the number of a month
MOMENT = (
    rf"(?i:({_DAY}[./-]{_DAY}[./-]{_YEAR}|\d{{4}}[./-]{_DAY}[./-]{_DAY}|{_DAY}[ -]{_MONTH}[., -]{{1,2}}{_YEAR}|"
    rf"{_MONTH} {_DAY},? {_YEAR})([T ] ?{_CLOCK})?|{_CLOCK})"
)
ADVICE = {
    AMOUNT: "amounts, remove units, currency signs and thousands separators to use them as numbers",
    MOMENT: "dates or times, write dates as YYYY-MM-DD and times as numbers, such as minutes, to use them",
}


def advise(values: Iterable[str]) -> str:
    """The end of a note, if most of these values are amounts or plain numbers, or dates and times; else empty."""
    filled = [value.strip() for value in values if value.strip()]
    plain = sum(NUMBER.fullmatch(value) is not None for value in filled)  # 950.00 beside 1,250.00
    for pattern, advice in ADVICE.items():
        found = [value for value in filled if re.fullmatch(pattern, value)]
        if found and 2 * (len(found) + plain) > len(filled):
            return f"; if values such as {found[0][:40]!r} are {advice}"
    return ""
