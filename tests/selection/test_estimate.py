from __future__ import annotations

import json

import numpy as np
import pytest

from labelsieve import INCV, theory
from labelsieve.selection.estimate import (
    bootstrap_interval,
    concentration,
    confident_counts,
    cross_fitted_steps,
    eq4_ratio,
    estimate_from_scores,
    hardly_predicted,
    pair_counts,
    remove_ratio,
    wrong_of_unjudged,
)
from labelsieve.types import Scores


def scores(predicted, confidence=None):
    predicted = np.asarray(predicted)
    confidence = np.full(len(predicted), 0.9) if confidence is None else np.asarray(confidence, dtype=float)
    return Scores(predicted, confidence, confidence, -np.log(confidence))


def noisy(transition, n, rng):
    truth = rng.integers(0, len(transition), n)
    cumulated = transition.cumsum(axis=1)
    given = (rng.random(n)[:, None] > cumulated[truth]).sum(axis=1).clip(0, len(transition) - 1)
    return truth, given


@pytest.mark.parametrize("eps", [0.0, 0.1, 0.45])
def test_roots_undo_the_equations(eps):
    assert eq4_ratio((1 - eps) ** 2 + eps**2 / 9, 10) == pytest.approx(eps, abs=1e-12)
    assert eq4_ratio(0.01, 10) == pytest.approx(0.9)  # below 1/c: clamped


