"""Features of edges: the same number of columns for any size; they depend on directions, not on brightness."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from labelsieve import INCV, noise, theory
from labelsieve.data.edges import AT_ONCE, EdgeFeatures, count_columns
from labelsieve.errors import InputError


def stripes(n: int, side: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Horizontal, vertical and diagonal stripes, at any place and of any colour."""
    rng = np.random.default_rng(seed)
    kind = np.arange(n) % 3
    down, right = np.mgrid[:side, :side]
    wave = np.stack([down, right, down + right])[kind] / side * 12 + rng.uniform(0, 6, n)[:, None, None]
    bright = rng.uniform(0.2, 1, (n, 1, 1, 3)) * (0.5 + 0.5 * np.sin(wave))[..., None]
    return np.clip(255 * bright + rng.normal(0, 12, bright.shape), 0, 255).astype(np.uint8), kind


@pytest.mark.parametrize("shape", [(16, 16, 3), (32, 32, 3), (100, 130, 3), (256, 200, 3)])
def test_every_size_has_as_many_columns(shape: tuple[int, int, int]) -> None:
    found = EdgeFeatures().rows(np.zeros((2, *shape), dtype=np.uint8))
    assert found.shape == (2, 7 * 7 * 36 + 3 * 3 * 36 + 4 * 4 * 3) and np.isfinite(found).all()


def test_small_and_grey_pictures() -> None:
    assert EdgeFeatures().rows(np.full((3, 5, 4, 1), 9, dtype=np.uint8)).shape[0] == 3


@pytest.mark.parametrize("shape", [(16, 16, 3), (5, 4, 1), (3, 7, 3), (70, 150, 3), (200, 129, 1)])
def test_the_number_of_columns_is_known_before(shape: tuple[int, int, int]) -> None:
    height, width, channels = shape
    rows = EdgeFeatures().rows(np.zeros((1, *shape), dtype=np.uint8))
    assert rows.shape == (1, count_columns(channels, height, width))


def test_blocks_change_nothing_and_order_is_kept() -> None:
    x, _ = stripes(AT_ONCE + 3, 16)
    assert np.array_equal(EdgeFeatures().rows(x)[-3:], EdgeFeatures().rows(x[-3:]))


def test_direction_tells_and_brightness_does_not() -> None:
    x, kind = stripes(60, 32)
    edges = EdgeFeatures().rows(x)[:, : 7 * 7 * 36 + 3 * 3 * 36]
    middle = np.stack([edges[kind == k].mean(0) for k in range(3)])
    assert (np.argmin(((edges[:, None] - middle) ** 2).sum(2), axis=1) == kind).all()


def test_new_pictures_are_projected_as_the_training_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelsieve.data.edges.FULL_ROWS", 200)
    x, true = stripes(240, 16)
    features = EdgeFeatures.learn(x)
    np.testing.assert_allclose(features.rows(x[:3]), features.rows(x)[:3], atol=1e-5)
    found = INCV("edges", random_state=0, n_iterations=1).fit(x, true)
    assert (found.predict(x[:9]) == true[:9]).all()


def test_wrong_labels_of_pictures_are_found() -> None:
    x, true = stripes(240, 32)
    given = noise.corrupt(true, theory.symmetric(3, 0.2), 0)
    found = INCV("edges", random_state=0, n_iterations=2).fit(x, given)
    wrong, flagged = given != true, found.predicted_ != given
    assert (found.predicted_ == true).mean() > 0.94
    assert roc_auc_score(wrong, found.suspicion_) > 0.98
    assert flagged[wrong].mean() > 0.85 and wrong[flagged].mean() > 0.98
    with pytest.raises(InputError, match="edges reads pictures"):
        INCV("edges").fit(np.zeros((30, 64)), np.arange(30) % 3)
