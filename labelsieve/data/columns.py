"""A table of numbers, dates, categories and texts with gaps as a float32 matrix without gaps.

A number keeps its column; gaps get the median, and a second column of 0 and 1 marks them. A category becomes one column
per value; a gap is a value of its own. The texts of a row are joined and become the last columns (`TextFeatures`). Ids
are left out, and `features.py` leaves out columns with one value. Labels are not used. An `Encoding` reads the next
table in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.cells import PATTERNS, Form, Numbers, advise, is_text, read_numbers
from labelsieve.data.text import TextFeatures
from labelsieve.errors import InputError
from labelsieve.progress import Note, counted, join_names
from labelsieve.types import Samples

MAX_LEVELS = 50  # columns per category; with more, tables of ids and names would outgrow memory
MAX_EXAMPLES = 5  # values in one note
FIRST_ROWS = 1_000  # of a column that are compared first: nearly all columns have different values in them
COUNTER_GAPS = 1.5  # range of a counter per number in it: a third of the rows may have been deleted
FLOAT32_INTEGERS = 2.0**24  # larger integers are rounded in float32
FLOAT32_MAX = float(np.finfo(np.float32).max)
COLUMN_FORMS = ("text", *PATTERNS)

Notify = Callable[["str | Note"], None]
Place = Callable[[int], str]  # where the user finds a row, such as "line 3"


def ignore_note(text: str | Note) -> None:
    """Discard a note."""


def by_row(row: int) -> str:
    return f"row {row + 1}"


@dataclass(frozen=True)
class Origin:
    """Where values come from, for messages, and the function that receives notes about them."""

    where: str
    note: Notify = ignore_note
    place: Place = by_row


def quote_name(name: str) -> str:
    """The name of a column, in quotes if it has spaces."""
    return repr(name) if name != "".join(name.split()) or not name else name


def list_names(names: Iterable[str]) -> str:
    """As many names as fit into a message."""
    return ", ".join(map(quote_name, names))[:300]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A hint at the name of a column that is most like a name that does not exist; empty if none is like it."""
    folded = {other.casefold(): other for other in names}
    found = get_close_matches(name.casefold(), folded, n=1)
    return f" (did you mean {folded[found[0]]!r}?)" if found else ""


@dataclass(frozen=True)
class Column:
    name: str
    kind: Literal["number", "category"]
    median: float = 0.0
    gaps: bool = False  # whether a second column marks missing numbers
    levels: tuple[str, ...] = ()
    others: bool = False  # whether a column stands for all other levels
    form: Form | Literal["text"] = "number"  # of its cells; of a category, "text" for texts
    origin: float = 0.0  # subtracted from numbers and dates that float32 would round

    @property
    def width(self) -> int:
        if self.form == "text":
            return 0
        return 1 + self.gaps if self.kind == "number" else len(self.levels) + self.others


@dataclass(frozen=True)
class Encoding:
    """How the columns of a table were read. `to_json` writes all but `features`."""

    columns: tuple[Column, ...] = field(default=())
    features: TextFeatures | None = field(default=None, compare=False)  # of texts beside other columns

    @property
    def number_width(self) -> int:
        """Number of columns of the matrix before those of the texts."""
        return sum(column.width for column in self.columns)

    @property
    def texts(self) -> list[str]:
        """The columns of texts."""
        return [column.name for column in self.columns if column.form == "text"]

    @property
    def text(self) -> str | None:
        """The column of texts, if the samples are texts."""
        return self.columns[0].name if len(self.columns) == 1 and self.texts else None

    @property
    def commas(self) -> tuple[str, ...]:
        """Columns with decimal commas."""
        return tuple(column.name for column in self.columns if column.form == "comma")

    def to_json(self) -> list[dict[str, Any]]:
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_json(cls, content: list[dict[str, Any]]) -> Encoding:
        """Raises ValueError, TypeError or KeyError for anything that `to_json` does not write."""
        columns = [Column(**{**entry, "levels": tuple(entry["levels"])}) for entry in content]
        if any(column.form not in COLUMN_FORMS or type(column.origin) not in (int, float) for column in columns):
            raise ValueError("a column that is not one of a table")
        return cls(tuple(columns))


