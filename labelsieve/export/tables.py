"""What is exported as a table: the source's own columns where it has some, ids and labels where it has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labelsieve.data.cells import is_text
from labelsieve.data.labels import OTHERS, WHOLE, whole_numbers
from labelsieve.data.source import TABLES
from labelsieve.decisions import Choice, DecisionLog
from labelsieve.errors import InputError
from labelsieve.labels_csv import LabelColumns, index_in, read_labels
from labelsieve.report.source_table import SourceTable
from labelsieve.runfolder import DECISIONS, RunFolder
from labelsieve.selection.suggestions import NAME, read_suggestions
from labelsieve.types import VERDICTS, IntArray


def is_table(source: Path | None) -> bool:
    return source is not None and not source.is_dir() and source.suffix.lower() in TABLES


@dataclass(frozen=True)
class Judged:
    """A run's verdicts on its source, and what people decided on them."""

    run: RunFolder
    record: Mapping[str, Any]
    source: Path | None
    columns: LabelColumns
    log: DecisionLog
    suggestions: Mapping[str, float] | None  # how likely right, by id

    @classmethod
    def read(cls, run: RunFolder, summary: Mapping[str, Any], record: Mapping[str, Any], source: Path | None) -> Judged:
        classes = summary.get("classes")
        columns = read_labels(run / "labels.csv", classes if isinstance(classes, list) else ())
        log = DecisionLog(run / DECISIONS, columns)
        log.check()
        return cls(run, record, source, columns, log, read_suggestions(run / NAME))

    @property
    def settings(self) -> dict[str, Any]:
        return self.record.get("settings") or {}

    @property
    def of_a_table(self) -> bool:
        return is_table(self.source)

    def any_decision(self) -> bool:
        return bool((self.log.state != Choice.UNDECIDED).any())


def corrected_table(
    judged: Judged, rows: IntArray, label: Any, *, typed: bool, also: Sequence[str] = (), dropped: int = 0
) -> Any:
    """The source's own table with its label column replaced; id and label where the source is not a table.

    Rows called as `also` says keep what they have, between the others. `dropped` is told beside ids and labels.
    """
    import pyarrow as pa

    columns = judged.columns
    names = np.array(columns.classes, dtype=object)[label[rows]].tolist()
    if judged.source is None or not judged.of_a_table:
        named = str((judged.record.get("data") or {}).get("source") or "")
        if judged.source is None and Path(named).suffix.lower() in TABLES:
            raise InputError(f"{named} is no longer there: its columns cannot be exported")
        found = {"id": columns.ids.take(pa.array(rows)), "label": pa.array(names, pa.string())}
        if dropped:
            found[OTHERS] = pa.array([dropped] * len(rows), pa.int64())
        return pa.table(found)
    original = SourceTable.read(judged.source, judged.settings, typed=typed)
    at = original.rows_of(columns)[rows]
    if (at < 0).any():
        lost = columns.id(int(rows[int(np.argmin(at))]))
        raise InputError(f"{judged.source} no longer has the sample {lost!r}: it changed since the run")
    at, names = _between(original, at, names, also)
    table = original.table.take(pa.array(at))
    if original.label not in original.names:
        table = table.append_column(original.label, pa.array(names, pa.string()))
        return table.rename_columns([*original.written, original.label])
    column = _as_before(pa.array(_as_decimals(names, original, at), pa.string()), table, original.label)
    table = table.set_column(table.column_names.index(original.label), original.label, column)
    return table.rename_columns(list(original.written))


def _as_decimals(names: list[Any], original: SourceTable, at: IntArray) -> list[Any]:
    """Labels as the source writes them, where it has decimals for whole numbers: 1.0 stays 1.0."""
    cells = original.table.column(original.label)
    if not is_text(cells.type):
        return names
    texts = cells.to_pylist()
    filled = [text.strip() for text in texts if text is not None and text.strip()]
    whole = whole_numbers(filled)
    if whole is None:
        return names
    written = dict(zip(reversed(whole), reversed(filled), strict=True))  # as it stands first
    tail = next(text[text.index(".") :] for text in filled if "." in text)
    known = dict(zip(filled, whole, strict=True))
    found = []
    for name, row in zip(names, at.tolist(), strict=True):
        same = known.get((texts[row] or "").strip()) == name
        new = f"{name}{tail}" if name is not None and WHOLE.fullmatch(name) and "." not in name else name
        found.append(texts[row] if same else written.get(name, new))
    return found


