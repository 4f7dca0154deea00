"""Wrong labels from stored predictions: what is found, by what names, and that nothing is trained."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from labelsieve import find_wrong_labels, metrics, noise, select_clean, theory
from labelsieve.errors import InputError
from labelsieve.scoring import score_probabilities
from labelsieve.selection.incv import incv_steps
from labelsieve.selection.stored import StoredPredictions, no_suggestion, stored_settings, suggestions
from labelsieve.types import Trust


def predictions(pattern: str, ratio: float, *, n: int = 4000, c: int = 5, accuracy: float = 0.9, seed: int = 0):
    """True and given labels, and what a network that learnt such labels says: the noise is in its probabilities."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, c, n)
    T = theory.matrix(pattern, c, ratio)
    given = noise.corrupt(true, T, rng)
    seen = np.where(rng.random(n) < accuracy, true, rng.integers(0, c, n))
    sure = np.where(seen == true, rng.beta(6, 2, n), rng.beta(2, 4, n))[:, None]  # of its mistakes it is less sure
    p = sure * np.eye(c)[seen] + (1 - sure) * rng.dirichlet(np.ones(c), n)
    return true, given, p @ T


def test_predictions_that_know_every_label_are_asked_about() -> None:
    _, given, probs = predictions("symmetric", 0.2)
    learnt = 0.1 * probs + 0.9 * np.eye(5)[given]  # as of a model that was trained on these very labels
    found = find_wrong_labels(given, learnt)
    assert not found.wrong.any() and "every label was predicted" in found.explanation
    assert "every label" not in find_wrong_labels(given, probs).explanation


@pytest.mark.parametrize(("pattern", "ratio"), [("symmetric", 0.3), ("pair", 0.2), ("pair", 0.4), ("symmetric", 0.6)])
def test_the_noise_is_read_and_the_wrong_labels_are_found(pattern: str, ratio: float) -> None:
    true, given, probs = predictions(pattern, ratio)
    wrong = given != true
    found = find_wrong_labels(given, probs)
    assert abs(found.noise_ratio - wrong.mean()) < 0.08
    assert found.noise_interval[0] <= found.noise_ratio <= found.noise_interval[1]
    ours = metrics.detection(wrong, found.wrong, found.suspicion)
    plain = metrics.detection(wrong, ~select_clean(given, probs))
    assert ours.f1 > plain.f1 - 0.01 and ours.f1 > 0.75
    replaced = found.wrong & ~found.no_class
    assert np.mean(found.suggested[replaced] == true[replaced]) > np.mean(given[replaced] == true[replaced]) + 0.1
    assert not ((found.suggested != given) & ~found.wrong).any()
    assert found.suspicion[found.wrong].min() >= found.suspicion[~found.wrong].max()
    # What it says of each label is about as often true as it says.
    assert abs(found.suspicion.mean() - wrong.mean()) < 0.05
    np.testing.assert_allclose(found.transition_matrix.sum(axis=1), 1)


def test_printed_it_is_one_line() -> None:
    _, given, probs = predictions("symmetric", 0.3)
    said = r"[\d,]+ of 4,000 labels flagged; noise \d\d\.\d % \([\d.]+ to [\d.]+ %\), \w+: .*"
    assert re.fullmatch(said, str(find_wrong_labels(given, probs)))


def test_printed_it_gives_no_number_where_the_noise_is_not_known() -> None:
    labels = np.arange(300) % 3
    found = find_wrong_labels(labels, np.full((300, 3), 1 / 3))
    assert not found.noise_known and found.noise_ratio > 0  # methods want one in any case
    assert "noise unknown" in str(found) and "%" not in str(found)
    _, given, probs = predictions("symmetric", 0.3)
    assert find_wrong_labels(given, probs).noise_known


