"""Whether the source of a run is still there and unchanged. The report, the review and the export all ask this module.

Tables, arrays and data sets in a folder are read again as the run read them, unless their files are older than the run:
ids and labels are compared, and the fingerprint if this version wrote it. Pictures are not decoded again: their names
and labels are compared, and a file is opened only if its size or time differs from what the run recorded.
A data set that is known by its name only (hf:NAME) cannot be checked.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from labelsieve.csv_files import read_arrow
from labelsieve.data.cells import is_text
from labelsieve.data.decode import ExactSize, UnreadablePictureError, decode
from labelsieve.data.folder import list_pictures
from labelsieve.data.labels import LabelFile, is_same_label
from labelsieve.data.read_options import ReadOptions
from labelsieve.data.source import BUILT_IN, TABLES, files_of, is_path, load_source
from labelsieve.data.stage import StagedPictures
from labelsieve.data.table_file import TableFile, in_any_case
from labelsieve.errors import InputError
from labelsieve.files import read_bytes, safe_path
from labelsieve.labels_csv import LabelColumns, index_in
from labelsieve.runfolder import STAGED, RunFolder, fingerprint
from labelsieve.types import IntArray, Kind, LabelledData, evenly_spaced


def find_source(run: RunFolder, source: str) -> Path | None:
    """The file or folder of a source, relative to the current folder or to the parent of the run folder.

    A run that was copied from another machine is found with its source: a file or folder with the same name in one of
    these folders. `check_source` compares its content with the run. None if there is none or the source is not a path.
    It is never the run folder, which may have the name of the source.
    """
    if not source or not is_path(source):
        return None
    own = run.path.resolve()
    for place in (base / name for name in (source, Path(source).name) for base in (Path(), own.parent)):
        if os.path.exists(place) and place.resolve() != own:  # noqa: PTH110 - Path.exists may raise
            return place
    return None


@dataclass(frozen=True)
class RunSource:
    """The source of a run: where it is now, and how the run read it. The only way to open it again."""

    name: str  # as in run.json
    path: Path | None  # of a file or folder that exists
    data_record: Mapping[str, Any]  # the entry `data` of run.json
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, run: RunFolder) -> RunSource:
        record = run.record()
        about = record.get("data") or {}
        name = str(about.get("source") or "")
        return cls(name, find_source(run, name), about, record.get("settings") or {})

    @property
    def kind(self) -> Kind:
        return cast("Kind", self.data_record.get("kind", "table"))

    @property
    def is_table(self) -> bool:
        return self.path is not None and not self.path.is_dir() and self.path.suffix.lower() in TABLES

    def table(self, *, typed: bool = False) -> SourceTable:
        """The file of a table; see `SourceTable.read`."""
        assert self.path is not None
        return SourceTable.read(self.path, ReadOptions.of_run(self.settings), typed=typed)

    def load(self, **options: Any) -> LabelledData:
        """Read the samples as the run did, with other `ReadOptions`. Nothing is written."""
        if not self.name:
            raise InputError("this run does not name its source")
        return load_source(str(self.path or self.name), ReadOptions.of_run(self.settings, **options))

    def words(self, corrected: str, *, table: bool) -> list[str]:
        """The arguments that read corrected labels as the run read its source.

        With `table` the labels are in a copy of the source, else the file is given with --labels.
        """
        words = [corrected] if table else [str(self.path or self.name), "--labels", corrected]
        options = ReadOptions.of_run(self.settings)
        if self.name.lower().endswith(TABLES) and self.kind == "pictures":
            options = replace(options, root=options.root or (self.path or Path(self.name)).parent)
        if table:
            options = replace(options, header=())  # the copy has a header
        words += options.words()
        if self.settings.get("size") is not None:
            words += ["--size", str(self.settings["size"])]
        return words


@dataclass(frozen=True)
class SourceTable:
    """A table with every cell as it is written, and the roles of its columns.

    Column names are those of a `TableFile`; `original_names` are those of the file.
    """

    table: Any  # pyarrow; all columns are strings if the file is CSV
    label: str
    root: Path
    text: str = "text"
    id: str = "id"
    original_names: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path, options: ReadOptions, *, typed: bool = False) -> SourceTable:
        """Read the table. With `typed`, columns of numbers become numbers; else every cell is text."""
        named = (options.label_column, options.text_column or "text", options.id_column)
        label, text, id = (name.strip() for name in named)
        file = TableFile.read(path, (label, text, id), header=options.header, as_text=not typed)
        root = options.root or path.parent
        return cls(file.table, in_any_case(label, file.names), root, text, id, file.original_names)

    @property
    def names(self) -> list[str]:
        return [str(name) for name in self.table.column_names]

    @property
    def id_column(self) -> str | None:
        """The column that identifies the samples; None if their row number does."""
        wanted = (self.id, "path") if self.text == "text" else (self.id,)  # a named text column comes first
        return next((name for name in wanted if name in self.names), None)

    def cell(self, name: str, row: int) -> Any:
        if row < 0:
            raise InputError("the source does not have this row any more")
        return self.table.column(name)[int(row)].as_py()

    def row_ids(self) -> Any:
        """The id of each row: its id, its path or its number."""
        import pyarrow as pa

        if self.id_column is None:
            return pa.array(np.arange(self.table.num_rows)).cast(pa.string())
        column = self.table.column(self.id_column)
        # Arrow formats texts and integers as Python does, only faster.
        fast = not column.null_count and (pa.types.is_integer(column.type) or is_text(column.type))
        return column.cast(pa.string()).combine_chunks() if fast else pa.array(list(map(str, column.to_pylist())))

    def rows_of(self, columns: LabelColumns) -> IntArray:
        """Row of each sample in the table, -1 if it is not there."""
        own = self.row_ids()
        if len(own) == len(columns) and own.equals(columns.ids):
            return np.arange(len(columns))
        return index_in(columns.ids, own)


CLOCK_TOLERANCE = 2.0  # seconds that the clock of a file system may differ from ours
MAX_OPENED = 256  # pictures that are decoded if all of them were copied; takes a second
DECODER_TOLERANCE = 4  # of 255: versions of a decoder may round differently


class SourceStatus(Enum):
    UNCHANGED = "unchanged"  # or it cannot be checked
    GROWN = "grown"  # all samples of the run are unchanged, and there are new ones
    CHANGED = "changed"
    MISSING = "missing"


@dataclass(frozen=True)
class SourceState:
    """The state of a source, with a sentence for people."""

    status: SourceStatus
    explanation: str = ""
    positional: bool = False  # samples are known by their position only, and another one may be there now

    @property
    def readable(self) -> bool:
        """Whether the samples that are found are those of the run."""
        moved = self.status is SourceStatus.CHANGED and self.positional
        return self.status is not SourceStatus.MISSING and not moved


UNCHANGED = SourceState(SourceStatus.UNCHANGED)


def check_source(run: RunFolder, columns: LabelColumns) -> SourceState:
    """Compare the source of a run with what the run read."""
    return _Check(run, columns).state()


class _Check:
    def __init__(self, run: RunFolder, columns: LabelColumns) -> None:
        self.run, self.columns, self.opener = run, columns, RunSource.of(run)
        self.record = run.record()
        self.settings, self.data, self.source = self.opener.settings, self.opener.data_record, self.opener.name

    def state(self) -> SourceState:
        if not self.source or self.source in BUILT_IN:
            return UNCHANGED
        if not is_path(self.source):
            return self._data_set()
        path = self.opener.path
        if path is None:
            return self._missing(self.source)
        if path.is_dir():
            return self._folder(path)
        if not self.data.get("fingerprint") or path.suffix.lower() not in (*TABLES, ".npz"):
            return UNCHANGED
        return self._table(path)

    def _missing(self, what: object) -> SourceState:
        return SourceState(SourceStatus.MISSING, f"{what} does not exist any more, so samples cannot be shown")

    def _changed(self, how: str, *, positional: bool = False) -> SourceState:
        if not how:
            return UNCHANGED
        return SourceState(SourceStatus.CHANGED, f"{self._has_changed()}: {how}", positional)

    def _has_changed(self) -> str:
        return f"{self.opener.path or self.source} has changed since {self.run.path} was started"

    def _folder(self, root: Path) -> SourceState:
        ids: list[str] = self.columns.ids.to_pylist()
        try:
            present = list_pictures(root, loose=any("/" not in id for id in ids))
            new = present.difference(ids, (skipped.id for skipped in self.run.read_skipped()))
        except InputError as problem:
            return self._changed(str(problem))
        except OSError as problem:
            return self._changed(f"it cannot be read ({problem.strerror}: {problem.filename})")
        lost = next((id for id in ids if id not in present), None)
        if lost is not None:
            moved = min((id for id in new if id.partition("/")[2] == lost.partition("/")[2]), default=None)
            return self._changed(f"{lost!r} is missing" + (f", and {moved!r} is new" if moved is not None else ""))
        how = self._replaced((id, os.path.join(root, id)) for id in ids)  # noqa: PTH118
        if how or not new:
            return self._changed(how)
        count = f"1 new picture ({min(new)!r})" if len(new) == 1 else f"{len(new):,} new pictures (e.g. {min(new)!r})"
        return SourceState(SourceStatus.GROWN, f"{self._has_changed()}: {count}, not part of this run or its export")

    def _table(self, path: Path) -> SourceState:
        of_pictures = self.opener.kind == "pictures" and self.opener.is_table
        untouched = self._untouched([path])
        if untouched and not of_pictures:
            return UNCHANGED
        table = None
        try:
            table = self.opener.table() if self.opener.is_table else None
            if table is None or not of_pictures:
                how = self._read_again()
            elif not table.root.is_dir():
                return self._missing(table.root)
            else:
                how = ("" if untouched else self._other_rows(table)) or self._other_files(table)
        except InputError as problem:
            how = str(problem)
        return self._changed(how, positional=table is None or table.id_column is None)

    def _other_rows(self, table: SourceTable) -> str:
        """The first difference between a list of pictures and the run."""
        labels: Iterable[Any] = [None] * table.table.num_rows
        if not self.settings.get("labels") and table.label in table.names:
            labels = (str(cell).strip() for cell in table.table.column(table.label).to_pylist())
        now = dict(zip(table.row_ids().to_pylist(), labels, strict=True))
        skipped = int(self.data.get("skipped") or 0)
        return self._difference(now, count=table.table.num_rows - skipped)

    def _other_files(self, table: SourceTable) -> str:
        """The first picture of a list that is missing or was replaced."""
        if "path" not in table.names:
            return "it has no column 'path'"
        rows = table.rows_of(self.columns)
        names = [str(name) for name in table.table.column("path").take(rows[rows >= 0]).to_pylist()]
        lost = next((name for name in names if not _is_file(table.root, name)), None)
        if lost is not None:
            return f"the picture {lost!r} is missing"
        ids = (id for id, row in zip(self.columns.ids.to_pylist(), rows.tolist(), strict=True) if row >= 0)
        return self._replaced(zip(ids, (os.path.join(table.root, name) for name in names), strict=True))  # noqa: PTH118

    def _data_set(self) -> SourceState:
        """A data set in a folder (cifar10:DIR and the like)."""
        scheme, _, rest = self.source.partition(":")
        folder = Path(rest.partition("?")[0])
        if not folder.is_dir():
            return self._missing(self.source) if folder.is_absolute() else UNCHANGED
        if scheme == "hf" and find_spec("datasets") is None:  # it cannot be read here
            return UNCHANGED
        positional = scheme.startswith("cifar") or (len(self.columns) > 0 and self.columns.id(0).isdecimal())
        if scheme == "webvision":
            lost = next((id for id in self.columns.ids.to_pylist() if not _is_file(folder, id)), None)
            if lost is not None:
                return self._changed(f"{lost!r} is missing")
        try:
            files = files_of(self.source)
            how = "" if files and self._untouched(files) else self._read_again()
        except InputError as problem:
            how = str(problem)
        return self._changed(how, positional=positional)

    def _read_again(self) -> str:
        """Read the source as the run did. The first difference, or "" if it is the same."""
        from labelsieve import __version__

        same_version = (self.record.get("versions") or {}).get("labelsieve") == __version__
        before = self.data.get("fingerprint") if same_version else None
        first = ""
        for labels in self._label_files():
            data = self.opener.load(labels=labels)
            names = [str(data.classes[code]) for code in data.y.tolist()]
            how = self._difference(dict(zip(data.ids.tolist(), names, strict=True)), count=len(data))
            if not how and before and fingerprint(data) != before:
                how = "the samples or their order are different"
            if not how:
                return ""
            first = first or how
        return first

    def _label_files(self) -> Iterator[LabelFile | None]:
        """The file given with --labels, rebuilt from labels.csv and skipped.csv: it may have changed since.

        It held the labels of all samples or decisions on some of them: both are possible.
        """
        if not self.settings.get("labels"):
            yield None
            return
        ids = self.columns.ids.to_pylist()
        labels = dict(zip(ids, self.columns.names(self.columns.label), strict=True))
        dropped = frozenset(skipped.id for skipped in self.run.read_skipped())
        for partial in (False, True):
            yield LabelFile(Path(str(self.settings["labels"])), labels, None, partial=partial, dropped=dropped)

    def _difference(self, now: Mapping[str, Any], *, count: int) -> str:
        """The first sample that is missing or has another label, or another number of samples."""
        ids = self.columns.ids.to_pylist()
        if (lost := next((id for id in ids if id not in now), None)) is not None:
            return f"{lost!r} is missing"
        for id, label in zip(ids, self.columns.names(self.columns.label), strict=True):
            if now[id] is not None and not is_same_label(now[id], label):
                return f"the label of {id!r} was {label!r} and is now {now[id]!r}"
        if count != len(self.columns):
            return f"it had {len(self.columns):,} samples and now has {count:,}"
        return ""

    def _untouched(self, files: Iterable[Path]) -> bool:
        """Whether the files are older than the run, so that a million rows need not be read again."""
        started = (self.record.get("stages") or {}).get("select", {}).get("started")
        try:
            since = datetime.fromisoformat(started).timestamp() - CLOCK_TOLERANCE
        except (TypeError, ValueError):
            return False
        times = (_status(file) for file in files)
        return all(max(about.st_mtime, about.st_ctime) < since for about in times if about is not None)

    def _replaced(self, files: Iterable[tuple[str, str]]) -> str:
        """The first picture, given as (id, file), whose content is another one."""
        staged = self.run / STAGED
        first = self.record.get("branch")  # this run uses the selection of another one, and its decoded pictures
        if isinstance(first, str) and not staged.is_dir():
            staged = Path(first) / STAGED
        decoded = DecodedPictures.read(staged)
        id = decoded.first_replaced(files) if decoded is not None else None
        return "" if id is None else f"the picture {id!r} was replaced"


def _status(file: str | Path) -> os.stat_result | None:
    try:
        return os.stat(file)  # noqa: PTH116 - a Path per file takes far longer
    except OSError:
        return None


def _is_file(root: Path, name: str) -> bool:
    if ".." in name or os.path.isabs(name):  # noqa: PTH117
        return (file := safe_path(root, name)) is not None and file.is_file()
    return os.path.isfile(os.path.join(root, name))  # noqa: PTH113, PTH118


@dataclass(frozen=True)
class DecodedPictures:
    """The decoded pictures in the cache of a run, with size and time of their files."""

    row: Mapping[str, int]  # of each id
    sizes: NDArray[np.int64]
    times: NDArray[np.int64]
    pixels: StagedPictures

    @classmethod
    def read(cls, staged: Path) -> DecodedPictures | None:
        """None if nothing is stored. Of two caches the older one counts: the newer one may be of an aborted run."""
        import pyarrow as pa

        types = {"id": pa.string(), "bytes": pa.int64(), "modified": pa.int64()}
        try:
            path = min(staged.glob("pictures-*.csv"), key=lambda file: file.stat().st_mtime_ns)
            table = read_arrow(path, types=types, columns=list(types))
            pixels = StagedPictures.open(path.with_suffix("")).readable()
        except (OSError, EOFError, ValueError, KeyError):  # pyarrow's errors are of these types
            return None
        if len(pixels) < table.num_rows:
            return None
        row = {id: i for i, id in enumerate(table["id"].to_pylist())}
        sizes, times = (table[name].fill_null(-1).to_numpy() for name in ("bytes", "modified"))
        return cls(row, sizes, times, pixels)

    def first_replaced(self, files: Iterable[tuple[str, str]]) -> str | None:
        """The first of these samples, given as (id, file), whose picture differs; None if none is known to."""
        resized: list[tuple[str, str, int]] = []
        touched: list[tuple[str, str, int]] = []
        for id, file in files:
            row = self.row.get(id, -1)
            status = _status(file) if row >= 0 else None
            if status is None:
                continue
            if status.st_size != self.sizes[row]:
                resized.append((id, file, row))
            elif status.st_mtime_ns != self.times[row]:
                touched.append((id, file, row))
        chosen = (*_spread(resized), *_spread(touched))
        return next((id for id, file, row in chosen if not self._shows(row, Path(file))), None)

    def _shows(self, row: int, file: Path) -> bool:
        height, width = self.pixels.shape[1:3]
        try:
            now = decode(read_bytes(file), ExactSize(height, width))
        except (OSError, InputError, UnreadablePictureError):  # the file was readable before
            return False
        return int(np.abs(now.astype(np.int16) - self.pixels[row]).max()) <= DECODER_TOLERANCE


def _spread(files: list[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """At most `MAX_OPENED` files, evenly spread."""
    return [files[i] for i in evenly_spaced(len(files), MAX_OPENED).tolist()]
