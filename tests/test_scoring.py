"""Selection and suspicion on stored predictions."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelsieve import metrics, noise, scoring, theory
from labelsieve.errors import InputError

steady = settings(deadline=None, max_examples=60)  # no time limit on a busy machine

PROBS = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]])


def random_probs(seed: int, n: int, c: int, dtype: str = "float64") -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, c, n), rng.dirichlet(np.full(c, 0.5), size=n).astype(dtype)


def plain_suspicion(labels: np.ndarray, probs: np.ndarray) -> list[float]:
    """Return the suspicion with a loop over the samples."""
    out = []
    for label, row in zip(labels.tolist(), probs.astype(float).tolist(), strict=True):
        predicted = row.index(max(row))
        p, q = row[label], row[predicted]
        out.append((1 - p) / 2 if predicted == label else q / (p + q))
    return out


def test_by_hand() -> None:
    labels = [0, 2, 0]
    assert scoring.select_clean(labels, PROBS).tolist() == [True, False, False]
    np.testing.assert_allclose(scoring.label_suspicion(labels, PROBS), [0.15, 0.6 / 0.9, 0.5 / 0.75], atol=1e-12)
    scores = scoring.score_probabilities(labels, PROBS)
    assert scores.predicted.tolist() == [0, 1, 2]
    np.testing.assert_allclose(scores.probability, [0.7, 0.3, 0.25])
    np.testing.assert_allclose(scores.confidence, [0.7, 0.6, 0.5])
    np.testing.assert_allclose(scores.loss, -np.log([0.7, 0.3, 0.25]))


def test_ties_go_to_the_first_class_as_argmax_does() -> None:
    even = np.array([[0.5, 0.5], [0.5, 0.5]])
    assert scoring.select_clean([0, 1], even).tolist() == [True, False]
    assert scoring.label_suspicion([0, 1], even).tolist() == [0.25, 0.5]


@steady
@given(
    st.integers(0, 2**32), st.integers(1, 200), st.integers(2, 12), st.sampled_from(["float16", "float32", "float64"])
)
def test_equals_the_plain_formula(seed: int, n: int, c: int, dtype: str) -> None:
    labels, probs = random_probs(seed, n, c, dtype)
    before = probs.copy()
    suspicion, selected = scoring.label_suspicion(labels, probs), scoring.select_clean(labels, probs)
    np.testing.assert_allclose(suspicion, plain_suspicion(labels, probs), atol=1e-6)
    np.testing.assert_array_equal(selected, probs.argmax(axis=1) == labels)
    np.testing.assert_array_equal(suspicion < 0.5, selected)
    assert ((suspicion >= 0) & (suspicion <= 1)).all()
    np.testing.assert_array_equal(probs, before)
    scores = scoring.score_probabilities(labels, probs)
    np.testing.assert_allclose(scoring.suspicion_of(scores, labels), suspicion, atol=1e-12)


@pytest.mark.parametrize("chunk", [1, 100, 1000, 10**9])
def test_chunks_make_no_difference(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    labels, probs = random_probs(1, 501, 7)
    monkeypatch.setattr(scoring, "CHUNK_BYTES", chunk)
    np.testing.assert_allclose(scoring.label_suspicion(labels, probs), plain_suspicion(labels, probs), atol=1e-12)
    np.testing.assert_array_equal(scoring.select_clean(labels, probs), probs.argmax(axis=1) == labels)


@pytest.mark.parametrize("offset", [0, 128])
def test_pages_of_mapped_files_are_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int) -> None:
    labels, probs = random_probs(2, 20_000, 10, "float32")
    with (tmp_path / "probs.bin").open("wb") as file:
        file.write(b"\0" * offset)
        probs.tofile(file)
    monkeypatch.setattr(scoring, "RELEASE_BYTES", 64 * 1024)
    monkeypatch.setattr(scoring, "CHUNK_BYTES", 16 * 1024)
    for mode in ("r", "r+"):
        mapped = np.memmap(tmp_path / "probs.bin", dtype="float32", mode=mode, offset=offset, shape=probs.shape)
        np.testing.assert_array_equal(scoring.select_clean(labels, mapped), probs.argmax(axis=1) == labels)
        part = mapped[5_003:15_001]
        np.testing.assert_allclose(
            scoring.label_suspicion(labels[5_003:15_001], part), plain_suspicion(labels, probs)[5_003:15_001], atol=1e-6
        )
        np.testing.assert_array_equal(mapped, probs)


def test_private_mappings_keep_their_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels, probs = random_probs(3, 20_000, 10, "float32")
    np.save(tmp_path / "probs.npy", probs)
    mapped = np.load(tmp_path / "probs.npy", mmap_mode="c")
    mapped[:] = np.roll(probs, 1, axis=1)
    monkeypatch.setattr(scoring, "RELEASE_BYTES", 4096)
    scoring.select_clean(labels, mapped)
    np.testing.assert_array_equal(mapped, np.roll(probs, 1, axis=1))
    anonymous = mmap.mmap(-1, probs.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    held = np.frombuffer(anonymous, dtype="float32").reshape(probs.shape)
    held[:] = probs
    scoring.select_clean(labels, held)
    np.testing.assert_array_equal(held, probs)


def test_any_memory_order_and_number_type() -> None:
    labels, probs = random_probs(4, 300, 5)
    expected = scoring.select_clean(labels, probs)
    for other in (np.asfortranarray(probs), np.repeat(probs, 2, axis=0)[::2], probs.tolist()):
        np.testing.assert_array_equal(scoring.select_clean(labels, other), expected)
    for kind in ("int8", "uint16", "float64"):
        np.testing.assert_array_equal(scoring.select_clean(labels.astype(kind), probs), expected)
    assert scoring.select_clean([1, 0], [[0, 1], [0, 1]]).tolist() == [True, False]


def test_labels_may_be_text_or_bools() -> None:
    assert scoring.select_clean(np.array([False, True]), [[0.9, 0.1], [0.8, 0.2]]).tolist() == [True, False]
    assert scoring.select_clean(["cat", "dog", "ox"], PROBS).tolist() == [True, True, True]
    assert scoring.select_clean(["cat", "dog"], PROBS[:2], classes=["dog", "cat", "ox"]).tolist() == [False, False]


@pytest.mark.parametrize(("labels", "classes"), [([0, 1, 0], [0, 1, 1]), (["a", "b", "a"], ["a", "b", "a"])])
def test_every_class_is_named_once(labels: list[Any], classes: list[Any]) -> None:
    with pytest.raises(InputError, match=f"classes: {classes[2]!r}"):
        scoring.select_clean(labels, PROBS, classes=classes)


def test_masked_arrays_without_masked_values_are_read() -> None:
    labels, probs = random_probs(6, 50, 3)
    expected = scoring.select_clean(labels, probs)
    np.testing.assert_array_equal(scoring.select_clean(np.ma.array(labels), np.ma.array(probs)), expected)


def test_no_samples() -> None:
    assert scoring.select_clean([], np.empty((0, 3))).shape == (0,)
    assert scoring.label_suspicion([], np.empty((0, 3))).shape == (0,)


@pytest.mark.parametrize("function", [scoring.select_clean, scoring.label_suspicion, scoring.score_probabilities])
@pytest.mark.parametrize(
    ("labels", "probs", "message"),
    [
        ([0, 1], [[0.5, 0.5], [1.2, -0.2]], r"pred_probs: row 1 holds a negative probability, -0\.2"),
        ([0, 1], [[0.5, 0.5], [0.5, 0.6]], r"pred_probs: row 1 sums to 1\.1, not 1"),
        ([0, 1], [[0.5, 0.5], [2.0, -3.0]], "negative"),
        ([0, 1], [[np.nan, 0.5], [0.5, 0.5]], "row 0 holds NaN"),
        ([0, 1], np.ma.array(np.full((2, 2), 0.5), mask=[[False] * 2, [True] * 2]), "row 1 holds NaN"),
        (np.ma.array([0, 1], mask=[False, True]), [[0.5, 0.5], [0.5, 0.5]], "row 1 has no label"),
        (np.ma.array(["a", "b"], mask=[False, True]), [[0.5, 0.5], [0.5, 0.5]], "row 1 has no label"),
        ([0, 1], [[0.5, 0.5], [np.inf, 0.5]], "row 1 holds NaN or infinity"),
        ([0, 2], [[0.5, 0.5], [0.5, 0.5]], r"labels: 2 in row 1 is outside 0\.\.1"),
        ([0, -1], [[0.5, 0.5], [0.5, 0.5]], "labels: -1 in row 1"),
        ([0], [[0.5, 0.5], [0.5, 0.5]], "labels: 1 label but pred_probs has 2 rows"),
        ([0, np.nan], [[0.5, 0.5], [0.5, 0.5]], "row 1 has no label"),
        ([0, 0.5], [[0.5, 0.5], [0.5, 0.5]], "whole numbers"),
        (np.array(["a", None], dtype=object), [[0.5, 0.5], [0.5, 0.5]], "row 1 has no label"),
        (np.array(["a", pd.NA], dtype=object), [[0.5, 0.5], [0.5, 0.5]], "row 1 has no label"),
        (np.array(["a", 3], dtype=object), [[0.5, 0.5], [0.5, 0.5]], "text and numbers"),
        (["a", "a"], [[0.5, 0.5], [0.5, 0.5]], "2 columns but 1 class;"),
        ([[0, 1]], [[0.5, 0.5], [0.5, 0.5]], "one dimension"),
        ([0, 1], [0.5, 0.5], "pred_probs: expected one row per sample"),
        ([0, 1], [[1.0], [1.0]], "2 or more classes"),
        ([0, 1], [["a", "b"], ["a", "b"]], "expected numbers"),
    ],
)
def test_invalid_input_is_refused(function: object, labels: object, probs: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        function(labels, probs)  # type: ignore[operator]


def test_invalid_row_is_named_in_any_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, probs = random_probs(5, 1000, 4)
    probs[777] *= 1.5
    monkeypatch.setattr(scoring, "CHUNK_BYTES", 32 * 50)
    with pytest.raises(InputError, match=r"row 777 sums to 1\.5"):
        scoring.select_clean(labels, probs)
    with pytest.raises(InputError, match="'z' is not one of the classes"):
        scoring.select_clean(["a", "z"], [[0.5, 0.5]] * 2, classes=["a", "b"])


def test_suspicion_from_scores_alone() -> None:
    got = scoring.suspicion_from_scores([0.9, 0.1, 0.0, np.nan], [0.9, 0.8, 0.0, np.nan])
    np.testing.assert_allclose(got, [0.05, 0.8 / 0.9, 0.5, np.nan])
    # Classifiers with `predict` only have probabilities 0 and 1.
    assert scoring.suspicion_from_scores([1.0, 0.0], [1.0, 1.0]).tolist() == [0.0, 1.0]
    # A prediction that is not the most probable class still counts as a contradiction; rounding above 1 stays in 0..1.
    assert scoring.suspicion_from_scores([0.6], [0.4], agrees=[False]).tolist() == [0.5]
    assert scoring.suspicion_from_scores([1.0000001], [1.0000001], agrees=[True]).tolist() == [0.0]
    with pytest.raises(InputError, match="lengths differ"):
        scoring.suspicion_from_scores([0.1], [0.2, 0.3])


def test_an_impossible_label_has_a_finite_loss() -> None:
    scores = scoring.score_probabilities([1], [[1.0, 0.0]])
    assert np.isfinite(scores.loss).all() and scores.loss[0] > 100


def test_suspicion_ranks_wrong_labels_better_than_1_minus_p_under_pair_noise() -> None:
    """A small version of benchmarks/suspicion.md: digits and logistic regression on halves."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    x, true = load_digits(return_X_y=True)
    x = x / 16
    labels = noise.corrupt(true, theory.pair(10, 0.4), 0)
    half = np.arange(len(x)) % 2 == 0
    probs = np.empty((len(x), 10))
    for part in (half, ~half):
        probs[~part] = LogisticRegression(max_iter=500).fit(x[part], labels[part]).predict_proba(x[~part])
    ours = metrics.auroc(labels != true, scoring.label_suspicion(labels, probs))
    self_confidence = metrics.auroc(labels != true, 1 - probs[np.arange(len(x)), labels])
    assert ours > self_confidence > 0.5


