"""Is the source still what a run read? Whoever shows its samples or writes its rows asks first.

Rows and arrays are read again as the run read them, and their fingerprint compared; so are data sets in a folder
(cifar10: and the like), unless nobody touched their files. Of pictures only the names and the labels are, as decoding
them all would take too long, and what tells a file that was replaced: a folder's classes are part of its names, a
table's files are looked for. What is known by a name alone (hf:NAME) cannot be asked.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from labelsieve.data.labels import means
from labelsieve.data.source import BUILT_IN, TABLES, files_of, is_path
from labelsieve.errors import InputError
from labelsieve.labels_csv import LabelColumns
from labelsieve.report.listing import first_missing, picture_ids
from labelsieve.report.replaced import first_replaced
from labelsieve.report.source_table import SourceTable, find_source
from labelsieve.runfolder import STAGED, RunFolder, fingerprint
from labelsieve.types import LabelledData

CLOCKS = 2.0  # seconds that two clocks, or a file's and the time of day, may differ


@dataclass(frozen=True)
class Trouble:
    """What keeps a run and its source apart."""

    told: str
    gone: bool = False
    numbered: bool = False  # rows are known by their number alone: another one may stand in their place
    only_more: bool = False  # every sample of the run is there as it was, and others that it does not know


def trouble(run: RunFolder, columns: LabelColumns) -> Trouble | None:
    """None where the source is there and still what it was, or where that cannot be asked."""
    record = run.record()
    about: dict[str, Any] = record.get("data") or {}
    source = str(about.get("source") or "")
    if not source or source in BUILT_IN:
        return None
    changed = f"{source} changed since {run.path} was begun: "
    if not is_path(source):
        return _about_data_set(run, source, columns, changed)
    path = find_source(run, source)
    if path is None:
        return _gone(source)
    if path.is_dir():
        return _about_folder(run, path, columns, changed)
    suffix = path.suffix.lower()
    if not about.get("fingerprint") or suffix not in (*TABLES, ".npz"):
        return None
    of_pictures = about.get("kind") == "pictures" and suffix in TABLES
    untouched = _untouched([path], record)
    if untouched and not of_pictures:
        return None
    by_number, how = True, ""
    try:
        table = SourceTable.read(path, record.get("settings") or {}) if suffix in TABLES else None
        by_number = table is None or table.named is None
        how = _difference(table, columns, record) if table is not None and not untouched else ""
        # The fingerprint has the last word, unless another version may have read the rows differently.
        if not of_pictures and _same_version(record):
            same = _same_rows(run, str(path), columns, record)
            how = "" if same else how or "its rows, or their order, are not what they were"
        if of_pictures and table is not None and not how:
            if not table.root.is_dir():
                return Trouble(f"{table.root} is not there any more: its pictures cannot be shown", gone=True)
            how = _other_picture(run, table, columns)
    except InputError as problem:
        how = how or str(problem)
    return Trouble(changed + how, numbered=by_number) if how else None


def _about_folder(run: RunFolder, root: Path, columns: LabelColumns, changed: str) -> Trouble | None:
    """A picture that is gone, or lies in another class now; else those that came since."""
    ids: list[str] = columns.ids.to_pylist()
    try:
        there = picture_ids(root, loose=any("/" not in id for id in ids))
        new = there.difference(ids, (id for id, _ in run.read_skipped()))
    except InputError as problem:
        return Trouble(changed + str(problem))
    lost = next((id for id in ids if id not in there), None)
    if lost is not None:
        moved = min((id for id in new if id.partition("/")[2] == lost.partition("/")[2]), default=None)
        instead = f", but {moved!r}, which it did not have" if moved is not None else ""
        return Trouble(f"{changed}it no longer has the sample {lost!r}{instead}")
    if (other := first_replaced(_staged(run), ((id, os.path.join(root, id)) for id in ids))) is not None:  # noqa: PTH118
        return Trouble(f"{changed}{_about_replaced(other)}")
    if not new:
        return None
    some = f"1 new picture ({min(new)!r})" if len(new) == 1 else f"{len(new):,} new pictures (such as {min(new)!r})"
    return Trouble(f"{changed}it has {some} that this run did not judge and does not export", only_more=True)


def _other_picture(run: RunFolder, table: SourceTable, columns: LabelColumns) -> str:
    """What to say of the first picture that is gone, or another one by now."""
    if "path" not in table.names:
        return "it no longer has a column 'path'"
    at = table.rows_of(columns)
    names = [str(name) for name in table.table.column("path").take(at[at >= 0]).to_pylist()]
    if (lost := first_missing(table.root, names)) is not None:
        return f"the picture {lost!r} is no longer there"
    ids = (id for id, row in zip(columns.ids.to_pylist(), at.tolist(), strict=True) if row >= 0)
    places = (os.path.join(table.root, name) for name in names)  # noqa: PTH118
    other = first_replaced(_staged(run), zip(ids, places, strict=True))
    return _about_replaced(other) if other is not None else ""


def _staged(run: RunFolder) -> Path:
    """Where the pictures are kept: of a run that took its selection from another one, there."""
    first = run.record().get("branch")
    return Path(first) / STAGED if isinstance(first, str) and not (run / STAGED).is_dir() else run / STAGED


def _about_replaced(id: str) -> str:
    return f"the picture of {id!r} was replaced by another one"


def _gone(source: str) -> Trouble:
    return Trouble(f"{source} is not there any more: its samples cannot be shown", gone=True)


def _about_data_set(run: RunFolder, source: str, columns: LabelColumns, changed: str) -> Trouble | None:
    """A data set in a folder, known by its samples and labels; one that is known by its name is not asked."""
    scheme, _, rest = source.partition(":")
    folder = Path(rest.partition("?")[0])
    if not folder.is_dir():
        return _gone(source) if folder.is_absolute() else None
    if scheme == "hf" and find_spec("datasets") is None:  # nobody here can read it, nor show it
        return None
    numbered = scheme.startswith("cifar") or (len(columns) > 0 and columns.id(0).isdecimal())
    lost = first_missing(folder, columns.ids.to_pylist()) if scheme == "webvision" else None
    if lost is not None:
        return Trouble(f"{changed}it no longer has the sample {lost!r}")
    try:
        files = files_of(source)
        if files and _untouched(files, run.record()):
            return None
        how = _other_samples(run, source, columns)
    except InputError as problem:
        how = str(problem)
    return Trouble(changed + how, numbered=numbered) if how else None


def _other_samples(run: RunFolder, source: str, columns: LabelColumns) -> str:
    """What to say where a data set is read again and is another one."""
    record, told = run.record(), ""
    before = record["data"].get("fingerprint") if _same_version(record) else None
    name, _, query = source.partition("?")
    asked = "&".join(part for part in query.split("&") if not part.startswith("stage="))  # nothing is written here
    for data in _read_again(run, f"{name}?{asked}" if asked else name, columns, record):
        how = _sample_difference(data, columns)
        if not how and before and fingerprint(data) != before:
            how = "its samples, or their order, are not what they were"
        if not how:
            return ""
        told = told or how
    return told


def _sample_difference(data: LabelledData, columns: LabelColumns) -> str:
    """The first sample that is gone, or has another label; else how many there are."""
    ids, now = columns.ids.to_pylist(), data.ids.tolist()
    if now != ids:
        there = set(now)
        lost = next((id for id in ids if id not in there), None)
        if lost is None:
            return f"it has {len(now):,} samples, and had {len(ids):,}"
        return f"it no longer has the sample {lost!r}"
    for id, code, before in zip(ids, data.y.tolist(), columns.label.tolist(), strict=True):
        if str(data.classes[code]) != columns.name(before):
            return f"the label of {id!r} was {columns.name(before)!r} and is {str(data.classes[code])!r} now"
    return ""


def _untouched(files: Iterable[Path], record: dict[str, Any]) -> bool:
    """Nobody wrote, renamed or copied a file since the run read it: reading a million rows again is spared."""
    began = (record.get("stages") or {}).get("select", {}).get("started")
    try:
        since = datetime.fromisoformat(began).timestamp() - CLOCKS
    except (TypeError, ValueError):
        return False
    return all(max(about.st_mtime, about.st_ctime) < since for about in map(_status, files) if about is not None)


def _status(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except OSError:  # a list may name files that never were there
        return None


def _difference(table: SourceTable, columns: LabelColumns, record: dict[str, Any]) -> str:
    """The first sample that is gone, or has another label; else how many rows there are."""
    at = table.rows_of(columns)
    if (at < 0).any():
        return f"it no longer has the sample {columns.id(int(np.argmin(at)))!r}"
    settings = record.get("settings") or {}
    if not settings.get("labels") and table.label in table.names:
        cells = table.table.column(table.label).take(at).to_pylist()
        before = np.array([*columns.classes, ""], dtype=object)[columns.label]
        texts = zip((str(cell).strip() for cell in cells), before.tolist(), strict=True)
        now = np.array([label if means(text, label) else text for text, label in texts], dtype=object)
        other = np.flatnonzero(now != before)
        if len(other):
            first = int(other[0])
            return f"the label of {columns.id(first)!r} was {before[first]!r} and is {now[first]!r} now"
    read = len(columns) + int((record.get("data") or {}).get("skipped") or 0)
    if table.table.num_rows != read:
        return f"it has {table.table.num_rows:,} rows, and had {read:,}"
    return ""


def _same_version(record: dict[str, Any]) -> bool:
    from labelsieve import __version__

    return bool((record.get("versions") or {}).get("labelsieve") == __version__)


def _same_rows(run: RunFolder, source: str, columns: LabelColumns, record: dict[str, Any]) -> bool:
    before = record["data"]["fingerprint"]
    return any(fingerprint(data) == before for data in _read_again(run, source, columns, record))


def _read_again(run: RunFolder, source: str, columns: LabelColumns, record: dict[str, Any]) -> Iterator[LabelledData]:
    """The samples as the run read them: in the one or the other way that a file of labels may have been meant."""
    from labelsieve.data.labels import LabelFile
    from labelsieve.data.source import ReadOptions, load_source

    settings = record.get("settings") or {}
    files: list[LabelFile | None] = [None]
    if settings.get("labels"):
        # That file may have changed or gone since: what it said is in labels.csv, what it left out in skipped.csv.
        names = [str(columns.name(code)) for code in columns.label.tolist()]
        said = dict(zip(columns.ids.to_pylist(), names, strict=True))
        kept = LabelFile(
            Path(str(settings["labels"])), said, None, dropped=frozenset(id for id, _ in run.read_skipped())
        )
        files = [kept, LabelFile(kept.path, said, None, partial=True, dropped=kept.dropped)]
    for labels in files:
        yield load_source(source, ReadOptions.of_run(settings, labels=labels))
