"""Export the results of a run: corrected labels, selected samples, suspects or decisions.

The target is a CSV or Parquet file, or a folder of class folders. Originals are only read. Files and folders appear
when they are complete; existing ones are replaced only with `force`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from labelsieve.csv_files import CsvFormat
from labelsieve.data.skipped import DROPPED, NO_CLASS, NO_LABEL
from labelsieve.data.source import TABLES, is_path
from labelsieve.decisions import Choice
from labelsieve.errors import InputError
from labelsieve.export.class_folders import FolderExport, class_names_file, safe_name
from labelsieve.export.tables import RunResult, corrected_table, decisions, is_table, suspects, write_table
from labelsieve.files import atomic_path
from labelsieve.report.facts import auto_apply
from labelsieve.report.samples import open_samples
from labelsieve.report.source_state import SourceState, SourceStatus, check_source
from labelsieve.report.source_table import SourceTable, find_source
from labelsieve.runfolder import RunFolder
from labelsieve.types import SELECTED, IntArray

What = Literal["cleaned", "selected", "suspects", "decisions"]
Undecided = Literal["auto", "keep", "likely", "suggested", "drop"]
PARQUET = (".parquet", ".pq")
# A suggestion is applied if it is nearly as probable as the given label: if the noise ratio is underestimated, so are
# the probabilities of all suggestions (benchmarks/unseen-changes.md).
NEARLY = 0.75
SKIP_REASONS = {
    NO_LABEL: ("picture without a label", "pictures without a label"),
    DROPPED: ("picture that was dropped before", "pictures that were dropped before"),
    NO_CLASS: ("picture outside the class folders", "pictures outside the class folders"),
}
UNREADABLE = ("file that could not be read", "files that could not be read")


@dataclass(frozen=True)
class Exported:
    """The result of an export."""

    path: Path
    rows: int
    changed: int  # labels that differ from the given ones
    dropped: int  # samples that were left out because of a decision or of `undecided`
    note: str
    apostrophes: int = 0  # cells that a spreadsheet would have run as formulas


@dataclass(frozen=True)
class Outcome:
    """The label of every sample after the decisions (class codes), and whether it stays."""

    label: NDArray[np.int32]
    stays: NDArray[np.bool_]
    note: str = ""


def apply_decisions(result: RunResult, undecided: Undecided = "auto") -> Outcome:
    """Labels after the decisions.

    For suspects without a decision, `undecided` says whether to keep the given label, apply the suggestion (with
    "likely" only if it is nearly as probable as the given label), or drop the sample. "auto" means "likely" until the
    first decision is made, and "keep" from then on, or if the classifier is not good enough.
    """
    columns, state = result.columns, result.log.state
    pending = columns.suspect() & (state == Choice.UNDECIDED)
    rule, hint = undecided, ""
    if rule == "auto":
        auto, reviewed = auto_apply(result.summary), bool(result.log.decided.any())
        rule = "keep" if reviewed or auto.reason else "likely"
        if reviewed:
            hint = " (--undecided likely applies probable suggestions)"
        elif auto.reason:
            hint = f", because {auto.explanation} (--undecided likely applies suggestions nevertheless)"
    applied = np.zeros(len(columns), dtype=bool)
    if rule == "suggested" or (rule == "likely" and result.suggestions is None):
        applied = pending
    elif rule == "likely" and result.suggestions is not None:
        rows = np.flatnonzero(pending)
        probability = np.array([result.suggestions.get(id, 1.0) for id in columns.ids.take(rows).to_pylist()])
        applied[rows] = probability > NEARLY * (1 - np.nan_to_num(columns.suspicion[rows], nan=1.0))
    label = np.where(result.log.label >= 0, result.log.label, columns.label)
    label = np.where(applied, columns.suggested, label).astype(np.int32)
    stays = (state != Choice.DROP) & ~(pending & (rule == "drop"))
    return Outcome(label, stays, _about_undecided(rule, int(pending.sum()), int(applied.sum()), hint))


def _about_undecided(rule: Undecided, pending: int, applied: int, hint: str) -> str:
    if not pending:
        return ""
    if rule in ("keep", "drop"):
        outcome = "kept their given label" if rule == "keep" else "were left out"
        return f"{pending:,} undecided suspects {outcome}{hint}"
    note = f"{applied:,} undecided suspects got the suggested label"
    if kept := pending - applied:
        note += f", {kept:,} kept the given label, which is more probable (--undecided suggested changes them too)"
    return note


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
    """Write `what` to a .csv file, a .parquet file or a folder of class folders; see `default_target` for no `to`.

    `raw` keeps cells that a spreadsheet would run as formulas; `link` fills the folder with links instead of copies;
    `force` replaces an existing file or folder of class folders.
    """
    folder = run if isinstance(run, RunFolder) else RunFolder.existing(run)
    for option, value, known in (("what", what, get_args(What)), ("undecided", undecided, get_args(Undecided))):
        if value not in known:
            raise InputError(f"--{option} {value}: choose one of {', '.join(known)}")
    record = folder.record()
    source = find_source(folder, str((record.get("data") or {}).get("source") or ""))
    target = Path(to) if to is not None else default_target(record, source, what)
    kind = _kind(target, source)
    if kind == "folder" and what == "decisions":
        raise InputError(f"decisions cannot be exported to a folder: give --to a .csv or .parquet file, not {target}")
    _check_target(target, folder, kind, force=force)
    result = RunResult.read(folder, source)
    columns = result.columns
    state = SourceState(SourceStatus.UNCHANGED) if what == "decisions" else _check_unchanged(folder, result)
    outcome = apply_decisions(result, undecided)
    rows = _rows(what, result, outcome)
    notes = [outcome.note] if what == "cleaned" else []
    if what == "selected" and (by_hand := int(np.sum(columns.verdict[rows] != SELECTED))):
        notes.append(f"{by_hand:,} of them because of a decision")
    apostrophes = 0
    if kind == "folder":
        labels = columns.label if what == "suspects" else outcome.label
        samples = open_samples(folder, columns, state)
        files = FolderExport(samples, columns, rows, labels, source is not None and source.is_dir(), link)
        files.write(target, force=force)
        notes += _about_skipped(folder) if what == "cleaned" else []
        notes += _about_renamed(files, target)
    else:
        table = _table(what, result, outcome, rows, typed=kind == "parquet")
        if more := table.num_rows - len(rows):
            notes.append(f"{more:,} rows that the run skipped (skipped.csv) stay as they were")
        if kind == "parquet":
            import pyarrow.parquet as pq

            with atomic_path(target) as partial:
                pq.write_table(table, partial)
        else:
            apostrophes = write_table(target, table, raw=raw, style=_style(source, target, what))
    if state.status is SourceStatus.GROWN:
        notes.append(state.explanation)
    if apostrophes:
        cells = "1 cell" if apostrophes == 1 else f"{apostrophes:,} cells"
        notes.append(f"{cells} got an apostrophe, so that spreadsheets do not run formulas (--raw writes none)")
    changes_labels = what in ("cleaned", "selected")
    changed = int(np.sum(outcome.label[rows] != columns.label[rows])) if changes_labels else 0
    # Only samples that the run selected can be missing from the selected ones.
    among = columns.verdict == SELECTED if what == "selected" else np.ones(len(columns), dtype=bool)
    dropped = int(np.sum(~outcome.stays & among)) if changes_labels else 0
    return Exported(target, len(rows), changed, dropped, "; ".join(filter(None, notes)), apostrophes)


def _rows(what: What, result: RunResult, outcome: Outcome) -> IntArray:
    """The samples to write in the order of the source; suspects by descending suspicion."""
    columns, state = result.columns, result.log.state
    if what == "cleaned":
        return np.flatnonzero(outcome.stays)
    if what == "selected":  # by the run or by a decision
        return np.flatnonzero(outcome.stays & ((columns.verdict == SELECTED) | result.log.decided))
    if what == "suspects":
        return columns.ranked(np.flatnonzero(columns.suspect()))
    return np.flatnonzero(state != Choice.UNDECIDED)


def _table(what: What, result: RunResult, outcome: Outcome, rows: IntArray, *, typed: bool) -> Any:
    if what == "suspects":
        return suspects(result, rows, typed=typed)
    if what == "decisions":
        return decisions(result, rows)
    if what == "selected":
        return corrected_table(result, rows, outcome.label, typed=typed)
    if result.of_a_table:  # with the rows that the run skipped, which are still the user's
        also = [skipped.id for skipped in result.run.read_skipped() if skipped.reason != DROPPED]
        return corrected_table(result, rows, outcome.label, typed=typed, also=also)
    # The file has to say that samples are left out: otherwise a file of labels must have all of them.
    return corrected_table(result, rows, outcome.label, typed=typed, dropped=int(np.sum(~outcome.stays)))


def _about_skipped(run: RunFolder) -> list[str]:
    """Samples that a folder lacks because the run skipped them, by reason."""
    counts = Counter(SKIP_REASONS.get(skipped.reason, UNREADABLE) for skipped in run.read_skipped())
    order = [words for words in (UNREADABLE, *SKIP_REASONS.values()) if counts[words]]
    return [f"without {counts[words]:,} {words[counts[words] > 1]} (skipped.csv)" for words in order]


def _about_renamed(files: FolderExport, target: Path) -> list[str]:
    notes = []
    if files.renamed_files:
        many = "1 file was" if files.renamed_files == 1 else f"{files.renamed_files:,} files were"
        notes.append(f"{many} renamed, because the name was taken or not safe")
    if files.renamed_classes:
        pairs = ", ".join(f"{name!r} is in {folder!r}" for name, folder in list(files.renamed_classes.items())[:3])
        more = ", ..." if len(files.renamed_classes) > 3 else ""
        many = "class folder" if len(files.renamed_classes) == 1 else "class folders"
        notes.append(
            f"{len(files.renamed_classes):,} {many} renamed ({pairs}{more}), listed in {class_names_file(target)}"
        )
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


def _check_unchanged(run: RunFolder, result: RunResult) -> SourceState:
    """The state of the source; InputError if labels could go to wrong samples."""
    state = check_source(run, result.columns)
    if state.status is SourceStatus.CHANGED:
        raise InputError(
            f"{state.explanation}; labels could go to the wrong samples, so nothing is written: restore the source, or "
            "select again with another --out"
        )
    return state


def _style(source: Path | None, target: Path, what: What) -> CsvFormat:
    """The form of the source if its rows are written; a .tsv file has tabs and a .csv file does not."""
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


def _check_target(target: Path, run: RunFolder, kind: str, *, force: bool) -> None:
    originals = Originals.of(run)
    originals.check(target)
    if kind == "folder":
        originals.check(class_names_file(target))
    elif not force and os.path.lexists(target):
        raise InputError(f"{target} exists: give another --to, or --force to replace it")


@dataclass(frozen=True)
class Originals:
    """Resolved paths of a source."""

    folders: tuple[Path, ...]  # everything in them belongs to the source
    files: frozenset[str]
    run: Path

    @classmethod
    def of(cls, run: RunFolder) -> Originals:
        record = run.record()
        settings, data = record.get("settings") or {}, record.get("data") or {}
        source = str(data.get("source") or "")
        path = find_source(run, source)
        folders: list[Path] = []
        files: list[str] = [str(settings["labels"])] if settings.get("labels") else []
        if path is not None and path.is_dir():
            folders.append(path)
        elif path is not None:
            files += [str(path), *(_listed(path, settings) if data.get("kind") == "pictures" else ())]
        elif source and not is_path(source):
            folder = source.partition(":")[2].partition("?")[0]  # empty for embedded data
            folders += [Path(folder)] if folder and Path(folder).is_dir() else []
        return cls(tuple(folder.resolve() for folder in folders), frozenset(_resolved(files)), run.path.resolve())

    def check(self, target: Path) -> None:
        """Raise InputError if `target` is an original, or a folder that has some in it or is one of theirs."""
        place = target.resolve()
        inside = any(place.is_relative_to(folder) or folder.is_relative_to(place) for folder in self.folders)
        prefix = f"{place}{os.sep}"
        if inside or str(place) in self.files or any(file.startswith(prefix) for file in self.files):
            raise InputError(f"{target} belongs to the source, which is never changed: give another --to")
        if self.run.is_relative_to(place) or (place.parent == self.run and os.path.lexists(place)):
            raise InputError(f"{target} belongs to the run: give another --to")


def _listed(path: Path, settings: dict[str, object]) -> list[str]:
    """The files that a table of pictures names, whether or not the run used them."""
    if path.suffix.lower() not in TABLES:
        return []
    try:
        table = SourceTable.read(path, settings)
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
