"""An .npz with x and y, and ids where it has them. Nothing in it is ever unpickled."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.columns import by_row, ignore_note
from labelsieve.data.labels import about_missing, about_stripped, decoded, encode, stripped, unique_ids, unlabelled
from labelsieve.data.read_options import ReadOptions
from labelsieve.data.skipped import too_many, without_blank, without_label
from labelsieve.errors import InputError
from labelsieve.progress import Progress
from labelsieve.types import IntArray, Kind, LabelledData


def load(path: Path, options: ReadOptions | None = None, *, progress: Progress | None = None) -> LabelledData:
    """x: [n, d] numbers, [n, H, W] or [n, H, W, 1|3] bytes as pictures, or [n] texts. y: one label a sample."""
    options = options or ReadOptions()
    labelled = options.needs_labels
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise InputError(f"{path} is not an .npz archive")
            names = [name for name in ("x", "y", "ids") if name in archive.files]
            if "x" not in names or (labelled and "y" not in names):
                there = ", ".join(archive.files)[:300] or "nothing"
                raise InputError(f"{path} needs arrays named x and y; it holds {there}")
            _check_sizes(file, names, path)
            arrays = {name: archive[name] for name in names}
    except InputError:
        raise
    except Exception as error:  # a damaged archive may raise nearly anything
        if "pickle" in str(error):
            raise InputError(f"{path} holds Python objects, which are never loaded: save plain arrays") from None
        raise InputError(f"{path} is not a readable .npz archive ({str(error)[:300]})") from None
    for name, array in arrays.items():
        _check_text(array, f"{path}: {name}")
        if array.dtype.kind == "S":
            arrays[name] = decoded(array, where=f"{path}: {name}")
    x = arrays["x"]
    if x.ndim == 0 or len(x) == 0:
        raise InputError(f"{path} holds no samples")
    for name, one in (("y", "label"), ("ids", "id")):
        if name in arrays and arrays[name].ndim != 1:
            raise InputError(f"{path}: {name}: expected one {one} a sample, got shape {arrays[name].shape}")
    if "y" in arrays and len(arrays["y"]) != len(x):
        raise InputError(f"{path}: x has {len(x)} samples but y has {len(arrays['y'])} labels")
    x, kind = _samples(x, path)
    y, classes = unlabelled(len(x))
    if "y" in arrays:
        try:
            y, classes = _labels(arrays["y"], path, labelled, progress if labelled else None)
        except InputError:
            if labelled:
                raise
    ids = unique_ids(arrays["ids"].tolist() if "ids" in arrays else range(len(x)), where=str(path))
    if len(ids) != len(x):
        raise InputError(f"{path}: x has {len(x)} samples but ids has {len(ids)}")
    data = LabelledData(x=x, y=y, classes=classes, ids=ids, kind=kind, name=path.stem)
    note = progress.note if progress is not None else ignore_note
    if options.labelled:
        data = without_blank(data, by_row, note)
    return without_label(data, note) if labelled else data


def _labels(
    y: NDArray[np.generic], path: Path, labelled: bool, progress: Progress | None
) -> tuple[IntArray, tuple[Any, ...]]:
    """Codes, -1 where a label is missing, and classes."""
    codes, _ = unlabelled(len(y))
    missing: list[int] = []
    if y.dtype.kind == "U":
        bare, count = stripped(y.tolist())
        if count and progress is not None:
            progress.note(about_stripped(count))
        y = np.array(bare)
        missing = np.flatnonzero(y == "").tolist()
        if missing and (not labelled or too_many(missing, len(y))):
            raise about_missing(path, missing, by_row)
    there = np.setdiff1d(np.arange(len(y)), missing)
    codes[there], classes = encode(y[there], where=f"{path}: y")
    return codes, classes


def _check_sizes(file: BinaryIO, names: Sequence[str], path: Path) -> None:
    """A few kilobytes can claim to unpack to anything: ask before making room for it."""
    from labelsieve.data.resources import available_memory

    with zipfile.ZipFile(file) as archive:
        needed = 0
        for name in names:
            stored = archive.getinfo(f"{name}.npy" if f"{name}.npy" in archive.namelist() else name)
            with archive.open(stored) as entry:
                version = np.lib.format.read_magic(entry)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(entry)
            size = math.prod(shape) * dtype.itemsize
            if not dtype.hasobject and (min(shape, default=0) < 0 or size > stored.file_size):
                raise ValueError(f"{name} claims {size:,} bytes and has {stored.file_size:,}")
            needed += size
    if needed > available_memory():
        raise InputError(
            f"{path} unpacks to {needed / 1e9:.1f} GB, {available_memory() / 1e9:.1f} GB of memory are free"
        )


def _check_text(array: NDArray[np.generic], where: str) -> None:
    """Text in an array is numbers of characters, and not every number is one."""
    if array.dtype.kind != "U" or array.size == 0 or array.dtype.itemsize == 0:
        return
    native = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))).ravel()
    codes = native.view(np.uint32)
    if ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes <= 0xDFFF))).any():
        raise InputError(f"{where} holds text that is no text")


def _samples(x: NDArray[np.generic], path: Path) -> tuple[NDArray[np.generic], Kind]:
    if x.dtype.kind in "US" and x.ndim == 1:
        return x.astype(object), "text"
    if x.dtype == np.uint8 and x.ndim in (3, 4):
        if x.ndim == 3:
            x = x[..., None]
        if x.shape[-1] not in (1, 3):
            raise InputError(f"{path}: pictures in x must be [n, height, width, 1 or 3], not {list(x.shape)}")
        return np.repeat(x, 3, axis=-1) if x.shape[-1] == 1 else x, "pictures"
    if x.dtype.kind not in "fiub":
        raise InputError(f"{path}: x must hold numbers, bytes of pictures or texts, not {x.dtype}")
    rows = x.reshape(len(x), -1).astype(np.float32)
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        raise InputError(f"{path}: x holds NaN or infinite values, first in {by_row(int(bad.argmax()))}")
    return rows, "table"