def test_a_frame_goes_by_its_columns_names() -> None:
    _, given, probs = predictions("symmetric", 0.2, c=3)
    names = np.array(["ant", "bee", "cow"])
    plain = find_wrong_labels(names[given], probs)
    frame = pd.DataFrame(probs, columns=names)
    for shown in (frame, frame[["cow", "ant", "bee"]]):
        found = find_wrong_labels(names[given], shown)
        # Sums in another order round differently, which may decide a few borderline samples.
        assert np.mean(found.wrong == plain.wrong) > 0.998 and np.mean(found.suggested == plain.suggested) > 0.998
        assert found.classes.tolist() == shown.columns.tolist()
    numbers = find_wrong_labels(given.astype(np.int32), pd.DataFrame(probs).iloc[:, [2, 0, 1]])
    assert np.mean(names[numbers.suggested] == plain.suggested) > 0.95  # -1 stands for no class
    assert numbers.suggested.dtype == np.int32 and numbers.classes.tolist() == [2, 0, 1]
    with pytest.raises(InputError, match=r"its columns are ant, bee, fly, .*'cow'"):
        find_wrong_labels(names[given], frame.rename(columns={"cow": "fly"}))


def test_clean_labels_stay_clean() -> None:
    _, given, probs = predictions("symmetric", 0.0, accuracy=0.97)
    found = find_wrong_labels(given, probs)
    assert found.noise_ratio < 0.03 and found.wrong.mean() < 0.03


def test_labels_keep_the_names_they_have() -> None:
    _, given, probs = predictions("symmetric", 0.2, c=3)
    plain = find_wrong_labels(given, probs)
    names = np.array(["ant", "bee", "cow"])
    texts = find_wrong_labels(names[given].tolist(), probs)
    np.testing.assert_array_equal(texts.suspicion, plain.suspicion)
    np.testing.assert_array_equal(texts.suggested, np.append(names, "")[plain.suggested])
    assert texts.classes.tolist() == names.tolist() and plain.classes.tolist() == [0, 1, 2]
    turned = find_wrong_labels(names[given], probs[:, ::-1], classes=names[::-1])
    assert np.mean(turned.suggested == texts.suggested) > 0.998
    np.testing.assert_allclose(turned.transition_matrix[::-1, ::-1], texts.transition_matrix, atol=1e-3)
    _, two, of_two = predictions("symmetric", 0.2, c=2)
    assert find_wrong_labels(two.astype(bool), of_two).suggested.dtype == bool


def test_the_same_answer_every_time_and_whatever_the_type() -> None:
    _, given, probs = predictions("symmetric", 0.3)
    first, again = find_wrong_labels(given, probs), find_wrong_labels(given.astype(np.int8), probs)
    np.testing.assert_array_equal(first.suspicion, again.suspicion)
    half = find_wrong_labels(given, probs.astype(np.float16))
    assert np.mean(half.wrong == first.wrong) > 0.99


def test_random_labels_are_called_random() -> None:
    rng = np.random.default_rng(0)
    found = find_wrong_labels(rng.integers(0, 4, 2000), rng.dirichlet(np.ones(4), 2000))
    assert found.trust is Trust.UNKNOWN and (found.suggested >= 0).all() and not found.no_class.any()


def test_one_request_and_no_training() -> None:
    _, given, probs = predictions("pair", 0.4)
    steps = incv_steps(given, 5, settings=stored_settings(), seed=0)
    scores = StoredPredictions(score_probabilities(given, probs))
    jobs = next(steps)
    with pytest.raises(StopIteration) as end:
        steps.send(scores.train_and_score(jobs))
    selection, found = end.value.value, find_wrong_labels(given, probs)
    assert not selection.removed.any() and selection.noise_ratio == pytest.approx(found.noise_ratio, abs=0.01)
    assert not any("network" in note or "removed" in note for note in selection.notes)


def test_a_class_that_is_never_predicted_does_not_make_everything_unknown() -> None:
    rng = np.random.default_rng(0)
    true = np.repeat(np.arange(5), [1200, 1200, 800, 750, 50])
    given = noise.corrupt(true, theory.symmetric(5, 0.15), rng)
    seen = np.where(true == 4, rng.integers(0, 4, len(true)), true)
    sure = rng.uniform(0.5, 0.95, len(true))[:, None]
    found = find_wrong_labels(given, sure * np.eye(5)[seen] + (1 - sure) * np.array([0.25, 0.25, 0.25, 0.25, 0]))
    assert found.noise_known and found.noise_interval[0] < np.mean(given != true) < found.noise_interval[1]


