"""Pictures that lie under their old names and are others by now.

A run keeps how long each file was and when it was written. Only where that changed is a file opened, and compared with
the picture that was decoded: one that was copied, or written again as it was, is no other one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from labelsieve.csv_files import read_arrow
from labelsieve.data.decode import ExactSize, Pixels, UnreadablePictureError, decode
from labelsieve.data.stage import StagedPictures, cached_pictures

LOOKED_AT = 256  # files that are opened where all were copied; a second
ROUNDING = 4  # by which two versions of a decoder may differ, of 255


def first_replaced(staged: Path, files: Iterable[tuple[str, str]]) -> str | None:
    """The first of these samples, given as (id, file), whose picture is another one; None where nobody can tell."""
    kept = _read(staged)
    if kept is None:
        return None
    place, lengths, times, pictures = kept
    longer: list[tuple[str, str, int]] = []
    newer: list[tuple[str, str, int]] = []
    for id, file in files:
        row = place.get(id, -1)
        if row < 0:
            continue
        try:
            seen = os.stat(file)  # noqa: PTH116 - strings, as a Path for each would take far longer
        except OSError:  # that it is gone is for others to say
            continue
        if seen.st_size != lengths[row]:
            longer.append((id, file, row))
        elif seen.st_mtime_ns != times[row]:
            newer.append((id, file, row))
    for id, file, row in (*_some(longer), *_some(newer)):
        if not _is(pictures, row, Path(file)):
            return id
    return None


def _read(staged: Path) -> tuple[dict[str, int], NDArray[np.int64], NDArray[np.int64], Pixels | StagedPictures] | None:
    """Row of each id, length, time, and the pictures themselves. The oldest where there are two: a run that was stopped
    before it took other ones keeps them."""
    import pyarrow as pa

    types = {"id": pa.string(), "bytes": pa.int64(), "modified": pa.int64()}
    try:
        path = min(staged.glob("pictures-*.csv"), key=lambda found: found.stat().st_mtime_ns)
        table = read_arrow(path, types=types, columns=list(types))
        pictures = cached_pictures(path)
    except (OSError, EOFError, ValueError, KeyError):  # pyarrow's own are of these kinds
        return None
    if pictures.dtype != np.uint8 or pictures.ndim != 4 or len(pictures) < table.num_rows:
        return None
    place = {id: row for row, id in enumerate(table["id"].to_pylist())}
    lengths, times = (table[name].fill_null(-1).to_numpy() for name in ("bytes", "modified"))
    return place, lengths, times, pictures


def _some(files: list[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """All, or as many as can be looked at, evenly spread."""
    if len(files) <= LOOKED_AT:
        return files
    return [files[i] for i in np.linspace(0, len(files) - 1, LOOKED_AT).astype(int).tolist()]


def _is(pictures: Pixels | StagedPictures, row: int, file: Path) -> bool:
    """Whether a file holds what was decoded from it."""
    height, width = pictures.shape[1:3]
    try:
        now = decode(file.read_bytes(), ExactSize(height, width))
    except (OSError, UnreadablePictureError):  # it could be read once
        return False
    return int(np.abs(now.astype(np.int16) - pictures[row]).max()) <= ROUNDING
