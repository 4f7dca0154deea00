"""The noise model on made predictions whose errors are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from labelsieve import find_wrong_labels, noise, theory
from labelsieve.scoring import score_probabilities
from labelsieve.selection.noise_model import (
    TwoOpinions,
    agrees_by_chance,
    bins_of,
    concentration,
    count_transition,
    denoise,
    excess_agreement,
    fit_noise_model,
    rising,
    scale_transition,
)
from labelsieve.types import NoiseEstimate, Scores, Trust, WhyUnknown

CLASSES = 5


def predictions(truth, error, rng, *, classes=CLASSES):
    """Calibrated probabilities of a classifier that is wrong on about `error` of the samples."""
    ease = 1 - np.clip(2 * error * rng.random(len(truth)), 0, 0.95)
    wrong = (truth + rng.integers(1, classes, len(truth))) % classes
    predicted = np.where(rng.random(len(truth)) < ease, truth, wrong)
    probs = np.repeat(((1 - ease) / (classes - 1))[:, None], classes, axis=1)
    probs[np.arange(len(truth)), predicted] = ease
    return probs


def case(n=4000, ratio=0.2, error=0.05, pattern="symmetric", seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, CLASSES, n)
    given = noise.corrupt(truth, theory.matrix(pattern, CLASSES, ratio), rng=seed)
    return truth, given, predictions(truth, error, rng), rng


@pytest.mark.parametrize("pattern", ["symmetric", "pair"])
@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.3])
def test_noise_of_a_good_classifier_is_read_within_its_interval(pattern, ratio):
    truth, given, probs, _ = case(ratio=ratio, pattern=pattern)
    scores = score_probabilities(given, probs)
    estimate = fit_noise_model(denoise(scores, given, CLASSES), given, CLASSES, held_out=scores).estimate
    true_ratio = np.mean(given != truth)
    assert estimate.low <= true_ratio <= estimate.high
    assert estimate.ratio == pytest.approx(true_ratio, abs=0.04)
    assert estimate.transition.sum(axis=1) == pytest.approx(np.ones(CLASSES))
    assert estimate.prior @ (1 - np.diagonal(estimate.transition)) == pytest.approx(estimate.ratio, abs=0.01)


def test_a_weak_classifier_gives_a_wide_interval():
    truth, given, probs, _ = case(ratio=0.1, error=0.3)
    weak = find_wrong_labels(given, probs)
    _, given_good, good_probs, _ = case(n=20_000, ratio=0.1, error=0.01)
    good = find_wrong_labels(given_good, good_probs)
    low, high = weak.noise_interval
    assert low <= np.mean(given != truth) <= high and weak.trust in (Trust.ROUGH, Trust.FAIR)
    assert high - low > 3 * (good.noise_interval[1] - good.noise_interval[0])
    assert good.trust is Trust.TRUSTWORTHY and str(good.trust).startswith("trustworthy")


def test_two_opinions_measure_the_error_of_the_classifier():
    truth, given, probs, rng = case(n=6000, ratio=0.2, error=0.3)
    alone = denoise(score_probabilities(given, probs), given, CLASSES)
    halves = [score_probabilities(given, predictions(truth, 0.3, rng)) for _ in range(2)]
    opinions = TwoOpinions(*halves, given)
    true_ratio = np.mean(given != truth)
    bounded, measured = (fit_noise_model(alone, given, CLASSES, opinions=o).estimate for o in (None, opinions))
    assert measured.ratio == pytest.approx(true_ratio, abs=0.07) and measured.low <= true_ratio <= measured.high
    assert measured.high - measured.low < bounded.high - bounded.low


def test_labels_that_are_random_are_unknown():
    rng = np.random.default_rng(0)
    truth, given = rng.integers(0, 3, 900), rng.integers(0, 3, 900)
    scores = score_probabilities(given, predictions(truth, 0.1, rng, classes=3))
    estimate = fit_noise_model(scores, given, 3).estimate
    assert estimate.trust is Trust.UNKNOWN and estimate.why_unknown is WhyUnknown.RANDOM and not estimate.known
    assert agrees_by_chance(scores.predicted, given, 3) and not agrees_by_chance(scores.predicted, truth, 3)


def test_copies_do_not_make_the_estimate_surer():
    _, given, probs, _ = case(n=600)
    scores = denoise(score_probabilities(given, probs), given, CLASSES)
    alone, copied = (fit_noise_model(scores, given, CLASSES, distinct=d).estimate for d in (1.0, 0.1))
    assert copied.low <= alone.low and copied.high > alone.high and copied.ratio == alone.ratio


def test_denoising_undoes_the_noise_that_predictions_learnt():
    rng = np.random.default_rng(1)
    T = theory.pair(CLASSES, 0.4)
    truth = rng.integers(0, CLASSES, 3000)
    learnt = predictions(truth, 0.15, rng) @ T
    scores = score_probabilities(truth, learnt)
    denoised = denoise(scores, truth, CLASSES)
    assert denoised.confidence.mean() > scores.confidence.mean() + 0.1
    assert np.mean(denoised.predicted == truth) >= np.mean(scores.predicted == truth)
    assert np.allclose(denoised.loss, -np.log(denoised.probability))


def test_the_record_is_read_back():
    estimate = NoiseEstimate(0.2, 0.1, 0.3, Trust.FAIR, explanation="fair: ...", classifier_error=0.04)
    assert NoiseEstimate.from_record(estimate.record()).record() == estimate.record()
    changed = NoiseEstimate.from_record({"ratio": 0.2, "low": 0.1, "high": 0.3, "trust": "by hand"})
    assert (changed.trust, changed.why_unknown) == (Trust.ROUGH, None)
    changed = NoiseEstimate.from_record({"trust": "unknown", "why_unknown": "by hand"})
    assert (changed.trust, changed.why_unknown) == (Trust.UNKNOWN, WhyUnknown.RANDOM)


def test_counting_helpers():
    assert rising(np.array([1.0, 3.0, 2.0]), np.ones(3)).tolist() == [1.0, 2.5, 2.5]
    groups = bins_of(np.array([0.3, 0.1, 0.1, 0.1, 0.9, 0.5]), 3)
    assert sorted(np.concatenate(groups).tolist()) == list(range(6))
    assert any({1, 2, 3} <= set(group.tolist()) for group in groups)  # equal values stay together
    predicted = np.repeat([0, 1], 100)
    given = np.where(np.arange(200) % 10 == 0, 1 - predicted, predicted)
    scores = Scores(predicted, np.full(200, 0.5), np.linspace(0.6, 0.9, 200), np.full(200, 0.7))
    T = count_transition(scores, given, 2)
    assert T.sum(axis=1) == pytest.approx([1, 1]) and np.diagonal(T) == pytest.approx([0.9, 0.9], abs=0.03)
    scaled = scale_transition(T, np.array([0.5, 0.5]), 0.3)
    assert 1 - np.diagonal(scaled).mean() == pytest.approx(0.3)


@pytest.mark.parametrize("pattern", ["symmetric", "pair"])
def test_the_confusions_of_many_classes_are_counted_if_they_are_few(pattern):
    classes, n, ratio = 60, 6000, 0.3
    rng = np.random.default_rng(0)
    truth = np.arange(n) % classes
    given = noise.corrupt(truth, theory.matrix(pattern, classes, ratio), rng)
    scores = score_probabilities(given, predictions(truth, 0.1, rng, classes=classes))
    found, true = count_transition(scores, given, classes), theory.matrix(pattern, classes, ratio)
    assert found.sum(axis=1) == pytest.approx(np.ones(classes))
    assert np.abs(found - true).sum(axis=1).mean() / 2 < 0.15
    next_class = found[np.arange(classes), (np.arange(classes) + 1) % classes].mean()
    assert next_class > 0.2 if pattern == "pair" else next_class < 0.02


def test_the_concentration_follows_how_evenly_labels_are_spread():
    even, one = np.ones((20, 20)) - np.eye(20), 5 * np.roll(np.eye(20), 1, axis=1)
    assert concentration(even) > 100 * concentration(one)
    assert concentration(1e8 * one) < 10  # bounded memory
    assert np.isfinite(concentration(np.zeros((3, 3)))) and np.isfinite(concentration(np.zeros((1, 1))))


def test_classifiers_that_own_classifiers_give_a_wide_interval_at_heavy_noise() -> None:
    """Two classifiers of selected samples that are wrong 1.6 times as often as they disagree."""
    rng, n = np.random.default_rng(3), 20_000
    truth = rng.integers(0, CLASSES, n)
    given = noise.corrupt(truth, theory.symmetric(CLASSES, 0.7), rng)
    wrong = (truth + rng.integers(1, CLASSES, n)) % CLASSES
    shared, apart = rng.random(n) < 0.3, rng.random((2, n)) < 0.15
    scores = []
    for own in apart:
        probs = np.full((n, CLASSES), 0.3 / (CLASSES - 1))
        probs[np.arange(n), np.where(shared, wrong, np.where(own, (truth + 1) % CLASSES, truth))] = 0.7
        scores.append(score_probabilities(given, probs))
    opinions = TwoOpinions(scores[0], scores[1], given)
    estimate = fit_noise_model(scores[0], given, CLASSES, opinions=opinions).estimate
    assert estimate.low <= np.mean(given != truth) <= estimate.high
    assert estimate.trust is not Trust.TRUSTWORTHY


def test_the_interval_allows_that_labels_do_not_follow_from_the_columns() -> None:
    """No label is wrong, but half of them are chance between two classes; classifiers predict the likelier one."""
    rng, n = np.random.default_rng(8), 6000
    likelier, level = rng.integers(0, CLASSES, n), np.where(rng.random(n) < 0.5, 0.98, rng.uniform(0.55, 0.75, n))
    truth = np.where(rng.random(n) < level, likelier, (likelier + 1) % CLASSES)
    probs = np.full((n, CLASSES), 0.0)
    probs[np.arange(n), likelier], probs[np.arange(n), (likelier + 1) % CLASSES] = level, 1 - level
    scores = score_probabilities(truth, probs)
    opinions = TwoOpinions(scores, scores, truth)
    others, networks = (
        fit_noise_model(scores, truth, CLASSES, opinions=opinions, own_classifiers=share).estimate
        for share in (True, False)
    )
    assert others.low == 0 and others.trust is Trust.ROUGH and others.ratio == networks.ratio
    assert networks.low > 0.1


@pytest.mark.parametrize("model", [KNeighborsClassifier(1), DecisionTreeClassifier(random_state=0)])
@pytest.mark.parametrize("ratio", [0.0, 0.2])
def test_mistakes_of_a_classifier_that_is_always_sure_are_no_proof_of_wrong_labels(model, ratio):
    x, truth = load_breast_cancer(return_X_y=True)
    given = noise.corrupt(truth, theory.symmetric(2, ratio), rng=0)
    found = find_wrong_labels(given, cross_val_predict(model, x, given, cv=3, method="predict_proba"))
    assert found.noise_interval[0] <= np.mean(given != truth) <= found.noise_interval[1]
    assert found.trust is not Trust.TRUSTWORTHY


def test_a_rare_class_does_not_make_good_predictions_look_like_chance():
    rng = np.random.default_rng(0)
    truth = (rng.random(2000) < 0.05).astype(int)
    given = noise.corrupt(truth, theory.symmetric(2, 0.3), rng=1)
    assert not agrees_by_chance(truth, given, 2)
    random = [agrees_by_chance(rng.permutation(truth), given, 2) for _ in range(300)]
    assert np.mean(random) > 0.98
    assert agrees_by_chance(np.zeros(2000, dtype=int), given, 2)


@pytest.mark.parametrize("samples", [300, 6000])
def test_a_good_classifier_bounds_the_noise_from_below(samples: int) -> None:
    """Also in small data: among the 40 surest labels alone, chance would decide."""
    lows = []
    for seed in range(10):
        truth, given, probs, rng = case(n=samples, ratio=0.25, error=0.02, seed=seed)
        halves = [score_probabilities(given, predictions(truth, 0.02, rng)) for _ in range(2)]
        scores = denoise(score_probabilities(given, probs), given, CLASSES)
        opinions = TwoOpinions(*halves, given)
        estimate = fit_noise_model(scores, given, CLASSES, opinions=opinions, own_classifiers=True).estimate
        copied = fit_noise_model(scores, given, CLASSES, opinions=opinions, own_classifiers=True, distinct=0.2).estimate
        assert copied.low < estimate.low <= np.mean(given != truth) <= estimate.high
        lows.append(estimate.low)
    assert np.mean(lows) > 0.1


def test_disagreement_is_the_error_in_the_mean_not_at_each_confidence() -> None:
    """Clean labels. Two classifiers share the mistakes of sure predictions and disagree too often on the others."""
    rng, n = np.random.default_rng(6), 6000
    truth = rng.integers(0, CLASSES, n)
    sure, draw, wrong = np.arange(n) < n // 2, rng.random(n), (truth + 1) % CLASSES
    errors = (draw < 0.3, np.where(sure, draw < 0.3, draw > 0.7))  # 0.3 of both; disagreement 0 and 0.6
    level = np.where(sure, 0.95, 0.55)
    first, second = (Scores(np.where(e, wrong, truth), level, level, -np.log(level)) for e in errors)
    confidence = rng.uniform(0.5, 1.0, n)
    predicted = np.where(rng.random(n) < confidence, truth, wrong)
    scores = Scores(predicted, confidence, confidence, -np.log(confidence))
    estimate = fit_noise_model(scores, truth, CLASSES, opinions=TwoOpinions(first, second, truth)).estimate
    assert estimate.ratio < 0.05


def test_wrong_predictions_meet_wrong_labels_more_often_if_noise_goes_to_one_class() -> None:
    rng, n = np.random.default_rng(4), 6000
    truth = rng.integers(0, CLASSES, n)
    first, second = (
        np.where(rng.random(n) < 0.1, (truth + rng.integers(1, CLASSES, n)) % CLASSES, truth) for _ in range(2)
    )
    scores = [Scores(p, np.full(n, 0.5), np.full(n, 0.9), np.full(n, 0.7)) for p in (first, second)]
    even = TwoOpinions(scores[0], scores[1], noise.corrupt(truth, theory.symmetric(CLASSES, 0.3), rng))
    assert even.chance_to_meet(CLASSES) == pytest.approx(1 / (CLASSES - 1), abs=0.02)
    beside = (np.where(rng.random(n) < 0.1, (truth + 1) % CLASSES, truth) for _ in range(2))
    scores = [Scores(p, np.full(n, 0.5), np.full(n, 0.9), np.full(n, 0.7)) for p in beside]
    pair = TwoOpinions(scores[0], scores[1], noise.corrupt(truth, theory.pair(CLASSES, 0.3), rng))
    # Which of two confused classes is the true one is not known, so that half of the confusions count.
    assert pair.chance_to_meet(CLASSES) == pytest.approx(0.5, abs=0.03)


def test_opinions_of_random_samples_bound_the_noise_of_a_weak_classifier() -> None:
    """Its surest predictions are often wrong, so that clean labels seem to be wrong."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, CLASSES, 3000)

    def weak() -> Scores:  # wrong on half of the samples at every confidence
        wrong = (truth + rng.integers(1, CLASSES, len(truth))) % CLASSES
        predicted = np.where(rng.random(len(truth)) < 0.5, truth, wrong)
        probs = np.full((len(truth), CLASSES), 0.05)
        probs[np.arange(len(truth)), predicted] = 0.6 + 0.2 * rng.random(len(truth))
        return score_probabilities(truth, probs / probs.sum(axis=1, keepdims=True))

    scores, opinions = weak(), TwoOpinions(weak(), weak(), truth, of_random_parts=True)
    bounded = fit_noise_model(scores, truth, CLASSES).estimate
    assert bounded.low > 0.1  # no label is wrong
    measured = fit_noise_model(scores, truth, CLASSES, opinions=opinions).estimate
    assert measured.low == 0 and measured.ratio < bounded.ratio - 0.1 and measured.trust is Trust.ROUGH


