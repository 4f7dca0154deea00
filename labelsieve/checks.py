"""Settings, refused in one line where they are of the wrong kind or out of range.

A comparison alone lets through what is no number of the kind that is meant: 1.5 epochs never come, and no kept count
is ever larger than NaN.
"""

from __future__ import annotations

from textwrap import shorten
from typing import Any

import numpy as np

from labelsieve.errors import InputError

LARGEST = 2**63 - 1  # what a tensor of whole numbers holds


def whole(name: str, value: Any, *, least: int = 0, otherwise: str = "") -> None:
    """A whole number from `least` on; `otherwise` is what may be given instead, for the message."""
    if not (is_number(value) and isinstance(value, int | np.integer)) or value < least:
        raise InputError(f"{name} is {_shown(value)}: choose a whole number of at least {least}{otherwise}")
    if value > LARGEST:
        raise InputError(f"{name} is too large: choose a whole number of at most {LARGEST}{otherwise}")


def between(name: str, value: Any, low: float, high: float, *, ends: str = "[]", otherwise: str = "") -> None:
    """A number from `low` to `high`; a round bracket in `ends` leaves that end out."""
    left_out = (low,) * (ends[0] == "(") + (high,) * (ends[1] == ")")
    if not is_number(value) or not low <= value <= high or value in left_out:
        raise InputError(f"{name} is {_shown(value)}: choose a number in {ends[0]}{low}, {high}{ends[1]}{otherwise}")


def is_number(value: Any) -> bool:
    """True and False are none."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    return shorten(repr(value), 60, placeholder=" ...")  # an array takes many lines
