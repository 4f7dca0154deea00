"""Checks of settings, labels and names of objects. Wrong ones raise InputError with one line."""

from __future__ import annotations

import sys
from collections.abc import Sequence, ValuesView
from importlib import import_module
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.errors import InputError

LARGEST = 2**63 - 1  # the largest integer in a tensor


def check_integer(name: str, value: Any, *, least: int = 0, otherwise: str = "") -> None:
    """Check an integer of at least `least`. `otherwise` names other accepted values in the message."""
    if not (is_number(value) and isinstance(value, int | np.integer)) or value < least:
        raise InputError(f"{name} is {_shown(value)}: choose an integer of at least {least}{otherwise}")
    if value > LARGEST:
        raise InputError(f"{name} is too large: choose an integer of at most {LARGEST}{otherwise}")


def check_range(name: str, value: Any, low: float, high: float, *, ends: str = "[]", otherwise: str = "") -> None:
    """Check a number from `low` to `high`. A round bracket in `ends` excludes that end."""
    excluded = (low,) * (ends[0] == "(") + (high,) * (ends[1] == ")")
    if not is_number(value) or not low <= value <= high or value in excluded:
        raise InputError(f"{name} is {_shown(value)}: choose a number in {ends[0]}{low}, {high}{ends[1]}{otherwise}")


def is_number(value: Any) -> bool:
    """Whether a value is a number. Booleans are not."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def as_labels(values: Any, name: str = "labels") -> NDArray[Any]:
    """Labels as an array with one dimension."""
    array = label_array(values, name)
    if array.ndim != 1:
        raise InputError(f"{name}: expected one dimension, got shape {array.shape}")
    return array


def label_array(values: Any, name: str) -> NDArray[Any]:
    """Labels as an array. None and NaN among texts stay missing; numpy would write 'nan'.

    Numbers and bools of dtype object, as in a column of pandas, get the dtype that numpy gives them otherwise.
    """
    values = list(values) if isinstance(values, ValuesView) else without_mask(values)
    try:
        array = np.asarray(values)
        if array.ndim == 1 and array.dtype.kind in "US" and not isinstance(values, np.ndarray):
            listed = list(values)
            if len({isinstance(value, str) for value in listed}) > 1:
                array = np.empty(len(listed), dtype=object)
                array[:] = listed
    except ValueError:  # lists of different lengths
        raise InputError(f"{name}: expected one label per sample") from None
    if array.ndim == 0:
        raise InputError(f"{name}: expected one label per sample, got {_shown(values)}")
    return _plain(array) if array.dtype.kind == "O" else array


def without_mask(values: Any) -> Any:
    """Return a masked array as a plain one, in which masked numbers are NaN and other values None; else `values`."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    if not np.ma.is_masked(values):
        return values.data
    dtype, missing = (np.float64, np.nan) if values.dtype.kind in "biuf" else (object, None)
    plain = values.data.astype(dtype)
    plain[np.ma.getmaskarray(values)] = missing
    return plain


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """Labels of dtype object with a plain dtype if all are bools, all integers, or all numbers; else unchanged."""
    values = array.ravel().tolist()
    types = set(map(type, values))
    for allowed, kinds in (((bool, np.bool_), "b"), ((int, np.integer), "iu"), ((int, float, np.number), "f")):
        if types and all(issubclass(kind, allowed) and (kind is not bool or kinds == "b") for kind in types):
            found = np.array(values)
            return found.reshape(array.shape) if found.dtype.kind in kinds else array  # very large integers
    return array


def is_missing(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Labels that are None, NaN, NaT or pandas' NA."""
    if labels.dtype.kind in "fmM":
        return np.asarray(labels != labels)
    if labels.dtype.kind == "O":
        return np.array([_is_missing_value(value) for value in labels], dtype=np.bool_)
    return np.zeros(len(labels), dtype=np.bool_)


def codes_among(labels: NDArray[Any], classes: Sequence[Any], name: str = "labels") -> NDArray[np.int64]:
    """Return the position of each label in `classes`. Raise InputError for a label that is not there."""
    found = distinct(labels, name)
    position = {value: at for at, value in enumerate(classes)}
    unknown = [value for value in found.tolist() if value not in position]
    if unknown:
        raise InputError(f"{name}: {unknown[0]!r} is not one of the classes")
    return np.array([position[value] for value in found.tolist()], dtype=np.int64)[np.searchsorted(found, labels)]


def distinct(labels: NDArray[Any], name: str = "labels") -> NDArray[Any]:
    """Return the different labels, sorted. Raise InputError if they cannot be sorted."""
    try:
        return np.unique(labels)
    except TypeError:
        raise InputError(f"{name}: contain both text and numbers; use one type") from None


def refuse_missing(labels: NDArray[Any], name: str = "labels", *, entry: str = "label") -> None:
    """Raise InputError if an entry is missing."""
    missing = is_missing(labels)
    if missing.any():
        raise InputError(f"{name}: row {int(np.flatnonzero(missing)[0])} has no {entry}")


def _is_missing_value(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # the comparison of pandas' NA is neither true nor false
        return True


def _shown(value: Any) -> str:
    return shorten(repr(value), 60, placeholder=" ...")  # an array has many lines


def import_object(name: str, *, what: str) -> Any:
    """Import package.module:Name, the user's own classifier, network or method; `what` names it in messages.

    Modules in the current folder are found, as with `python -m`.
    """
    module, _, attribute = name.partition(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError, SyntaxError) as problem:
        raise InputError(f"{what} {name}: {problem}") from None
