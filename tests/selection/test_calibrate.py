"""A probability that a label is wrong: does it mean what it says?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st

from labelsieve import metrics, noise, scoring, theory
from labelsieve.execute.sklearn_trainer import SklearnTrainer
from labelsieve.selection.calibrate import (
    alike,
    calibrated_suspicion,
    judge,
    mistaken_for,
    rising,
    shifted_to,
    shrunk,
)
from labelsieve.selection.incv import incv_steps
from labelsieve.selection.run_selection import drive
from labelsieve.selection.settings import INCVSettings
from labelsieve.types import Scores


def world(T, *, n=12_000, hard=1.2, sharpness=1.0, seed=0):
    """Samples whose true posterior is known, a classifier whose confidence is off by `sharpness`, noisy labels."""
    rng = np.random.default_rng(seed)
    c = len(T)
    true = rng.integers(c, size=n)
    x = rng.normal(0, hard, (n, c)) + np.eye(c)[true] * 3
    odds = 3 * x / hard**2
    probs = np.exp(odds * sharpness - (odds * sharpness).max(1, keepdims=True))
    probs /= probs.sum(1, keepdims=True)
    label = noise.corrupt(true, T, rng)
    predicted = probs.argmax(1)
    rows = np.arange(n)
    return true, label, predicted, probs[rows, label], probs[rows, predicted]


def calibration_error(probability, wrong, bins=15):
    which = np.minimum((probability * bins).astype(int), bins - 1)
    return sum(
        np.mean(which == b) * abs(probability[which == b].mean() - wrong[which == b].mean()) for b in np.unique(which)
    )


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 3.0])
@pytest.mark.parametrize(("pattern", "ratio"), [("symmetric", 0.3), ("symmetric", 0.6), ("pair", 0.3)])
def test_it_means_what_it_says_however_confident_the_classifier(pattern, ratio, sharpness):
    T = theory.matrix(pattern, 5, ratio)
    true, label, predicted, p, q = world(T, sharpness=sharpness)
    found = judge(label, predicted, p, q, T, np.full(5, 0.2))
    wrong = label != true
    raw = scoring.suspicion_from_scores(p, q, agrees=predicted == label)
    assert found.wrong.mean() == pytest.approx(wrong.mean(), abs=0.02)
    assert calibration_error(found.wrong, wrong) < 0.045
    assert calibration_error(found.wrong, wrong) < calibration_error(raw, wrong)
    assert metrics.auroc(wrong, found.wrong) > metrics.auroc(wrong, raw) - 0.004
    suggestion_right = predicted == true
    assert calibration_error(found.suggested, suggestion_right) < 0.05


def test_clean_data_are_hardly_suspected_where_the_classifier_errs():
    true, label, predicted, p, q = world(np.eye(4), hard=2.0)
    assert np.mean(predicted != true) > 0.1
    found = judge(label, predicted, p, q, np.eye(4), np.full(4, 0.25))
    assert np.mean(found.wrong > 0.5) < 0.01
    assert np.mean(scoring.suspicion_from_scores(p, q, agrees=predicted == label) > 0.5) > 0.1


def test_a_noise_that_is_not_there_would_show():
    """The test of calibration can fail: with another T the probabilities are off."""
    true, label, predicted, p, q = world(theory.symmetric(5, 0.5))
    found = judge(label, predicted, p, q, theory.symmetric(5, 0.2), np.full(5, 0.2))
    assert calibration_error(found.wrong, label != true) > 0.1


def test_two_classes_by_hand():
    """All equally confident, T known: P(right | agree) = a T_ii / A, P(right | differ) = (1 - a) T_jj / (1 - A)."""
    rng = np.random.default_rng(0)
    T, a, n = theory.symmetric(2, 0.25), 0.9, 40_000
    true = rng.integers(2, size=n)
    predicted = np.where(rng.random(n) < a, true, 1 - true)
    label = noise.corrupt(true, T, rng)
    agrees = label == predicted
    found = judge(label, predicted, np.where(agrees, 0.8, 0.2), np.full(n, 0.8), T, np.full(2, 0.5))
    agreement = 0.9 * 0.75 + 0.1 * 0.25
    np.testing.assert_allclose(found.wrong[agrees], 1 - 0.9 * 0.75 / agreement, atol=0.01)
    np.testing.assert_allclose(found.wrong[~agrees], 1 - 0.1 * 0.75 / (1 - agreement), atol=0.02)
    np.testing.assert_allclose(found.suggested[~agrees], 0.9 * 0.25 / (1 - agreement), atol=0.02)


def test_what_a_class_is_mistaken_for():
    predicted = np.repeat([0, 1, 2], 100)
    true = predicted.copy()
    true[:20] = 1  # what is taken for 0 is 1 where it is not 0
    w = mistaken_for(predicted, true, shrunk(np.eye(3), np.full(3, 1 / 3)), np.full(3, 1 / 3))
    assert w[0, 1] > 0.9 and np.diagonal(w).tolist() == [0, 0, 0]
    np.testing.assert_allclose(w.sum(1), 1)
    singular = mistaken_for(predicted, true, np.full((3, 3), 1 / 3), np.array([0.2, 0.2, 0.6]))
    np.testing.assert_allclose(singular[0], [0, 0.25, 0.75])


def test_shrinking_leaves_a_transition_matrix_that_never_says_never():
    T = np.array([[0.8, 0.2, 0.0], [0.0, 1.0, 0.0], [0.0, 0.4, 0.6]])
    found = shrunk(T, np.full(3, 1 / 3))
    np.testing.assert_allclose(found.sum(1), 1)
    assert found.min() > 0
    np.testing.assert_allclose(1 - np.diagonal(found), 0.8 * np.array([0.2, 0, 0.4]) + 0.2 * 0.2)
    np.testing.assert_allclose(shrunk(theory.symmetric(4, 0.3), np.full(4, 0.25)), theory.symmetric(4, 0.3))


@settings(deadline=None)
@examples(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 5)), min_size=1, max_size=12))
def test_rising_is_isotonic_regression(pairs):
    from sklearn.isotonic import IsotonicRegression

    values, weights = (np.array(part, dtype=float) for part in zip(*pairs, strict=True))
    expected = IsotonicRegression().fit_transform(np.arange(len(values)), values, sample_weight=weights)
    np.testing.assert_allclose(rising(values, weights), expected, atol=1e-9)


@settings(deadline=None)
@examples(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.floats(0.05, 0.95))
def test_shifted_odds_sum_as_asked_and_keep_their_order(values, share):
    p = np.array(values)
    found = shifted_to(p, share * len(p))
    assert found.sum() == pytest.approx(share * len(p), abs=1e-4)
    assert (np.diff(found[np.argsort(p, kind="stable")]) >= -1e-12).all()


def test_the_order_of_suspicion_stays_where_wrong_says_nothing_new():
    rng = np.random.default_rng(0)
    suspicion = rng.random(500)
    bad = rng.random(500) < suspicion**2
    found = calibrated_suspicion(suspicion, suspicion**2)
    assert metrics.auroc(bad, found) == pytest.approx(metrics.auroc(bad, suspicion), abs=1e-9)
    assert found.min() >= 0 and found.max() <= 1
    assert np.mean(np.abs(found - suspicion**2)) < 0.01


@pytest.mark.parametrize(("n", "bad"), [(60, 4), (180, 8), (5000, 20)])
def test_few_wrong_labels_do_not_drown_among_the_right_ones_next_to_them(n, bad):
    rng = np.random.default_rng(0)
    suspicion = np.concatenate([rng.uniform(0.05, 0.3, n - bad), rng.uniform(0.7, 0.8, bad)])
    wrong = np.concatenate([np.full(n - bad, 0.002), np.full(bad, 0.9)])
    found = calibrated_suspicion(suspicion, wrong)
    assert found[-bad:].min() > 0.7 and found[:-bad].max() < 0.2
    assert found.sum() == pytest.approx(wrong.sum(), rel=0.01)


@settings(deadline=None)
@examples(st.integers(1, 300), st.floats(0.3, 4), st.booleans(), st.integers(0, 5))
def test_as_many_are_wrong_in_all_as_was_judged(n, power, both, seed):
    rng = np.random.default_rng(seed)
    suspicion, wrong = rng.random(n), np.clip(rng.random(n) ** power, 0.001, 0.999)
    found = calibrated_suspicion(suspicion, wrong, both=both)
    assert found.sum() == pytest.approx(wrong.sum(), abs=1e-4 * n)


def test_doubtful_labels_are_not_told_apart_by_a_handful():
    """What is judged of one of thirty is mostly chance: all are as doubtful as their mean, nearly."""
    rng = np.random.default_rng(0)
    suspicion = np.concatenate([rng.uniform(0.0, 0.2, 900), rng.uniform(0.6, 0.62, 30)])
    wrong = np.concatenate([np.full(900, 1e-3), np.where(np.arange(30) < 5, 0.95, 0.05)])
    assert calibrated_suspicion(suspicion, wrong).max() < 0.5


def test_labels_of_a_class_that_is_never_predicted_take_no_wrong_ones_from_the_others():
    """They all disagree, whatever they are; T-hat was counted without them."""
    rng = np.random.default_rng(0)
    true = np.repeat([0, 1, 2], [200, 200, 30])
    label = np.where((true < 2) & (rng.random(430) < 0.1), 1 - true, true)
    predicted = np.where(true < 2, true, rng.integers(2, size=430))
    q = np.full(430, 0.8)
    p = np.where(label == predicted, q, 0.1)
    T = np.array([[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.0, 0.0, 1.0]])
    found = judge(label, predicted, p, q, T, np.array([0.5, 0.5, 0.0]))
    of_two = label == 2
    assert np.isnan(found.wrong[of_two]).all() and np.isnan(found.suggested[of_two]).all()
    bad = (label != true)[~of_two]
    assert found.wrong[~of_two].sum() == pytest.approx(bad.sum(), rel=0.15)
    assert found.wrong[~of_two][bad].min() > 0.8
    never = judge(np.full(9, 2), np.zeros(9, dtype=int), p[:9], q[:9], T, np.array([0.5, 0.5, 0.0]))
    assert not np.isnan(never.wrong).any(), "where nothing is left, all are judged"


def test_samples_never_looked_at_stay_unknown():
    found = calibrated_suspicion(np.array([0.2, np.nan, 0.9]), np.array([0.1, 0.5, np.nan]))
    assert np.isnan(found).tolist() == [False, True, True]
    assert len(judge(*(np.empty(0, dtype=int),) * 2, np.empty(0), np.empty(0), np.eye(2), np.full(2, 0.5)).wrong) == 0


# ---------------------------------------------------------------- as INCV gives it


@pytest.fixture(scope="module")
def digits():
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)


def selected_with_states(x, given, classes, seed=3):
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    states = []
    trainer = SklearnTrainer(x, make_pipeline(StandardScaler(), SVC()), classes)
    return drive(incv_steps(given, classes, seed=seed, on_iteration=states.append), trainer), states


@pytest.mark.parametrize("pattern", ["symmetric", "pair"])
def test_suspicion_is_a_probability_on_noise_the_method_was_not_settled_on(digits, pattern):
    x, true = digits
    given = np.asarray(noise.corrupt(true, theory.matrix(pattern, 10, 0.3), rng=77))
    selection, states = selected_with_states(x, given, 10)
    wrong = given != true
    assert calibration_error(selection.suspicion, wrong) < 0.05
    looks = calibration_error(states[-1].suspicion, wrong)
    assert calibration_error(selection.suspicion, wrong) < looks, "the mean over the looks is no probability"
    assert states[-1].unmixes or looks > 0.1
    assert metrics.auroc(wrong, selection.suspicion) > metrics.auroc(wrong, states[-1].suspicion) - 0.002
    doubted = selection.predicted != given
    suggested, right = selection.suggested_probability[doubted], selection.predicted[doubted] == true[doubted]
    assert suggested.mean() == pytest.approx(right.mean(), abs=0.12)
    assert (suggested <= selection.suspicion[doubted] + 1e-12).all(), "another label is right only where this is wrong"
    np.testing.assert_allclose(selection.suggested_probability[~doubted], 1 - selection.suspicion[~doubted])


def test_clean_digits_stay_clean(digits):
    x, true = digits
    selection, states = selected_with_states(x, true, 10)
    assert selection.noise_ratio <= 0.03
    assert np.mean(selection.suspicion > 0.5) < 0.005
    assert np.mean(states[-1].suspicion > 0.5) > 0.01, "what it flagged before"


def few_texts(n, classes, seed):
    """Clean-cut texts, each of three of its class's six words and two of twenty that say nothing; 8 % wrong labels."""
    rng = np.random.default_rng(seed)
    true = np.arange(n) % classes
    words = [[f"w{c}{j}" for j in rng.permutation(6)[:3]] + [f"f{j}" for j in rng.integers(20, size=2)] for c in true]
    return (
        [" ".join(found) for found in words],
        true,
        np.asarray(noise.corrupt(true, theory.symmetric(classes, 0.08), rng)),
    )


