"""Hugging Face datasets, by name or from a folder: `hf:NAME_OR_DIR?split=train&label=label&config=NAME`."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import numpy as np

from labelsieve.data.columns import Origin
from labelsieve.data.decode import Resize
from labelsieve.data.features import read_features
from labelsieve.data.labels import leave_out_unusable, read_labels, unique_ids, unlabelled
from labelsieve.data.pictures import PAPER_SIZE, EncodedPictures, stamp
from labelsieve.data.read_options import ReadOptions, check_no_split, choose_splits, parse_source
from labelsieve.data.read_pictures import read_with_options
from labelsieve.data.table import NOT_FEATURES
from labelsieve.errors import InputError, MissingColumnError
from labelsieve.files import (
    BYTES_AT_ONCE,
    check_unpacked,
    content_folders,
    leads_outside,
    open_archive,
    open_file,
    read_text,
    unpacked_limit,
)
from labelsieve.progress import Progress
from labelsieve.types import IntArray, LabelledData

OPTIONS = ("split", "label", "config")
# Files that can name other files: those of a saved data set are in its folder and in those of its splits.
CARDS, SAVED = ("README.md", ".huggingface.yaml"), ("state.json", "dataset_dict.json")
FILE_KEYS = ("data_files", "data_dir", "_data_files", "splits")
PACKED: dict[bytes, Any] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}  # by the first bytes of a file
ZIPPED = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
UNCHECKED = (b"7z\xbc\xaf", b"Rar!", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18")  # 7z, rar, zstd and lz4
SKIPPED_FRAME = b"\x2a\x4d\x18"  # zstd and lz4 files can start with one, after a byte of any value
LZMA_HEADER, START = 13, 64  # bytes
# A file in an archive with such a name is unpacked, with any first bytes.
PACKED_SUFFIXES = (".gz", ".gzip", ".bz2", ".xz", ".lz4", ".zst", ".zstd", ".zip", ".eval")


def load(spec: str, reading: ReadOptions, progress: Progress) -> LabelledData:
    """Read the column `label` (or the only ClassLabel column) and an Image column, texts or feature columns."""
    labelled, id_column = reading.needs_labels, reading.id_column
    where, options = parse_source(spec, "hf", OPTIONS)
    rows = _open(where, options, reading, progress)
    if len(rows) == 0:
        raise InputError(f"{spec} holds no samples")
    origin = Origin(spec, progress.note)
    y, classes, label = _labels(rows, options.get("label"), origin, labelled)
    if id_column != "id" and id_column not in rows.column_names:
        columns = ", ".join(rows.column_names)
        raise MissingColumnError(f"{spec} has no column {id_column!r}: its columns are {columns}", (id_column,))
    features = [name for name in rows.column_names if name not in (label, id_column, *NOT_FEATURES)]
    kinds = {name: type(rows.features[name]).__name__ for name in features}
    ids = unique_ids(rows[id_column] if id_column in rows.column_names else range(len(rows)), where=spec)
    name = Path(where).name
    pictures = [feature for feature, kind in kinds.items() if kind == "Image"]
    if pictures and reading.text_column is None:
        data = LabelledData(DatasetPictures.of(rows, pictures[0], Path(where)), y, classes, ids, "pictures", name=name)
        data = read_with_options(data, reading, progress)
        kept = data.ids  # without those of unreadable pictures
        origin = replace(origin, place=lambda row: f"id {kept[row]}")
    else:
        plain = [feature for feature, kind in kinds.items() if kind == "Value"]
        if not plain:
            raise InputError(f"{spec} has no picture, no column text and no columns of features beside {label!r}")
        x, kind = read_features(rows.with_format("arrow").select_columns(plain)[:], reading, origin)
        data = LabelledData(x=x, y=y, classes=classes, ids=ids, kind=kind, name=name)
    return leave_out_unusable(data, origin, labels=labelled, texts=reading.labelled)


def _open(where: str, options: dict[str, str], reading: ReadOptions, progress: Progress) -> Any:
    # Loading data must not report to anyone.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        import datasets
    except ImportError:
        raise InputError("hf: sources need the extra: pip install 'labelsieve[hf]'") from None

    folder = Path(where)
    check_folder(folder, f"hf:{where}")
    saved = folder.is_dir() and any((folder / name).exists() for name in SAVED)
    try:
        if saved:
            loaded = datasets.load_from_disk(where)
        else:
            loaded = datasets.load_dataset(where, options.get("config"))
    except Exception as error:  # no network, no such name, a damaged file
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"cannot load hf:{where}: {reason[:300]}") from None
    if not isinstance(loaded, datasets.DatasetDict):
        check_no_split(reading, f"hf:{where}")
        return loaded
    split = reading.split or options.get("split") or ("train" if "train" in loaded else next(iter(loaded)))
    used = choose_splits(list(loaded), replace(reading, split=split), f"hf:{where}", progress)
    return datasets.concatenate_datasets([loaded[name] for name in used])


def check_folder(folder: Path, where: str) -> None:
    """Raise InputError if a data set in a folder has special files, huge archives, or leads outside the folder.

    A link leads outside, or a description: the README.md of a data set can name its files, and so can state.json.
    """
    paths = sorted(folder.rglob("*")) if folder.is_dir() else []
    homes = _homes(folder)
    for path in paths:
        if leads_outside(path, homes):
            raise InputError(f"{where}: {path.name} is a link that leads outside the folder; copy the file instead")
        if not path.is_dir() and not path.is_file():
            raise InputError(f"{where}: {path.name} is a pipe, a device or a broken link")
        if path.is_file():
            _check_archive(path, f"{where}: {path.name}")
    cards = [folder / name for name in CARDS if (folder / name).is_file()]
    for path in (*cards, *(path for path in paths if path.name in SAVED)):
        if (named := _outside(_description(path, where))) is not None:
            raise InputError(f"{where}: {path.name} names {named[:200]!r}, which is not below the folder")


class Counted:
    """A file that is read from start to end, and raises ValueError after `limit` bytes."""

    def __init__(self, content: BinaryIO, limit: int) -> None:
        self.content, self.total, self.limit = content, 0, limit

    def read(self, size: int) -> bytes:
        piece = self.content.read(size)
        self.total += len(piece)
        check_unpacked([self.total], self.limit)
        return piece


def _check_archive(path: Path, where: str) -> None:
    """Raise InputError if `datasets` would unpack a file to more than the limit. As there, the content decides."""
    with open_file(path) as file:
        try:
            _check_content(file, path.stem, unpacked_limit(path.stat().st_size))
        except Exception as problem:  # a damaged archive can raise nearly any exception
            reason = " ".join(str(problem).split())[:200]
            raise InputError(f"{where} cannot be unpacked ({reason}); unpack it yourself") from None


def _check_content(file: BinaryIO, stem: str, limit: int) -> None:
    start = file.read(START)
    if _is_unchecked(start) or _is_old_lzma(start):
        raise ValueError("its size cannot be checked")
    try:
        archive = open_archive(file, limit)
    except zipfile.BadZipFile:  # nor can `datasets` unpack it
        if start.startswith(ZIPPED):
            raise
    else:
        for entry in archive.infolist():
            with archive.open(entry) as content:
                _check_entry(entry.filename, content)
    file.seek(0)
    unpack = next((PACKED[mark] for mark in PACKED if start.startswith(mark)), None)
    if unpack is None:
        _check_tar(file, "r:", limit)
        return
    with unpack(file) as content:
        _check_entry(stem, content)
        content.seek(0)
        counted = Counted(content, limit)
        _check_tar(counted, "r|", limit)
        while counted.read(BYTES_AT_ONCE):  # the rest
            pass


def _check_tar(content: Any, mode: Any, limit: int) -> None:
    try:
        archive = tarfile.open(fileobj=content, mode=mode)  # noqa: SIM115 - the caller closes the file
    except tarfile.ReadError:  # another file
        return
    check_unpacked(_tar_sizes(archive), limit)


def _tar_sizes(archive: tarfile.TarFile) -> Iterator[int]:
    """Yield the sizes of the files in a tar archive, with their holes, before anything of them is read."""
    for entry in archive:
        yield entry.size
        if entry.isreg():
            _check_entry(entry.name, cast("IO[bytes]", archive.extractfile(entry)))
        elif not entry.isdir():
            raise ValueError(f"{entry.name} in it is a link, a pipe or a device")


def _check_entry(name: str, content: IO[bytes]) -> None:
    """Raise ValueError if a file in an archive is packed too: `datasets` would unpack it."""
    start = content.read(START)
    if name.lower().endswith(PACKED_SUFFIXES) or start.startswith((*PACKED, *ZIPPED)) or _is_unchecked(start):
        raise ValueError(f"{name} in it is packed too")


def _is_unchecked(start: bytes) -> bool:
    return start.startswith(UNCHECKED) or start[1:4] == SKIPPED_FRAME


def _is_old_lzma(start: bytes) -> bool:
    """Whether `tarfile` would unpack a file in the old format of LZMA, which has no mark."""
    if len(start) <= LZMA_HEADER or start.startswith(tuple(PACKED)):
        return False
    try:
        lzma.LZMADecompressor().decompress(start, 1)
    except lzma.LZMAError:
        return False
    return True


def _homes(folder: Path) -> tuple[Path, ...]:
    """Return the folders whose files a data set may read: archives are unpacked in the cache."""
    import datasets

    return *content_folders(folder), Path(datasets.config.HF_CACHE_HOME)


def _description(path: Path, where: str) -> Any:
    """Return the content of a description as `datasets` reads it; README.md starts with a block of YAML."""
    import yaml  # type: ignore[import-untyped]
    from huggingface_hub.repocard import REGEX_YAML_BLOCK

    try:
        text = read_text(path).removeprefix("\ufeff")
        if path.suffix == ".json":
            return json.loads(text)
        if path.suffix == ".md":
            block = REGEX_YAML_BLOCK.search(text)
            text = block[2] if block else ""
        return yaml.safe_load(text)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as problem:
        reason = " ".join(str(problem).split())[:200]
        raise InputError(f"{where}: {path.name} is damaged ({reason})") from None


def _outside(description: Any) -> str | None:
    """Return a file name in a description that leads outside the folder."""
    waiting, seen = [(description, False)], set()  # YAML can repeat a value without end
    while waiting:
        content, is_file = waiting.pop()
        if isinstance(content, str) and content and is_file:
            steps = content.replace("\\", "/").split("/")
            if ":" in content or ".." in steps or steps[0] in ("", "~"):
                return content
        elif isinstance(content, dict | list) and (id(content), is_file) not in seen:
            seen.add((id(content), is_file))
            entries = content.items() if isinstance(content, dict) else ((None, value) for value in content)
            waiting += [(value, is_file or key in FILE_KEYS) for key, value in entries]
    return None


def _labels(
    rows: Any, wanted: str | None, origin: Origin, labelled: bool
) -> tuple[IntArray, tuple[Any, ...], str | None]:
    """Return codes, -1 for a missing label, the classes, and the column of the labels."""
    names = rows.column_names
    typed = [name for name in names if type(rows.features[name]).__name__ == "ClassLabel"]
    label = wanted or ("label" if "label" in names else typed[0] if len(typed) == 1 else "label")
    if label not in names:
        if labelled or wanted:
            raise InputError(
                f"{origin.where} has no column {label!r}: its columns are {', '.join(names)}; add ?label=NAME"
            )
        return *unlabelled(len(rows)), None
    values = rows.with_format(None)[label][:]
    if label in typed:
        values = [None if value is None or value < 0 else value for value in values]
    found = read_labels(values, replace(origin, where=f"{origin.where}: {label}"), required=labelled)
    if label in typed and found.classes:  # a class that has no samples keeps its code
        codes = np.array([-1 if value is None else value for value in values], dtype=np.int64)
        return codes, tuple(rows.features[label].names), label
    return found.codes, found.classes, label


@dataclass(frozen=True)
class DatasetPictures(EncodedPictures):
    """The Image column of a data set. Threads decode it: its rows may be in memory."""

    rows: Any
    column: str
    folder: Path
    fingerprint: str
    index: IntArray
    resize: Resize = PAPER_SIZE
    unreadable: dict[int, str] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, rows: Any, column: str, folder: Path) -> DatasetPictures:
        import datasets

        encoded = rows.cast_column(column, datasets.Image(decode=False))
        return cls(encoded, column, folder, rows._fingerprint, np.arange(len(rows)))

    def __len__(self) -> int:
        return len(self.index)

    def subset(self, index: IntArray) -> DatasetPictures:
        return replace(self, index=self.index[index], unreadable=self._subset_unreadable(index))

    def resized(self, resize: Resize) -> DatasetPictures:
        return replace(self, resize=resize, unreadable={})

    def describe(self, i: int) -> str:
        return f"row {self.index[i]}"

    def open(self, i: int) -> BinaryIO:
        cell = self.rows[int(self.index[i])][self.column]
        if cell is None:
            raise InputError("there is no picture in this row")
        if cell.get("bytes"):
            return io.BytesIO(cell["bytes"])
        # A row may name any file: only those of the data set are opened.
        file = Path(os.path.realpath(str(cell["path"])))
        if any(file.is_relative_to(home.resolve()) for home in _homes(self.folder)):
            return open_file(file)
        raise InputError("a path that leads outside the folder of the data set")

    def version(self) -> str:
        """Return the fingerprint of the rows and the times of the files, which may change without it."""
        return f"{self.fingerprint} {[stamp(file) for file in _files(self.folder)]}"


def files(spec: str) -> list[Path]:
    """Return the files that are read; none if the data set is given by its name."""
    return _files(Path(spec.removeprefix("hf:").partition("?")[0]))


def _files(folder: Path) -> list[Path]:
    """Return the files of a data set without the cached results that programs write there."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "cache-")))