class Frame:
    """Minimal polars-like frame: column names and an array."""

    def __init__(self, values: np.ndarray, columns: list[str]) -> None:
        self.values, self.columns = values, columns

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return self.values


@pytest.mark.parametrize(
    ("labels", "columns"),
    [
        (["a", "c", "a"], pd.Index(["b", "a", "c"])),
        ([0, 2, 0], pd.Index([1, 0, 2])),
        ([0, 2, 0], ["1", "0", "2"]),
        ([0.0, 2.0, 0.0], ["1", "0", "2"]),
        (["0", "2", "0"], pd.Index([1, 0, 2])),
        (pd.Series(["a", "c", "a"], dtype="category"), ["b", "a", "c"]),
        (np.array(["a", "c", "a"], dtype=object), ["b", "a", "c"]),
    ],
)
def test_columns_of_a_frame_are_matched_by_name(labels, columns) -> None:
    turned = PROBS[:, [1, 0, 2]]
    frame = Frame(turned, columns) if isinstance(columns, list) else pd.DataFrame(turned, columns=columns)
    assert scoring.select_clean(labels, frame).tolist() == [True, False, False]
    expected = scoring.label_suspicion([0, 2, 0], PROBS)
    np.testing.assert_array_equal(scoring.label_suspicion(labels, frame), expected)
    np.testing.assert_array_equal(scoring.score_probabilities(labels, frame).probability, [0.7, 0.3, 0.25])