def _between(original: SourceTable, at: IntArray, names: list[Any], also: Sequence[str]) -> tuple[IntArray, list[Any]]:
    """Rows and labels to write, with those of the rows that nobody judged at their place."""
    import pyarrow as pa

    # Several rows that were left out may have the same id, or none: each of them stays.
    more = np.flatnonzero(index_in(original.row_ids(), pa.array(also, pa.string())) >= 0)
    more = np.setdiff1d(more, at)
    if not len(more):
        return at, names
    own: list[Any] = [None] * len(more)
    if original.label in original.names:
        own = original.table.column(original.label).take(pa.array(more)).to_pylist()
    order = np.argsort(np.concatenate([at, more]), kind="stable")
    every = [*names, *(None if cell is None else str(cell) for cell in own)]
    return np.concatenate([at, more])[order], [every[i] for i in order.tolist()]


def _as_before(names: Any, table: Any, label: str) -> Any:
    """Labels in the type they had, where they still fit it."""
    import pyarrow as pa

    if label not in table.column_names:
        return names
    before = table.column(label).type
    try:
        return names.cast(before.value_type if pa.types.is_dictionary(before) else before)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return names


def suspects(judged: Judged, rows: IntArray, *, typed: bool) -> Any:
    """What was found of each, beside its own cells where the source is a table."""
    import pyarrow as pa

    columns = judged.columns
    right = [(judged.suggestions or {}).get(columns.id(row)) for row in rows.tolist()]
    found = pa.table(
        {
            "id": columns.ids.take(pa.array(rows)),
            "label": _names(columns, columns.label[rows]),
            "suggested": _names(columns, columns.suggested[rows]),
            "suspicion": _numbers(columns.suspicion[rows]),
            "suggested_probability": pa.array(right, pa.float64()),
            "probability": _numbers(columns.probability[rows]),
            "loss": _numbers(columns.loss[rows]),
            "verdict": pa.array([VERDICTS[code] for code in columns.verdict[rows]], pa.string()),
            "iteration": pa.array(columns.iteration[rows]),
            "decision": pa.array([Choice(c).word if c else "" for c in judged.log.state[rows].tolist()], pa.string()),
            "decided": _names(columns, judged.log.label[rows]),
        }
    )
    if not judged.of_a_table:
        return found
    own = corrected_table(judged, rows, columns.label, typed=typed)
    return _beside(own, found, str(judged.settings.get("id_column") or "id"))


def _beside(own: Any, found: Any, id_column: str) -> Any:
    """The source's rows as they are, and what was found of them in columns to the right; the rows' numbers to the left
    where nothing else names them."""
    names = [name.strip() for name in own.column_names]
    if id_column.strip() not in names and "path" not in names:
        own = own.add_column(0, "id", found.column("id"))
    for name in ("suspicion", "suggested", "suggested_probability", "verdict", "decision", "decided"):
        free = name if name not in own.column_names else f"labelsieve_{name}"
        if free not in own.column_names:
            own = own.append_column(free, found.column(name))
    return own


def decisions(judged: Judged, rows: IntArray) -> Any:
    import pyarrow as pa

    columns, times = judged.columns, judged.log.times
    return pa.table(
        {
            "id": columns.ids.take(pa.array(rows)),
            "label": _names(columns, judged.log.label[rows]),
            "decision": pa.array([Choice(code).word for code in judged.log.state[rows].tolist()], pa.string()),
            "given": _names(columns, columns.label[rows]),
            "suggested": _names(columns, columns.suggested[rows]),
            "time": pa.array([times.get(row, "") for row in rows.tolist()], pa.string()),
        }
    )


def _names(columns: LabelColumns, codes: Any) -> Any:
    import pyarrow as pa

    return pa.array([columns.name(code) or "" for code in codes.tolist()], pa.string())


def _numbers(values: Any) -> Any:
    """The digits that labels.csv has, not those that float32 adds; unknown ones are empty."""
    import pyarrow as pa

    return pa.array([None if value != value else float(f"{value:.6g}") for value in values.tolist()], pa.float64())
