"""A table of numbers and categories with gaps, as the finite float32 matrix that every model can read.

A number column is kept, its gaps filled with the median, and a column of 0 and 1 says where they were; a date is the
number of its day, a time a part of one, and a price or a percentage its number alone. A category column becomes one
column a level, a gap being a level of its own; of many levels those that are too rare to say anything, and the rarest
beyond `MOST_LEVELS`, share one. Words that are another one in every row are ids, and no features; so are numbers that
count the rows. Labels play no part. What was learnt from one table (`Encoding`) is plain JSON and reads the next one
the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.cells import DATES, MOST_LOOKED_AT, NEARLY_ALL, Form, Numbers, is_text, read_numbers
from labelsieve.data.units import FAMILIES, Around, measured
from labelsieve.errors import InputError
from labelsieve.types import Samples

MOST_LEVELS = 50
FEW_LEVELS = 10  # of which even the rare ones drown nothing
LEAST_ROWS = (5, 10)  # of a level that may say something: one in a hundred rows, but no fewer and no more than these
FEW = 10  # names in one line
DENSE = 1.5  # a counter's range, for each of its numbers: some rows may be gone
DIFFERENT = 0.98  # of a counter's numbers: some rows may have been copied
FEW_NEW = 5  # values in a line
MOST_WORDS = 20  # for a missing number that are remembered
FORMS = ("", "text", "comma", *DATES)  # that a column may have
LARGEST = float(np.finfo(np.float32).max)

Note = Callable[[str], None]
Place = Callable[[int], str]  # where a person finds a row


def silence(text: str) -> None:
    """Nobody is told."""


def told(name: str) -> str:
    """A column's name in a line, in quotes where blanks would hide where it ends."""
    return repr(name) if name != "".join(name.split()) or not name else name


def by_row(row: int) -> str:
    return f"row {row + 1}"


@dataclass(frozen=True)
class Column:
    name: str
    kind: Literal["number", "category"]
    median: float = 0.0
    gaps: bool = False  # were there any: then a column says where
    levels: tuple[str, ...] = ()
    others: bool = False  # does a column stand for every other level
    form: Form | Literal["", "text"] = ""  # how a number or date is written ("": with a point); words for a model
    origin: float = 0.0  # the day or number that is 0: float32 has no room for seconds or minutes since 1970
    missing: tuple[str, ...] = ()  # words among the numbers that say there is none
    before: str = ""  # what may stand around its numbers, and between thousands
    after: str = ""
    thousands: str = ""
    family: str = ""  # where its units differ

    @property
    def written(self) -> Form:
        """How its numbers are."""
        assert self.form != "text"
        return self.form or "number"

    @property
    def around(self) -> Around:
        return Around(self.before, self.after, self.thousands, self.family)

    @property
    def width(self) -> int:
        if self.form == "text":
            return 0
        return 1 + self.gaps if self.kind == "number" else len(self.levels) + self.others


@dataclass(frozen=True)
class Encoding:
    columns: tuple[Column, ...] = field(default=())

    @property
    def width(self) -> int:
        return sum(column.width for column in self.columns)

    @property
    def text(self) -> str | None:
        """The one column that holds the samples, where they are texts."""
        return next((column.name for column in self.columns if column.form == "text"), None)

    @property
    def commas(self) -> tuple[str, ...]:
        """Columns with decimal commas."""
        return tuple(column.name for column in self.columns if column.form == "comma")

    @property
    def words(self) -> tuple[str, ...]:
        """Columns in which whoever reads a file must not take 1.234 for a number with a point."""
        return tuple(
            column.name for column in self.columns if column.form == "comma" or column.thousands or column.family
        )

    def to_json(self) -> list[dict[str, Any]]:
        entries = [asdict(column) for column in self.columns]
        for entry in entries:
            if not entry["family"]:  # earlier versions read models that do not need it
                del entry["family"]
        return entries

    @classmethod
    def from_json(cls, content: list[dict[str, Any]]) -> Encoding:
        """ValueError where an entry is none that `to_json` writes."""
        columns = []
        for entry in content:
            # Models of earlier versions lack what is asked for with a default.
            form, origin, missing = entry.get("form", ""), entry.get("origin", 0.0), entry.get("missing", [])
            numeric, listed = type(origin) in (int, float), isinstance(missing, list | tuple)
            around = [entry.get(name, "") for name in ("before", "after", "thousands")]
            fine = all(isinstance(sign, str) for sign in around) and around[-1] in ("", ",", ".")
            family = entry.get("family", "")
            fine = fine and (family == "" or entry.get("after") in FAMILIES.get(str(family), {}))
            if form not in FORMS or not numeric or not listed or not fine:
                raise ValueError("a column that is not one of a table")
            known = {**entry, "levels": tuple(entry["levels"]), "missing": tuple(map(str, missing))}
            columns.append(Column(**known))
        return cls(tuple(columns))