class TableX(Samples):
    """The encoded matrix, for models, and the table as the user wrote it, for people."""

    ndim = 2
    notes: tuple[str, ...] = ()  # on how a data frame was read

    def __init__(self, matrix: NDArray[np.float32], encoding: Encoding, table: Any) -> None:
        self.matrix, self.encoding, self.table = matrix, encoding, table

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]

    @property
    def dtype(self) -> np.dtype[np.float32]:
        return self.matrix.dtype

    def __len__(self) -> int:
        return len(self.matrix)

    def __getitem__(self, index: Any) -> Any:
        return self.matrix[index]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.matrix, dtype=dtype, copy=copy)

    def subset(self, rows: Any) -> TableX:
        return TableX(self.matrix[rows], self.encoding, self.table.take(rows))

    @property
    def numbers(self) -> NDArray[np.float32]:
        """The matrix without the features of texts."""
        return self.matrix[:, : self.encoding.number_width]

    @property
    def texts(self) -> list[str]:
        """The texts of each row, joined."""
        return _joined_texts(self.table, self.encoding.texts)

    def row(self, i: int) -> dict[str, Any]:
        """One sample as the user wrote it."""
        return {name: self.table.column(name)[i].as_py() for name in self.table.column_names}


class TextX(np.ndarray[Any, np.dtype[np.object_]]):
    """Texts that remember the name of their column, if it is not `text`, so that new texts are read from it."""

    encoding: Encoding | None = None

    def __array_finalize__(self, other: Any) -> None:
        self.encoding = other.encoding if isinstance(other, TextX) else None


def texts(values: Iterable[Any], *, column: str = "text") -> NDArray[np.object_]:
    """An array of texts. A missing text is empty."""
    listed = ["" if value is None else str(value) for value in values]
    out = np.empty(len(listed), dtype=object)
    out[:] = listed
    if column == "text":
        return out
    named = out.view(TextX)
    named.encoding = Encoding((Column(column, "category", form="text"),))
    return named


def encoding_of(x: Any) -> Encoding | None:
    """How the samples were read from the columns of a table; None for other samples."""
    return x.encoding if isinstance(x, TableX | TextX) else None


# ---------------------------------------------------------------- learning an encoding


def learn_encoding(table: Any, origin: Origin, *, texts: Sequence[str] = (), commas: bool = False) -> Encoding:
    """Find out what the feature columns of a pyarrow table are.

    `texts` are columns of texts. `commas`: commas before three digits are decimal commas.
    """
    columns, ids = [], []
    for name in table.column_names:
        if name in texts:
            columns.append(Column(name, "category", form="text"))
            continue
        values = table.column(name)
        numbers = read_numbers(values, commas=commas)
        if numbers is not None:
            _check_range(numbers.values, name, origin)
        if _is_counter(numbers) if numbers is not None else _are_ids(values):
            ids.append(name)
        elif numbers is not None:
            columns.append(_learn_number(name, numbers))
        else:
            columns.append(_learn_levels(name, values))
    if not columns:
        raise InputError(
            f"{origin.where} has no feature columns: {list_names(ids)} are ids; name a column of texts with "
            "--text-column, or pass only this column in Python"
        )
    for name in ids:
        advice = advise_column(table.column(name))
        origin.note(f"column {quote_name(name)} is left out because its values are ids{advice}")
    features = TextFeatures.learn(_joined_texts(table, texts)) if texts else None
    encoding = Encoding(tuple(columns), features)
    if encoding.commas:
        origin.note(f"decimal commas in {join_names(list(map(quote_name, encoding.commas)))}")
    for form, order in (("d/m/y", "day/month/year"), ("m/d/y", "month/day/year")):
        if dates := [quote_name(column.name) for column in columns if column.form == form]:
            origin.note(f"dates are read as {order} in {join_names(dates)}")
    advices = {column.name: advise(column.levels) for column in columns if column.kind == "category"}
    for name, advice in advices.items():
        if advice:
            origin.note(f"column {quote_name(name)} is read as categories{advice}")
    many = [quote_name(column.name) for column in columns if column.others and not advices[column.name]]
    if many:
        origin.note(f"only the {MAX_LEVELS - 1} most frequent values are used separately in {join_names(many)}")
    return encoding


