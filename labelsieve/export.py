"""Results to take home: corrected labels, the selected, the suspects, the decisions; as CSV, Parquet or class folders.

The originals are only read. Files appear whole or not at all; a folder is filled beside its place and then renamed.
What is there already is written over only with `force`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.labels import OTHERS
from labelsieve.data.leftout import EMPTY_TEXT, NO_LABEL
from labelsieve.data.source import TABLES
from labelsieve.errors import InputError
from labelsieve.export_csv import Dialect, write_csv
from labelsieve.export_folder import safe_name, write_folder
from labelsieve.files import atomic_path
from labelsieve.report.columns import Columns, read_columns
from labelsieve.report.facts import ignorance, outdone
from labelsieve.report.samples import open_samples
from labelsieve.report.source_table import SourceTable, find_source, places
from labelsieve.report.unchanged import read_skipped, trouble
from labelsieve.review.book import DECISIONS, DROP, KEEP, RELABEL, UNDECIDED, latest
from labelsieve.runfolder import RunFolder
from labelsieve.selection.suggestions import NAME, read_suggestions
from labelsieve.types import SELECTED, VERDICTS, IntArray

What = Literal["cleaned", "selected", "suspects", "decisions"]
Undecided = Literal["auto", "keep", "likely", "suggested", "drop"]
WHATS = ("cleaned", "selected", "suspects", "decisions")
UNDECIDEDS = ("auto", "keep", "likely", "suggested", "drop")
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
    apostrophes: int = 0  # cells that a spreadsheet would have taken for formulas


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
    ("likely": unless the given label is clearly likelier right; `suggestions` knows how likely, by id) or drop the
    sample. "auto" is "likely" until the first decision is made; from then on a person has looked, and only what was
    decided changes."""
    open_suspects = columns.suspect() & (state == UNDECIDED)
    rule, taken, hint = undecided, open_suspects, ""
    if rule == "auto":
        rule = "keep" if (state != UNDECIDED).any() else "likely"
        hint = " (--undecided likely takes what the run takes for likelier)" if rule == "keep" else ""
    if rule == "likely":
        rule = "suggested"
        if suggestions is not None:
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
    note = f"{count - kept:,} undecided suspects {told}{hint}" if count else ""
    theirs = "kept theirs, which the run takes for likelier right (--undecided suggested changes them too)"
    note += f", {kept:,} {theirs}" if kept else ""
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
    import pyarrow as pa

    folder = run if isinstance(run, RunFolder) else RunFolder.existing(run)
    if what not in WHATS:
        raise InputError(f"--what {what}: choose one of {', '.join(WHATS)}")
    if undecided not in UNDECIDEDS:
        raise InputError(f"--undecided {undecided}: choose one of {', '.join(UNDECIDEDS)}")
    record = folder.record()
    source = find_source(folder, str((record.get("data") or {}).get("source") or ""))
    target = Path(to) if to is not None else default_target(record, source, what)
    kind = _kind(target, source)
    _spare_the_originals(target, folder, source)
    if kind != "folder" and not force and os.path.lexists(target):
        raise InputError(f"{target} is there already: give another --to, or --force to write over it")

    summary = folder.read_summary()
    classes = summary.get("classes")
    columns = read_columns(folder / "labels.csv", classes if isinstance(classes, list) else ())
    grown = _check_unchanged(folder, columns) if what != "decisions" else ""
    state, decided_label, lines = latest(folder, columns)
    suggestions, reason = read_suggestions(folder / NAME), ""
    if undecided == "auto" and (why := ignorance(summary) or outdone(summary)):
        undecided = "keep"  # a model that knows less than the labels suggests nothing
        reason = "" if (state != UNDECIDED).any() else why  # else they are kept because somebody decides
    outcome = corrected(columns, state, decided_label, undecided, suggestions)
    suspects = columns.ranked(np.flatnonzero(columns.suspect()))
    if what == "cleaned":
        rows = np.flatnonzero(outcome.stays)
    elif what == "selected":  # by the run, or by a person, who knows better
        trusted = (columns.verdict == SELECTED) | (state == KEEP) | (state == RELABEL)
        rows = np.flatnonzero(outcome.stays & trusted)
    elif what == "suspects":
        rows = suspects
    else:
        rows = np.flatnonzero(state != UNDECIDED)

    unjudged = apostrophes = 0
    if kind == "folder":
        if what == "decisions":
            raise InputError(f"decisions are a list: give --to a .csv or .parquet file, not {target}")
        labels = columns.label if what == "suspects" else outcome.label
        samples = open_samples(folder, columns)
        write_folder(target, samples, columns, rows, labels, link=link, force=force)
    else:
        typed = kind == "parquet"
        if what == "suspects":
            table = _suspects(columns, rows, state, decided_label, suggestions)
            if _is_table(source):
                own = _corrected_table(columns, rows, columns.label, source, record, typed=typed)
                table = _beside(own, table, str((record.get("settings") or {}).get("id_column") or "id"))
        elif what == "decisions":
            table = _decisions(columns, rows, state, decided_label, lines)
        elif what == "cleaned" and not outcome.stays.all() and not _is_table(source):
            table = _corrected_table(columns, rows, outcome.label, source, record, typed=typed)
            # Read beside the source, the file has to say that it leaves some out: what it lacks is a mistake else.
            count = pa.array([int(np.sum(~outcome.stays))] * len(rows), pa.int64())
            table = table.append_column(OTHERS, count)
        else:
            also = _not_judged(folder) if what == "cleaned" else []
            table = _corrected_table(columns, rows, outcome.label, source, record, typed=typed, also=also)
            unjudged = table.num_rows - len(rows)
        if kind == "parquet":
            import pyarrow.parquet as pq

            with atomic_path(target) as partial:
                pq.write_table(table, partial)
        else:
            apostrophes = write_csv(target, table, raw=raw, dialect=_dialect(source, target, what))
    changes_labels = what in ("cleaned", "selected")
    changed = int(np.sum(outcome.label[rows] != columns.label[rows])) if changes_labels else 0
    # Of the selected, only what the run would have put there can be missing from them.
    among = columns.verdict == SELECTED if what == "selected" else np.ones(len(columns), dtype=bool)
    dropped = int(np.sum(~outcome.stays & among)) if changes_labels else 0
    notes = []
    if what == "cleaned" and outcome.note:
        why = f", because {reason} (--undecided likely takes suggestions all the same)" if reason else ""
        notes.append(outcome.note + why)
    if what == "selected":
        by_hand = int(np.sum(columns.verdict[rows] != SELECTED))
        notes += [f"{by_hand:,} of them because of a decision"] * (by_hand > 0)
    if unjudged:
        notes.append(f"{unjudged:,} rows that were not judged (skipped.csv) stay as they were")
    notes += [told for told in (grown, _about_apostrophes(apostrophes)) if told]
    return Exported(target, len(rows), changed, dropped, "; ".join(notes), apostrophes)


