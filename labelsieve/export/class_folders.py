"""Export to class folders: TARGET/class/picture.jpg, copies of the pictures or links to them.

Names are made safe for every file system: no separators, no control characters, and none that differ only in upper and
lower case or in their Unicode form. TARGET-classes.csv lists the classes whose folder has another name, and
TARGET-status.csv the pictures whose label was not decided.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path, PurePosixPath
from typing import Any

from labelsieve.csv_files import make_harmless, write_csv
from labelsieve.data.decode import turn_upright
from labelsieve.data.pictures import EXTENSIONS
from labelsieve.errors import InputError
from labelsieve.files import (
    SYSTEM_FILES,
    copy_file,
    read_bytes,
    read_text,
    sweep,
    sync_folder,
    visible_names,
    write_json,
    written_as,
)
from labelsieve.labels_csv import LabelColumns, number_cell
from labelsieve.report.samples import Samples
from labelsieve.types import IntArray

RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(1, 10))}  # on Windows
MAX_NAME_BYTES = 150  # file systems allow 255; a temporary name and a suffix are added
STATUS_COLUMNS = ("file", "id", "label", "suggested", "suspicion", "status")
TEMPORARY = "labelsieve"  # in the names of temporary folders: other hidden files beside the target are not ours
LIST = ".labelsieve-export"  # size and time of the files of an export: a folder with others is never replaced
SAME_TIME = 2_000_000_000  # nanoseconds: some file systems store even seconds


def safe_name(name: str) -> str:
    """A name without separators, control characters and names that have a special meaning to a system."""
    shown = unicodedata.normalize("NFC", str(name)).encode("utf-8", "replace").decode("utf-8")
    shown = re.sub(r'[\x00-\x1f\x7f/\\:*?"<>|\u2028\u2029\u202a-\u202e\u2066-\u2069]', "_", shown)
    shown = shown.strip().rstrip(". ").lstrip(".")
    if shown.split(".")[0].lower() in RESERVED:
        shown = f"_{shown}"
    suffix = PurePosixPath(shown).suffix
    suffix = suffix if suffix.lower() in EXTENSIONS else ""
    stem = shown.removesuffix(suffix)
    while len((stem + suffix).encode()) > MAX_NAME_BYTES:
        stem = stem[:-1]
    return stem + suffix or "_"


class Folder:
    """A folder that is being filled. Names in it are safe and unique, also on case-insensitive file systems."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._taken: set[str] = set()
        self.folders: dict[str, Folder] = {}
        path.mkdir()

    def folder(self, name: str) -> Folder:
        if name not in self.folders:
            self.folders[name] = Folder(self.file(name))
        return self.folders[name]

    def file(self, wanted: str) -> Path:
        name = safe_name(wanted)
        stem, suffix = os.path.splitext(name)  # noqa: PTH122
        number = 1
        while name.casefold() in self._taken:
            number += 1
            name = f"{stem}-{number}{suffix}"
        self._taken.add(name.casefold())
        return self.path / name


