"""Labels that are not there: None, NaN, NaT and pandas' NA."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.errors import InputError


def as_labels(values: Any, name: str = "labels") -> NDArray[Any]:
    """One label a sample, as an array in which a gap among texts stays one: numpy alone makes a text, 'nan', of it."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "US" and not hasattr(values, "__array__"):
            listed = list(values)
            if len({isinstance(value, str) for value in listed}) > 1:
                array = np.empty(len(listed), dtype=object)
                array[:] = listed
    except ValueError:  # lists of several lengths
        raise InputError(f"{name}: expected one label a sample") from None
    if array.ndim != 1:
        raise InputError(f"{name}: expected one dimension, got shape {array.shape}")
    return array


def is_missing(labels: NDArray[Any]) -> NDArray[np.bool_]:
    if labels.dtype.kind in "fmM":
        return np.asarray(labels != labels)
    if labels.dtype.kind == "O":
        return np.array([_is_hole(value) for value in labels], dtype=np.bool_)
    return np.zeros(len(labels), dtype=np.bool_)


def refuse_missing(labels: NDArray[Any], name: str = "labels") -> None:
    missing = is_missing(labels)
    if missing.any():
        raise InputError(f"{name}: row {int(np.flatnonzero(missing)[0])} has no label")


def _is_hole(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas' NA does not say whether it is itself
        return True
