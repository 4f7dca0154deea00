"""What the samples of a table are: the texts of one column, or all columns, with the texts among them.

The user names the column of texts, or a rule finds columns of texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.cells import has_decimal_commas, is_text, read_numbers
from labelsieve.data.columns import (
    Encoding,
    Notify,
    Origin,
    advise_column,
    did_you_mean,
    encode_table,
    is_constant,
    is_id,
    list_names,
    quote_name,
    texts,
)
from labelsieve.data.text import UNSPACED
from labelsieve.errors import InputError
from labelsieve.progress import Note, NoteKind, join_names
from labelsieve.types import Kind

if TYPE_CHECKING:
    from labelsieve.data.read_options import ReadOptions

TEXT_WORDS = 4  # words in the median cell of a column of texts; names of people and products are shorter
NAME_WORDS = 2  # the same if the table has no other feature: a category with a level per row would be useless


def read_features(table: Any, options: ReadOptions, origin: Origin, *, commas: bool = False) -> tuple[Any, Kind]:
    """The feature columns of a pyarrow table as samples, and their kind.

    `commas`: commas before three digits are decimal commas. They also are if another column has clear decimal commas.
    """
    text_column, encoding, where, note = options.text_column, options.encoding, origin.where, origin.note
    found: list[str] = []
    if options.ignore_columns:
        table = _without_ignored(table, options.ignore_columns, encoding, where)
    names = table.column_names
    if encoding is not None or text_column is not None:
        text_column = text_column if encoding is None else encoding.text
        if text_column is not None and text_column not in names:
            model = "" if encoding is None else ", which the model was trained with"
            raise InputError(
                f"{where} has no column {quote_name(text_column)}{model}{did_you_mean(text_column, names)}: "
                f"its columns are {list_names(names)}"
            )
    else:
        if options.for_learning and table.num_rows > 1:
            table = _without_constants(table, origin)
            names = table.column_names
        commas = commas or any(has_decimal_commas(column) for column in table.columns)
        found = _find_texts(table, commas, note)
        alone = len(found) == 1 and all(name in found or is_id(table.column(name), commas) for name in names)
        text_column = found[0] if found and (alone or found == ["text"]) else None
    if text_column is None:
        if encoding is None and found:
            note(Note.of(NoteKind.TEXTS_AND_OTHERS, texts=join_names(list(map(quote_name, found)))))
        return encode_table(table, origin, encoding, texts=found, commas=commas), "table"
    if found and text_column != "text":
        note(
            f"column {quote_name(text_column)} is read as text; for another one, use --text-column, or pass only that "
            "column in Python"
        )
    if encoding is None and len(names) > 1:
        others = join_names([quote_name(name) for name in names if name != text_column])
        note(f"the texts of column {quote_name(text_column)} are used, and not {others}")
    return texts(table.column(text_column).to_pylist(), column=text_column), "text"


def _without_ignored(table: Any, ignored: Sequence[str], encoding: Encoding | None, where: str) -> Any:
    names = table.column_names
    unknown = [f"{name!r}{did_you_mean(name, names)}" for name in ignored if name not in names]
    if unknown:
        raise InputError(
            f"--ignore-columns: {where} has no column {', '.join(unknown)}; choose from {list_names(names)}"
        )
    needed = [column.name for column in (encoding.columns if encoding is not None else ()) if column.name in ignored]
    if needed:
        raise InputError(f"--ignore-columns {','.join(needed)}: the model was trained with this column")
    if len(ignored) == len(names):
        raise InputError(f"{where}: --ignore-columns leaves no feature column")
    return table.drop_columns(list(ignored))


def _without_constants(table: Any, origin: Origin) -> Any:
    """The table without the columns that have one value in all rows, or none."""
    # By their place: finding a column by its name takes long in a table of 100,000 columns.
    different = [not is_constant(values) for values in table.columns]
    constant = [name for name, differs in zip(table.column_names, different, strict=True) if not differs]
    if not any(different):
        raise InputError(
            f"{origin.where} has no features: each of the columns {list_names(constant)} has one value in all rows, or "
            "none; add a column with different values"
        )
    if constant:
        listed = join_names(list(map(quote_name, constant)))
        origin.note(f"columns that are left out, because they have one value in all rows, or none: {listed}")
    return table.select(np.flatnonzero(different).tolist())


def _find_texts(table: Any, commas: bool, note: Notify) -> list[str]:
    """The columns of texts. Short texts are a category unless they are the only feature."""
    names = table.column_names
    if "text" in names:
        return ["text"]
    found = [name for name in names if _looks_like_text(table.column(name), TEXT_WORDS)]
    if found:
        return found
    short = [
        name
        for name in names
        if _looks_like_text(table.column(name), NAME_WORDS)
        and read_numbers(table.column(name), commas=commas) is None
        and not advise_column(table.column(name))
    ]
    if len(short) == 1 and all(name in short or is_id(table.column(name), commas) for name in names):
        return short
    for name in map(quote_name, short):
        note(
            f"column {name} is read as a category; if it has texts, use --text-column {name}, or pass only this column "
            "in Python"
        )
    return []


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
