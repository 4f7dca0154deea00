"""Wrong labels from stored predictions: what is found, by what names, and that nothing is trained."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from labelsieve import find_wrong_labels, metrics, noise, select_clean, theory
from labelsieve.errors import InputError
from labelsieve.selection.ncv import ncv_steps
from labelsieve.selection.stored import StoredPredictions, most_suspicious, stored_settings
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
    assert np.mean(found.suggested == true) > np.mean(given == true) + 0.1
    differs = found.suggested != given
    np.testing.assert_array_equal(differs, found.wrong & (found.suspicion > 0.5))
    doubted = ~select_clean(given, probs) | found.wrong
    assert found.suspicion[found.wrong].min() >= found.suspicion[doubted & ~found.wrong].max(initial=0)
    # What it says of each label is about as often true as it says.
    assert abs(found.suspicion.mean() - wrong.mean()) < 0.05
    np.testing.assert_allclose(found.transition_matrix.sum(axis=1), 1)


def test_pair_noise_is_counted_again_with_the_first_count_undone() -> None:
    _, given, probs = predictions("pair", 0.4)
    steps = ncv_steps(given, 5, settings=stored_settings(), seed=0)
    scores = StoredPredictions(_scores(given, probs))
    jobs = next(steps)
    with pytest.raises(StopIteration) as end:  # one request: nothing else is asked for
        steps.send(scores.train_and_score(jobs))
    selection = end.value.value
    assert "twice" in selection.notes[0] and "what was predicted is corrected" in selection.notes[1]
    assert not any("network" in note or "removed" in note for note in selection.notes)
    assert not selection.removed.any()


def _scores(given: np.ndarray, probs: np.ndarray):
    from labelsieve.scoring import score_probabilities

    return score_probabilities(given, probs)


def test_as_many_are_flagged_as_the_noise_ratio_says_even_where_none_is_likelier_wrong_than_right() -> None:
    suspicion = np.array([0.1, 0.4, 0.3, 0.05, 0.3])
    assert most_suspicious(suspicion, 0.2).tolist() == [False, True, False, False, False]
    assert most_suspicious(suspicion, 0.4).tolist() == [False, True, True, False, True]  # equal ones go together
    assert not most_suspicious(suspicion, 0.0).any() and most_suspicious(suspicion, 1.0).all()
    _, given, probs = predictions("symmetric", 0.1)
    found = find_wrong_labels(given, probs)
    assert found.wrong[(found.suspicion > 0.5) & ~select_clean(given, probs)].all()
    assert 0 < found.wrong.sum() <= max(found.noise_ratio * len(given) + 1, np.sum(found.suspicion > 0.5))


def test_printed_it_is_one_line() -> None:
    _, given, probs = predictions("symmetric", 0.3)
    said = r"[\d,]+ of 4,000 labels flagged; noise \d\d\.\d % \([\d.]+ to [\d.]+ %\), \w+: .*"
    assert re.fullmatch(said, str(find_wrong_labels(given, probs)))


def test_printed_it_gives_no_number_where_the_noise_is_not_known() -> None:
    labels = np.arange(300) % 3
    found = find_wrong_labels(labels, np.full((300, 3), 1 / 3))
    assert not found.noise_known and found.noise_ratio > 0  # methods want one in any case
    assert "; noise not known, not distinguishable from random" in str(found) and "%" not in str(found)
    _, given, probs = predictions("symmetric", 0.3)
    assert find_wrong_labels(given, probs).noise_known


def test_labels_that_were_not_judged_have_a_suspicion_that_fits_them() -> None:
    """A rare class, never predicted, that evenly spread mistakes fill with wrong labels."""
    rng = np.random.default_rng(0)
    true = np.repeat(np.arange(5), [1200, 1200, 800, 750, 50])
    given = noise.corrupt(true, theory.symmetric(5, 0.15), rng)
    seen = np.where(true == 4, rng.integers(0, 4, len(true)), true)
    sure = rng.uniform(0.5, 0.95, len(true))[:, None]
    found = find_wrong_labels(given, sure * np.eye(5)[seen] + (1 - sure) * np.array([0.25, 0.25, 0.25, 0.25, 0]))
    left_out, wrong = given == 4, given != true
    assert wrong[left_out].mean() > 0.6 and wrong[~left_out].mean() < 0.13
    assert np.isnan(found.suggested_probability[left_out]).all() and not found.wrong[left_out].any()
    assert len(np.unique(found.suspicion[left_out])) == 1
    assert 0.4 < found.suspicion[left_out][0] <= 0.5  # no label by itself is called wrong
    assert found.noise_ratio == pytest.approx(wrong.mean(), abs=0.02)
    assert found.noise_interval[0] < wrong.mean() < found.noise_interval[1]
    flagged = found.wrong[~left_out].mean()  # as many of the judged as are wrong of these
    assert flagged == pytest.approx(wrong[~left_out].mean(), abs=0.03)


def test_a_frame_goes_by_its_columns_names() -> None:
    _, given, probs = predictions("symmetric", 0.2, c=3)
    names = np.array(["ant", "bee", "cow"])
    plain = find_wrong_labels(names[given], probs)
    frame = pd.DataFrame(probs, columns=names)
    for shown in (frame, frame[["cow", "ant", "bee"]]):
        found = find_wrong_labels(names[given], shown)
        np.testing.assert_array_equal(found.wrong, plain.wrong)
        np.testing.assert_array_equal(found.suggested, plain.suggested)
        assert found.classes.tolist() == shown.columns.tolist()
    numbers = find_wrong_labels(given.astype(np.int32), pd.DataFrame(probs).iloc[:, [2, 0, 1]])
    np.testing.assert_array_equal(names[numbers.suggested], plain.suggested)
    assert numbers.suggested.dtype == np.int32 and numbers.classes.tolist() == [2, 0, 1]
    with pytest.raises(InputError, match="its columns are ant, bee, fly, and none is called 'cow' as a label is"):
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
    np.testing.assert_array_equal(texts.suggested, names[plain.suggested])
    assert texts.classes.tolist() == names.tolist() and plain.classes.tolist() == [0, 1, 2]
    turned = find_wrong_labels(names[given], probs[:, ::-1], classes=names[::-1])
    np.testing.assert_array_equal(turned.suggested, texts.suggested)
    np.testing.assert_allclose(turned.transition_matrix[::-1, ::-1], texts.transition_matrix)
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
    assert found.trust is Trust.UNKNOWN


def test_labels_of_a_class_that_was_not_judged_are_not_called_wrong() -> None:
    """Above half of them wrong, too: what is not judged is as wrong as any, and that is no finding."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, 9, 4000)
    given = noise.corrupt(true, theory.symmetric(10, 0.7), rng)
    probs = np.full((4000, 10), 0.02)
    probs[np.arange(4000), true] = 1
    probs[:, 9] = 1e-4  # never predicted
    found = find_wrong_labels(given, probs / probs.sum(axis=1, keepdims=True))
    unjudged = given == 9
    assert found.noise_ratio > 0.5 and (found.suspicion[unjudged] > 0.5).all()
    assert not found.wrong[unjudged].any() and (found.suggested[unjudged] == 9).all()
    assert found.wrong[~unjudged].mean() > 0.6 and np.isnan(found.suggested_probability[unjudged]).all()