class TableX(Samples):
    """The encoded matrix, which is what indexing and numpy see, beside the rows as the user wrote them."""

    ndim = 2

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
        """Some of the samples, read as all of them were."""
        return TableX(self.matrix[rows], self.encoding, self.table.take(rows))

    def row(self, i: int) -> dict[str, Any]:
        """One sample as it was written, for a person to look at."""
        return {name: self.table.column(name)[i].as_py() for name in self.table.column_names}


def encode_table(
    table: Any,
    *,
    where: str,
    encoding: Encoding | None = None,
    commas: bool = False,
    note: Note = silence,
    place: Place = by_row,
) -> TableX:
    """A pyarrow table of feature columns to `TableX`; with `encoding`, as another table was read.

    `commas`: numbers of this table have decimal commas wherever that is possible. `note` is told what a person may want
    to know, `place` names a row for it.
    """
    known = encoding is not None
    if encoding is None:
        encoding = _learn_all(table, where, commas, note, place)
    lacking = [column.name for column in encoding.columns if column.name not in table.column_names]
    if lacking:
        names = f"column{'s' * (len(lacking) > 1)} {', '.join(map(told, lacking))}"
        raise InputError(f"{where} lacks the {names} that the model was trained with")
    matrix = np.zeros((table.num_rows, encoding.width), dtype=np.float32)
    at = 0
    for column in encoding.columns:
        out, values = matrix[:, at : at + column.width], table.column(column.name)
        if column.kind == "number":
            _fill_numbers(out, column, values, where, note, place)
        else:
            _fill_levels(out, column, values, note if known else silence)
        at += column.width
    return TableX(matrix, encoding, table.select([column.name for column in encoding.columns]))


def _learn_all(table: Any, where: str, commas: bool, note: Note, place: Place) -> Encoding:
    columns, ids = [], []
    for name in table.column_names:
        column = _learn(name, table.column(name), where, commas, place)
        if column is None:
            ids.append(name)
        else:
            columns.append(column)
    if not columns:
        raise InputError(
            f"{where} has no columns of features: {', '.join(map(told, ids))[:300]} only name the rows, as ids do; "
            "--text-column names the one with texts"
        )
    for name in ids:
        note(f"column {told(name)} is left out: it only names the rows, as ids do")
    encoding = Encoding(tuple(columns))
    if encoding.commas:
        note(f"{_columns(encoding.commas)}: commas are taken as decimal points")
    for column in encoding.columns:
        if column.family:
            note(f"column {column.name!r}: read as numbers of {column.after!r}, whatever the unit ({column.family})")
    if signs := {column.name: column.around for column in encoding.columns if column.around and not column.family}:
        beside = some(
            [repr(sign) for sign in dict.fromkeys(s for a in signs.values() for s in (a.before, a.after) if s)]
        )
        note(f"{_columns(list(signs))}: read as numbers" + f" without {beside}" * bool(beside))
    shared = [column.name for column in encoding.columns if column.others]
    if shared:
        rare = f"those in fewer than {least_rows(table.num_rows)} rows, and all but the {MOST_LEVELS - 1} most frequent"
        note(f"{_columns(shared)}: of the many values {rare}, count as one")
    return encoding


def _columns(names: Sequence[str]) -> str:
    """Some names, for the beginning of a line."""
    return f"column{'s' * (len(names) > 1)} {some(list(map(repr, names)))}"


def some(names: Sequence[str]) -> str:
    """As many as one line has room for."""
    more = f" and {len(names) - FEW:,} more" if len(names) > FEW else ""
    return ", ".join(names[:FEW]) + more