def test_numbered_columns_keep_their_order() -> None:
    for frame in (pd.DataFrame(PROBS), Frame(PROBS, ["column_0", "column_1", "column_2"])):
        assert scoring.select_clean(["a", "c", "b"], frame).tolist() == [True, False, False]
        assert scoring.select_clean([0, 2, 0], frame).tolist() == [True, False, False]
    named = pd.DataFrame(PROBS, columns=["p_a", "p_b", "p_c"])  # classes= overrides the names
    assert scoring.select_clean(["a", "c", "a"], named, classes=["a", "b", "c"]).tolist() == [True, False, False]
    bools = pd.DataFrame(PROBS[:, :2] / PROBS[:, :2].sum(axis=1, keepdims=True), columns=[True, False])
    assert scoring.select_clean([True, True, False], bools).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("columns", "classes", "said"),
    [
        (["a", "b", "x"], None, "its columns are a, b, x, .*'c'"),
        (["a", "b", "b"], None, "two of its columns have the same name"),
        (["b", "a", "c"], ["a", "b", "c"], "classes: in another order than the columns"),
    ],
)
def test_columns_with_other_names_are_refused(columns, classes, said) -> None:
    for function in (scoring.select_clean, scoring.label_suspicion):
        with pytest.raises(InputError, match=said) as problem:
            function(["a", "c", "a"], pd.DataFrame(PROBS, columns=columns), classes=classes)
        assert "\n" not in str(problem.value)
    with pytest.raises(InputError, match="'id' is not a label"):
        scoring.select_clean([0, 1, 0], pd.DataFrame(PROBS, columns=["0", "1", "id"]))


@pytest.mark.parametrize("function", [scoring.select_clean, scoring.label_suspicion])
def test_labels_of_dtype_object_are_read_like_others(function) -> None:
    for labels in ([0, 1, 0], [False, True, False]):
        found = function(pd.Series(labels, dtype=object), PROBS)
        np.testing.assert_array_equal(found, function(labels, PROBS))


def test_values_that_are_no_probabilities_give_no_numpy_warning() -> None:
    with pytest.raises(InputError, match="row 1 holds NaN or infinity"):  # warnings are errors in tests
        scoring.select_clean([0, 1], [[0.5, 0.5], [np.inf, -np.inf]])


def test_a_warning_about_renormalised_rows_names_the_line_of_the_user() -> None:
    for function in (scoring.select_clean, scoring.label_suspicion, scoring.score_probabilities):
        with pytest.warns(UserWarning, match="3 rows") as found:
            function([0, 1, 2], 0.985 * PROBS)
        assert [each.filename for each in found] == [__file__]
