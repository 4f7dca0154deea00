"""A folder of class folders, ROOT/class/any/depth/picture.jpg, or of splits, ROOT/train/class/any/depth/picture.jpg."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from labelsieve.data.labels import NO_CLASS, about_left_out, unique_ids
from labelsieve.data.pictures import EXTENSIONS, PictureFiles
from labelsieve.data.read_options import OTHER_SPLIT, ReadOptions, are_splits, check_no_split, choose_splits
from labelsieve.data.read_pictures import read_pictures
from labelsieve.errors import InputError
from labelsieve.progress import Progress
from labelsieve.types import LabelledData, Skipped

# Formats of cameras and programs that PIL alone does not read.
UNSUPPORTED_FORMATS = frozenset(
    (".heic", ".heif", ".avif", ".jxl", ".psd", ".svg", ".dng", ".cr2", ".cr3", ".nef", ".arw")
)
UNSUPPORTED = "unsupported format: save it as JPEG or PNG"
NOT_UTF8 = "its name is not valid UTF-8: rename it"
LINK = "symbolic link"
NOT_REGULAR = "not a regular file"


def load(root: Path, options: ReadOptions, *, progress: Progress | None = None) -> LabelledData:
    """Read a folder whose subfolders are the classes. Unlabelled data may also be in ROOT itself."""
    progress = progress or Progress(silent=True)
    labelled = options.needs_labels
    skipped: list[Skipped] = []
    found = _class_folders(root, skipped)
    tops, folders, other = [""], [(name, name) for name in found], []
    if has_splits(root, found):
        tops = choose_splits(found, options, str(root), progress)
        folders = [(name, f"{top}/{name}") for top in tops for name in _class_folders(root / top, skipped)]
        unused = (name for name in found if name not in tops)
        other = [Skipped(id, OTHER_SPLIT) for name in unused for id in _pictures_below(root, name, [])]
    else:
        check_no_split(options, str(root))
    if not folders and labelled:
        raise InputError(
            f"no samples found in {root}; the folder must contain one subfolder per class with its pictures"
        )
    files: list[str] = []  # relative to root, which makes them the ids
    names: list[str] = []  # of their classes
    with progress.stage(f"listing {root.name}", unit="files") as stage:
        for name, folder in folders:
            for file in _pictures_below(root, folder, skipped):
                files.append(file)
                names.append(name)
                stage.advance()
        classes = sorted(set(names))
        for name in sorted({name for name, _ in folders}.difference(classes)):
            progress.note(f"class folder {name!r} holds no pictures and is left out")
        code = {name: at for at, name in enumerate(classes)}
        y = [code[name] for name in names]
        if not labelled:
            flat = [file for top in tops for file in _pictures_below(root, top, skipped, deep=False)]
            stage.advance(len(flat))
            files += flat
            y += [-1] * len(flat)
        stage.advance(len(skipped))  # the note on unreadable files counts them too
    loose = [skip for top in tops for skip in _loose_pictures(root, top)] if labelled else []
    if loose:
        progress.note(about_left_out(NO_CLASS, [skip.id for skip in loose]))
    links = [skip for skip in dict.fromkeys(skipped) if skip.reason == LINK]
    if links:
        progress.note(about_left_out(LINK, [skip.id for skip in links]))
    if not files:
        why = f" ({skipped[0].id}: {skipped[0].reason})" if skipped else ""
        raise InputError(f"no samples found in {root}; its class folders contain no pictures{why}")
    ids = unique_ids(files, where=str(root))
    data = LabelledData(
        PictureFiles(root.absolute(), files), np.array(y, dtype=np.int64), tuple(classes), ids, "pictures",
        name=root.resolve().name, skipped=tuple(skip for skip in skipped if skip.reason != LINK),
    )  # fmt: skip
    options = options.for_pictures()
    data = read_pictures(
        data, size=options.size, staging=options.cache_dir, progress=progress, compare=options.labelled
    )
    return replace(data, skipped=(*data.skipped, *links, *loose, *other))


def has_splits(root: Path, folders: Sequence[str] | None = None) -> bool:
    """Whether the first-level folders are splits: they have names of splits, and folders in them."""
    names = _class_folders(root, []) if folders is None else folders
    return are_splits(names) and all(any(map(_is_folder, _visible(root / name))) for name in names)


def _class_folders(root: Path, skipped: list[Skipped]) -> list[str]:
    found = []
    for entry in sorted(_visible(root), key=lambda entry: entry.name):
        if entry.is_symlink() and Path(entry.name).suffix.lower() not in EXTENSIONS:
            skipped.append(Skipped(_printable(entry.name), LINK))
        elif _is_folder(entry) and not is_utf8(entry.name):
            skipped.append(Skipped(_printable(entry.name), NOT_UTF8))
        elif _is_folder(entry):
            found.append(entry.name)
    return found


def list_pictures(root: Path, *, loose: bool = False) -> set[str]:
    """Return the ids of the pictures that `load` finds, with `loose` also of those outside all class folders."""
    skipped: list[Skipped] = []
    found = {id for name in _class_folders(root, skipped) for id in _pictures_below(root, name, skipped)}
    return found.union(_pictures_below(root, "", skipped, deep=False)) if loose else found


def _visible(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return [entry for entry in entries if not entry.name.startswith(".")]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def is_utf8(name: str) -> bool:
    """File systems allow any bytes in a name, an id does not."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _printable(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()


def _loose_pictures(root: Path, top: str) -> list[Skipped]:
    """Return the pictures outside all class folders, which have no label. Other files there are not samples."""
    prefix = f"{top}/" if top else ""
    names = (prefix + entry.name for entry in _visible(root / top) if not _is_folder(entry))
    pictures = [name for name in names if Path(name).suffix.lower() in EXTENSIONS | UNSUPPORTED_FORMATS]
    return [Skipped(_printable(name), NO_CLASS) for name in sorted(pictures)]


def _pictures_below(root: Path, folder: str, skipped: list[Skipped], *, deep: bool = True) -> Iterator[str]:
    """Yield picture files relative to `root`, sorted; other files and links are skipped."""
    for entry in sorted(_visible(root / folder), key=lambda entry: entry.name):
        id = f"{folder}/{entry.name}" if folder else entry.name
        suffix = os.path.splitext(entry.name)[1].lower()  # noqa: PTH122 - a Path per file takes several times as long
        if not is_utf8(entry.name):
            skipped.append(Skipped(_printable(id), NOT_UTF8))
        elif entry.is_symlink():
            skipped.append(Skipped(id, LINK))
        elif _is_folder(entry):
            if deep:
                yield from _pictures_below(root, id, skipped)
        elif not entry.is_file():
            skipped.append(Skipped(id, NOT_REGULAR))
        elif suffix in EXTENSIONS:
            yield id
        else:
            skipped.append(Skipped(id, UNSUPPORTED if suffix in UNSUPPORTED_FORMATS else "not a picture file"))