def only_names_rows(values: Any, commas: bool) -> bool:
    """Is this an id, or a number that counts the rows?"""
    numbers = read_numbers(values, commas=commas)
    return _are_ids(values) if numbers is None else _counts(numbers)


def _counts(numbers: Numbers) -> bool:
    beside = numbers.what == "date" or numbers.around.before or numbers.around.after
    return not beside and _count_rows(numbers.values[~np.isnan(numbers.values)])


def _learn(name: str, values: Any, where: str, commas: bool, place: Place) -> Column | None:
    """What a column is; None where it is an id."""
    numbers = read_numbers(values, commas=commas)
    if numbers is not None:
        known = _fitting(_finite(numbers, name, where), name, where, place)
        known = known[~np.isnan(known)]
        if _counts(numbers):
            return None
        median = float(np.median(known)) if len(known) else 0.0
        gaps, missing = len(known) < len(numbers.values), numbers.words[:MOST_WORDS]
        form: Form | Literal[""] = "" if numbers.form == "number" else numbers.form
        origin = float(np.floor(median)) if numbers.what == "date" else _origin(known)
        return Column(
            name, "number", form=form, median=median - origin, gaps=gaps, origin=origin, missing=missing,
            **asdict(numbers.around),
        )  # fmt: skip
    if _are_ids(values):
        return None
    return _learn_levels(name, values)