def advise_column(values: Any) -> str:
    """`advise` about the first values of a column."""
    return advise(_texts(values.slice(0, MAX_LEVELS)))


def is_constant(values: Any) -> bool:
    """Whether a column has one value in all rows, or none."""
    import pyarrow as pa

    if pa.types.is_nested(values.type):  # lists have no `unique`
        return False
    for part in (values.slice(0, FIRST_ROWS), values):
        different = {"" if cell is None or cell != cell else str(cell).strip() for cell in part.unique().to_pylist()}
        if len(different) > 1:
            return False
    return True


def is_id(values: Any, commas: bool) -> bool:
    """Whether a column only identifies its rows."""
    numbers = read_numbers(values, commas=commas)
    return _are_ids(values) if numbers is None else _is_counter(numbers)


def _are_ids(values: Any) -> bool:
    """More than `MAX_LEVELS` words without spaces, all different."""
    import pyarrow.compute as pc

    if not is_text(values.type):
        return False
    filled = values.filter(pc.not_equal(values, ""))  # also removes nulls
    if len(filled) <= MAX_LEVELS or pc.any(pc.match_substring_regex(filled, r"\s")).as_py():
        return False
    return bool(pc.count_distinct(filled).as_py() == len(filled))


def _is_counter(numbers: Numbers) -> bool:
    """More than `MAX_LEVELS` integers, all different, that nearly fill their range: 1, 2, 3, ... in any order."""
    known = numbers.values[~np.isnan(numbers.values)]
    if numbers.is_date or len(known) <= MAX_LEVELS or np.ptp(known) + 1 > COUNTER_GAPS * len(known):
        return False
    return bool(np.all(known == np.floor(known))) and len(np.unique(known)) == len(known)


def _learn_number(name: str, numbers: Numbers) -> Column:
    known = numbers.values[~np.isnan(numbers.values)]
    median = float(np.median(known)) if len(known) else 0.0
    large = len(known) > 0 and bool(np.abs(known).max() > FLOAT32_INTEGERS)
    moved = float(np.floor(median)) if numbers.is_date or large else 0.0
    origin = moved if len(known) and np.abs(known - moved).max() <= FLOAT32_MAX else 0.0
    gaps = len(known) < len(numbers.values)
    return Column(name, "number", median=median - origin, gaps=gaps, form=numbers.form, origin=origin)


def _learn_levels(name: str, values: Any) -> Column:
    levels, counts = np.unique(_texts(values), return_counts=True)
    if len(levels) <= MAX_LEVELS:
        return Column(name, "category", levels=tuple(levels.tolist()))
    frequent = np.lexsort((levels, -counts))[: MAX_LEVELS - 1]  # ties by name, not by the order of the rows
    return Column(name, "category", levels=tuple(sorted(levels[frequent].tolist())), others=True)


# ---------------------------------------------------------------- encoding a table