def test_folds_with_different_scales_of_confidence_are_brought_to_one_scale() -> None:
    true, given, probs = predictions("symmetric", 0.3)
    folds, wrong = np.arange(len(given)) % 4, given != true
    scaled = probs ** np.array([0.3, 0.6, 1.5, 4.0])[folds][:, None]
    scaled /= scaled.sum(axis=1, keepdims=True)
    auroc = [
        metrics.auroc(wrong, find_wrong_labels(given, each, folds=which).suspicion)
        for each, which in ((probs, None), (probs, folds), (scaled, None), (scaled, folds))
    ]
    assert auroc[1] == pytest.approx(auroc[0], abs=0.002)  # nothing is lost if the scales are the same
    assert auroc[3] > auroc[2] + 0.005 and auroc[3] == pytest.approx(auroc[0], abs=0.002)
    one_per_fold = find_wrong_labels(given, probs, folds=np.arange(len(given)))  # too small to know their scale
    np.testing.assert_allclose(one_per_fold.suspicion, find_wrong_labels(given, probs).suspicion, atol=1e-6)
    with pytest.raises(InputError, match="folds"):
        find_wrong_labels(given, probs, folds=folds[:-1])
    for missing in (None, float("nan")):
        with pytest.raises(InputError, match="folds: row 0 has no fold"):
            find_wrong_labels(given, probs, folds=[missing, *folds[1:].tolist()])


def test_rows_that_sum_to_almost_one_are_renormalised_with_a_warning() -> None:
    _, given, probs = predictions("symmetric", 0.2)
    plain = find_wrong_labels(given, probs)
    with pytest.warns(UserWarning, match="renormalised"):
        found = find_wrong_labels(given, (0.985 * probs).astype(np.float16))
    assert np.mean(found.wrong == plain.wrong) > 0.99
    with pytest.raises(InputError, match="sums to"):
        find_wrong_labels(given, 0.9 * probs)


@pytest.mark.parametrize(
    ("labels", "probs", "said"),
    [
        ([0, 1], [[0.5, 0.5]], "2 labels but pred_probs has 1 row"),
        ([0, 3, 1], [[0.5, 0.5]] * 3, "3 in row 1 is outside 0..1"),
        ([0, 0], [[0.5, 0.5]] * 2, "only one class"),
        ([], np.empty((0, 2)), "only one class"),
        ([0, 1], [[2.0, 1.0]] * 2, "sums to 3"),
        (["a", "b"], [[0.2, 0.3, 0.5]] * 2, "3 columns but 2 classes"),
    ],
)
def test_what_is_refused(labels, probs, said: str) -> None:
    with pytest.raises(InputError, match=said):
        find_wrong_labels(labels, probs)


@pytest.mark.parametrize("folds", [None, np.arange(4000) % 4])
@pytest.mark.parametrize("classes", [5, 60])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda probs: np.where(np.arange(4000)[:, None] == 3000, np.nan, probs), "row 3000 holds NaN"),
        (lambda probs: np.where(np.arange(4000)[:, None] == 3000, np.inf, probs), "row 3000 holds NaN or infinity"),
        (np.log, "row 0 holds a negative probability"),
        (lambda probs: 0.9 * probs, "row 0 sums to 0.9"),
    ],
)
def test_probabilities_are_checked_before_they_are_used(change, said: str, classes: int, folds) -> None:
    _, given, probs = predictions("symmetric", 0.2, c=classes)
    with pytest.raises(InputError, match=said):  # numpy's warnings would be errors here
        find_wrong_labels(given, change(probs), folds=folds)


@pytest.mark.parametrize("classes", [5, 60])
@pytest.mark.parametrize("folds", [None, np.arange(4000) % 4])
def test_one_warning_about_renormalised_rows_names_the_line_of_the_user(classes: int, folds) -> None:
    _, given, probs = predictions("symmetric", 0.2, c=classes)
    with pytest.warns(UserWarning, match="4,000 rows") as found:
        find_wrong_labels(given, 0.985 * probs, folds=folds)
    assert [each.filename for each in found] == [__file__]


