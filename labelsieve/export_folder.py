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
from labelsieve.files import sweep, sync_folder
from labelsieve.folders import contents
from labelsieve.report.columns import Columns
from labelsieve.report.samples import Samples, upright
from labelsieve.types import IntArray

RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(1, 10))}
MOST_BYTES = 150
OURS = "labelsieve"  # in the names of what is half done: hidden files beside the folder may be anybody's


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


def write_folder(
    target: Path, samples: Samples, columns: Columns, rows: IntArray, label: Any, *, link: bool, force: bool = False
) -> None:
    """TARGET/class/picture for each of `rows`. The folder appears when it is complete; with `force` in an older one's
    place, which is gone only then."""
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
        partial.mkdir(parents=True)
        folders, files = Names(), {}
        place: dict[int, Path] = {}
        for row in rows.tolist():
            code = int(label[row])
            if code not in place:
                place[code] = partial / folders.take(columns.classes[code])
                place[code].mkdir()
                files[code] = Names()
            original = _put(samples, columns.id(row), row, place[code], files[code], link=link)
            if original is not None and original.is_relative_to(target.resolve()):
                raise InputError(f"{target} holds the originals, which are never changed: give another --to")
        _swap(partial, target)
        sweep(beside, f".{escape(target.name)}.{OURS}.*.old")  # an older one, of a process that was killed in between
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _is_free(target: Path) -> bool:
    """An empty folder, but for hidden files, which move along; a hidden folder (.git) is worth more than that."""
    if not target.is_dir() or target.is_symlink() or contents(target):
        return False
    return all(entry.is_file() and not entry.is_symlink() for entry in target.iterdir())


def _check_replaceable(target: Path) -> None:
    """Only what an export may have written is written over: class folders with pictures and nothing else."""
    if target.is_symlink() or not target.is_dir():
        raise InputError(f"{target} is not a folder of class folders: give another --to")
    for below in target.rglob("*"):
        depth = len(below.relative_to(target).parts)
        folder = below.is_dir() and not below.is_symlink()
        if not (folder and depth == 1) and not (depth == 2 and below.suffix.lower() in EXTENSIONS and not folder):
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


def _put(samples: Samples, id: str, row: int, folder: Path, names: Names, *, link: bool) -> Path | None:
    """One picture into its folder; the file it came from, where it came from one."""
    try:
        seen = samples.look(row)
    except InputError as problem:
        raise InputError(f"the picture of {id!r} cannot be exported: {problem}") from None
    except Exception as problem:
        raise InputError(f"the picture of {id!r} cannot be exported ({type(problem).__name__})") from None
    file = getattr(seen, "filename", "")
    try:
        if file:
            original = Path(os.fsdecode(file)).resolve()
            goal = folder / names.take(PurePosixPath(original.as_posix()).name)
            if link:
                goal.symlink_to(original)
            else:
                shutil.copyfile(original, goal)
            return original
        upright(seen).save(folder / names.take(f"{PurePosixPath(id).name}.png"), "PNG")
        return None
    finally:
        seen.close()