@pytest.mark.parametrize(
    ("right", "networks", "comparable"),
    [(0.94, False, True), (0.8, False, False), (0.8, True, True), (0.6, True, False)],
)
def test_classifiers_of_fewer_samples_measure_the_error_if_they_are_about_as_good(right, networks, comparable) -> None:
    truth = np.arange(2000) % CLASSES
    usual = excess_agreement(truth, truth, CLASSES)
    good, worse = (np.where(np.arange(2000) < share * 2000, truth, (truth + 1) % CLASSES) for share in (1.0, right))
    scores = [Scores(p, np.full(2000, 0.5), np.full(2000, 0.9), np.full(2000, 0.7)) for p in (good, worse)]
    for pair in (scores, scores[::-1]):
        assert TwoOpinions(*pair, truth).are_comparable(usual, CLASSES, networks=networks) is comparable


def earlier(ratio: float, low: float, high: float) -> NoiseEstimate:
    return NoiseEstimate(ratio, low, high, Trust.ROUGH, None, "", 0.1)


def test_the_surest_labels_are_not_wrong_more_often_than_a_weak_classifier_allows() -> None:
    _, given, probs, _ = case(ratio=0.3)
    scores = score_probabilities(given, probs)
    first = fit_noise_model(scores, given, CLASSES).estimate
    weak = NoiseEstimate.from_record(replace(earlier(0.1, 0.0, 0.4), surest_limit=0.1).record())
    model = fit_noise_model(scores, given, CLASSES, earlier=weak)
    assert first.ratio > 0.2 and model.estimate.ratio == pytest.approx(0.1, abs=0.005)
    assert model.noise.mean() == pytest.approx(0.1, abs=0.01) and model.estimate.surest_limit == 0.1


