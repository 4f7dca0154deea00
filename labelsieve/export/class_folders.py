"""A folder of class folders: copies of the pictures or links to them, under names that cannot lead anywhere else."""

from __future__ import annotations

import os
import re
import shutil
import unicodedata
from glob import escape
from pathlib import Path, PurePosixPath
from typing import Any

from labelsieve.data.pictures import EXTENSIONS
from labelsieve.errors import InputError
from labelsieve.files import sweep, sync_folder, visible_names, written_as
from labelsieve.labels_csv import LabelColumns
from labelsieve.report.samples import Samples, upright
from labelsieve.types import IntArray

RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(1, 10))}
MOST_BYTES = 150
OURS = "labelsieve"  # in the names of what is half done: hidden files beside the folder may be anybody's
MARK = ".labelsieve-export"  # in a folder with folders in its class folders: others have such, too, and are spared


def safe_name(name: str) -> str:
    """One part of a path: no separators, no control characters, nothing a system gives another meaning to."""
    shown = unicodedata.normalize("NFC", str(name)).encode("utf-8", "replace").decode("utf-8")
    shown = re.sub(r'[\x00-\x1f\x7f/\\:*?"<>|\u2028\u2029\u202a-\u202e\u2066-\u2069]', "_", shown)
    shown = shown.strip().rstrip(". ").lstrip(".")
    if shown.split(".")[0].lower() in RESERVED:
        shown = f"_{shown}"
    kept = PurePosixPath(shown).suffix  # without it a picture is none
    kept = kept if kept.lower() in EXTENSIONS else ""
    stem = shown.removesuffix(kept)
    while len((stem + kept).encode()) > MOST_BYTES:
        stem = stem[:-1]
    return stem + kept or "_"


class Names:
    """Hands out safe names, each once, also where upper and lower case are the same."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, wanted: str) -> str:
        name = safe_name(wanted)
        stem, dot, suffix = name.rpartition(".")
        if not stem:
            stem, dot, suffix = name, "", ""
        number = 1
        while name.casefold() in self._taken:
            number += 1
            name = f"{stem}-{number}{dot}{suffix}"
        self._taken.add(name.casefold())
        return name


class Place:
    """A folder that is being filled; folders in it are made when something comes into them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._names = Names()
        self._below: dict[str, Place] = {}
        path.mkdir()

    def below(self, name: str) -> Place:
        if name not in self._below:
            self._below[name] = Place(self.path / self._names.take(name))
        return self._below[name]

    def file(self, name: str) -> Path:
        return self.path / self._names.take(name)


def write_folder(
    target: Path,
    samples: Samples,
    columns: LabelColumns,
    rows: IntArray,
    label: Any,
    *,
    nested: bool,
    link: bool,
    force: bool = False,
) -> int:
    """TARGET/class/picture for each of `rows`; how many pictures had to take another name.

    `nested`: the ids are paths in a folder of class folders, and what lies deeper does so here. The folder appears when
    it is complete; with `force` in an older one's place, which is gone only then.
    """
    if samples.kind != "pictures":
        raise InputError(f"only pictures go into a folder: give --to a .csv or .parquet file, not {target}")
    if os.path.lexists(target) and not _is_free(target):
        if not force:
            raise InputError(f"{target} is there and not empty: give another --to, or --force to write over it")
        _check_replaceable(target)
    beside = target.absolute().parent
    if beside.is_dir():
        sweep(beside, f".{escape(target.name)}.{OURS}.*.partial")
    partial = target.with_name(f".{target.name}.{OURS}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        with written_as(partial, target):
            renamed = _fill(partial, target, samples, columns, rows, label, nested=nested, link=link)
            _swap(partial, target)
        sweep(beside, f".{escape(target.name)}.{OURS}.*.old")  # an older one, of a process that was killed in between
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return renamed


def _fill(
    partial: Path,
    target: Path,
    samples: Samples,
    columns: LabelColumns,
    rows: IntArray,
    label: Any,
    *,
    nested: bool,
    link: bool,
) -> int:
    """Every picture into what will be `target`; how many had to take another name."""
    partial.parent.mkdir(parents=True, exist_ok=True)
    top, renamed, deep = Place(partial), 0, False
    for row in rows.tolist():
        id, place = columns.id(row), top.below(columns.classes[int(label[row])])
        *folders, name = (PurePosixPath(id).parts[1:] if nested else ()) or ("",)
        for folder in folders:
            place, deep = place.below(folder), True
        original, other = _put(samples, id, row, place, name, link=link)
        renamed += other
        if original is not None and original.is_relative_to(target.resolve()):
            raise InputError(f"{target} holds the originals, which are never changed: give another --to")
    if deep:
        (partial / MARK).write_text("written by labelsieve export, which may write over it with --force\n")
    return renamed


def _is_free(target: Path) -> bool:
    """An empty folder, but for hidden files, which move along; a hidden folder (.git) is worth more than that."""
    if not target.is_dir() or target.is_symlink() or visible_names(target):
        return False
    return all(entry.is_file() and not entry.is_symlink() for entry in target.iterdir())


def _check_replaceable(target: Path) -> None:
    """Only what an export may have written is written over: class folders with pictures and nothing else; folders in
    these only where it says that it wrote them."""
    if target.is_symlink() or not target.is_dir():
        raise InputError(f"{target} is not a folder of class folders: give another --to")
    mark = target / MARK
    deep = mark.is_file() and not mark.is_symlink()
    for below in target.rglob("*"):
        depth = len(below.relative_to(target).parts)
        if below.is_dir() and not below.is_symlink():
            fine = depth == 1 or deep
        else:
            fine = (depth == 2 or (deep and depth > 2)) and below.suffix.lower() in EXTENSIONS
        if not fine and below != mark:
            raise InputError(f"{target} holds more than class folders of pictures ({below}): give another --to")


def _swap(partial: Path, target: Path) -> None:
    """The new folder in the place of the old one, which stays where the new one cannot be put there."""
    old = target.with_name(f".{target.name}.{OURS}.{os.getpid()}.old")
    replaced = target.exists()
    if replaced:
        for hidden in target.iterdir() if _is_free(target) else ():
            shutil.copy2(hidden, partial)
        target.rename(old)
    try:
        partial.rename(target)
    except OSError:
        if replaced:
            old.rename(target)
        raise
    sync_folder(target.resolve().parent)
    shutil.rmtree(old, ignore_errors=True)


def _put(samples: Samples, id: str, row: int, place: Place, name: str, *, link: bool) -> tuple[Path | None, bool]:
    """One picture into its folder, called `name` if that is given; the file it came from, where it came from one, and
    whether it had to take another name."""
    try:
        seen = samples.look(row)
    except InputError as problem:
        raise InputError(f"the picture of {id!r} cannot be exported: {problem}") from None
    except Exception as problem:
        raise InputError(f"the picture of {id!r} cannot be exported ({type(problem).__name__})") from None
    file = getattr(seen, "filename", "")
    try:
        original = Path(os.fsdecode(file)).resolve() if file else None
        if not name:
            name = f"{PurePosixPath(id).name}.png" if original is None else original.name
        goal = place.file(name)
        if original is None:
            upright(seen).save(goal, "PNG")
        elif link:
            goal.symlink_to(original)
        else:
            shutil.copyfile(original, goal)
        return original, goal.name != unicodedata.normalize("NFC", name)
    finally:
        seen.close()
