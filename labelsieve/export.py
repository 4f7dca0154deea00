"""Results to take home: corrected labels, the selected, the suspects, the decisions; as CSV, Parquet or class folders.

The originals are only read. Files appear whole or not at all; a folder is filled beside its place and then renamed.
What is there already is written over only with `force`.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.source import TABLES
from labelsieve.errors import InputError
from labelsieve.export_folder import safe_name, write_folder
from labelsieve.files import atomic_path, atomic_writer
from labelsieve.report.columns import Columns, read_columns
from labelsieve.report.facts import ignorance, outdone
from labelsieve.report.samples import SourceTable, find_source, open_samples
from labelsieve.review.book import DECISIONS, DROP, UNDECIDED, latest
from labelsieve.runfolder import RunFolder
from labelsieve.selection.suggestions import NAME, read_suggestions
from labelsieve.types import SELECTED, VERDICTS, IntArray

What = Literal["cleaned", "selected", "suspects", "decisions"]
Undecided = Literal["auto", "keep", "suggested", "drop"]
WHATS = ("cleaned", "selected", "suspects", "decisions")
UNDECIDEDS = ("auto", "keep", "suggested", "drop")
PARQUET = (".parquet", ".pq")
# A suggestion is taken that is nearly as likely right as the given label: where the noise is read low, all are read so.
NEARLY = 0.75


@dataclass(frozen=True)
class Exported:
    """What was written, in numbers and in a sentence."""

    path: Path
    rows: int
    changed: int  # labels that differ from the given ones
    dropped: int  # samples left out because someone (or `undecided`) said so
    note: str


@dataclass(frozen=True)
class Outcome:
    """Every sample's label after the decisions: class codes, and who stays."""

    label: NDArray[np.int32]
    stays: NDArray[np.bool_]
    note: str


def corrected(
    columns: Columns,
    state: Any,
    decided_label: Any,
    undecided: Undecided = "auto",
    suggestions: Mapping[str, float] | None = None,
) -> Outcome:
    """Decisions first. For suspects nobody decided on, `undecided` says: keep the given label, take the suggested one
    or drop the sample. "auto" takes a suggestion unless the given label is clearly likelier right (`suggestions` knows
    how likely, by id) until the first decision is made; from then on a person has looked, and only what was decided
    changes."""
    open_suspects = columns.suspect() & (state == UNDECIDED)
    rule, taken = undecided, open_suspects
    if rule == "auto":
        rule = "keep" if (state != UNDECIDED).any() else "suggested"
        if rule == "suggested" and suggestions is not None:
            rows = np.flatnonzero(open_suspects)
            likely = np.array([suggestions.get(id, 1.0) for id in columns.ids.take(rows).to_pylist()])
            taken = np.zeros(len(open_suspects), dtype=bool)
            taken[rows] = likely > NEARLY * (1 - np.nan_to_num(columns.suspicion[rows], nan=1.0))
    label = np.where(decided_label >= 0, decided_label, columns.label).astype(np.int32)
    stays = state != DROP
    if rule == "suggested":
        label = np.where(taken, columns.suggested, label).astype(np.int32)
    elif rule == "drop":
        stays = stays & ~open_suspects
    told = {"keep": "kept their given label", "suggested": "took the suggested label", "drop": "were left out"}[rule]
    count, kept = int(open_suspects.sum()), int(np.sum(open_suspects & ~taken))
    note = f"{count - kept:,} undecided suspects {told}" if count else ""
    note += f", {kept:,} kept theirs, which is likelier right" if kept else ""
    return Outcome(label, stays, note)


