"""Results to take home: corrected labels, the selected, the suspects, the decisions; as CSV, Parquet or class folders.

The originals are only read. Files appear whole or not at all; a folder is filled beside its place and then renamed.
What is there already is written over only with `force`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from labelsieve.csv_files import CsvFormat
from labelsieve.data.skipped import DROPPED, NO_CLASS, NO_LABEL
from labelsieve.data.source import TABLES
from labelsieve.decisions import Choice
from labelsieve.errors import InputError
from labelsieve.export.class_folders import safe_name, write_folder
from labelsieve.export.source_csv import write_table
from labelsieve.export.tables import Judged, corrected_table, decisions, is_table, suspects
from labelsieve.files import atomic_path
from labelsieve.labels_csv import LabelColumns
from labelsieve.report.facts import ignorance, outdone
from labelsieve.report.samples import open_samples
from labelsieve.report.source_table import find_source
from labelsieve.report.unchanged import trouble
from labelsieve.runfolder import RunFolder
from labelsieve.types import SELECTED, IntArray

What = Literal["cleaned", "selected", "suspects", "decisions"]
Undecided = Literal["auto", "keep", "likely", "suggested", "drop"]
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
    columns: LabelColumns,
    state: Any,
    decided_label: Any,
    undecided: Undecided = "auto",
    suggestions: Mapping[str, float] | None = None,
) -> Outcome:
    """Decisions first. For suspects nobody decided on, `undecided` says: keep the given label, take the suggested one
    ("likely": unless the given label is clearly likelier right; `suggestions` knows how likely, by id) or drop the
    sample. "auto" is "likely" until the first decision is made; from then on a person has looked, and only what was
    decided changes."""
    open_suspects = columns.suspect() & (state == Choice.UNDECIDED)
    rule, taken, hint = undecided, open_suspects, ""
    if rule == "auto":
        rule = "keep" if (state != Choice.UNDECIDED).any() else "likely"
        hint = " (--undecided likely takes what the run takes for likelier)" if rule == "keep" else ""
    if rule == "likely":
        rule = "suggested"
        if suggestions is not None:
            rows = np.flatnonzero(open_suspects)
            likely = np.array([suggestions.get(id, 1.0) for id in columns.ids.take(rows).to_pylist()])
            taken = np.zeros(len(open_suspects), dtype=bool)
            taken[rows] = likely > NEARLY * (1 - np.nan_to_num(columns.suspicion[rows], nan=1.0))
    label = np.where(decided_label >= 0, decided_label, columns.label).astype(np.int32)
    stays = state != Choice.DROP
    if rule == "suggested":
        label = np.where(taken, columns.suggested, label).astype(np.int32)
    elif rule == "drop":
        stays = stays & ~open_suspects
    told = {"keep": "kept their given label", "suggested": "took the suggested label", "drop": "were left out"}[rule]
    count, kept = int(open_suspects.sum()), int(np.sum(open_suspects & ~taken))
    note = f"{count - kept:,} undecided suspects {told}{hint}" if count else ""
    theirs = (
        "kept theirs, which the run takes for likelier than the suggested one (--undecided suggested changes them too)"
    )
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
    folder = run if isinstance(run, RunFolder) else RunFolder.existing(run)
    for option, value, known in (("what", what, get_args(What)), ("undecided", undecided, get_args(Undecided))):
        if value not in known:
            raise InputError(f"--{option} {value}: choose one of {', '.join(known)}")
    record = folder.record()
    source = find_source(folder, str((record.get("data") or {}).get("source") or ""))
    target = Path(to) if to is not None else default_target(record, source, what)
    kind = _kind(target, source)
    _spare_the_originals(target, folder, source)
    if kind != "folder" and not force and os.path.lexists(target):
        raise InputError(f"{target} is there already: give another --to, or --force to write over it")
    if kind == "folder" and what == "decisions":
        raise InputError(f"decisions are a list: give --to a .csv or .parquet file, not {target}")

    summary = folder.read_summary()
    judged = Judged.read(folder, summary, record, source)
    columns = judged.columns
    grown = _check_unchanged(folder, columns) if what != "decisions" else ""
    outcome = _outcome(judged, summary, undecided)
    rows = _rows(what, judged, outcome)
    unjudged = renamed = apostrophes = 0
    left: list[str] = []  # why a folder lacks what the run did not judge
    if kind == "folder":
        labels = columns.label if what == "suspects" else outcome.label
        left = [reason for _, reason in folder.read_skipped()] if what == "cleaned" else []
        nested = source is not None and source.is_dir()
        samples = open_samples(folder, columns)
        renamed = write_folder(target, samples, columns, rows, labels, nested=nested, link=link, force=force)
    else:
        table = _table(what, judged, outcome, rows, typed=kind == "parquet")
        unjudged = table.num_rows - len(rows)
        if kind == "parquet":
            import pyarrow.parquet as pq

            with atomic_path(target) as partial:
                pq.write_table(table, partial)
        else:
            apostrophes = write_table(target, table, raw=raw, style=_style(source, target, what))
    changes_labels = what in ("cleaned", "selected")
    changed = int(np.sum(outcome.label[rows] != columns.label[rows])) if changes_labels else 0
    # Of the selected, only what the run would have put there can be missing from them.
    among = columns.verdict == SELECTED if what == "selected" else np.ones(len(columns), dtype=bool)
    dropped = int(np.sum(~outcome.stays & among)) if changes_labels else 0
    told = _notes(what, columns, outcome, rows, unjudged=unjudged, left=left)
    notes = [*told, _about_renamed(renamed), grown, _about_apostrophes(apostrophes)]
    return Exported(target, len(rows), changed, dropped, "; ".join(filter(None, notes)), apostrophes)


def _outcome(judged: Judged, summary: Mapping[str, Any], undecided: Undecided) -> Outcome:
    reason = ""
    if undecided == "auto" and (why := ignorance(summary) or outdone(summary)):
        undecided = "keep"  # a model that knows less than the labels suggests nothing
        if not judged.any_decision():  # else they are kept because somebody decides
            reason = f", because {why} (--undecided likely takes suggestions all the same)"
    found = corrected(judged.columns, judged.log.state, judged.log.label, undecided, judged.suggestions)
    return replace(found, note=found.note + reason) if found.note else found


def _rows(what: What, judged: Judged, outcome: Outcome) -> IntArray:
    """Which samples are written, in the order of the source; of the suspects the most suspicious first."""
    columns, state = judged.columns, judged.log.state
    if what == "cleaned":
        return np.flatnonzero(outcome.stays)
    if what == "selected":  # by the run, or by a person, who knows better
        trusted = (columns.verdict == SELECTED) | (state == Choice.KEEP) | (state == Choice.RELABEL)
        return np.flatnonzero(outcome.stays & trusted)
    if what == "suspects":
        return columns.ranked(np.flatnonzero(columns.suspect()))
    return np.flatnonzero(state != Choice.UNDECIDED)


def _table(what: What, judged: Judged, outcome: Outcome, rows: IntArray, *, typed: bool) -> Any:
    if what == "suspects":
        return suspects(judged, rows, typed=typed)
    if what == "decisions":
        return decisions(judged, rows)
    if what == "selected":
        return corrected_table(judged, rows, outcome.label, typed=typed)
    if outcome.stays.all() or judged.of_a_table:
        return corrected_table(judged, rows, outcome.label, typed=typed, also=_not_judged(judged.run))
    # Read beside the source, the file has to say that it leaves some out: what it lacks is a mistake else.
    return corrected_table(judged, rows, outcome.label, typed=typed, dropped=int(np.sum(~outcome.stays)))


def _not_judged(run: RunFolder) -> list[str]:
    """Rows that the run left out because there was nothing to judge, or to see: they are still the user's."""
    return [id for id, reason in run.read_skipped() if reason != DROPPED]


