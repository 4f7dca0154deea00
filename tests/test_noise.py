"""Corruption of labels: distribution, seeds, types and invalid input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from labelsieve import noise, theory
from labelsieve.errors import InputError

steady = settings(deadline=None, max_examples=60)  # no time limit on a busy machine


@pytest.mark.parametrize("pattern", noise.PATTERNS)
def test_frequencies_follow_the_matrix(pattern: str) -> None:
    c, n = 10, 200_000
    t = noise.matrix(pattern, c, 0.3)
    labels = np.arange(n) % c
    noisy = noise.corrupt(labels, t, 5)
    counts = np.zeros((c, c))
    np.add.at(counts, (labels, noisy), 1)
    rows = counts.sum(axis=1, keepdims=True)
    error = np.sqrt(np.maximum(t * (1 - t), 1e-12) / rows)
    assert (np.abs(counts / rows - t) <= 5 * error).all()
    assert (counts[t == 0] == 0).all()


def test_draws_are_independent_between_samples() -> None:
    flips = noise.corrupt(np.zeros(100_000, dtype=int), theory.pair(2, 0.5), 0)
    # Neighbours agree half of the time: 5 standard errors.
    assert abs((flips[1:] == flips[:-1]).mean() - 0.5) < 5 * 0.5 / np.sqrt(100_000)


@steady
@given(st.integers(2, 30), st.integers(0, 2**32), st.integers(0, 300))
def test_impossible_classes_are_never_drawn(c: int, seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    t = rng.dirichlet(np.full(c, 0.1), size=c)
    t[t < 0.05] = 0
    t /= t.sum(axis=1, keepdims=True)
    labels = rng.integers(0, c, n)
    noisy = noise.corrupt(labels, t, seed, classes=range(c))
    assert noisy.shape == labels.shape and noisy.dtype == labels.dtype
    assert (t[labels, noisy] > 0).all()


def test_identity_changes_nothing_and_certain_flips_are_certain() -> None:
    labels = np.arange(50) % 5
    np.testing.assert_array_equal(noise.corrupt(labels, np.eye(5), 0), labels)
    np.testing.assert_array_equal(noise.corrupt(labels, theory.pair(5, 1.0), 0), (labels + 1) % 5)


@pytest.mark.parametrize(
    "labels",
    [
        np.array([0, 1, 2, 1] * 50, dtype=np.int32),
        np.array([0, 1, 2, 1] * 50, dtype=np.uint8),
        np.array([5, 7, 9, 7] * 50),
        np.array([-1, 0, 1, 0] * 50),
        np.array(["cat", "dog", "horse", "dog"] * 50),
        np.array(["cat", "dog", "horse", "dog"] * 50, dtype=object),
        np.array([0.0, 1.0, 2.0, 1.0] * 50),
    ],
)
def test_type_is_kept_and_input_is_not_changed(labels: np.ndarray) -> None:
    before = labels.copy()
    noisy = noise.corrupt(labels, theory.symmetric(3, 0.6), 3)
    np.testing.assert_array_equal(labels, before)
    assert noisy.dtype == labels.dtype
    assert set(noisy.tolist()) == set(labels.tolist())
    assert not np.array_equal(noisy, labels)
    assert type(noisy[0]) is type(labels[0])


def test_bools_and_lists_and_read_only_arrays() -> None:
    labels = np.array([True] * 100)
    labels.flags.writeable = False
    noisy = noise.corrupt(labels, [[1, 0], [0.5, 0.5]], 0)
    assert noisy.dtype == np.bool_ and 20 < noisy.sum() < 80
    listed = ["a", "b"] * 20
    assert set(noise.corrupt(listed, theory.pair(2, 0.5), 0).tolist()) == {"a", "b"}
    assert listed == ["a", "b"] * 20


def test_strings_are_widened_for_longer_names() -> None:
    noisy = noise.corrupt(np.array(["ox"] * 20), [[0, 1], [0, 1]], 0, classes=["ox", "elephant"])
    assert set(noisy.tolist()) == {"elephant"}


def test_integers_are_widened_for_larger_classes() -> None:
    drawn = noise.corrupt(np.full(2000, 255, dtype=np.uint8), theory.pair(300, 0.5), 0)
    assert set(drawn.tolist()) == {255, 256}
    assert noise.corrupt(np.zeros(9, dtype=np.int8), theory.pair(100, 0.5), 0).dtype == np.int8  # all fit


def test_classes_give_the_order_of_the_rows() -> None:
    labels = np.array(["b", "a"] * 10)
    noisy = noise.corrupt(labels, [[0, 1, 0], [0, 1, 0], [0, 0, 1]], 0, classes=["b", "c", "a"])
    assert noisy.tolist() == ["c", "a"] * 10
    with pytest.raises(InputError, match="'b' is not one of the classes"):
        noise.corrupt(labels, np.eye(2), 0, classes=["a", "z"])


def test_seeds() -> None:
    labels = np.arange(1000) % 10
    t = theory.symmetric(10, 0.5)
    first = noise.corrupt(labels, t, 7)
    np.testing.assert_array_equal(first, noise.corrupt(labels, t, 7))
    np.testing.assert_array_equal(first, noise.corrupt(labels, t, np.random.default_rng(7)))
    assert not np.array_equal(first, noise.corrupt(labels, t, 8))
    rng = np.random.default_rng(7)
    noise.corrupt(labels, t, rng)
    assert not np.array_equal(first, noise.corrupt(labels, t, rng))  # a Generator has state
    for bad in (-1, 1.5, True, "7"):
        with pytest.raises(InputError, match="rng"):
            noise.corrupt(labels, t, bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("labels", "t", "message"),
    [
        ([0, 1, 5, 6], np.eye(3), "labels have 4 classes; pass classes="),
        (["a", "b"], np.eye(3), "T: is 3 x 3 but the labels have 2 classes"),
        ([0.0, np.nan], np.eye(2), "row 1 has no label"),
        (np.array(["a", None], dtype=object), np.eye(2), "row 1 has no label"),
        (np.array(["a", pd.NA], dtype=object), np.eye(2), "row 1 has no label"),
        (np.array(["a", 3], dtype=object), np.eye(2), "text and numbers"),
        (["a", 3], np.eye(2), "text and numbers"),
        (["a", np.nan], np.eye(2), "row 1 has no label"),
        (pd.Series([0, None], dtype="Int64"), np.eye(2), "row 1 has no label"),
        (pd.to_datetime(["2024-01-01", None]), np.eye(2), "row 1 has no label"),
        ([[0], [0, 1]], np.eye(2), "one label per sample"),
        ([[0, 1]], np.eye(2), "one dimension"),
        ([0, 1], [[0.5, 0.4], [0, 1]], r"row 0 sums to 0\.9"),
    ],
)
def test_invalid_labels_are_refused(labels: object, t: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        noise.corrupt(labels, t, 0)  # type: ignore[arg-type]


def test_classes_of_another_type_are_refused() -> None:
    with pytest.raises(InputError, match="classes"):
        noise.corrupt(pd.Series(["a", "b"], dtype=object), np.eye(2), 0, classes=[0, 1])


def test_labels_that_may_count_from_1_give_a_warning() -> None:
    """Labels 1..3 without the 3 cannot be distinguished from codes 0..2 without the 0."""
    t = theory.symmetric(3, 0.6)
    labels = np.array([1, 2] * 50)
    with pytest.warns(noise.LabelsWarning, match=r"classes=range\(3\).*classes=range\(1, 4\)"):
        assert set(noise.corrupt(labels, t, 0).tolist()) == {0, 1, 2}
    # No warning with explicit classes.
    assert set(noise.corrupt(labels, t, 0, classes=range(3)).tolist()) == {0, 1, 2}
    assert set(noise.corrupt(labels, t, 0, classes=range(1, 4)).tolist()) == {1, 2, 3}
    # No warning if the labels are unambiguous or have one class only.
    for clear in ([0, 2] * 50, [1, 2, 3] * 50, [2] * 50):
        noise.corrupt(clear, t, 0)


def test_empty_labels_stay_empty() -> None:
    assert len(noise.corrupt(np.empty(0, dtype=np.int64), np.eye(2), 0)) == 0


# ---------------------------------------------------------------- instance-dependent noise


@pytest.mark.parametrize("ratio", [0.02, 0.2, 0.5, 0.95])
def test_instance_noise_has_the_requested_ratio(ratio: float) -> None:
    rng = np.random.default_rng(0)
    n = 40_000
    x, y = rng.normal(size=(n, 6)), rng.integers(0, 4, n)
    noisy = noise.corrupt_by_instance(y, x, ratio, 1)
    assert abs((noisy != y).mean() - ratio) < 5 * np.sqrt(ratio * (1 - ratio) / n)


def test_instance_noise_depends_on_the_features() -> None:
    rng = np.random.default_rng(0)
    n = 20_000
    x, y = rng.normal(size=(n, 2)), np.zeros(n, dtype=int)
    y[0:4] = range(4)
    noisy = noise.corrupt_by_instance(y, x, 0.5, 2)
    flipped = (noisy != y) & (y == 0)
    # The wrong classes differ between the halves of the feature space, unlike with a transition matrix.
    left, right = (np.bincount(noisy[flipped & side], minlength=4) for side in (x[:, 0] < 0, x[:, 0] >= 0))
    left, right = left / left.sum(), right / right.sum()
    assert np.abs(left - right).max() > 0.1


def test_instance_noise_keeps_types_and_seeds() -> None:
    x = np.arange(300.0).reshape(100, 3)
    y = np.array(["a", "b"] * 50)
    first = noise.corrupt_by_instance(y, x, 0.4, 3)
    np.testing.assert_array_equal(first, noise.corrupt_by_instance(y, x, 0.4, 3))
    assert y.tolist() == ["a", "b"] * 50 and first.dtype == y.dtype
    np.testing.assert_array_equal(noise.corrupt_by_instance(y, x, 0.0, 3), y)
    assert (noise.corrupt_by_instance(y, x, 1.0, 3) != y).all()
    constant = noise.corrupt_by_instance(y, np.ones((100, 2)), 0.5, 3)
    assert 0 < (constant != y).mean() < 1
    pictures = noise.corrupt_by_instance(y, np.ones((100, 2, 2), dtype=np.uint8), 0.5, 3)
    assert len(pictures) == 100


def test_instance_noise_bad_input() -> None:
    x, y = np.ones((4, 2)), [0, 1, 0, 1]
    for call, message in (
        (lambda: noise.corrupt_by_instance(y, x, 1.5, 0), "ratio is 1.5"),
        (lambda: noise.corrupt_by_instance(y, x[:3], 0.5, 0), "3 rows but 4 labels"),
        (lambda: noise.corrupt_by_instance(y, [[np.nan, 1]] * 4, 0.5, 0), "NaN"),
        (lambda: noise.corrupt_by_instance([0] * 4, x, 0.5, 0), "one class only"),
        (lambda: noise.corrupt_by_instance(y, [["a"]] * 4, 0.5, 0), "numbers"),
        (lambda: noise.corrupt_by_instance(y, x, 0.5, 0, spread=-1), "spread"),
        (lambda: noise.corrupt_by_instance(y, x, "a", 0), "ratio is 'a'"),
        (lambda: noise.corrupt_by_instance(y, x, None, 0), "ratio is None"),
        (lambda: noise.corrupt_by_instance(y, x, 0.5, 0, spread="a"), "spread is 'a'"),
        (lambda: noise.corrupt_by_instance(y, x * 1j, 0.5, 0), "features: expected numbers"),
        (lambda: noise.corrupt_by_instance(y, [[None, 1]] * 4, 0.5, 0), "NaN"),
        (lambda: noise.corrupt_by_instance(y, csr_matrix(x), 0.5, 0), "features"),
    ):
        with pytest.raises(InputError, match=message):
            call()


def test_data_frames_and_bools_are_features() -> None:
    rng = np.random.default_rng(0)
    x = np.where(rng.random((500, 40)) < 0.1, rng.normal(2, 1, (500, 40)), 0.0)
    y = rng.integers(0, 4, 500)
    found = noise.corrupt_by_instance(y, pd.DataFrame(x).astype("Float64"), 0.4, 3)
    np.testing.assert_array_equal(found, noise.corrupt_by_instance(y, x, 0.4, 3))
    found = noise.corrupt_by_instance(y, x > 0, 0.4, 3)
    np.testing.assert_array_equal(found, noise.corrupt_by_instance(y, (x > 0).astype(np.int8), 0.4, 3))


# ---------------------------------------------------------------- matrices from files


def test_matrices_from_all_file_types(tmp_path: Path) -> None:
    t = theory.pair(3, 0.25)
    np.save(tmp_path / "t.npy", t)
    np.savetxt(tmp_path / "t.csv", t, delimiter=",")
    (tmp_path / "t.json").write_text(json.dumps(t.tolist()))
    (tmp_path / "summary.json").write_text(json.dumps({"transition_matrix": t.tolist(), "samples": 3}))
    for name in ("t.npy", "t.csv", "t.json", "summary.json"):
        np.testing.assert_allclose(noise.load_matrix(tmp_path / name), t, atol=1e-12)
        np.testing.assert_allclose(noise.load_matrix(str(tmp_path / name)), t, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "0.5,0.5\n1\n", "columns changed from 2 to 1"),
        ("t.csv", "0.5,0.5\n\n0.5,x\n", "'x'"),
        ("t.csv", "", "no data"),
        ("t.csv", "0.5,0.5\n0.5,0.6\n", r"row 1 sums to 1\.1"),
        ("t.json", "[[0.5", "plain numbers"),
        ("t.json", "{}", "transition_matrix"),
        ("t.json", "[[0.5, 0.5], [1]]", "ragged"),
        ("t.npy", "rubbish", "plain numbers"),
        ("t.xls", "1", "expected a .csv, .json or .npy"),
    ],
)
def test_invalid_files_are_refused(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        noise.load_matrix(tmp_path / name)
    assert name in str(caught.value) and "\n" not in str(caught.value)


def test_pickles_and_missing_files_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.array([[1, None], [0, 1]], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="plain numbers"):
        noise.load_matrix(tmp_path / "t.npy")
    with pytest.raises(InputError, match="no such file"):
        noise.load_matrix(tmp_path / "absent.csv")
