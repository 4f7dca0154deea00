"""An .npz file with x, y and optionally ids. Python objects in it are never unpickled."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.columns import Origin, by_row
from labelsieve.data.labels import decoded, leave_out_unusable, read_labels, unique_ids, unlabelled
from labelsieve.data.read_options import DEFAULTS, ReadOptions
from labelsieve.data.resources import check_memory
from labelsieve.errors import InputError, first_line
from labelsieve.files import open_file
from labelsieve.progress import SILENT, Progress
from labelsieve.types import Kind, LabelledData


def load(path: Path, options: ReadOptions = DEFAULTS, progress: Progress = SILENT) -> LabelledData:
    """Read x of shape [n, d] (numbers), [n, H, W] or [n, H, W, 1 or 3] (uint8 images) or [n] (texts), and y."""
    arrays = read_arrays(path, ("x", "y", "ids"), ("x", "y") if options.needs_labels else ("x",))
    x, kind = _samples(arrays["x"], path)
    for name in ("y", "ids"):
        if name in arrays and arrays[name].shape != (len(x),):
            raise InputError(
                f"{path}: {name} must have one entry per sample ({len(x)}), not shape {arrays[name].shape}"
            )
    y, classes = unlabelled(len(x))
    if "y" in arrays:
        labels = read_labels(arrays["y"].tolist(), Origin(f"{path}: y", progress.note), required=options.needs_labels)
        y, classes = labels.codes, labels.classes
    ids = unique_ids(arrays["ids"].tolist() if "ids" in arrays else range(len(x)), where=str(path))
    data = LabelledData(x=x, y=y, classes=classes, ids=ids, kind=kind, name=path.stem)
    origin = Origin(str(path), progress.note)
    return leave_out_unusable(data, origin, labels=options.needs_labels, texts=options.labelled)


def read_arrays(path: Path, wanted: Sequence[str], required: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return the wanted arrays of an archive that it has."""
    try:
        with open_file(path) as file:
            if not zipfile.is_zipfile(file):
                raise InputError(f"{path} is not a readable .npz archive")
        with open_file(path) as file, np.load(file, allow_pickle=False) as archive:
            names = [name for name in wanted if name in archive.files]
            if not set(required) <= set(names):
                there = ", ".join(archive.files)[:300] or "none"
                raise InputError(f"{path} needs arrays named {' and '.join(required)}; it has {there}")
            _check_sizes(file, names, path)
            arrays: dict[str, NDArray[Any]] = {name: archive[name] for name in names}
    except InputError:
        raise
    except Exception as error:  # a damaged archive can raise nearly any exception
        raise InputError(f"{path} is not a readable .npz archive ({first_line(error)})") from None
    for name, array in arrays.items():
        _check_text(array, f"{path}: {name}")
        if array.dtype.kind == "S":
            arrays[name] = decoded(array, where=f"{path}: {name}")
    return arrays


def _check_sizes(file: BinaryIO, names: Sequence[str], path: Path) -> None:
    """Check the sizes before unpacking: a small archive can claim to be of any size."""
    with zipfile.ZipFile(file) as archive:
        needed = 0
        for name in names:
            stored = archive.getinfo(f"{name}.npy" if f"{name}.npy" in archive.namelist() else name)
            with archive.open(stored) as entry:
                version = np.lib.format.read_magic(entry)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(entry)
            size = math.prod(shape) * dtype.itemsize
            if dtype.hasobject:
                raise InputError(f"{path} has Python objects, which are not loaded: save plain arrays")
            if min(shape, default=0) < 0 or size > stored.file_size:
                raise ValueError(f"{name} should have {size:,} bytes and has {stored.file_size:,}")
            needed += size
    check_memory(path, needed)


def _check_text(array: NDArray[np.generic], where: str) -> None:
    """Check the characters of a text array: not every 32-bit number is one."""
    if array.dtype.kind != "U" or array.size == 0 or array.dtype.itemsize == 0:
        return
    native = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))).ravel()
    codes = native.view(np.uint32)
    if ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes <= 0xDFFF))).any():
        raise InputError(f"{where} has text with invalid characters")


def _samples(x: NDArray[np.generic], path: Path) -> tuple[NDArray[np.generic], Kind]:
    if x.ndim == 0 or len(x) == 0:
        raise InputError(f"{path} has no samples")
    if x.dtype.kind in "US" and x.ndim == 1:
        return x.astype(object), "text"
    if x.dtype == np.uint8 and x.ndim in (3, 4):
        if x.ndim == 3:
            x = x[..., None]
        if x.shape[-1] not in (1, 3):
            raise InputError(f"{path}: images in x must be [n, height, width, 1 or 3], not {list(x.shape)}")
        return np.repeat(x, 3, axis=-1) if x.shape[-1] == 1 else x, "pictures"
    if x.dtype.kind not in "fiub":
        raise InputError(f"{path}: x must have numbers, uint8 images or texts, not {x.dtype}")
    rows = x.reshape(len(x), -1)
    with np.errstate(over="ignore"):  # too large for float32: reported as infinite below
        rows = rows.astype(np.float32)
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        raise InputError(
            f"{path}: x has NaN or infinite values, first in {by_row(int(bad.argmax()))}; "
            "replace them or remove these rows"
        )
    return rows, "table"
