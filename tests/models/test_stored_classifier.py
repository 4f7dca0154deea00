"""Predictions from the arrays of a classifier are those of scikit-learn, and damaged arrays are refused."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_wine

from labelsieve.data.edges import EdgeFeatures
from labelsieve.models.choose import named_classifier
from labelsieve.models.stored_classifier import STORABLE, Arrays, check_arrays, predict_arrays, to_arrays
from labelsieve.types import FloatArray
from tests.data.test_edges import stripes

TEXTS = [
    f"{word} {other} again"
    for word in ("lost card", "late payment", "new pin")
    for other in ("please", "now", "help me")
] * 3


NAMES = sum(STORABLE.values(), ())


class Case(NamedTuple):
    """A fitted classifier and its samples."""

    name: str
    x: NDArray[np.generic]
    rows: NDArray[np.generic]  # what the classifier reads
    model: Any
    arrays: Arrays

    @property
    def shape(self) -> tuple[int, ...]:
        if self.name == "tfidf":
            return (0,)
        return (3, *self.x.shape[1:3]) if self.name == "edges" else self.x.shape[1:]


def fitted(name: str, classes: int) -> Case:
    if name == "tfidf":
        x, y = np.array(TEXTS, dtype=object), np.repeat(np.arange(3), 3).tolist() * 3
    elif name == "edges":
        x, y = stripes(90, 16)
    else:
        x, y = load_wine(return_X_y=True)
    few = np.asarray(y) < classes
    x, y = np.asarray(x)[few], np.asarray(y)[few]
    edges = EdgeFeatures.learn(x) if name == "edges" else None
    rows = x if edges is None else edges.rows(x)
    model = named_classifier(name, len(y)).fit(rows, y)
    return Case(name, x, rows, model, to_arrays(model, edges))


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_arrays_predict_as_the_classifier(name: str, classes: int) -> None:
    _, x, rows, model, arrays = case = fitted(name, classes)
    check_arrays(arrays, case.shape, classes)
    kernel = name in ("svm", "edges")
    expected: FloatArray = model.decision_function(rows) if kernel else model.predict_proba(rows)
    if kernel:
        expected = np.stack([0 * expected, expected], axis=1) if expected.ndim == 1 else expected
        expected = np.exp(expected) / np.exp(expected).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(predict_arrays(arrays, x, classes + 1)[:, :classes], expected, atol=1e-5)


@pytest.fixture
def _many_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every number of pictures counts as many."""
    monkeypatch.setattr("labelsieve.data.edges.FULL_ROWS", 50)
    monkeypatch.setattr("labelsieve.data.edges.COMPONENTS", 20)
    monkeypatch.setattr("labelsieve.models.choose.KERNEL_SAMPLES", 50)
    monkeypatch.setattr("labelsieve.models.choose.KERNEL_COMPONENTS", 30)


@pytest.mark.usefixtures("_many_pictures")
def test_the_approximate_kernel_of_many_pictures_is_stored() -> None:
    _, x, rows, model, arrays = case = fitted("edges", 3)
    assert {"edge_mean", "edge_components", "landmarks"} <= set(arrays)
    check_arrays(arrays, case.shape, 3)
    np.testing.assert_allclose(predict_arrays(arrays, x, 3), model.predict_proba(rows), atol=1e-4)
    np.testing.assert_allclose(predict_arrays(arrays, x[:5], 3), model.predict_proba(rows)[:5], atol=1e-4)
    check_damage(case)


@pytest.mark.parametrize("name", NAMES)
def test_damaged_arrays_are_refused(name: str) -> None:
    check_damage(fitted(name, 3))


def check_damage(case: Case) -> None:
    arrays = case.arrays
    for key, array in arrays.items():
        if key in ("gamma", "roots"):
            continue
        with pytest.raises((ValueError, IndexError)):
            check_arrays(arrays | {key: array[: len(array) // 2]}, case.shape, 3)
    with pytest.raises(ValueError, match="arrays"):
        check_arrays(arrays, case.shape, 2)
    if "left" in arrays:  # a loop would never end
        with pytest.raises(ValueError, match="arrays"):
            check_arrays(arrays | {"left": np.where(arrays["left"] >= 0, 0, -1)}, case.shape, 3)


def test_features_of_texts_beside_numbers_are_not_scaled() -> None:
    x, y = load_wine(return_X_y=True)
    x[:, 4:] /= x[:, 4:].max(axis=0)
    model = named_classifier("logistic", len(y), numbers=4).fit(x, y)
    np.testing.assert_allclose(predict_arrays(to_arrays(model), x, 3), model.predict_proba(x), atol=1e-4)
