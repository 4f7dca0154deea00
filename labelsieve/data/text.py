"""Texts: an array of Python strings that indexes like any other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def texts(values: Iterable[Any]) -> NDArray[np.object_]:
    """Strings as they are; a missing one is an empty text."""
    listed = ["" if value is None else str(value) for value in values]
    out = np.empty(len(listed), dtype=object)
    out[:] = listed
    return out
