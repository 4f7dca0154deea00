"""The file that `--predictions` names: out-of-sample probabilities of the samples, made elsewhere.

    .npy              one row a sample, in the order of the source; one column a class, in the order of the classes
    .npz              the same as `pred_probs`; `classes` names its columns, `ids` its rows, where they are there
    .csv, .parquet    a column for each class, by its name; a column `id` names the rows

Rows that are named may come in any order, and may be more than the samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.cells import read_numbers
from labelsieve.data.labels import id_texts, unique_ids
from labelsieve.data.table import TableFile
from labelsieve.errors import InputError
from labelsieve.types import LabelledData


def read_predictions(path: Path, data: LabelledData) -> NDArray[Any]:
    """Rows in the order of the samples, columns in the order of the classes; an .npy stays on disk."""
    kind = path.suffix.lower()
    if not path.is_file():
        raise InputError(f"--predictions {path}: the file is not there")
    if kind in (".npy", ".npz"):
        probs, classes, ids = _arrays(path)
    elif kind in (".csv", ".parquet", ".pq"):
        probs, classes, ids = _table(path, [str(name) for name in data.classes])
    else:
        raise InputError(f"--predictions {path}: give an .npy, .npz, .csv or .parquet file")
    if probs.ndim != 2 or probs.dtype.kind not in "fiub":
        raise InputError(f"{path}: expected a table of numbers, one row a sample, got shape {probs.shape}")
    return _in_columns(_in_rows(probs, ids, data, path), classes, data, path)


def _arrays(path: Path) -> tuple[NDArray[Any], Sequence[Any] | None, Sequence[Any] | None]:
    try:
        found = np.load(path, mmap_mode="r" if path.suffix.lower() == ".npy" else None, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found, None, None
        with found:
            if "pred_probs" not in found.files:
                raise InputError(f"{path} needs an array named pred_probs; it holds {', '.join(found.files)[:300]}")
            named = {name: found[name].tolist() for name in ("classes", "ids") if name in found.files}
            return found["pred_probs"], named.get("classes"), named.get("ids")
    except InputError:
        raise
    except Exception as error:  # a damaged archive may raise nearly anything
        raise InputError(f"{path} is not a readable file of arrays ({str(error)[:300]})") from None


def _table(path: Path, names: Sequence[str]) -> tuple[NDArray[Any], Sequence[Any] | None, Sequence[Any] | None]:
    table = TableFile.read(path).table
    lacking = [name for name in names if name not in table.column_names]
    if lacking:
        there = ", ".join(table.column_names)[:300]
        raise InputError(f"{path} has no column for the class {lacking[0]!r}: its columns are {there}")
    columns = [_numbers(table.column(name), f"{path}: the column {name!r}") for name in names]
    ids = table.column("id").to_pylist() if "id" in table.column_names and "id" not in names else None
    return np.stack(columns, axis=1), names, ids


def _numbers(column: Any, where: str) -> NDArray[np.float64]:
    """0.85 or, as some spreadsheets write it, 0,85."""
    found = read_numbers(column, commas=True)
    if found is None or found.is_date or len(found.invalid_rows):
        raise InputError(f"{where} holds something that is no number")
    return found.values


def _in_rows(
    probs: NDArray[Any], ids: Sequence[Any] | None, data: LabelledData, path: Path
) -> NDArray[Any]:  # fmt: skip
    if ids is None:
        if len(probs) != len(data):
            gone = f" ({len(data.skipped):,} others were left out)" if data.skipped else ""
            raise InputError(
                f"{path} has {len(probs):,} rows, {data.name} {len(data):,} samples{gone}; give a file with a column id"
            )
        return probs
    if len(ids) != len(probs):
        raise InputError(f"{path}: {len(probs):,} rows of predictions but {len(ids):,} ids")
    at = {id: row for row, id in enumerate(unique_ids(ids, where=str(path)).tolist())}
    wanted = id_texts(data.ids.tolist())
    missing = [id for id in wanted if id not in at]
    if missing:
        more = f" and of {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise InputError(f"{path} has no prediction of the sample {missing[0]!r}{more}")
    return probs[np.array([at[id] for id in wanted], dtype=np.int64)]


def _in_columns(
    probs: NDArray[Any], classes: Sequence[Any] | None, data: LabelledData, path: Path
) -> NDArray[Any]:  # fmt: skip
    names = [str(name) for name in data.classes]
    if probs.shape[1] != len(names if classes is None else classes):
        told = f"{len(names)} classes" if classes is None else f"{len(classes)} names of classes"
        raise InputError(f"{path} has {probs.shape[1]} columns for {told}: there must be one for each")
    if classes is None:
        return probs
    at = {str(name): column for column, name in enumerate(classes)}
    lacking = [name for name in names if name not in at]
    if lacking:
        raise InputError(f"{path} has no column for the class {lacking[0]!r}")
    order = [at[name] for name in names]
    return probs if order == list(range(probs.shape[1])) else probs[:, order]