def _notes(
    what: What, columns: LabelColumns, outcome: Outcome, rows: IntArray, *, unjudged: int, left: list[str]
) -> list[str]:
    notes = []
    if what == "cleaned":
        notes.append(outcome.note)
    if what == "selected" and (by_hand := int(np.sum(columns.verdict[rows] != SELECTED))):
        notes.append(f"{by_hand:,} of them because of a decision")
    if unjudged:
        notes.append(f"{unjudged:,} rows that were not judged (skipped.csv) stay as they were")
    return notes + _about_left(left)


def _about_left(reasons: list[str]) -> list[str]:
    """What a folder is without, each for its own reason."""
    known = {
        NO_LABEL: ("1 picture without a label", "{:,} pictures without a label"),
        DROPPED: ("1 picture that was dropped before", "{:,} pictures that were dropped before"),
        NO_CLASS: ("1 picture in no class folder", "{:,} pictures in no class folder"),
    }
    unreadable = ("1 file that could not be read", "{:,} files that could not be read")
    counts = Counter(known.get(reason, unreadable) for reason in reasons)
    found = [(words, counts[words]) for words in (unreadable, *known.values()) if counts[words]]
    return [f"without {one if count == 1 else many.format(count)} (skipped.csv)" for (one, many), count in found]


def _about_renamed(count: int) -> str:
    if not count:
        return ""
    if count == 1:
        return "1 file got another name, as its own was taken there or not safe"
    return f"{count:,} files got other names, as theirs were taken there or not safe"


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


def _check_unchanged(run: RunFolder, columns: LabelColumns) -> str:
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


def _style(source: Path | None, target: Path, what: What) -> CsvFormat:
    """The source's own, where its rows are written; tabs stay in files that are called after them."""
    if source is None or not is_table(source) or source.suffix.lower() in PARQUET or what == "decisions":
        return CsvFormat("\t" if target.suffix.lower() == ".tsv" else ",")
    own = CsvFormat.detect(source)
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