def test_labels_that_cannot_be_told_from_random_ones_stay() -> None:
    """As on export. Where the prediction agrees with a label it is not called wrong, however many are."""
    rng = np.random.default_rng(0)
    given, probs = rng.integers(0, 10, 4000), rng.dirichlet(np.ones(10), 4000)
    found = find_wrong_labels(given, probs)
    agrees = probs.argmax(axis=1) == given
    assert found.trust is Trust.UNKNOWN and (found.suspicion > 0.5)[agrees].any()
    assert not found.wrong[agrees].any()
    np.testing.assert_array_equal(found.suggested, given)


@pytest.mark.parametrize(
    ("labels", "probs", "said"),
    [
        ([0, 1], [[0.5, 0.5]], "2 labels but pred_probs has 1 rows"),
        ([0, 3, 1], [[0.5, 0.5]] * 3, "3 in row 1 is outside 0..1"),
        ([0, 0], [[0.5, 0.5]] * 2, "one class only"),
        ([], np.empty((0, 2)), "one class only"),
        ([0, 1], [[2.0, 1.0]] * 2, "sums to 3"),
        (["a", "b"], [[0.2, 0.3, 0.5]] * 2, "3 columns but 2 classes"),
    ],
)
def test_what_is_refused(labels, probs, said: str) -> None:
    with pytest.raises(InputError, match=said):
        find_wrong_labels(labels, probs)
