"""Labels that are not there: None, NaN and pandas' NA."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.errors import InputError


def is_missing(labels: NDArray[Any]) -> NDArray[np.bool_]:
    if labels.dtype.kind == "f":
        return np.asarray(np.isnan(labels))
    if labels.dtype.kind == "O":
        return np.array([_is_hole(value) for value in labels], dtype=np.bool_)
    return np.zeros(len(labels), dtype=np.bool_)


def refuse_missing(labels: NDArray[Any]) -> None:
    missing = is_missing(labels)
    if missing.any():
        raise InputError(f"labels: row {int(np.flatnonzero(missing)[0])} has no label")


def _is_hole(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas' NA does not say whether it is itself
        return True