def encode_table(
    table: Any, origin: Origin, encoding: Encoding | None = None, *, texts: Sequence[str] = (), commas: bool = False
) -> TableX:
    """A pyarrow table of feature columns as `TableX`, read as `encoding` says or as `learn_encoding` finds."""
    new_values = origin.note if encoding is not None else ignore_note
    if encoding is None:
        encoding = learn_encoding(table, origin, texts=texts, commas=commas)
    present = set(table.column_names)
    missing = [quote_name(column.name) for column in encoding.columns if column.name not in present]
    if missing:
        raise InputError(
            f"{origin.where} lacks columns that the model was trained with: {', '.join(missing)}; add these columns"
        )
    matrix = np.zeros((table.num_rows, encoding.number_width), dtype=np.float32)
    at = 0
    for column in encoding.columns:
        out, values = matrix[:, at : at + column.width], table.column(column.name)
        if column.kind == "number":
            numbers = _numbers_of(column, values, origin.where)
            if len(numbers.invalid_rows):
                origin.note(_about_invalid(column.name, numbers, origin.place))
            _fill_numbers(out, column, _check_range(numbers.values - column.origin, column.name, origin))
        elif column.form != "text":
            _fill_levels(out, column, values, new_values)
        at += column.width
    if encoding.features is not None:
        matrix = np.hstack([matrix, encoding.features.rows(_joined_texts(table, encoding.texts))])
    return TableX(matrix, encoding, table.select([column.name for column in encoding.columns]))


def _numbers_of(column: Column, values: Any, where: str) -> Numbers:
    assert column.form != "text"
    numbers = read_numbers(values, column.form)
    if numbers is None or (len(numbers.invalid_rows) and not numbers.filled):
        kind = "text" if is_text(values.type) else str(values.type)
        raise InputError(
            f"{where}: column {column.name!r} has {kind}, but the model was trained with {_EXAMPLES[column.form]}"
        )
    return numbers


_EXAMPLES: dict[Form, str] = {
    "number": "numbers",
    "comma": "numbers with decimal commas",
    "date": "dates",
    "d.m.y": "dates such as 31.12.2024",
    "d/m/y": "dates such as 31/12/2024",
    "m/d/y": "dates such as 12/31/2024",
}


def _about_invalid(name: str, numbers: Numbers, place: Place) -> str:
    count, kind = len(numbers.invalid_rows), "dates" if numbers.is_date else "numbers"
    example = f"{numbers.invalid_texts[0][:40]!r}, {place(int(numbers.invalid_rows[0]))}"
    return f"column {quote_name(name)} has {numbers.filled:,} {kind}; other values are missing: {count:,} ({example})"


def _check_range(values: NDArray[np.float64], name: str, origin: Origin) -> NDArray[np.float64]:
    """The values, all finite in float32 unless they are missing."""
    with np.errstate(invalid="ignore"):  # missing values are NaN
        large = np.abs(values) > FLOAT32_MAX
    if large.any():
        row = int(large.argmax())
        raise InputError(
            f"{origin.where}, {origin.place(row)}: column {name!r} has {values[row]:g}; values must be at most "
            f"{FLOAT32_MAX:.1e}"
        )
    return values


def _fill_numbers(out: NDArray[np.float32], column: Column, values: NDArray[np.float64]) -> None:
    gaps = np.isnan(values)
    out[:, 0] = np.where(gaps, column.median, values)
    if column.gaps:
        out[:, 1] = gaps


def _fill_levels(out: NDArray[np.float32], column: Column, values: Any, note: Notify) -> None:
    position = {level: i for i, level in enumerate(column.levels)}
    texts = _texts(values)
    new = [text for text in texts if text not in position and text]
    if new and not column.others:
        different = list(dict.fromkeys(new))
        shown = ", ".join(repr(value[:40]) for value in different[:MAX_EXAMPLES])
        more = ", ..." * (len(different) > MAX_EXAMPLES)
        note(
            f"column {quote_name(column.name)} has values that the model does not know in "
            f"{counted(len(new), 'row')}: {shown}{more}"
        )
    other = len(column.levels) if column.others else -1
    at = np.array([position.get(text, other) for text in texts], dtype=np.int64)
    known = np.flatnonzero(at >= 0)
    out[known, at[known]] = 1


def _joined_texts(table: Any, names: Sequence[str]) -> list[str]:
    return list(map("\n".join, zip(*(_texts(table.column(name)) for name in names), strict=True)))


def _texts(values: Any) -> list[str]:
    return ["" if value is None else str(value) for value in values.to_pylist()]  # null and empty are the same