@pytest.mark.parametrize(("n", "classes"), [(60, 2), (120, 2), (180, 3)])
def test_on_few_texts_suspicion_says_what_the_noise_ratio_says(n, classes):
    from labelsieve import INCV

    read = found = changed = bad = 0.0
    for seed in range(4):
        texts, true, given = few_texts(n, classes, seed)
        incv = INCV(random_state=0).fit(texts, given)
        read += min(incv.noise_ratio_ * n, np.sum(incv.suggested_ != given))
        found += incv.suspicion_.sum()
        changed += np.sum((incv.suspicion_ > 0.5) & (given != true))
        bad += np.sum(given != true)
        assert not np.any((incv.suspicion_ > 0.5) & (given == true))
    assert found == pytest.approx(read, rel=0.2)
    assert changed > 0.7 * bad


def test_what_is_not_judged_keeps_its_plain_suspicion(digits):
    from labelsieve import NCV

    x, true = digits
    given = np.asarray(noise.corrupt(true[:300], theory.symmetric(10, 0.2), rng=0))
    told = NCV(random_state=0, protocol="paper", pattern="symmetric").fit(x[:300], given)
    assert np.isnan(told.suggested_probability_).all()
    assert ((told.suspicion_ >= 0.5) == ~told.selected_).all()
    measured = NCV(random_state=0).fit(x[:300], given)
    assert not np.isnan(measured.suggested_probability_).any()
    assert ((measured.suggested_probability_ >= 0) & (measured.suggested_probability_ <= 1)).all()


