"""Decoded pictures kept in a folder: the next start is quick, and a picture that was replaced is noticed.

    DIR/pictures-KEY.npy     the pictures, [rows, height, width, 3]
    DIR/pictures-KEY.csv     id, bytes, modified (ns): what each row's file was when it was read
    DIR/pictures-KEY.json    how many rows, what could not be read, which files are the same; written last

KEY changes when a file, its time, its length or the wanted size does. So pictures of another key lie beside those that
are there, and a run decides which of the two are its own.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.errors import InputError
from labelsieve.files import atomic_writer, write_json

FORMAT = 2
NAMES = "pictures*"  # those of earlier versions, pictures.npy, among them

_in_use: dict[Path, str] = {}  # the key of the pictures that were read or written last, by folder

Pixels = NDArray[np.uint8]
Stamp = tuple[int, int]  # bytes, and when it was written, in nanoseconds


@dataclass(frozen=True)
class Kept:
    """The decoded pictures of these files, kept or still to be."""

    folder: Path
    key: str
    stamps: tuple[Stamp | None, ...]  # one a file; None where a picture is no file, or is not there

    @classmethod
    def of(cls, folder: Path, files: Sequence[Any], ids: NDArray[np.str_], how: str) -> Kept:
        """`how` is all that decides what becomes of the files, beside the files themselves."""
        import hashlib

        digest = hashlib.sha256(f"{FORMAT} {how} {len(files)}".encode())
        stamps = tuple(stamp(file) for file in files)
        for id, seen in zip(ids.tolist(), stamps, strict=True):
            digest.update(f"{id}\0{seen}\n".encode())
        return cls(folder, digest.hexdigest()[:16], stamps)

    def path(self, suffix: str) -> Path:
        return self.folder / f"pictures-{self.key}.{suffix}"

    def index(self) -> dict[str, Any]:
        return dict(json.loads(self.path("json").read_text(encoding="utf-8")))

    def read(self) -> tuple[Pixels, dict[int, str]] | None:
        """The pictures and what could not be read; None where they are not all there."""
        try:
            index = self.index()
            x = np.load(self.path("npy"), mmap_mode="r", allow_pickle=False)
            if len(x) < index["rows"]:
                return None
            found = x[: index["rows"]], {int(i): str(reason) for i, reason in index["failures"]}
            _in_use[self.folder.absolute()] = self.key
            return found
        except (OSError, EOFError, ValueError, KeyError, TypeError):
            return None

    def write_index(self, ids: NDArray[np.str_], failures: dict[int, str]) -> None:
        """What is known of the rows of the .npy, which is there by now."""
        rows = [i for i in range(len(ids)) if i not in failures]
        with atomic_writer(self.path("csv")) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("id", "bytes", "modified"))
            writer.writerows((ids[i], *(self.stamps[i] or ("", ""))) for i in rows)
        write_json(self.path("json"), {"rows": len(rows), "failures": sorted(failures.items())})
        _in_use[self.folder.absolute()] = self.key

    def add(self, **entries: Any) -> None:
        """More that is known of them."""
        write_json(self.path("json"), {**self.index(), **entries})


def stamp(file: Any) -> Stamp | None:
    """What tells a file from another one of its name, without reading it."""
    if not isinstance(file, Path):
        return None
    try:
        seen = file.stat()
    except OSError:
        return None
    return seen.st_size, seen.st_mtime_ns


@contextmanager
def trial(folder: Path, *, begun: bool) -> Iterator[Callable[[], None]]:
    """Pictures may be decoded into `folder` before it is known whether they are a run's own.

    Once they are (the function that this gives is called) all others go; where a run that was `begun` refuses them they
    go themselves, so that its next start is as quick as it would have been, and nobody takes them for its own.
    """
    before, taken = _files(folder), False

    def take() -> None:
        nonlocal taken
        taken = True
        used = _in_use.get(folder.absolute())
        if used is not None:
            _remove({file for file in _files(folder) if file.stem != f"pictures-{used}"})

    try:
        yield take
    except InputError:
        if begun and not taken:
            _remove(_files(folder) - before)
        raise


def _files(folder: Path) -> set[Path]:
    return set(folder.glob(NAMES))


def _remove(files: set[Path]) -> None:
    for file in files:
        with suppress(OSError):  # a folder that is only read, or a system that keeps open files
            file.unlink(missing_ok=True)