def test_confident_counts_by_hand():
    predicted = np.array([0] * 90 + [1] * 6)
    confidence = np.r_[np.linspace(0.5, 0.99, 90), [0.9, 0.8, 0.7, 0.6, 0.6, 0.6]]
    given = np.array([1] * 70 + [0] * 20 + [1, 0, 0, 0, 0, 0])
    # Class 0: the 20 most confident are the last 20; class 1 has 6 samples, half of which is less than 20: 3 count.
    counts = confident_counts(scores(predicted, confidence), given, 2)
    assert counts.tolist() == [[20, 0], [2, 1]]
    many = confident_counts(scores(np.zeros(1000, dtype=int), np.arange(1000) / 1001 + 1e-4), np.arange(1000) // 900, 2)
    assert many.tolist() == [[0, 100], [0, 0]]


def test_equal_confidence_counts_everyone_and_so_not_the_order():
    given = np.repeat([0, 1], [80, 20])
    assert confident_counts(scores(np.zeros(100, dtype=int)), given, 2).tolist() == [[80, 20], [0, 0]]


def test_pairs():
    assert pair_counts(np.array([0, 0, 2]), np.array([1, 1, 2]), 3).tolist() == [[0, 2, 0], [0, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize("c", [3, 10])
@pytest.mark.parametrize("eps", [0.2, 0.5, 0.8])
def test_concentration_and_removal_meet_the_authors_at_both_ends(c, eps):
    prior = np.full(c, 1 / c)
    symmetric, pair = theory.symmetric(c, eps), theory.pair(c, eps)
    assert concentration(symmetric, prior) == pytest.approx(1 / (c - 1))
    assert concentration(pair, prior) == pytest.approx(1)
    assert remove_ratio(eps, concentration(symmetric, prior), c) == pytest.approx(min(2, eps / (1 - eps)))
    assert remove_ratio(eps, concentration(pair, prior), c) == pytest.approx(0)
    assert remove_ratio(eps, 1.0, 2) == 0


@pytest.mark.parametrize(
    "transition", [np.eye(5), theory.symmetric(5, 0.4), theory.pair(5, 0.3), theory.symmetric_inclusive(5, 0.5)]
)
def test_estimate_with_a_classifier_that_is_right_where_confident(transition):
    rng = np.random.default_rng(0)
    truth, given = noisy(transition, 40_000, rng)
    # Wrong on 8 % of the samples, and unsure of them.
    wrong = rng.random(len(truth)) < 0.08
    predicted = np.where(wrong, (truth + 1) % 5, truth)
    confidence = np.where(wrong, rng.uniform(0.3, 0.6, len(truth)), rng.uniform(0.4, 1.0, len(truth)))
    half = len(truth) // 2
    parts = [slice(0, half), slice(half, None)]
    found = estimate_from_scores(
        [scores(predicted[p], confidence[p]) for p in parts], [given[p] for p in parts], 5, seed=0, method="test"
    )
    eps = 1 - np.trace(transition) / 5
    assert found.ratio == pytest.approx(eps, abs=0.02)
    assert np.abs(found.transition - transition).sum(axis=1).mean() < 0.10
    assert found.low <= found.ratio <= found.high
    assert found.high - found.low < 0.06
    assert found.upper_bound >= eps - 0.01
    assert found.explanation.startswith("trustworthy")
    assert "transition" not in found.summary() and found.summary()["ratio"] == found.ratio


def test_interval_covers_the_truth():
    rng = np.random.default_rng(3)
    inside = 0
    for draw in range(60):
        truth, given = noisy(theory.symmetric(4, 0.3), 800, rng)
        found = estimate_from_scores(
            [scores(truth, rng.uniform(0.5, 1, 800))], [given], 4, seed=draw, method="test"
        )  # fmt: skip
        inside += found.low <= 0.3 <= found.high
    assert inside >= 50


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("random", "not distinguishable from random"),
        ("few", "too few samples"),
        ("instance", "looks instance-dependent"),
        ("some", "fair"),
    ],
)
def test_trust_is_said_plainly(case, sentence):
    rng = np.random.default_rng(1)
    n = 30 if case == "few" else 4000
    truth = rng.integers(0, 4, n)
    given, confidence = truth.copy(), rng.uniform(0.6, 1, n)
    if case == "random":
        given = rng.integers(0, 4, n)
    if case in ("instance", "some"):
        # Labels are wrong exactly where the classifier is unsure.
        hard = confidence < (0.76 if case == "instance" else 0.66)
        given = np.where(hard, (truth + 1) % 4, truth)
    found = estimate_from_scores([scores(truth, confidence)], [given], 4, seed=0, method="test")
    assert found.explanation.startswith(sentence)


@pytest.mark.parametrize("found_of_class_3", [0, 7])
def test_a_class_that_is_labelled_often_and_hardly_predicted_is_the_classifiers_fault(found_of_class_3):
    given = np.repeat(np.arange(4), 500)
    predicted = given.copy()
    predicted[1500 + found_of_class_3 :] = 0
    confidence = np.random.default_rng(0).uniform(0.6, 1, 2000)
    found = estimate_from_scores([scores(predicted, confidence)], [given], 4, seed=0, method="test")
    assert found.explanation.startswith("the classifier is weak")
    assert f"for {found_of_class_3} samples where 500 are labelled so" in found.explanation


def test_a_class_never_predicted_is_told_where_its_samples_make_up_most_of_the_noise():
    # Three classes of 40, of which the last is taken for the others and these are sometimes taken for each other.
    given = np.repeat(np.arange(3), 40)
    predicted = np.concatenate([np.repeat([0, 1], [30, 10]), np.repeat([1, 0], [30, 10]), np.repeat([0, 1], 20)])
    found = estimate_from_scores([scores(predicted, np.full(120, 0.9))], [given], 3, seed=0, method="test")
    assert found.ratio == pytest.approx(0.5)
    assert found.explanation.startswith(
        "the classifier is weak: it predicts class 2 for 0 samples where 40 are labelled"
    )


def test_a_class_with_few_labels_is_not_the_classifiers_fault():
    given = np.repeat(np.arange(4), [500, 500, 500, 15])
    confidence = np.random.default_rng(0).uniform(0.6, 1, len(given))
    found = estimate_from_scores([scores(given, confidence)], [given], 4, seed=0, method="test")
    assert found.explanation.startswith("too few samples: some class was counted from 8 labels")


def test_of_small_classes_the_surest_half_is_counted():
    given = np.repeat(np.arange(3), 30)
    predicted = given.copy()
    predicted[::6] = (predicted[::6] + 1) % 3  # its own mistakes, among its less confident predictions
    confidence = np.where(predicted == given, 0.9, 0.6) + np.random.default_rng(0).permutation(90) / 1e4
    counts = confident_counts(scores(predicted, confidence), given, 3)
    assert np.array_equal(counts, np.diag([15, 15, 15]))


def test_without_enough_selected_the_first_scores_are_counted():
    labels = np.array([0, 1] * 20)
    halves = (np.arange(20), np.arange(20, 40))
    never = tuple(scores(1 - labels[half]) for half in halves)
    steps = cross_fitted_steps(labels, 2, halves, never, seed=0, job_seeds=(1, 2))
    with pytest.raises(StopIteration) as end:
        next(steps)
    estimate, again = end.value.value
    assert again is None and "without cross-fitting" in estimate.method
    assert estimate.ratio == pytest.approx(1.0)


def test_classes_that_are_hardly_predicted_are_those_with_few_labels():
    given = np.repeat([0, 1, 2, 3], [100, 12, 12, 60])
    predicted = np.where(given == 1, 0, given)
    predicted[given == 3] = 0  # so many labels that it is the classifier that is weak
    predicted[112:122] = 0  # two of twelve are found: it is known
    assert hardly_predicted(predicted, given, 4).tolist() == [1]


@pytest.mark.parametrize("labels", [38, 42, 90])
def test_a_small_class_that_is_never_predicted_spoils_nothing(labels):
    given = np.repeat(np.arange(4), [300, 300, 300, labels])
    predicted = np.where(given == 3, np.arange(len(given)) % 3, given)
    given[:900:10] = (given[:900:10] + 1) % 3  # a tenth is wrong
    confidence = np.random.default_rng(0).uniform(0.6, 1, len(given))
    found = estimate_from_scores([scores(predicted, confidence)], [given], 4, seed=0, method="test")
    assert hardly_predicted(predicted, given, 4).tolist() == [3]
    assert found.ratio == pytest.approx(0.1, abs=0.04)
    left_out = labels / len(given)  # any of these may be wrong; of the others fewer than 18 % are
    assert found.unjudged == pytest.approx(left_out)
    assert found.upper_bound < 0.18 * (1 - left_out) + left_out
    assert not found.explanation.startswith(("the classifier is weak", "too few"))
    assert found.transition[:3, 3].max() < 0.01


def rarely(sizes, eps, seed, unknown):
    """Labels with evenly spread noise, and a classifier that knows all classes but `unknown`."""
    rng = np.random.default_rng(seed)
    truth, c = np.repeat(np.arange(len(sizes)), sizes), len(sizes)
    given = np.where(rng.random(len(truth)) < eps, (truth + rng.integers(1, c, len(truth))) % c, truth)
    predicted = np.where(np.isin(truth, unknown), rng.integers(0, c - len(unknown), len(truth)), truth)
    return truth, given, scores(predicted, rng.uniform(0.6, 1, len(truth)))


@pytest.mark.parametrize(("sizes", "unknown"), [((800, 600, 500, 40), [3]), ((900, 600, 400, 40, 40, 40), [3, 4, 5])])
def test_the_interval_and_what_is_said_hold_for_labels_that_were_not_judged(sizes, unknown):
    """Of a rare class most labels are wrong: those of the others say too little of all."""
    inside, off = 0, []
    for seed in range(20):
        truth, given, looks = rarely(sizes, 0.15, seed, unknown)
        found = estimate_from_scores([looks], [given], len(sizes), seed=seed, method="test")
        left_out = np.isin(given, unknown)
        assert found.unjudged == pytest.approx(left_out.mean()) and left_out.mean() > 0.03
        wrong = float(np.mean(given != truth))
        inside += found.low <= wrong <= found.high
        off.append(found.ratio - wrong)
        assert wrong <= found.upper_bound and found.low <= found.judged_ratio * (1 - found.unjudged)
        assert found.high >= found.judged_ratio * (1 - found.unjudged) + found.unjudged
        share = (
            f"{100 * found.unjudged:.0f} % of the labels, of classes that the classifier does not know, were not judged"
        )
        assert share in found.explanation and not found.explanation.startswith("trustworthy")
        assert found.unjudged_ratio == pytest.approx(np.mean((given != truth)[left_out]), abs=0.35)
    assert inside >= 19 and abs(np.mean(off)) < 0.02


def test_a_few_labels_that_were_not_judged_change_next_to_nothing():
    _, given, looks = rarely((400, 300, 300, 2), 0.0, 0, [3])
    found = estimate_from_scores([looks], [given], 4, seed=0, method="test")
    assert found.explanation == "trustworthy: the noise looks the same for all samples of a class"
    assert found.unjudged == pytest.approx(2 / 1002) and 2 / 1002 < found.high < 5.1 / 1002 and found.ratio == 0


@pytest.mark.parametrize(("even", "known", "share"), [(True, 3, 45 / 60), (False, 3, 0.1), (True, 2, 0.1)])
def test_labels_not_judged_are_as_wrong_as_evenly_spread_mistakes_make_them_else_as_any(even, known, share):
    judged = np.arange(900) % known
    given = np.r_[judged, np.full(60, 3)]
    assert wrong_of_unjudged(given, judged, 0.1, 4, even=even) == pytest.approx(share)
    few = np.r_[judged, np.full(5, 3)]
    assert wrong_of_unjudged(few, judged, 0.1, 4, even=even) == pytest.approx(1.0 if share > 0.5 else 0.1)


def test_the_estimate_is_json_and_says_whether_it_is_known():
    _, given, looks = rarely((400, 300, 300, 2), 0.0, 0, [])
    found = estimate_from_scores([looks], [given], 4, seed=0, method="test")
    told = json.loads(json.dumps(found.summary(), allow_nan=False))
    assert told["known"] and told["unjudged"] == 0 and told["judged_ratio"] == told["ratio"]
    random = np.random.default_rng(0).integers(0, 4, len(given))
    assert not estimate_from_scores([looks], [random], 4, seed=0, method="test").summary()["known"]


def test_what_is_printed_as_most_is_no_less_than_the_interval():
    given = np.r_[np.zeros(30, dtype=int), np.ones(30, dtype=int)]
    given[[3, 40, 41]] = 1 - given[[3, 40, 41]]
    found = estimate_from_scores([scores(np.repeat([0, 1], 30))], [given], 2, seed=0, method="test")
    assert found.low <= found.ratio <= found.high <= found.upper_bound


def test_counts_that_are_no_whole_numbers_have_an_interval():
    """As those of copies, which say nothing twice."""
    prior, counts = np.array([0.5, 0.5]), np.array([[30.0, 3.0], [0.0, 33.0]])
    whole, fewer = (bootstrap_interval(share * counts, prior, 0) for share in (1.0, 0.37))
    assert fewer[0] <= whole[0] < 1.5 / 33 < whole[1] < fewer[1]
    assert bootstrap_interval(0.99 * np.diag([5.0, 5.0]), prior, 0) == (0.0, 0.0)


def test_no_wrong_label_among_few_leaves_room_for_some():
    """Twenty right labels out of twenty do not say that all are."""
    given = np.repeat([0, 1], 30)
    found = estimate_from_scores([scores(given)], [given], 2, seed=0, method="test")
    assert found.ratio == found.low == 0 and found.upper_bound >= found.high > 0.02
    predicted = np.where(np.arange(60) % 10, given, 1 - given)  # and disagreed with a tenth, less sure of them
    looks = scores(predicted, np.where(predicted == given, 0.9, 0.6))
    found = estimate_from_scores([looks], [given], 2, seed=0, method="test")
    assert found.ratio == 0 and found.high == pytest.approx(1 - 0.05 ** (1 / found.counts.sum()))


def overlapping(columns: int, distance: float):
    rng = np.random.default_rng(2)
    centres = distance * np.arange(3)[:, None] * np.ones(columns)
    true = rng.integers(3, size=1200)
    given = np.where(rng.random(1200) < 0.06, rng.integers(3, size=1200), true)
    return centres[true] + rng.normal(size=(1200, columns)), given, true


def test_overlap_in_few_columns_is_not_called_noise_to_trust():
    x, given, true = overlapping(1, 1.0)
    found = INCV(random_state=0).fit(x, given)
    assert found.noise_ratio_ > 2 * (given != true).mean()  # one column cannot know better, but it can say so
    assert "fair: what 1 column cannot tell apart looks to the classifier like wrong labels" in found.notes_[0]


@pytest.mark.parametrize("columns", [2, 4])
def test_few_columns_that_tell_the_classes_apart_are_trusted(columns):
    x, given, true = overlapping(columns, 5.0)
    found = INCV(random_state=0).fit(x, given)
    assert found.noise_ratio_ == pytest.approx((given != true).mean(), abs=0.02)
    assert "trustworthy" in found.notes_[0]
