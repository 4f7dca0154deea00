"""The file given with `--predictions`: out-of-sample probabilities of the samples.

    .npy              one row per sample in the order of the source, one column per class in the order of the classes
    .npz              the same as `pred_probs`; optionally `classes` names its columns and `ids` its rows
    .csv, .parquet    a column per class with its name, and optionally a column `id`

Rows with ids can have any order, and there can be more rows than samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.cells import read_numbers
from labelsieve.data.labels import unique_ids
from labelsieve.data.npz import read_arrays
from labelsieve.data.table_file import TableFile
from labelsieve.errors import InputError, first_line
from labelsieve.files import regular_file
from labelsieve.progress import SILENT, Progress, counted
from labelsieve.types import LabelledData


def read_predictions(path: Path, data: LabelledData, progress: Progress = SILENT) -> NDArray[Any]:
    """Probabilities of shape [samples, classes]. An .npy file is mapped, not read."""
    kind = path.suffix.lower()
    if not path.is_file():
        raise InputError("the file does not exist")
    if kind in (".npy", ".npz"):
        probs, classes, ids = _arrays(path)
    elif kind in (".csv", ".parquet", ".pq"):
        probs, classes, ids = _table(path, [str(name) for name in data.classes])
    else:
        raise InputError("use an .npy, .npz, .csv or .parquet file")
    if probs.ndim != 2 or probs.dtype.kind not in "fiub":
        raise InputError(f"{path}: expected numbers with one row per sample, got shape {probs.shape}")
    return _order_columns(_order_rows(probs, ids, data, path, progress), classes, data, path)


def _arrays(path: Path) -> tuple[NDArray[Any], Sequence[Any] | None, Sequence[Any] | None]:
    if path.suffix.lower() == ".npz":
        found = read_arrays(path, ("pred_probs", "classes", "ids"), ("pred_probs",))
        classes, ids = (found[name].tolist() if name in found else None for name in ("classes", "ids"))
        return found["pred_probs"], classes, ids
    try:
        return np.lib.format.open_memmap(regular_file(path), mode="r"), None, None
    except Exception as error:  # a damaged header can raise nearly any exception
        raise InputError(f"{path} is not a readable file of arrays ({first_line(error)})") from None


def _table(path: Path, names: Sequence[str]) -> tuple[NDArray[Any], Sequence[Any] | None, Sequence[Any] | None]:
    file = TableFile.read(path)
    missing = [name for name in names if name not in file.names]
    if missing:
        there = ", ".join(file.names)[:300]
        raise InputError(f"{path} has no column for the class {missing[0]!r}: its columns are {there}")
    columns = []
    for name in names:
        found = read_numbers(file.table.column(name), commas=True)
        if found is None or found.is_date or len(found.invalid_rows):
            raise InputError(f"{path}: the column {name!r} has values that are not numbers")
        columns.append(found.values)
    return np.stack(columns, axis=1), names, file.values("id") if "id" not in names else None


def _order_rows(
    probs: NDArray[Any], ids: Sequence[Any] | None, data: LabelledData, path: Path, progress: Progress
) -> NDArray[Any]:  # fmt: skip
    """The rows in the order of the samples."""
    if ids is None:
        if len(probs) != len(data):
            skipped = f" ({len(data.skipped):,} others were skipped)" if data.skipped else ""
            raise InputError(
                f"{path} has {counted(len(probs), 'row')}, but {data.name} has {len(data):,} samples{skipped}; give "
                "their ids, as a column id of a table or an array ids of an .npz file"
            )
        return probs
    if len(ids) != len(probs):
        raise InputError(f"{path} has {len(probs):,} rows of predictions, but {len(ids):,} ids")
    known = unique_ids(ids, where=str(path)).tolist()
    order = _positions(data.ids.tolist(), known, f"{path} has no prediction for the sample")
    others = len(set(known).difference(data.ids.tolist(), (skipped.id for skipped in data.skipped)))
    if others:
        rows = counted(others, "row belongs", "rows belong")
        progress.note(f"{path}: {rows} to no sample of {data.name}: check that these are its predictions")
    return probs[np.array(order, dtype=np.int64)]


def _positions(wanted: Sequence[str], present: Sequence[str], problem: str) -> list[int]:
    """Where the wanted names are."""
    at = {name: place for place, name in enumerate(present)}
    missing = [name for name in wanted if name not in at]
    if missing:
        raise InputError(f"{problem} {missing[0]!r} ({len(missing):,} are missing)")
    return [at[name] for name in wanted]


def _order_columns(
    probs: NDArray[Any], classes: Sequence[Any] | None, data: LabelledData, path: Path
) -> NDArray[Any]:  # fmt: skip
    """The columns in the order of the classes."""
    names = [str(name) for name in data.classes]
    expected = len(names if classes is None else classes)
    if probs.shape[1] != expected:
        raise InputError(f"{path} has {probs.shape[1]} columns for {expected} classes: one per class is needed")
    if classes is None:
        return probs
    order = _positions(names, list(map(str, classes)), f"{path} has no column for the class")
    return probs if order == list(range(probs.shape[1])) else probs[:, order]
