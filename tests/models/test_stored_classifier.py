"""Predictions from the arrays of a classifier are those of scikit-learn, and damaged arrays are refused."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_wine

from labelsieve.models.choose import named_classifier
from labelsieve.models.stored_classifier import STORABLE, check_arrays, predict_arrays, to_arrays
from labelsieve.types import FloatArray

TEXTS = [
    f"{word} {other} again"
    for word in ("lost card", "late payment", "new pin")
    for other in ("please", "now", "help me")
] * 3


def samples(name: str, classes: int) -> tuple[NDArray[np.generic], NDArray[np.int64]]:
    if name == "tfidf":
        x, y = np.array(TEXTS, dtype=object), np.repeat(np.arange(3), 3).tolist() * 3
    else:
        x, y = load_wine(return_X_y=True)
    few = np.asarray(y) < classes
    return np.asarray(x)[few], np.asarray(y, dtype=np.int64)[few]


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", STORABLE)
def test_arrays_predict_as_the_classifier(name: str, classes: int) -> None:
    x, y = samples(name, classes)
    model = named_classifier(name, len(y)).fit(x, y)
    arrays = to_arrays(name, model)
    check_arrays(arrays, 0 if name == "tfidf" else x.shape[1], classes)
    expected: FloatArray = model.decision_function(x) if name == "svm" else model.predict_proba(x)
    if name == "svm":
        expected = np.stack([0 * expected, expected], axis=1) if expected.ndim == 1 else expected
        expected = np.exp(expected) / np.exp(expected).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(predict_arrays(arrays, x, classes + 1)[:, :classes], expected, atol=1e-5)


@pytest.mark.parametrize("name", STORABLE)
def test_damaged_arrays_are_refused(name: str) -> None:
    x, y = samples(name, 3)
    columns = 0 if name == "tfidf" else x.shape[1]
    arrays = to_arrays(name, named_classifier(name, len(y)).fit(x, y))
    for key, array in arrays.items():
        if key in ("gamma", "roots"):
            continue
        with pytest.raises((ValueError, IndexError)):
            check_arrays(arrays | {key: array[: len(array) // 2]}, columns, 3)
    with pytest.raises(ValueError, match="arrays"):
        check_arrays(arrays, columns, 2)
    if "left" in arrays:  # a loop would never end
        with pytest.raises(ValueError, match="arrays"):
            check_arrays(arrays | {"left": np.where(arrays["left"] >= 0, 0, -1)}, columns, 3)


def test_features_of_texts_beside_numbers_are_not_scaled() -> None:
    x, y = load_wine(return_X_y=True)
    x[:, 4:] /= x[:, 4:].max(axis=0)
    model = named_classifier("logistic", len(y), numbers=4).fit(x, y)
    np.testing.assert_allclose(predict_arrays(to_arrays("logistic", model), x, 3), model.predict_proba(x), atol=1e-4)