@dataclass
class FolderExport:
    """Samples to write, and after `write` which names were changed."""

    samples: Samples
    columns: LabelColumns
    rows: IntArray
    labels: Any  # class code of every sample of the run
    depth: int  # of the class folder in ids that are paths: 2 below a split, else 1; 0 if ids are not paths
    link: bool
    raw: bool = False  # whether formulas stay as they are in the lists beside the folder
    status: Any = None  # text per sample of the run, "" for most; None: nothing to list
    renamed_files: int = 0
    renamed_classes: dict[str, str] = field(default_factory=dict)  # class name: folder name
    _listed: list[tuple[str, ...]] = field(default_factory=list)

    def write(self, target: Path, *, force: bool) -> None:
        """Write TARGET/class/picture. The folder appears when it is complete; `force` replaces an older one."""
        if self.samples.kind != "pictures":
            raise InputError("only pictures can be exported to a folder; set --to to a .csv or .parquet file")
        if os.path.lexists(target) and not _is_free(target):
            if not force:
                raise InputError(f"{target} exists and is not empty; choose another --to, or use --force to replace it")
            _check_replaceable(target)
        beside = target.absolute().parent
        if beside.is_dir():
            sweep(beside, f".{escape(target.name)}.{TEMPORARY}.*.partial")
        partial = target.with_name(f".{target.name}.{TEMPORARY}.{os.getpid()}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            with written_as(partial, target):
                self._fill(partial)
                self._write_list(class_names_file(target), ("class", "folder"), self.renamed_classes.items(), force)
                self._write_list(status_file(target), STATUS_COLUMNS, self._listed, force)
                _swap(partial, target)
            sweep(beside, f".{escape(target.name)}.{TEMPORARY}.*.old")  # of a process that was killed in `_swap`
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _fill(self, partial: Path) -> None:
        partial.parent.mkdir(parents=True, exist_ok=True)
        top, files = Folder(partial), {}
        tops: dict[Path, Folder] = {}  # the folders that contain class folders
        for row in self.rows.tolist():
            id = self.columns.id(row)
            parts = PurePosixPath(id).parts
            *folders, name = (parts[self.depth :] if self.depth else ()) or ("",)
            folder = top
            for split in parts[: self.depth - 1] if self.depth > 1 else ():
                folder = folder.folder(split)
            tops[folder.path] = folder
            folder = folder.folder(self.columns.classes[int(self.labels[row])])
            for below in folders:
                folder = folder.folder(below)
            picture = self._copy(row, id, folder, name)
            written = picture.relative_to(partial).as_posix()
            files[written] = _state(picture)
            if self.status is not None and self.status[row]:
                columns = self.columns
                labels = (columns.name(int(codes[row])) or "" for codes in (columns.label, columns.suggested))
                suspicion = number_cell(columns.suspicion[row])
                self._listed.append((written, id, *labels, suspicion, self.status[row]))
        write_json(partial / LIST, {"written by": "labelsieve export", "files": files})
        names = {name: folder.path.name for above in tops.values() for name, folder in above.folders.items()}
        self.renamed_classes = {name: folder for name, folder in names.items() if name != folder}

    def _copy(self, row: int, id: str, folder: Folder, name: str) -> Path:
        """Copy or link one picture and return its place; `name` is empty if the file of the source has the name."""
        try:
            picture = self.samples.read(row)
        except InputError as problem:
            raise InputError(f"the picture {id!r} cannot be exported: {problem}") from None
        except Exception as problem:  # decoders raise any error
            raise InputError(f"the picture {id!r} cannot be exported ({type(problem).__name__})") from None
        with picture:
            original = self.samples.path(row)
            if not name:
                name = f"{PurePosixPath(id).name}.png" if original is None else original.name
            target = folder.file(name)
            if original is None:
                turn_upright(picture).save(target, "PNG")
            elif self.link:
                target.symlink_to(original)
            else:
                copy_file(original, target)
        self.renamed_files += target.name != unicodedata.normalize("NFC", name)
        return target

    def _write_list(self, path: Path, names: Sequence[str], rows: Collection[tuple[str, ...]], force: bool) -> None:
        """Write a list beside the folder, unless it is empty; an empty one removes that of the replaced folder."""
        old = path.is_file() and not path.is_symlink() and read_bytes(path).startswith(",".join(names).encode())
        if os.path.lexists(path) and rows and not (force and old):
            how = ", or use --force to replace it" if old else ""
            raise InputError(f"{path} exists; choose another --to{how}")
        if rows:
            write_csv(path, names, (map(str if self.raw else make_harmless, row) for row in rows))
        elif force and old:
            path.unlink()


def class_names_file(target: Path) -> Path:
    """The file beside an export that maps class names to folder names."""
    return target.with_name(f"{target.name}-classes.csv")


def status_file(target: Path) -> Path:
    """The file beside an export that lists undecided suspects and applied suggestions."""
    return target.with_name(f"{target.name}-status.csv")


def _is_free(target: Path) -> bool:
    """Whether a folder has no more than hidden files, which are kept. A hidden folder (.git) is not replaced."""
    if not target.is_dir() or target.is_symlink() or visible_names(target):
        return False
    return all(entry.is_file() and not entry.is_symlink() for entry in target.iterdir())


def _check_replaceable(target: Path) -> None:
    """Raise InputError unless a folder is an earlier export in which no files but hidden ones were added or changed."""
    written = _written_files(target)
    unknown = "was not written by `labelsieve export`"
    if problem := unknown if written is None else next(_foreign_files(target, written), ""):
        raise InputError(f"{target} {problem}; --force replaces only unchanged exports: choose another --to")


def _foreign_files(target: Path, written: dict[Path, tuple[int, int]]) -> Iterator[str]:
    """What is wrong with each file that is not as it was written, system files aside."""
    hidden = set(_hidden_files(target))
    for path in target.rglob("*"):
        if path in hidden or (path.is_dir() and not path.is_symlink()) or path.name.lower() in SYSTEM_FILES:
            continue
        (size, time), (old_size, old_time) = _state(path), written.get(path, (-1, 0))
        if old_size < 0:
            yield f"contains {path.name}, which was not written by `labelsieve export`"
        elif size != old_size or abs(time - old_time) > SAME_TIME:
            yield f"contains {path.name}, which was changed after the export"


def _state(path: Path) -> tuple[int, int]:
    """Size and time of the last change of a file, or of a link itself."""
    found = path.lstat()
    return found.st_size, found.st_mtime_ns


def _written_files(target: Path) -> dict[Path, tuple[int, int]] | None:
    """Size and time of the files of an export; None if its list cannot be read, or if it is a link or a file."""
    if target.is_symlink() or not target.is_dir():
        return None
    try:
        files = json.loads(read_text(target / LIST))["files"]
        return {target / name: (int(size), int(time)) for name, (size, time) in files.items()}
    except (InputError, OSError, ValueError, OverflowError, KeyError, TypeError, AttributeError):
        return None


def _hidden_files(target: Path) -> list[Path]:
    """The hidden files of a folder, which stay if it is replaced."""
    return [path for path in target.iterdir() if path.name.startswith(".") and path.is_file() and not path.is_symlink()]


def _swap(partial: Path, target: Path) -> None:
    """Replace `target` by the complete folder; the old one stays if that fails."""
    old = target.with_name(f".{target.name}.{TEMPORARY}.{os.getpid()}.old")
    replaced = target.exists()
    if replaced:
        if not _is_free(target):
            _check_replaceable(target)  # again: files may have been added while the pictures were copied
        for hidden in _hidden_files(target):
            if hidden.name != LIST:
                copy_file(hidden, partial / hidden.name)
        target.rename(old)
    try:
        partial.rename(target)
    except OSError:
        if replaced:
            old.rename(target)
        raise
    sync_folder(target.resolve().parent)
    shutil.rmtree(old, ignore_errors=True)
