"""A folder of class folders: copies of the pictures or links to them, under names that cannot lead anywhere else."""

from __future__ import annotations

import os
import re
import shutil
import unicodedata
from pathlib import Path, PurePosixPath
from typing import Any

from labelsieve.errors import InputError
from labelsieve.files import sync_folder
from labelsieve.report.columns import Columns
from labelsieve.report.samples import Samples, upright
from labelsieve.types import IntArray

RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(1, 10))}
MOST_BYTES = 150


def safe_name(name: str) -> str:
    """One part of a path: no separators, no control characters, nothing a system gives another meaning to."""
    shown = unicodedata.normalize("NFC", str(name)).encode("utf-8", "replace").decode("utf-8")
    shown = re.sub(r'[\x00-\x1f\x7f/\\:*?"<>|\u2028\u2029\u202a-\u202e\u2066-\u2069]', "_", shown)
    shown = shown.strip().rstrip(". ").lstrip(".")
    if shown.split(".")[0].lower() in RESERVED:
        shown = f"_{shown}"
    while len(shown.encode()) > MOST_BYTES:
        shown = shown[:-1]
    return shown or "_"


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
    target: Path, samples: Samples, columns: Columns, rows: IntArray, label: Any, *, source: Path | None, link: bool
) -> None:
    """TARGET/class/picture for each of `rows`. The folder appears when it is complete."""
    if samples.kind != "pictures":
        raise InputError(f"only pictures go into a folder: give --to a .csv or .parquet file, not {target}")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target} is there and not empty: give another --to")
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
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
            _put(samples, columns.id(row), row, place[code], files[code], link=link)
        if target.exists():
            target.rmdir()
        partial.replace(target)
        sync_folder(target.resolve().parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _put(samples: Samples, id: str, row: int, folder: Path, names: Names, *, link: bool) -> None:
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
        else:
            upright(seen).save(folder / names.take(f"{PurePosixPath(id).name}.png"), "PNG")
    finally:
        seen.close()