def _about_apostrophes(count: int) -> str:
    if not count:
        return ""
    cells, them, formulas = ("cell", "it", "a formula") if count == 1 else ("cells", "them", "formulas")
    return (
        f"{count:,} {cells} got an apostrophe so that no spreadsheet takes {them} for {formulas}; --raw leaves {them}"
    )


def default_target(record: Mapping[str, Any], source: Path | None, what: What) -> Path:
    """Here, after the source and of its kind: fruit.csv becomes fruit-cleaned.csv, flowers/ flowers-cleaned/."""
    data = record.get("data") or {}
    name = safe_name(source.resolve().stem if source is not None else str(data.get("name") or "run"))
    if source is not None and source.is_dir():
        whole = what in ("cleaned", "selected") and data.get("kind") == "pictures"
        return Path(f"{safe_name(source.resolve().name)}-{what}{'' if whole else '.csv'}")
    suffix = ".parquet" if source is not None and source.suffix.lower() in PARQUET else ".csv"
    if source is not None and source.suffix.lower() == ".tsv" and what != "decisions":
        suffix = ".tsv"
    return Path(f"{name}-{what}{suffix}")


def _is_table(source: Path | None) -> bool:
    return source is not None and not source.is_dir() and source.suffix.lower() in TABLES


def _check_unchanged(run: RunFolder, columns: Columns) -> str:
    """A word on samples that came since; whatever else changed is refused."""
    found = trouble(run, columns)
    if found is None or found.gone:  # what needs a source that is gone says so itself
        return ""
    if found.only_more:
        return found.told
    raise InputError(
        f"{found.told}; labels could go to the wrong samples, so nothing is written: bring the source back as it "
        "was, or select again with another --out"
    )


def _dialect(source: Path | None, target: Path, what: What) -> Dialect:
    """The source's own, where its rows are written; tabs stay in files that are called after them."""
    if source is None or not _is_table(source) or source.suffix.lower() in PARQUET or what == "decisions":
        return Dialect("\t" if target.suffix.lower() == ".tsv" else ",")
    own = Dialect.of(source)
    return replace(own, delimiter=",") if own.delimiter == "\t" and target.suffix.lower() == ".csv" else own


def _kind(target: Path, source: Path | None) -> Literal["csv", "parquet", "folder"]:
    suffix = target.suffix.lower()
    if target.is_dir():
        return "folder"
    if suffix == ".csv" or (suffix == ".tsv" and source is not None and source.suffix.lower() == ".tsv"):
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
    columns: Columns,
    rows: IntArray,
    label: Any,
    source: Path | None,
    record: dict[str, Any],
    *,
    typed: bool,
    also: Sequence[str] = (),
) -> Any:
    """The source's own table with its label column replaced; id and label where the source is not a table.

    Rows called as `also` says keep what they have, between the others.
    """
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
    # Several rows that were left out may have the same id, or none: each of them stays.
    more = np.flatnonzero(places(original.row_ids(), pa.array(also, pa.string())) >= 0)
    more = np.setdiff1d(more, at)
    if len(more):
        has_label = original.label in original.names
        own = (
            original.table.column(original.label).take(pa.array(more)).to_pylist() if has_label else [None] * len(more)
        )
        order = np.argsort(np.concatenate([at, more]), kind="stable")
        every = [*names, *(None if cell is None else str(cell) for cell in own)]
        at, names = np.concatenate([at, more])[order], [every[i] for i in order.tolist()]
    table = original.table.take(pa.array(at))
    column = _as_before(pa.array(names, pa.string()), table, original.label)
    if original.label in table.column_names:
        return table.set_column(table.column_names.index(original.label), original.label, column)
    return table.append_column(original.label, column)


def _not_judged(run: RunFolder) -> list[str]:
    """Rows that the run left out because there was nothing to judge: they are still the user's."""
    return [id for id, reason in read_skipped(run) if reason in (NO_LABEL, EMPTY_TEXT)]


def _beside(own: Any, found: Any, id_column: str) -> Any:
    """The source's rows as they are, and what was found of them in columns to the right; the rows' numbers to the left
    where nothing else names them."""
    if id_column not in own.column_names and "path" not in own.column_names:
        own = own.add_column(0, "id", found.column("id"))
    for name in ("suspicion", "suggested", "suggested_probability", "verdict", "decision", "decided"):
        free = name if name not in own.column_names else f"labelsieve_{name}"
        if free not in own.column_names:
            own = own.append_column(free, found.column(name))
    return own


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