def export(
    run: str | Path | RunFolder,
    *,
    what: What = "cleaned",
    to: str | Path | None = None,
    undecided: Undecided = "auto",
    raw: bool = False,
    link: bool = False,
    force: bool = False,
) -> Exported:
    """Write `what` of a run to a .csv, a .parquet or a folder of class folders; without `to`, see `default_target`.

    `raw` leaves cells as they are that a spreadsheet would run; `link` fills the folder with links instead of copies;
    `force` writes over a file, or a folder of class folders, that is there already.
    """
    folder = run if isinstance(run, RunFolder) else RunFolder.existing(run)
    if what not in WHATS:
        raise InputError(f"--what {what}: choose one of {', '.join(WHATS)}")
    if undecided not in UNDECIDEDS:
        raise InputError(f"--undecided {undecided}: choose one of {', '.join(UNDECIDEDS)}")
    record = folder.record()
    source = find_source(folder, str((record.get("data") or {}).get("source") or ""))
    target = Path(to) if to is not None else default_target(record, source, what)
    kind = _kind(target)
    _spare_the_originals(target, folder, source)
    if kind != "folder" and not force and os.path.lexists(target):
        raise InputError(f"{target} is there already: give another --to, or --force to write over it")

    summary = folder.read_summary()
    classes = summary.get("classes")
    columns = read_columns(folder / "labels.csv", classes if isinstance(classes, list) else ())
    state, decided_label, lines = latest(folder, columns)
    suggestions, reason = read_suggestions(folder / NAME), ""
    if undecided == "auto" and not (state != UNDECIDED).any():
        reason = ignorance(summary) or (outdone(summary) if suggestions is not None else "")
        undecided = "keep" if reason else "auto"  # a model that knows less than the labels suggests nothing
    outcome = corrected(columns, state, decided_label, undecided, suggestions)
    suspects = columns.ranked(np.flatnonzero(columns.suspect()))
    if what == "cleaned":
        rows = np.flatnonzero(outcome.stays)
    elif what == "selected":
        rows = np.flatnonzero(outcome.stays & (columns.verdict == SELECTED))
    elif what == "suspects":
        rows = suspects
    else:
        rows = np.flatnonzero(state != UNDECIDED)

    if kind == "folder":
        if what == "decisions":
            raise InputError(f"decisions are a list: give --to a .csv or .parquet file, not {target}")
        labels = columns.label if what == "suspects" else outcome.label
        samples = open_samples(folder, columns)
        write_folder(target, samples, columns, rows, labels, link=link, force=force)
    else:
        if what == "suspects":
            table = _suspects(columns, rows, state, decided_label, suggestions)
        elif what == "decisions":
            table = _decisions(columns, rows, state, decided_label, lines)
        else:
            table = _corrected_table(columns, rows, outcome.label, source, record, typed=kind == "parquet")
        if kind == "parquet":
            import pyarrow.parquet as pq

            with atomic_path(target) as partial:
                pq.write_table(table, partial)
        else:
            _write_csv(target, table, raw=raw)
    changes_labels = what in ("cleaned", "selected")
    changed = int(np.sum(outcome.label[rows] != columns.label[rows])) if changes_labels else 0
    dropped = int(np.sum(~outcome.stays)) if changes_labels else 0
    note = outcome.note if what == "cleaned" else ""
    if note and reason:
        note += f", because {reason} (--undecided suggested takes the suggestions all the same)"
    return Exported(target, len(rows), changed, dropped, note)


def default_target(record: Mapping[str, Any], source: Path | None, what: What) -> Path:
    """Here, after the source and of its kind: fruit.csv becomes fruit-cleaned.csv, flowers/ flowers-cleaned/."""
    data = record.get("data") or {}
    name = safe_name(source.resolve().stem if source is not None else str(data.get("name") or "run"))
    if source is not None and source.is_dir():
        whole = what in ("cleaned", "selected") and data.get("kind") == "pictures"
        return Path(f"{safe_name(source.resolve().name)}-{what}{'' if whole else '.csv'}")
    suffix = ".parquet" if source is not None and source.suffix.lower() in PARQUET else ".csv"
    return Path(f"{name}-{what}{suffix}")


def _kind(target: Path) -> Literal["csv", "parquet", "folder"]:
    suffix = target.suffix.lower()
    if target.is_dir():
        return "folder"
    if suffix == ".csv":
        return "csv"
    if suffix in PARQUET:
        return "parquet"
    if suffix in TABLES or suffix in (".xlsx", ".json", ".npz"):
        raise InputError(f"--to {target}: give a .csv or .parquet file, or a folder")
    return "folder"


