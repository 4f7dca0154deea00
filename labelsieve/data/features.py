"""What the samples of a table are: the texts of one column, or the features in all columns.

The user names the column of texts, or a rule finds it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.csv_files import csv_line
from labelsieve.data.cells import has_decimal_commas, is_text, read_numbers
from labelsieve.data.columns import (
    Encoding,
    Notify,
    Place,
    by_row,
    encode_table,
    ignore_note,
    is_id,
    join_names,
    quote_name,
)
from labelsieve.data.text import UNSPACED, texts
from labelsieve.errors import InputError
from labelsieve.types import Kind

if TYPE_CHECKING:
    from labelsieve.data.read_options import ReadOptions

TEXT_WORDS = 4  # words in the median cell of a column of texts; names of people and products are shorter
NAME_WORDS = 2  # the same if the table has no other feature: a category with a level per row would be useless


def read_features(
    table: Any,
    options: ReadOptions,
    *,
    where: str,
    commas: bool = False,
    note: Notify = ignore_note,
    place: Place = by_row,
) -> tuple[Any, Kind]:
    """The feature columns of a pyarrow table as samples, and their kind.

    `commas`: commas before three digits are decimal commas. They also are if another column has clear decimal commas.
    """
    text_column, encoding = options.text_column, options.encoding
    if options.ignore_columns:
        table = _without_ignored(table, options.ignore_columns, encoding, where)
    names = table.column_names
    if encoding is not None:
        text_column = encoding.text
        if text_column is not None and text_column not in names:
            raise InputError(f"{where} has no column {quote_name(text_column)}, which the model was trained with")
    elif text_column is not None:
        if text_column not in names:
            raise InputError(f"{where} has no column {text_column!r}: its columns are {_listed(names)}")
    else:
        commas = commas or any(has_decimal_commas(column) for column in table.columns)
        text_column, table = _find_texts(table, options, where, commas, note)
    if text_column is None:
        return encode_table(table, encoding, where=where, commas=commas, note=note, place=place), "table"
    if encoding is None and len(names) > 1:
        others = join_names([quote_name(name) for name in names if name != text_column])
        note(f"the texts of column {quote_name(text_column)} are used, and not {others}")
    return texts(table.column(text_column).to_pylist(), column=text_column), "text"


def _without_ignored(table: Any, ignored: Sequence[str], encoding: Encoding | None, where: str) -> Any:
    names = table.column_names
    unknown = [repr(name) for name in ignored if name not in names]
    if unknown:
        raise InputError(f"--ignore-columns: {where} has no column {', '.join(unknown)}; choose from {_listed(names)}")
    needed = [column.name for column in (encoding.columns if encoding is not None else ()) if column.name in ignored]
    if needed:
        raise InputError(f"--ignore-columns {','.join(needed)}: the model was trained with this column")
    if len(ignored) == len(names):
        raise InputError(f"{where}: --ignore-columns leaves no feature column")
    return table.drop_columns(list(ignored))


def _find_texts(
    table: Any, options: ReadOptions, where: str, commas: bool, note: Notify
) -> tuple[str | None, Any]:  # fmt: skip
    """The column of texts, or None and the table of features."""
    names = table.column_names
    if "text" in names:
        return "text", table
    found = [name for name in names if _looks_like_text(table.column(name), TEXT_WORDS)]
    if not found:
        return _find_short_texts(table, commas, note), table
    others = [name for name in names if name not in found]
    if any(_is_informative(table.column(name), commas) for name in others):
        if options.refuse_mixed:
            features = [name for name in others if not is_id(table.column(name), commas)]
            raise InputError(f"{where}: {_choice(found, features, options.ignore_columns)}")
        for name in map(quote_name, found):
            note(f"column {name} has texts and is left out; use only the texts with --text-column {name}")
        return None, table.drop_columns(found)
    if len(found) > 1:
        raise InputError(f"{where}: columns {_listed(found)} have texts; choose one with {_text_options(found)}")
    note(f"column {quote_name(found[0])} is read as text; use --text-column for another one")
    return found[0], table


def _find_short_texts(table: Any, commas: bool, note: Notify) -> str | None:
    """The column of short texts if it is the only feature. Next to other features it is a category."""
    names = table.column_names
    short = [
        name
        for name in names
        if _looks_like_text(table.column(name), NAME_WORDS) and read_numbers(table.column(name), commas=commas) is None
    ]
    others = [name for name in names if name not in short and not is_id(table.column(name), commas)]
    if len(short) == 1 and not others:
        note(f"column {quote_name(short[0])} is read as text; use --text-column for another one")
        return str(short[0])
    for name in map(quote_name, short):
        note(f"column {name} is read as a category; if it has texts, use --text-column {name}")
    return None


def _text_options(found: Sequence[str]) -> str:
    return " or ".join(f"--text-column {shlex.quote(name)}" for name in found)


def _choice(found: Sequence[str], features: Sequence[str], ignored: Sequence[str]) -> str:
    """The error for texts next to other features, with the option for each choice."""
    left_out = shlex.quote(csv_line([*ignored, *found]))
    return (
        f"there are texts ({_listed(found)}) and other features ({join_names(list(map(quote_name, features)))}); use "
        f"only the texts with {_text_options(found)}, or only the other features with --ignore-columns {left_out}"
    )


def _looks_like_text(values: Any, least_words: int) -> bool:
    """At least half of the cells are filled, more than half of these are different, and the median has enough words."""
    import pyarrow.compute as pc

    if not is_text(values.type):
        return False
    filled = values.filter(pc.not_equal(values, ""))  # also removes nulls
    if not len(filled) or 2 * len(filled) < len(values) or 2 * pc.count_distinct(filled).as_py() <= len(filled):
        return False
    return bool(np.median(_word_counts(filled)) >= least_words)


def _word_counts(filled: Any) -> NDArray[np.float64]:
    """Number of words per cell. In scripts without spaces, such as Chinese, two letters count as a word."""
    import pyarrow.compute as pc

    words = pc.list_value_length(pc.utf8_split_whitespace(pc.utf8_trim_whitespace(filled)))
    letters = pc.count_substring_regex(filled, f"[{UNSPACED}]")
    return np.maximum(np.asarray(words, dtype=np.float64), np.asarray(letters, dtype=np.float64) / 2)


def _is_informative(values: Any, commas: bool) -> bool:
    """Numbers that may depend on the class: decimals, or integers that repeat. Others may count rows or days."""
    numbers = read_numbers(values, commas=commas)
    if numbers is None or numbers.is_date:
        return False
    known = numbers.values[~np.isnan(numbers.values)]
    return bool((known != np.floor(known)).any()) or len(np.unique(known)) < len(known)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(quote_name, names))[:300]