@pytest.mark.parametrize("first", [0.74, 0.6])  # too high, too low
def test_the_surest_labels_correct_an_earlier_ratio_of_strong_noise(first: float) -> None:
    truth, given, probs, _ = case(n=20_000, ratio=0.7, error=0.4)
    scores = score_probabilities(given, probs)
    model = fit_noise_model(scores, given, CLASSES, earlier=earlier(first, 0.4, 0.9))
    right = np.mean(scores.predicted == truth)
    assert model.estimate.ratio == pytest.approx(np.mean(given != truth), abs=0.025)
    assert model.accuracy_at(scores.confidence).mean() == pytest.approx(right, abs=0.1)
    assert (model.estimate.low, model.estimate.high) == (0.4, 0.9)


def test_an_earlier_estimate_stays_known() -> None:
    """Only the first predictions can show that labels are random: later classifiers saw chosen labels."""
    _, given, probs, rng = case(n=400)
    scores = score_probabilities(given, probs[rng.permutation(len(probs))])
    assert fit_noise_model(scores, given, CLASSES).estimate.why_unknown is WhyUnknown.RANDOM
    assert fit_noise_model(scores, given, CLASSES, earlier=earlier(0.5, 0.2, 0.9)).estimate.known


def test_the_last_estimate_of_a_history_counts() -> None:
    lines = [{"estimate": earlier(ratio, 0.0, 1.0).record()} for ratio in (0.1, 0.2)]
    ratios = [NoiseEstimate.of_history(part).ratio for part in (lines, [lines[0], {}], (lines[1], {"estimate": None}))]  # type: ignore[union-attr]
    assert ratios == [0.2, 0.1, 0.2]
    for damaged in (None, [], 5, "abc", ["x"], [{"estimate": "x"}], [{"iteration": 1}]):
        assert NoiseEstimate.of_history(damaged) is None


def test_an_earlier_ratio_stays_if_the_surest_labels_allow_it() -> None:
    """People mislabel hard samples: the surest labels say nothing about the others."""
    _, given, probs, rng = case(ratio=0.0, error=0.1)
    hard = probs.max(axis=1) < np.median(probs.max(axis=1))
    given = np.where(hard & (rng.random(len(given)) < 0.3), (given + 1) % CLASSES, given)
    scores = score_probabilities(given, probs)
    for ratio in (0.1, 0.15):
        model = fit_noise_model(scores, given, CLASSES, earlier=earlier(ratio, 0.05, 0.3))
        assert model.estimate.ratio == pytest.approx(ratio, abs=0.005)
