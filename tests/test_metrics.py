"""Metrics compared with hand-computed cases and with scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelsieve import metrics
from labelsieve.errors import InputError

steady = settings(deadline=None, max_examples=60)  # no time limit on a busy machine

#            right  right  wrong  wrong  right
TRUE = np.array([0, 0, 0, 1, 1])
GIVEN = np.array([0, 0, 1, 0, 1])
SELECTED = np.array([True, False, True, True, True])


def test_precision_and_recall_by_hand() -> None:
    assert metrics.label_precision(SELECTED, GIVEN, TRUE) == 0.5  # 2 clean of 4 selected
    assert metrics.label_recall(SELECTED, GIVEN, TRUE) == pytest.approx(2 / 3)  # of 3 clean
    assert metrics.noise_ratio(GIVEN, TRUE) == pytest.approx(0.4)
    assert metrics.accuracy(GIVEN, TRUE) == pytest.approx(0.6)


def test_per_class_conditions_on_the_true_class() -> None:
    # True class 0: selected are samples 0 (clean) and 2 (given 1). By the given class it would be 0 and 3.
    np.testing.assert_allclose(metrics.class_label_precision(SELECTED, GIVEN, TRUE), [0.5, 0.5])
    np.testing.assert_allclose(metrics.class_label_recall(SELECTED, GIVEN, TRUE), [0.5, 1.0])
    true, given_label = np.array([0, 0, 0]), np.array([1, 1, 0])
    everything = np.ones(3, dtype=bool)
    np.testing.assert_array_equal(metrics.class_label_precision(everything, given_label, true, 2), [1 / 3, np.nan])
    np.testing.assert_array_equal(metrics.class_label_recall(everything, given_label, true, 2), [1.0, np.nan])


def test_names_and_codes_give_the_same_result() -> None:
    names = np.array(["cat", "dog"])
    assert metrics.label_precision(SELECTED, names[GIVEN], names[TRUE]) == 0.5
    np.testing.assert_allclose(
        metrics.class_label_recall(SELECTED, names[GIVEN], names[TRUE], classes=["dog", "cat"]), [1.0, 0.5]
    )
    np.testing.assert_array_equal(metrics.confusion(names[TRUE], names[GIVEN]), metrics.confusion(TRUE, GIVEN, 2))


def test_nothing_selected_and_nothing_clean() -> None:
    assert math.isnan(metrics.label_precision([False, False], [0, 1], [0, 1]))
    assert metrics.label_recall([False, False], [0, 1], [0, 1]) == 0
    assert math.isnan(metrics.label_recall([True, True], [1, 0], [0, 1]))


def test_confusion_by_hand() -> None:
    m = metrics.confusion(TRUE, GIVEN, 3)
    np.testing.assert_allclose(m[:2], [[2 / 3, 1 / 3, 0], [0.5, 0.5, 0]])
    assert np.isnan(m[2]).all()
    counts = metrics.confusion(TRUE, GIVEN, 3, normalize=False)
    np.testing.assert_array_equal(counts, [[2, 1, 0], [1, 1, 0], [0, 0, 0]])


def test_detection_by_hand() -> None:
    wrong, flagged = [True, True, False, False, False], [True, False, True, False, False]
    found = metrics.detection(wrong, flagged, [0.9, 0.4, 0.6, 0.1, 0.4])
    assert found.precision == 0.5 and found.recall == 0.5 and found.f1 == 0.5
    assert found.auroc == pytest.approx((3 + 1 + 0.5) / 6)  # 0.9 is above 3 values; 0.4 is above 0.1 and equal to 0.4
    nothing = metrics.detection(wrong, [False] * 5)
    assert nothing == (0.0, 0.0, 0.0, 0.5)


@steady
@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9])), min_size=2))
def test_detection_agrees_with_scikit_learn(rows: list[tuple[bool, bool, float]]) -> None:
    from sklearn.metrics import f1_score, precision_score, recall_score, roc_auc_score

    wrong, flagged, score = (np.array(column) for column in zip(*rows, strict=True))
    found = metrics.detection(wrong, flagged, score)
    assert found.precision == pytest.approx(precision_score(wrong, flagged, zero_division=0))
    if wrong.any():
        assert found.recall == pytest.approx(recall_score(wrong, flagged))
        assert found.f1 == pytest.approx(f1_score(wrong, flagged))
        if not wrong.all():
            assert found.auroc == pytest.approx(roc_auc_score(wrong, score))
    else:
        assert math.isnan(found.recall) and math.isnan(found.auroc)


@steady
@given(st.integers(0, 2**32), st.integers(2, 8), st.integers(1, 60))
def test_confusion_agrees_with_scikit_learn(seed: int, c: int, n: int) -> None:
    from sklearn.metrics import confusion_matrix

    rng = np.random.default_rng(seed)
    true, predicted = rng.integers(0, c, n), rng.integers(0, c, n)
    expected = confusion_matrix(true, predicted, labels=range(c))
    np.testing.assert_array_equal(metrics.confusion(true, predicted, c, normalize=False), expected)
    m = metrics.confusion(true, predicted, c)
    np.testing.assert_allclose(m[expected.sum(axis=1) > 0].sum(axis=1), 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.label_precision([True], [0, 1], [0, 1]), "given: has 2 entries but selected has 1"),
        (lambda: metrics.label_recall([True, True], [0, 1], [0]), "true: has 1 entries"),
        (lambda: metrics.label_precision([0, 5], [0, 1], [0, 1]), "selected: expected one bool"),
        (lambda: metrics.label_precision([True], [[0]], [[0]]), "one dimension"),
        (lambda: metrics.label_precision([True], ["a"], [0]), "text and numbers"),
        (lambda: metrics.confusion([0, 3], [0, 1], 3), r"true: codes must be in 0\.\.2, found 0\.\.3"),
        (lambda: metrics.confusion([0, 1], [0, -1], 3), "predicted: codes"),
        (lambda: metrics.confusion(["a"], ["b"], classes=["a", "c"]), "predicted: 'b' is not one of the classes"),
        (lambda: metrics.confusion(["a"], ["a"], 3, classes=["a", "c"]), "2 names for 3 classes"),
        (lambda: metrics.class_label_recall([True], ["a"], ["a"]), "pass classes="),
        (
            lambda: metrics.confusion(pd.Series(["a", "b"]), [0, 1]),
            "true and predicted.*text and numbers",
        ),
        (lambda: metrics.noise_ratio(["a", 3], ["a", "3"]), "given: .*numbers and text"),
        (lambda: metrics.noise_ratio([[0], [0, 1]], [0, 1]), "given: expected one label per sample"),
        (lambda: metrics.auroc([True, False], ["a", "b"]), "suspicion: expected one number"),
        (lambda: metrics.auroc([True, False], [0.1, np.nan]), "NaN"),
        (lambda: metrics.auroc([True, False], [0.1]), "suspicion: has 1 entries"),
    ],
)
def test_invalid_input_is_refused(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()  # type: ignore[operator]


DAYS = ["2024-01-01", "2024-01-02", "2024-01-03"]


@pytest.mark.parametrize(
    ("given_labels", "true", "held"),
    [
        (["3", "5", "7"], [3, 5, 7], "text and numbers"),
        (np.array(["3", "5", "7"], dtype=object), [3, 5, 7], "text and numbers"),
        (pd.Series(["3", "5", "7"]), [3, 5, 7], "text and numbers"),
        (pd.Series(["3", "5", "7"], dtype="string"), [3, 5, 7], "text and numbers"),
        (pd.Series(["3", "5", "7"], dtype="category"), [3, 5, 7], "text and numbers"),
        (pd.Series([3, 5, 7], dtype="Int64"), pd.Series(["3", "5", "7"]), "numbers and text"),
        (pd.Series([True, False, True], dtype=object), ["a", "b", "a"], "numbers and text"),
        ([b"3", b"5", b"7"], ["3", "5", "7"], "and text"),
        (pd.to_datetime(DAYS), DAYS, "and text"),
        (pd.Series(pd.to_datetime(DAYS)).dt.tz_localize("UTC"), [3, 5, 7], "and numbers"),
    ],
)
def test_text_is_never_compared_with_numbers(given_labels: object, true: object, held: str) -> None:
    with pytest.raises(InputError, match=f"given and true.*{held}"):
        metrics.noise_ratio(given_labels, true)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=f"given and true.*{held}"):
        metrics.label_precision([True, True, False], given_labels, true)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "labels",
    [
        [None, "a"],
        [np.nan, "a"],
        [np.nan, 1.0],
        pd.Series([None, "a"]),
        pd.Series([None, "a"], dtype="string"),
        pd.Series([None, "a"], dtype="category"),
        pd.Series([None, 1], dtype="Int64"),
        pd.to_datetime([None, "2024-01-01"]),
    ],
)
def test_missing_labels_are_refused(labels: object) -> None:
    for call in (metrics.noise_ratio, metrics.confusion):
        with pytest.raises(InputError, match="row 0 has no label"):
            call(labels, labels)  # type: ignore[operator]
    with pytest.raises(InputError, match="given: row 0 has no label"):
        metrics.label_recall([True, True], labels, labels)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pd.Series([0, 1, 1], dtype="Int64"), [0, 1, 0]),
        (np.array([0, 1, 1], dtype=object), pd.Series([0, 1, 0], dtype="category")),
        ([False, True, True], [0, 1, 0]),
        ([0.0, 1.0, 1.0], [0, 1, 0]),
        (pd.Series(["a", "b", "b"], dtype="string"), ["a", "b", "a"]),
        (pd.Series(["a", "b", "b"], dtype="category"), pd.Series(["a", "b", "a"])),
        (
            pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-02"]),
            pd.to_datetime(["2024-01-01", "2024-01-02"] * 2)[:3],
        ),
    ],
)
def test_labels_of_one_type_are_compared_in_any_container(left: object, right: object) -> None:
    assert metrics.accuracy(left, right) == pytest.approx(2 / 3)  # type: ignore[arg-type]


def test_integers_in_object_arrays_are_codes() -> None:
    labels = np.array([0, 1, 1], dtype=object)
    np.testing.assert_array_equal(metrics.confusion(labels, [0, 1, 0], 2), [[1, 0], [0.5, 0.5]])
