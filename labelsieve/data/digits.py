"""The embedded data: scikit-learn's 1,797 handwritten digits, 8 x 8 pixels."""

from __future__ import annotations

import numpy as np

from labelsieve.types import LabelledData


def load() -> LabelledData:
    """Return rows of 64 grey values in 0..1; the classes are the digits."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    x = np.asarray(digits.data, dtype=np.float32) / 16
    ids = np.array([f"digit-{i:04d}" for i in range(len(x))])
    return LabelledData(
        x=x, y=np.asarray(digits.target, dtype=np.int64), classes=tuple(range(10)), ids=ids, kind="table", name="digits"
    )
