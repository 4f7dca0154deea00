"""Tables to export: the columns of the source if it is a table, else ids and labels."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from labelsieve.csv_files import CsvFormat, CsvWriter, make_harmless
from labelsieve.data.cells import is_text
from labelsieve.data.labels import OTHERS, STATUS_COLUMN, is_same_label
from labelsieve.data.source import TABLES
from labelsieve.decisions import Choice
from labelsieve.errors import InputError
from labelsieve.files import atomic_writer
from labelsieve.labels_csv import LabelColumns, index_in
from labelsieve.report.facts import Facts
from labelsieve.report.source_state import SourceTable
from labelsieve.types import VERDICTS, IntArray

BATCH_ROWS = 50_000  # rows that are converted to text at a time


@dataclass(frozen=True)
class Extra:
    """What a table of corrected labels has besides the rows of the run."""

    status: Any = None  # text per sample of the run, for the column STATUS_COLUMN; None: no such column
    skipped_ids: Sequence[str] = ()  # rows that the run skipped: they are included unchanged
    dropped: int = 0  # number of samples that were left out: a column beside ids and labels


NO_EXTRA = Extra()


def corrected_table(facts: Facts, rows: IntArray, label: Any, *, typed: bool, extra: Extra = NO_EXTRA) -> Any:
    """The table of the source with corrected labels; ids and labels if the source is not a table."""
    columns = facts.columns
    names = np.array(columns.classes, dtype=object)[label[rows]].tolist()
    status = None if extra.status is None else np.asarray(extra.status, dtype=object)[rows].tolist()
    if not facts.source.is_table:
        named = facts.source.name
        if facts.source.path is None and Path(named).suffix.lower() in TABLES:
            raise InputError(
                f"{named} does not exist any more, so its columns cannot be exported; restore it, or copy it to "
                f"{facts.run.path.resolve().parent / Path(named).name}"
            )
        found = {"id": columns.ids.take(pa.array(rows)), "label": pa.array(names, pa.string())}
        if extra.dropped:
            found[OTHERS] = pa.array([extra.dropped] * len(rows), pa.int64())
        return _with_status(pa.table(found), status)
    original = facts.source.table(typed=typed)
    at = original.rows_of(columns)[rows]
    if (at < 0).any():
        lost = columns.id(int(rows[int(np.argmin(at))]))
        raise InputError(
            f"{facts.source.path} has changed since the run: {lost!r} is missing; restore it, or select again with "
            "another --out"
        )
    order, at = _with_skipped(original, at, extra.skipped_ids)
    own: list[Any] = [None] * original.table.num_rows
    if original.label in original.names:
        own = [None if cell is None else str(cell) for cell in original.table.column(original.label).to_pylist()]
    names = [names[i] if i >= 0 else own[row] for i, row in zip(order.tolist(), at.tolist(), strict=True)]
    if status is not None:
        status = [status[i] if i >= 0 else "" for i in order.tolist()]
    table = original.table.take(pa.array(at))
    if original.label not in original.names:
        table = table.append_column(original.label, pa.array(names, pa.string()))
        return _with_status(table.rename_columns([*original.original_names, original.label]), status)
    column = _as_before(pa.array(_as_written(names, original, at), pa.string()), table, original.label)
    table = table.set_column(table.column_names.index(original.label), original.label, column)
    return _with_status(table.rename_columns(list(original.original_names)), status)


def _with_status(table: Any, status: list[str] | None) -> Any:
    """The table with a last column STATUS_COLUMN, which replaces that of an earlier export."""
    if STATUS_COLUMN in table.column_names:
        table = table.drop_columns([STATUS_COLUMN])
    return table if status is None else table.append_column(STATUS_COLUMN, pa.array(status, pa.string()))


def _as_written(names: list[str], original: SourceTable, at: IntArray) -> list[str]:
    """Labels in the form of the source: an unchanged label keeps its cell, so that 1.0 stays 1.0."""
    cells = original.table.column(original.label)
    if not is_text(cells.type):
        return names
    texts = ["" if text is None else text for text in cells.to_pylist()]
    forms: dict[str, str] = {}  # the first form of each class
    for text, name in zip((texts[row] for row in at.tolist()), names, strict=True):
        if is_same_label(text.strip(), name):
            forms.setdefault(name, text.strip())
    return [
        texts[row] if is_same_label(texts[row].strip(), name) else forms.get(name, name)
        for row, name in zip(at.tolist(), names, strict=True)
    ]


def _with_skipped(original: SourceTable, at: IntArray, skipped_ids: Sequence[str]) -> tuple[IntArray, IntArray]:
    """The position in `at` (-1: a skipped row) and the row of every line to write, skipped rows at their place."""
    # Skipped rows may share an id or have none: all of them are included.
    more = np.flatnonzero(index_in(original.row_ids(), pa.array(skipped_ids, pa.string())) >= 0)
    more = np.setdiff1d(more, at)
    every = np.concatenate([at, more])
    order = np.argsort(every, kind="stable") if len(more) else np.arange(len(at))
    return np.where(order < len(at), order, -1), every[order]


def _as_before(names: Any, table: Any, label: str) -> Any:
    """Labels in the type of the source, if they fit it."""
    if label not in table.column_names:
        return names
    before = table.column(label).type
    try:
        return names.cast(before.value_type if pa.types.is_dictionary(before) else before)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return names


def suspects(facts: Facts, rows: IntArray, *, typed: bool) -> Any:
    """The suspects, beside the columns of the source if it is a table."""
    columns = facts.columns
    right = facts.suggested_probability
    found = pa.table(
        {
            "id": columns.ids.take(pa.array(rows)),
            "label": _names(columns, columns.label[rows]),
            "suggested": _names(columns, columns.suggested[rows]),
            "suspicion": _numbers(columns.suspicion[rows]),
            "suggested_probability": pa.nulls(len(rows), pa.float64()) if right is None else _numbers(right[rows]),
            "no_class": pa.array(facts.no_class[rows]),
            "probability": _numbers(columns.probability[rows]),
            "loss": _numbers(columns.loss[rows]),
            "verdict": pa.array([VERDICTS[code] for code in columns.verdict[rows]], pa.string()),
            "iteration": pa.array(columns.iteration[rows]),
            "decision": pa.array([Choice(c).word if c else "" for c in facts.log.state[rows].tolist()], pa.string()),
            "decided": _names(columns, facts.log.label[rows]),
        }
    )
    if not facts.source.is_table:
        return found
    own = corrected_table(facts, rows, columns.label, typed=typed)
    return _beside(own, found, str(facts.source.settings.get("id_column") or "id"))


def _beside(own: Any, found: Any, id_column: str) -> Any:
    """The rows of the source with the results to the right, and row numbers to the left if they have no ids."""
    names = [name.strip() for name in own.column_names]
    if id_column.strip() not in names and "path" not in names:
        own = own.add_column(0, "id", found.column("id"))
    for name in ("suspicion", "suggested", "suggested_probability", "no_class", "verdict", "decision", "decided"):
        free = name if name not in own.column_names else f"labelsieve_{name}"
        if free not in own.column_names:
            own = own.append_column(free, found.column(name))
    return own


def decisions(facts: Facts, rows: IntArray) -> Any:
    columns, times, log = facts.columns, facts.log.times, facts.log
    label = np.where(log.state[rows] == Choice.CONFLICT, columns.label[rows], log.label[rows])  # not decided
    people = [", ".join(sorted(filter(None, log.votes.get(row, {})))) for row in rows.tolist()]
    return pa.table(
        {
            "id": columns.ids.take(pa.array(rows)),
            "label": _names(columns, label),
            "decision": pa.array([Choice(code).word for code in log.state[rows].tolist()], pa.string()),
            "given": _names(columns, columns.label[rows]),
            "suggested": _names(columns, columns.suggested[rows]),
            "time": pa.array([times.get(row, "") for row in rows.tolist()], pa.string()),
            "reviewer": pa.array(people, pa.string()),
        }
    )


def _names(columns: LabelColumns, codes: Any) -> Any:
    return pa.array(columns.names(codes), pa.string())


def _numbers(values: Any) -> Any:
    return pa.array(values, pa.float64(), from_pandas=True)


def write_table(target: Path, table: Any, *, raw: bool, style: CsvFormat) -> int:
    """Write a pyarrow table as CSV. Unless `raw`, formulas become text; returns the number of cells changed."""
    try:
        with atomic_writer(target, style.encoding) as file:
            writer = CsvWriter(file, style)
            header, changed = _harmless(table.column_names, raw)
            writer.row(header)
            for batch in table.to_batches(max_chunksize=BATCH_ROWS):
                columns = [_harmless(column.to_pylist(), raw) for column in batch.columns]
                writer.rows(zip(*(cells for cells, _ in columns), strict=True))
                changed += sum(count for _, count in columns)
            return changed
    except UnicodeEncodeError as error:  # a new label: the source itself has only letters of its encoding
        letter = error.object[error.start]
        raise InputError(
            f"{target}: the source is in Windows-1252, which has no {letter!r}: save the source as UTF-8 and export "
            "again, or export to a .parquet file"
        ) from None


def _harmless(values: list[Any], raw: bool) -> tuple[list[str], int]:
    """The values as text, and the number of formulas among them."""
    texts = ["" if value is None else str(value) for value in values]
    if raw:
        return texts, 0
    safe = [make_harmless(text) for text in texts]
    return safe, sum(map(operator.ne, texts, safe))
