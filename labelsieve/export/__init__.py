"""Export the results of a run: corrected labels, selected samples, suspects or decisions.

The target is a CSV or Parquet file, or a folder of class folders. Originals are only read. Files and folders appear
when they are complete; existing ones are replaced only with `force`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from labelsieve.csv_files import CsvFormat
from labelsieve.data.folder import has_splits
from labelsieve.data.labels import DROPPED, STATUS_COLUMN
from labelsieve.data.source import is_path
from labelsieve.data.table_file import CSV, PARQUET, TABLES
from labelsieve.decisions import Choice
from labelsieve.errors import InputError
from labelsieve.export.class_folders import FolderExport, class_names_file, safe_name, status_file
from labelsieve.export.outcome import STATUS_MEANING, ExportSettings, Outcome, What, resolve_labels
from labelsieve.export.tables import Extra, corrected_table, decisions, suspects, write_table
from labelsieve.files import atomic_path
from labelsieve.progress import counted
from labelsieve.report.facts import Facts
from labelsieve.report.samples import open_samples
from labelsieve.report.source_state import RunSource, SourceState, SourceStatus, check_source
from labelsieve.runfolder import RunFolder
from labelsieve.types import SELECTED, IntArray

__all__ = ["ExportSettings", "Exported", "default_target", "export"]


@dataclass(frozen=True)
class Exported:
    """The result of an export."""

    path: Path
    rows: int
    changed: int  # labels that differ from the given ones
    dropped: int  # samples that were left out because of a decision or of `drop_suspects`
    undecided: int  # suspects without a decision that keep their label, or are left out of the selected samples
    suggested: int  # suspects without a decision that got the suggested label
    expected_right: float | None  # of these; None if not known
    least_right: float | None  # of these, by the low end of the noise estimate or of the random decisions
    expected_wrong: float | None  # labels of the suspects that `drop_suspects` left out; None if not known
    summary: str
    note: str
    apostrophes: int = 0  # cells that a spreadsheet would have run as formulas


def export(
    run: str | Path | RunFolder,
    *,
    dry_run: bool = False,
    **options: Any,
) -> Exported:
    """Write results of a run to a .csv file, a .parquet file or a folder of class folders.

    Labels change only if a person decided on them, or if you ask for it with `apply="suggested"` or `drop_suspects`.

    Parameters
    ----------
    run : str, Path or RunFolder
        The run folder.
    dry_run : bool, default=False
        Write nothing and return the numbers.
    **options
        The fields of `ExportSettings`, which are the options of `labelsieve export`.

    Returns
    -------
    Exported
        The path and the numbers.
    """
    settings = ExportSettings(**options)
    settings.check()
    folder = run if isinstance(run, RunFolder) else RunFolder.existing(run)
    what, record = settings.what, folder.record()
    source = RunSource.of(folder).path
    target = Path(settings.to) if settings.to is not None else default_target(record, source, what)
    kind = _kind(target, source)
    if kind == "folder" and what == "decisions":
        raise InputError(f"decisions cannot be exported to a folder; set --to to a .csv or .parquet file, not {target}")
    facts = Facts.read(folder)
    facts.log.check()
    columns = facts.columns
    state = SourceState(SourceStatus.UNCHANGED) if what == "decisions" else _check_unchanged(facts)
    outcome = resolve_labels(facts, settings)
    rows = _rows(what, facts, outcome)
    changes_labels = what in ("cleaned", "selected")
    changed = int(np.sum(outcome.label[rows] != columns.label[rows])) if changes_labels else 0
    # Only samples that the run selected can be missing from the selected ones.
    among = columns.verdict == SELECTED if what == "selected" else np.ones(len(columns), dtype=bool)
    dropped = int(np.sum(~outcome.stays & among)) if changes_labels else 0
    undecided = outcome.undecided.copy()
    if what == "selected":  # suspects whose label is more likely right than wrong are selected, and written
        undecided[rows] = False
    left = int(undecided.sum())
    summary = outcome.describe(changed, left, with_suspects=what == "cleaned") if changes_labels else ""
    refusal = outcome.refusal(folder.path)
    if not dry_run:
        if refusal:
            raise InputError(refusal)
        _check_target(target, folder, kind, force=settings.force)
    done = Exported(
        target, len(rows), changed, dropped, left, int(outcome.applied.sum()),
        outcome.right and outcome.right.number, outcome.right and outcome.right.least,
        outcome.wrong and outcome.wrong.number, summary, "",
    )  # fmt: skip
    notes, apostrophes = [], 0
    if state.status is SourceStatus.GROWN:
        notes.append(state.explanation)
    if dry_run:
        notes += [f"the export would be refused: {refusal}"] if refusal else []
        return replace(done, note="; ".join(notes))
    if what == "selected" and (by_hand := int(np.sum(columns.verdict[rows] != SELECTED))):
        notes.append(f"{by_hand:,} of them because of a decision or a suggestion")
    if kind == "folder":
        notes += _write_folder(target, facts, outcome, rows, settings, state)
    else:
        more, apostrophes = _write_file(target, facts, outcome, rows, settings)
        notes += more
    if apostrophes:
        cells = counted(apostrophes, "cell")
        notes.append(f"{cells} got an apostrophe, so that spreadsheets do not run formulas (--raw writes none)")
    return replace(done, note="; ".join(notes), apostrophes=apostrophes)


def _rows(what: What, facts: Facts, outcome: Outcome) -> IntArray:
    """The samples to write in the order of the source; suspects by descending suspicion."""
    columns, state = facts.columns, facts.log.state
    if what == "cleaned":
        return np.flatnonzero(outcome.stays)
    if what == "selected":  # by the run, by a decision or by an applied suggestion
        trusted = (columns.verdict == SELECTED) | (facts.log.decided & ~outcome.conflict) | outcome.applied
        return np.flatnonzero(outcome.stays & trusted)
    if what == "suspects":
        return columns.ranked(np.flatnonzero(columns.suspect()))
    return np.flatnonzero(state != Choice.UNDECIDED)


def _write_folder(
    target: Path, facts: Facts, outcome: Outcome, rows: IntArray, settings: ExportSettings, state: SourceState
) -> list[str]:
    """Write class folders. Return notes on them."""
    what, source, columns, notes = settings.what, facts.source.path, facts.columns, []
    labels = columns.label if what == "suspects" else outcome.label
    samples = open_samples(facts.run, columns, state)
    depth = 0 if source is None or not source.is_dir() else 2 if has_splits(source) else 1
    files = FolderExport(samples, columns, rows, labels, depth, settings.link, settings.raw)
    files.status = outcome.status if what == "cleaned" else None
    files.write(target, force=settings.force)
    if what == "cleaned" and (skipped := len(facts.run.read_skipped())):
        notes.append(f"without the files that the run skipped (skipped.csv): {skipped:,}")
    return notes + _about_names(files, target)


def _write_file(
    target: Path, facts: Facts, outcome: Outcome, rows: IntArray, settings: ExportSettings
) -> tuple[list[str], int]:
    """Write a table. Return notes on it, and the number of cells that got an apostrophe."""
    what, notes, apostrophes = settings.what, [], 0
    parquet = target.suffix.lower() in PARQUET
    table = _table(what, facts, outcome, rows, typed=parquet)
    if what == "cleaned" and (labels := facts.record.get("settings", {}).get("labels")):
        gone = sum(skipped.reason == DROPPED for skipped in facts.run.read_skipped())
        without = f", which leaves out {counted(gone, 'sample')}" if gone else ""
        notes.append(f"the changes are those to the labels of {labels}{without}")
    if more := table.num_rows - len(rows):
        stay = counted(more, "row that the run skipped stays as it was", "rows that the run skipped stay as they were")
        notes.append(f"{stay} (skipped.csv)")
    if parquet:
        import pyarrow.parquet as pq

        with atomic_path(target) as partial:
            pq.write_table(table, partial)
    else:
        apostrophes = write_table(target, table, raw=settings.raw, style=_style(facts.source.path, target, what))
    if STATUS_COLUMN in table.column_names and what == "cleaned":
        notes.append(f"the column {STATUS_COLUMN} marks {STATUS_MEANING}")
    return notes, apostrophes


def _table(what: What, facts: Facts, outcome: Outcome, rows: IntArray, *, typed: bool) -> Any:
    if what == "suspects":
        return suspects(facts, rows, typed=typed)
    if what == "decisions":
        return decisions(facts, rows)
    if what == "selected":
        return corrected_table(facts, rows, outcome.label, typed=typed)
    if facts.source.is_table:  # with the rows that the run skipped, which are still the user's
        skipped_ids = [skipped.id for skipped in facts.run.read_skipped() if skipped.reason != DROPPED]
        extra = Extra(outcome.status, skipped_ids=skipped_ids)
    else:  # the file has to say that samples are left out: otherwise a file of labels must have all of them
        extra = Extra(outcome.status, dropped=int(np.sum(~outcome.stays)))
    return corrected_table(facts, rows, outcome.label, typed=typed, extra=extra)


def _about_names(files: FolderExport, target: Path) -> list[str]:
    notes = []
    if files.status is not None:
        notes.append(f"{status_file(target)} lists {STATUS_MEANING}")
    if files.renamed_files:
        notes.append(f"renamed files, because their names were taken or not safe: {files.renamed_files:,}")
    if files.renamed_classes:
        notes.append(f"renamed class folders: {len(files.renamed_classes):,}, listed in {class_names_file(target)}")
    return notes


def default_target(record: Mapping[str, Any], source: Path | None, what: What) -> Path:
    """A name after the source: fruit.csv becomes fruit-cleaned.csv, flowers/ becomes flowers-cleaned/."""
    data = record.get("data") or {}
    name = safe_name(source.resolve().stem if source is not None else str(data.get("name") or "run"))
    if source is not None and source.is_dir():
        folder = what in ("cleaned", "selected") and data.get("kind") == "pictures"
        return Path(f"{safe_name(source.resolve().name)}-{what}{'' if folder else '.csv'}")
    suffix = ".parquet" if source is not None and source.suffix.lower() in PARQUET else ".csv"
    if source is not None and source.suffix.lower() == ".tsv" and what != "decisions":
        suffix = ".tsv"
    return Path(f"{name}-{what}{suffix}")


def _check_unchanged(facts: Facts) -> SourceState:
    """The state of the source; InputError if labels could go to wrong samples."""
    state = check_source(facts.run, facts.columns)
    if state.status is SourceStatus.CHANGED:
        raise InputError(
            f"{state.explanation}; labels could go to the wrong samples, so nothing is written: restore the source, or "
            "select again with another --out"
        )
    return state


def _style(source: Path | None, target: Path, what: What) -> CsvFormat:
    """The form of the source if its rows are written; a .tsv file has tabs and a .csv file does not."""
    if source is None or source.is_dir() or source.suffix.lower() not in CSV or what == "decisions":
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
    if suffix in TABLES or suffix in (".json", ".npz"):
        raise InputError(f"--to must be a .csv or .parquet file or a folder, got {target}")
    return "folder"


def _check_target(target: Path, run: RunFolder, kind: str, *, force: bool) -> None:
    originals = Originals.of(run)
    originals.check(target)
    if kind == "folder":
        originals.check(class_names_file(target))
        originals.check(status_file(target))
    elif not force and os.path.lexists(target):
        raise InputError(f"{target} exists; choose another --to, or use --force to replace it")


@dataclass(frozen=True)
class Originals:
    """Resolved paths of a source."""

    folders: tuple[Path, ...]  # everything in them belongs to the source
    files: frozenset[str]
    run: Path

    @classmethod
    def of(cls, run: RunFolder) -> Originals:
        source = RunSource.of(run)
        path, labels = source.path, source.settings.get("labels")
        folders: list[Path] = []
        files: list[str] = [str(labels)] if labels else []
        if path is not None and path.is_dir():
            folders.append(path)
        elif path is not None:
            files += [str(path), *(_listed(source) if source.kind == "pictures" else ())]
        elif source.name and not is_path(source.name):
            folder = source.name.partition(":")[2].partition("?")[0]  # empty for embedded data
            folders += [Path(folder)] if folder and Path(folder).is_dir() else []
        return cls(tuple(folder.resolve() for folder in folders), frozenset(_resolved(files)), run.path.resolve())

    def check(self, target: Path) -> None:
        """Raise InputError if `target` is an original, or a folder that has some in it or is one of theirs."""
        place = target.resolve()
        inside = any(place.is_relative_to(folder) or folder.is_relative_to(place) for folder in self.folders)
        prefix = f"{place}{os.sep}"
        if inside or str(place) in self.files or any(file.startswith(prefix) for file in self.files):
            raise InputError(f"{target} belongs to the source, which is never changed; choose another --to")
        if self.run.is_relative_to(place) or (place.parent == self.run and os.path.lexists(place)):
            raise InputError(f"{target} belongs to the run; choose another --to")


def _listed(source: RunSource) -> list[str]:
    """The files that a table of pictures names, whether or not the run used them."""
    if not source.is_table:
        return []
    try:
        table = source.table()
    except InputError:  # then no pictures can be exported either
        return []
    if "path" not in table.names:
        return []
    names = table.table.column("path").to_pylist()
    return [os.path.join(table.root, str(name)) for name in names if name is not None]  # noqa: PTH118


def _resolved(files: Iterable[str]) -> Iterable[str]:
    """Real paths. The folders of many files are resolved once; links also count under their own name."""
    folders: dict[str, str] = {}
    for file in files:
        folder, name = os.path.split(file)
        if folder not in folders:
            folders[folder] = os.path.realpath(folder)
        place = os.path.normpath(os.path.join(folders[folder], name))  # noqa: PTH118
        yield place
        if os.path.islink(place):  # noqa: PTH114
            yield os.path.realpath(place)
