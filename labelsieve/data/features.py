"""What the samples of a table are: its texts, or all its columns. Named by the user, else found by a plain rule."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.csv_files import csv_line
from labelsieve.data.cells import clearly_commas, is_text, read_numbers
from labelsieve.data.columns import Encoding, Note, Place, by_row, encode_table, only_names_rows, silence, some, told
from labelsieve.data.text import UNSPACED, texts
from labelsieve.errors import InputError
from labelsieve.types import Kind

if TYPE_CHECKING:
    from labelsieve.data.read_options import ReadOptions

WORDS = 4  # in the middle one of a column's cells; names of people and things have fewer
A_NAME = 2  # words, which may be names, and are texts where nothing else is there


def read_features(
    table: Any,
    options: ReadOptions,
    *,
    where: str,
    commas: bool = False,
    note: Note = silence,
    place: Place = by_row,
) -> tuple[Any, Kind]:
    """The feature columns of a pyarrow table as samples, and their kind.

    `commas`: a comma in a number is a decimal comma unless the column shows otherwise.
    """
    text_column, ignored, encoding = options.text_column, options.ignore_columns, options.encoding
    if ignored:
        table = _without(table, ignored, encoding, where)
    names = table.column_names
    if encoding is not None:
        text_column = encoding.text
        if text_column is not None and text_column not in names:
            raise InputError(f"{where} lacks the column {told(text_column)} that the model was trained with")
    elif text_column is not None:
        if text_column not in names:
            raise InputError(
                f"{where} has no column {text_column!r}: its columns are {', '.join(map(told, names))[:300]}"
            )
    else:
        commas = commas or any(clearly_commas(column) for column in table.columns)
        text_column, table = _find_texts(table, where, commas, note, ignored if options.refuse_mixed else None)
    if text_column is None:
        return encode_table(table, where=where, encoding=encoding, commas=commas, note=note, place=place), "table"
    if encoding is None and len(names) > 1:
        note(f"left out beside the texts of column {told(text_column)}: {_listed(names, but=text_column)}")
    return texts(table.column(text_column).to_pylist(), column=text_column), "text"


def _without(table: Any, ignored: Sequence[str], encoding: Encoding | None, where: str) -> Any:
    names = table.column_names
    unknown = [repr(name) for name in ignored if name not in names]
    if unknown:
        lacking = " and no column ".join(unknown)
        others = ", ".join(map(told, names))[:300]
        raise InputError(f"{where} has no column {lacking} for --ignore-columns: those to choose from are {others}")
    needed = [column.name for column in (encoding.columns if encoding is not None else ()) if column.name in ignored]
    if needed:
        raise InputError(f"--ignore-columns {','.join(needed)}: the model was trained with what it is to leave out")
    if len(ignored) == len(names):
        raise InputError(f"{where}: --ignore-columns leaves no column of features")
    return table.drop_columns(list(ignored))


def _find_texts(
    table: Any, where: str, commas: bool, note: Note, ignored: Sequence[str] | None
) -> tuple[str | None, Any]:
    """The column of texts, where one is called so or there is no doubt; and the table without doubtful ones, which
    are asked about where somebody can say what is `ignored`."""
    names = table.column_names
    if "text" in names:
        return "text", table
    found = [name for name in names if _reads_like_text(table.column(name), WORDS)]
    if not found:
        return _find_names(table, commas, note), table
    # An address does not make a table of measurements a list of texts, nor does a price say what a title does.
    if any(_measures(table.column(name), commas) for name in names if name not in found):
        if ignored is not None:
            others = [name for name in names if name not in found and not only_names_rows(table.column(name), commas)]
            raise InputError(f"{where}: {_question(found, others, ignored)}")
        for name in map(told, found):
            note(f"column {name} reads like text and is left out; --text-column {name} reads it and nothing else")
        return None, table.drop_columns(found)
    if len(found) > 1:
        raise InputError(
            f"{where}: columns {', '.join(map(told, found))} all read like text: name one with {_by_text(found)}"
        )
    note(f"column {told(found[0])} is read as text; --text-column names another")
    return found[0], table


def _by_text(found: Sequence[str]) -> str:
    return " or ".join(f"--text-column {shlex.quote(name)}" for name in found)


def _question(found: Sequence[str], others: Sequence[str], ignored: Sequence[str]) -> str:
    """Which to judge by, with what to add to the command for each answer."""
    read = "column {} reads" if len(found) == 1 else "columns {} read"
    left_out = shlex.quote(csv_line([*ignored, *found]))
    return (
        f"{read.format(', '.join(map(told, found)))} like text beside other features: judge by the text alone with "
        f"{_by_text(found)}, or by the rest ({some(list(map(told, others)))}) with --ignore-columns {left_out}"
    )


def _find_names(table: Any, commas: bool, note: Note) -> str | None:
    """The column of short texts, where it is all there is; beside others they count as a category."""
    names = table.column_names
    short = [name for name in names if _reads_like_text(table.column(name), A_NAME)]
    short = [name for name in short if read_numbers(table.column(name), commas=commas) is None]
    others = [name for name in names if name not in short and not only_names_rows(table.column(name), commas)]
    if len(short) == 1 and not others:
        note(f"column {told(short[0])} is read as text, there being no other; --text-column names another")
        return str(short[0])
    for name in short:
        note(f"column {told(name)} is read as a category; if these are texts: --text-column {told(name)}")
    return None


def _reads_like_text(values: Any, least: int) -> bool:
    """Filled in at least half of the rows, mostly with another text each, and these have so many words."""
    import pyarrow.compute as pc

    if not is_text(values.type):
        return False
    filled = values.filter(pc.not_equal(values, ""))  # nulls go as well
    if not len(filled) or 2 * len(filled) < len(values) or 2 * pc.count_distinct(filled).as_py() <= len(filled):
        return False
    return bool(np.median(_words(filled)) >= least)


def _words(filled: Any) -> NDArray[np.float64]:
    """How many words each cell has; where no blanks stand between them, two letters are one."""
    import pyarrow.compute as pc

    words = pc.list_value_length(pc.utf8_split_whitespace(pc.utf8_trim_whitespace(filled)))
    letters = pc.count_substring_regex(filled, f"[{UNSPACED}]")
    return np.maximum(np.asarray(words, dtype=np.float64), np.asarray(letters, dtype=np.float64) / 2)


def _measures(values: Any, commas: bool) -> bool:
    """Numbers that say something: whole ones that never repeat may as well count the rows, and dates tell when."""
    numbers = read_numbers(values, commas=commas)
    if numbers is None or numbers.what == "date":
        return False
    known = numbers.values[~np.isnan(numbers.values)]
    whole = bool(np.all(known == np.floor(known)))
    return not whole or len(np.unique(known)) < len(known)


def _listed(names: Sequence[str], *, but: str) -> str:
    return some([told(name) for name in names if name != but])