def strangers() -> tuple[np.ndarray, np.ndarray]:
    """Labels and predictions of four classes; every tenth sample belongs to none of them."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, 4, 4000)
    given = np.where(rng.random(4000) < 0.1, rng.integers(0, 4, 4000), true)
    stranger = np.arange(4000) % 10 == 0
    sure = np.where(stranger, 0.0, 0.9)[:, None]
    # The predictions for strangers have nothing to do with the label.
    other = np.eye(4)[(given + 1) % 4] * 0.45 + np.eye(4)[(given + 2) % 4] * 0.45 + 0.025
    return given, sure * np.eye(4)[true] + (1 - sure) * np.where(stranger[:, None], other, 0.25)


@pytest.mark.parametrize(
    ("names", "empty"),
    [
        ([0, 1, 2, 3], -1),
        ([-5, 1, 2, 3], -1),
        ([-1, 0, 1, 2], -2),
        ([-3, -2, -1, 0], -4),
        ([-1.0, 0.0, 1.0, 2.0], -2.0),
        (np.array([0, 1, 2, 3], dtype=np.uint8), -1),
        (np.array([-1, 0, 1, 2], dtype=np.int16), -2),
        (["a", "b", "c", "d"], ""),
        (["", "b", "c", "d"], "-1"),
        (["", "-1", "c", "d"], "-2"),
        (np.array(["", "b", "c", "d"], dtype=object), "-1"),
        (np.array([b"", b"b", b"c", b"d"]), b"-1"),
    ],
)
def test_no_suggestion_is_never_a_class(names, empty) -> None:
    given, probs = strangers()
    names = np.asarray(names)
    found = find_wrong_labels(names[given], probs, classes=names)
    assert found.no_class.sum() > 200
    assert set(found.suggested[found.no_class].tolist()) == {empty} and empty not in names.tolist()
    assert set(found.suggested[~found.no_class].tolist()) <= set(names.tolist())
    assert names.dtype.kind == "u" or found.suggested.dtype.kind == names.dtype.kind


def test_no_suggestion_in_a_type_that_is_full() -> None:
    names = np.arange(-128, 0, dtype=np.int8)
    empty = no_suggestion(names)
    assert empty == -129
    found = suggestions(names, np.array([0, 1]), np.array([0, 1]), np.array([False, True]))
    assert found.tolist() == [-128, -129]


def test_labels_of_dtype_object_are_read_like_others() -> None:
    _, given, probs = predictions("symmetric", 0.2, c=3)
    given[given == 2] = 0  # a column without labels
    plain, found = find_wrong_labels(given, probs), find_wrong_labels(pd.Series(given, dtype=object), probs)
    assert found.classes.tolist() == [0, 1, 2] and found.suggested.dtype == plain.suggested.dtype
    np.testing.assert_array_equal(found.suggested, plain.suggested)


def test_the_representation_is_short() -> None:
    _, given, probs = predictions("symmetric", 0.3)
    found = find_wrong_labels(given, probs)
    assert len(repr(found)) < 200 and f"wrong={found.wrong.sum()}" in repr(found)
    assert f"noise_ratio={found.noise_ratio:.4f}" in repr(found) and f"'{found.trust}'" in repr(found)
    unknown = find_wrong_labels(np.arange(300) % 3, np.full((300, 3), 1 / 3))
    assert "noise" not in repr(unknown) and "trust='unknown'" in repr(unknown)


def test_the_results_as_a_data_frame() -> None:
    _, given, probs = predictions("symmetric", 0.3, c=3)
    names = np.array(["ant", "bee", "cow"])
    found = find_wrong_labels(names[given], probs)
    frame = found.to_frame()
    assert frame["label"].tolist() == names[given].tolist() == found.labels.tolist()
    for name in ("predicted", "suspicion", "suggested", "suggested_probability", "wrong", "no_class"):
        assert frame[name].tolist() == getattr(found, name).tolist()
    replaced = found.wrong & ~found.no_class & (found.predicted != found.labels)
    assert replaced.any() and (found.suggested == found.predicted)[replaced].all()


def test_dates_can_be_labels() -> None:
    given, probs = np.repeat(np.arange(3), 50), np.full((150, 3), 0.1)
    probs[np.arange(150), given] = 0.8
    days = np.array(["2020-01-01", "2021-01-01", "2022-01-01"], dtype="datetime64[D]")
    assert find_wrong_labels(days[given], probs).suggested.tolist() == days[given].tolist()
