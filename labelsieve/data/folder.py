"""A folder of class folders: ROOT/class/any/depth/picture.jpg."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from labelsieve.data.duplicates import Same
from labelsieve.data.labels import unique_ids
from labelsieve.data.pictures import EXTENSIONS, Size, read_pictures, safe_path
from labelsieve.data.skipped import NO_CLASS, about_loose
from labelsieve.errors import InputError
from labelsieve.progress import Progress
from labelsieve.types import LabelledData, Skipped

# What cameras and programs write and PIL alone does not read.
FOREIGN = frozenset((".heic", ".heif", ".avif", ".jxl", ".psd", ".svg", ".dng", ".cr2", ".cr3", ".nef", ".arw"))
NO_DECODER = "a format that cannot be read: save as JPEG or PNG"
NO_TEXT = "its name is not valid UTF-8: rename it"


def is_text(name: str) -> bool:
    """File systems allow any bytes; an id must be text that can be written down."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()


def load(
    root: Path,
    *,
    labelled: bool = True,
    size: Size = None,
    staging: Path | None = None,
    progress: Progress | None = None,
    same: Same | None = None,
) -> LabelledData:
    """Class names are the folders' names. Without `labelled`, pictures may also lie in ROOT itself."""
    progress = progress or Progress(silent=True)
    skipped: list[Skipped] = []
    names = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))
    for name in names.copy():
        reason = None if is_text(name) else NO_TEXT
        if safe_path(root, name) is None:
            reason = "a link that leads outside the folder"
        if reason is not None:
            skipped.append(Skipped(shown(name), reason))
            names.remove(name)
    if not names and labelled:
        raise InputError(f"no samples in {root}: expected a folder for each class with its pictures inside")
    files: list[Path] = []
    y: list[int] = []
    classes: list[str] = []
    with progress.stage(f"listing {root.name}", unit="files") as stage:
        for name in names:
            found = []
            for file in _pictures_below(root / name, root, skipped):
                found.append(file)
                stage.advance()
            if found:
                y += [len(classes)] * len(found)
                files += found
                classes.append(name)
            else:
                progress.note(f"class folder {name!r} holds no pictures: no such class in this run")
        if not labelled:
            flat = list(_pictures_below(root, root, skipped, deep=False))
            stage.advance(len(flat))
            files += flat
            y += [-1] * len(flat)
        stage.advance(len(skipped))  # files as well, which a word on those that cannot be read counts
    loose = _loose(root) if labelled else []
    if loose:
        progress.note(about_loose([skip.id for skip in loose]))
    if not files:
        why = f" ({skipped[0].id}: {skipped[0].reason})" if skipped else ""
        raise InputError(f"no samples in {root}: no pictures in its class folders{why}")
    ids = unique_ids((file.relative_to(root).as_posix() for file in files), where=str(root))
    codes = np.array(y, dtype=np.int64)
    data = read_pictures(
        files, codes, tuple(classes), ids, name=root.resolve().name, size=size, staging=staging, skipped=skipped,
        progress=progress, same=same,
    )  # fmt: skip
    return replace(data, skipped=(*data.skipped, *loose))


def _loose(root: Path) -> list[Skipped]:
    """Pictures beside the class folders, which have no label. Other files there (a list, a licence) are no samples."""
    names = (entry.name for entry in os.scandir(root) if not entry.name.startswith(".") and not entry.is_dir())
    pictures = [name for name in names if Path(name).suffix.lower() in EXTENSIONS | FOREIGN]
    return [Skipped(shown(name), NO_CLASS) for name in sorted(pictures)]


def _pictures_below(folder: Path, root: Path, skipped: list[Skipped], *, deep: bool = True) -> Iterator[Path]:
    """Picture files in a fixed order; other files and links that lead outside are listed, hidden files are not."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.name.startswith("."):
            continue
        path = Path(entry.path)
        id = path.relative_to(root).as_posix()
        if not is_text(entry.name):
            skipped.append(Skipped(shown(id), NO_TEXT))
        elif entry.is_symlink() and safe_path(root, id) is None:
            skipped.append(Skipped(id, "a link that leads outside the folder"))
        elif entry.is_dir(follow_symlinks=False):
            if deep:
                yield from _pictures_below(path, root, skipped)
        elif entry.is_symlink() and entry.is_dir():
            skipped.append(Skipped(id, "a link to a folder"))
        elif path.suffix.lower() in EXTENSIONS:
            yield path
        else:
            skipped.append(Skipped(id, NO_DECODER if path.suffix.lower() in FOREIGN else "not a picture file"))