def least_rows(rows: int) -> int:
    """In how many of so many rows a level must stand to have a column of its own beside many others."""
    fewest, most = LEAST_ROWS
    return min(max(rows // 100, fewest), most)


def _learn_levels(name: str, values: Any) -> Column:
    levels, counts = np.unique(_texts(values), return_counts=True)
    # Ties by name, so that the choice does not hang on the order of the rows.
    kept = np.lexsort((levels, -counts))
    if len(levels) > FEW_LEVELS:
        kept = kept[counts[kept] >= least_rows(len(values))]
    if len(levels) <= MOST_LEVELS and len(kept) >= len(levels) - 1:  # one alone has nobody to share with
        return Column(name, "category", levels=tuple(levels.tolist()))
    return Column(name, "category", levels=tuple(sorted(levels[kept[: MOST_LEVELS - 1]].tolist())), others=True)


def _origin(known: NDArray[np.float64]) -> float:
    """What to take off numbers before they become float32: the middle one, where that keeps more of them apart."""
    if np.array_equal(known.astype(np.float32), known):
        return 0.0
    middle = float(np.partition(known, len(known) // 2)[len(known) // 2])  # one of them: whole numbers stay whole
    if np.abs(known - middle).max() > LARGEST:
        return 0.0
    if np.array_equal(known, np.floor(known)):
        plain, moved = (int(np.sum(v.astype(np.float32) == v)) for v in (known, known - middle))
        return middle if moved > plain else 0.0
    # Of very many decimals some always fall together: only where clearly fewer would, it is worth another scale.
    plain, moved = (len(np.unique(v.astype(np.float32))) for v in (known, known - middle))
    return middle if moved > 1.1 * plain else 0.0


def _are_ids(values: Any) -> bool:
    """Words without blanks, each another one, and too many to be levels; but for numbers with something around them."""
    import pyarrow.compute as pc

    if not is_text(values.type):
        return False
    filled = values.filter(pc.not_equal(values, ""))  # nulls go as well
    if len(filled) <= MOST_LEVELS or pc.any(pc.match_substring_regex(filled, r"\s")).as_py():
        return False
    if pc.count_distinct(filled).as_py() < len(filled):
        return False
    seen = filled.take(np.arange(0, len(filled), max(1, len(filled) // MOST_LOOKED_AT))).to_pylist()
    return sum(map(measured, seen)) < NEARLY_ALL * len(seen)


def _count_rows(known: NDArray[np.float64]) -> bool:
    """Whole numbers, nearly each another one, with few between that are not there: 1, 2, 3, ... in any order."""
    if len(known) <= MOST_LEVELS or known.max() - known.min() + 1 > DENSE * len(known):
        return False
    return bool(np.all(known == np.floor(known))) and len(np.unique(known)) >= DIFFERENT * len(known)


def _finite(numbers: Numbers, name: str, where: str) -> NDArray[np.float64]:
    infinite = np.isinf(numbers.values)
    if infinite.any():
        raise InputError(f"{where}: column {name!r} is infinite in row {int(infinite.argmax()) + 1}")
    return numbers.values


def _fitting(values: NDArray[np.float64], name: str, where: str, place: Place) -> NDArray[np.float64]:
    """`values`, which must all be finite in float32 as well."""
    with np.errstate(invalid="ignore"):  # gaps are nan
        large = np.abs(values) > LARGEST
    if large.any():
        row = int(large.argmax())
        raise InputError(
            f"{where}, {place(row)}: column {name!r} holds {values[row]:g}, which is too large: "
            f"at most {LARGEST:.1e} can be read"
        )
    return values


def _texts(values: Any) -> list[str]:
    # A gap and an empty cell are the same to whoever wrote the file.
    return ["" if value is None else str(value) for value in values.to_pylist()]


def _fill_numbers(out: NDArray[np.float32], column: Column, values: Any, where: str, note: Note, place: Place) -> None:
    numbers = read_numbers(values, column.written, around=column.around)
    # Where nothing is a number, this is another column, unless it only says what was said for missing before.
    if numbers is None or (len(numbers.odd) and not numbers.filled and not set(numbers.words) <= set(column.missing)):
        held = "text" if is_text(values.type) else str(values.type)
        trained = _TRAINED[column.written] + f" with units of {column.family}" * bool(column.family)
        raise InputError(f"{where}: column {column.name!r} holds {held} where the model was trained with {trained}")
    if len(numbers.odd):
        note(_about_odd(column.name, numbers, place))
    found = _fitting(_finite(numbers, column.name, where) - column.origin, column.name, where, place)
    gaps = np.isnan(found)
    out[:, 0] = np.where(gaps, column.median, found)
    if column.gaps:
        out[:, 1] = gaps


_TRAINED: dict[Form, str] = {
    "number": "numbers",
    "comma": "numbers with decimal commas",
    "date": "dates",
    "d.m.y": "dates such as 31.12.2024",
    "d/m/y": "dates such as 31/12/2024",
    "m/d/y": "dates such as 12/31/2024",
    "d mon y": "dates such as 31 Dec 2024",
    "mon d y": "dates such as Dec 31, 2024",
    "clock": "times such as 14:05",
}


def _about_odd(name: str, numbers: Numbers, place: Place) -> str:
    first, count = place(int(numbers.odd[0])), len(numbers.odd)
    example = f"{numbers.words[0][:40]!r}, {first}"
    others = f"1 other value ({example}), which counts"
    if count > 1:
        others = f"{count:,} other values (the first is {example}), which count"
    what = "time" if numbers.form == "clock" else numbers.what
    return f"column {told(name)}: {numbers.filled:,} {what}s and {others} as missing"


def _fill_levels(out: NDArray[np.float32], column: Column, values: Any, note: Note) -> None:
    position = {level: i for i, level in enumerate(column.levels)}
    elsewhere = len(column.levels) if column.others else -1
    texts = _texts(values)
    new = [text for text in texts if text not in position and text]
    if new and not column.others:
        note(_about_new(column.name, new, f"in {len(new):,} of {len(texts):,} rows"))
    # Where rare levels share one, nobody knows which were there; that nothing but such is, is odd.
    elif position and len(new) >= LEAST_ROWS[1] and position.keys().isdisjoint(texts):
        note(_about_new(column.name, new, "and no other, or only as rare ones: all count as one value"))
    at = np.array([position.get(text, elsewhere) for text in texts], dtype=np.int64)
    known = np.flatnonzero(at >= 0)
    out[known, at[known]] = 1


def _about_new(name: str, values: Sequence[str], more: str) -> str:
    different = list(dict.fromkeys(values))
    shown = ", ".join(repr(value[:40]) for value in different[:FEW_NEW]) + ", ..." * (len(different) > FEW_NEW)
    what = "a value" if len(different) == 1 else f"{len(different):,} values"
    return f"column {told(name)}: {what} that the model was not trained with ({shown}), {more}"
