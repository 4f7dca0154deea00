"""Which pictures are there now, by their names alone: 100,000 take a fraction of a second, and none is opened."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from labelsieve.data.folder import is_utf8
from labelsieve.data.pictures import EXTENSIONS, safe_path
from labelsieve.errors import InputError


def picture_ids(root: Path, *, loose: bool = False) -> set[str]:
    """Ids, as `data.folder` gives them, of the pictures in class folders; if `loose`, of those in `root` itself too."""
    found: set[str] = set()
    folders = []
    try:
        for entry in _entries(root):
            if entry.is_dir():
                if not entry.is_symlink() or safe_path(root, entry.name) is not None:
                    folders.append(entry.name)
            elif loose and _is_picture(entry, root, entry.name):
                found.add(entry.name)
        while folders:
            folder = folders.pop()
            for entry in _entries(root / folder):
                id = f"{folder}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    folders.append(id)
                elif _is_picture(entry, root, id):
                    found.add(id)
    except OSError as problem:
        raise InputError(f"it cannot be read ({problem.strerror}: {problem.filename})") from None
    return found


def first_missing(root: Path, names: Iterable[str]) -> str | None:
    """The first of these files that is no longer there."""
    return next((name for name in names if not _is_file(root, name)), None)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return [entry for entry in entries if not entry.name.startswith(".") and is_utf8(entry.name)]


def _is_picture(entry: os.DirEntry[str], root: Path, id: str) -> bool:
    if os.path.splitext(entry.name)[1].lower() not in EXTENSIONS:  # noqa: PTH122
        return False
    # To follow a name to its end takes longer than all the rest; only links need it.
    return not entry.is_symlink() or (entry.is_file() and safe_path(root, id) is not None)


def _is_file(root: Path, name: str) -> bool:
    """Strings, as a Path for each would take ten times as long; only a name that may lead outside is worth it."""
    if ".." in name or os.path.isabs(name):  # noqa: PTH117
        return (file := safe_path(root, name)) is not None and os.path.isfile(file)  # noqa: PTH113
    return os.path.isfile(os.path.join(root, name))  # noqa: PTH113, PTH118