def _spare_the_originals(target: Path, run: RunFolder, source: Path | None) -> None:
    place = target.resolve()
    if source is not None:
        original = source.resolve()
        if place == original or (original.is_dir() and place.is_relative_to(original)):
            raise InputError(f"{target} is the source, which is never changed: give another --to")
    if place == run.path.resolve() or (place.parent == run.path.resolve() and place.exists()):
        raise InputError(f"{target} belongs to the run itself: give another --to")


def _corrected_table(
    columns: Columns, rows: IntArray, label: Any, source: Path | None, record: dict[str, Any], *, typed: bool
) -> Any:
    """The source's own table with its label column replaced; id and label where the source is not a table."""
    import pyarrow as pa

    names = np.array(columns.classes, dtype=object)[label[rows]].tolist()
    data = record.get("data") or {}
    if source is None or source.is_dir() or source.suffix.lower() not in TABLES:
        named = str(data.get("source") or "")
        if source is None and Path(named).suffix.lower() in TABLES:
            raise InputError(f"{named} is no longer there: its columns cannot be exported")
        return pa.table({"id": columns.ids.take(pa.array(rows)), "label": pa.array(names, pa.string())})
    original = SourceTable.read(source, record.get("settings") or {}, typed=typed)
    at = original.rows_of(columns)[rows]
    if (at < 0).any():
        lost = columns.id(int(rows[int(np.argmin(at))]))
        raise InputError(f"{source} no longer has the sample {lost!r}: it changed since the run")
    table = original.table.take(pa.array(at))
    column = _as_before(pa.array(names, pa.string()), table, original.label)
    if original.label in table.column_names:
        return table.set_column(table.column_names.index(original.label), original.label, column)
    return table.append_column(original.label, column)


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


def _suspects(
    columns: Columns, rows: IntArray, state: Any, decided_label: Any, likely: Mapping[str, float] | None
) -> Any:
    import pyarrow as pa

    right = [(likely or {}).get(columns.id(row)) for row in rows.tolist()]
    return pa.table(
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
            "decision": pa.array([DECISIONS[code] if code else "" for code in state[rows].tolist()], pa.string()),
            "decided": _names(columns, decided_label[rows]),
        }
    )


def _decisions(columns: Columns, rows: IntArray, state: Any, decided_label: Any, lines: Any) -> Any:
    import pyarrow as pa

    return pa.table(
        {
            "id": columns.ids.take(pa.array(rows)),
            "label": _names(columns, decided_label[rows]),
            "decision": pa.array([DECISIONS[code] for code in state[rows].tolist()], pa.string()),
            "given": _names(columns, columns.label[rows]),
            "suggested": _names(columns, columns.suggested[rows]),
            "time": pa.array([lines[row].time if lines[row] else "" for row in rows.tolist()], pa.string()),
        }
    )


def _names(columns: Columns, codes: Any) -> Any:
    import pyarrow as pa

    return pa.array([columns.name(code) or "" for code in codes.tolist()], pa.string())


def _numbers(values: Any) -> Any:
    """The digits that labels.csv has, not those that float32 adds; unknown ones are empty."""
    import pyarrow as pa

    return pa.array([None if value != value else float(f"{value:.6g}") for value in values.tolist()], pa.float64())


NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
RISKY = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"


def neutral(cell: str) -> str:
    """A cell that a spreadsheet would take for a formula gets an apostrophe in front; numbers stay numbers."""
    if cell and cell[0] in RISKY and not NUMBER.fullmatch(cell):
        return "'" + cell
    return cell


def _write_csv(target: Path, table: Any, *, raw: bool) -> None:
    with atomic_writer(target) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(name if raw else neutral(name) for name in table.column_names)
        for batch in table.to_batches(max_chunksize=50_000):
            writer.writerows(_rows(batch, raw))


def _rows(batch: Any, raw: bool) -> Iterator[tuple[str, ...]]:
    listed = [["" if v is None else v if isinstance(v, str) else str(v) for v in c.to_pylist()] for c in batch.columns]
    if not raw:
        listed = [[neutral(cell) for cell in column] for column in listed]
    return zip(*listed, strict=True)