def test_more_classes_than_can_be_judged():
    from labelsieve.selection import joint_counts as joint

    classes = joint.MOST_CLASSES + 1
    given = np.arange(2 * classes) % classes

    class Knows:
        def train_and_score(self, jobs):
            sure = [np.full(len(job.score), 0.9) for job in jobs]
            return [Scores(job.labels[job.score], p, p, -np.log(p)) for job, p in zip(jobs, sure, strict=True)]

    selection = drive(incv_steps(given, classes, settings=INCVSettings(n_iterations=1), seed=0), Knows())
    np.testing.assert_allclose(selection.suspicion, 0.05)
    assert np.isnan(selection.suggested_probability).all()


def test_equal_values_are_one_group_whatever_their_order():
    groups = alike(np.array([0.5, 0.1, 0.5, 0.5, 0.9, 0.1, 0.5]), 3)
    assert [sorted(g.tolist()) for g in groups] == [[1, 5], [0, 2, 3, 4, 6]]
    assert [len(g) for g in alike(np.zeros(9), 4)] == [9]
    assert [len(g) for g in alike(np.arange(8) / 8, 4)] == [2, 2, 2, 2] and alike(np.empty(0), 3) == []
    given = np.repeat([0, 1], 100)
    predicted = given.copy()
    given[:20], given[100:120] = 1, 0  # wrong labels come first, and nothing else tells them apart
    same = {"probability": np.where(given == predicted, 0.9, 0.1), "confidence": np.full(200, 0.9)}
    found = judge(given, predicted, transition=theory.symmetric(2, 0.2), prior=np.full(2, 0.5), **same)
    assert found.wrong[given != predicted].min() > 0.9
