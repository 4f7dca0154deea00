"""Flags, suspicion and suggestions, which all follow from one posterior."""

from __future__ import annotations

import numpy as np
import pytest

from labelsieve import find_wrong_labels, metrics, select_clean
from labelsieve.selection.posterior import calibrate, confusions, flag_labels
from tests.selection.test_noise_model import CLASSES, case


@pytest.mark.parametrize(("pattern", "ratio"), [("symmetric", 0.2), ("pair", 0.3), ("symmetric", 0.05)])
def test_suspicion_is_a_calibrated_probability(pattern, ratio):
    truth, given, probs, _ = case(ratio=ratio, pattern=pattern)
    wrong = given != truth
    found = find_wrong_labels(given, probs)
    assert ((found.suspicion >= 0) & (found.suspicion <= 1)).all()
    assert found.suspicion.mean() == pytest.approx(wrong.mean(), abs=0.03)
    order = np.argsort(found.suspicion)
    gaps = [abs(found.suspicion[part].mean() - wrong[part].mean()) for part in np.array_split(order, 10)]
    assert np.mean(gaps) < 0.05
    assert metrics.auroc(wrong, found.suspicion) > 0.95


def test_flags_are_no_worse_than_the_plain_rule():
    for seed, error in enumerate((0.02, 0.1, 0.25)):
        truth, given, probs, _ = case(ratio=0.15, error=error, seed=seed)
        wrong, found = given != truth, find_wrong_labels(given, probs)
        flags, plain = (
            metrics.detection(wrong, f, found.suspicion).f1 for f in (found.wrong, ~select_clean(given, probs))
        )
        assert flags >= plain - 0.01


def test_almost_clean_labels_are_hardly_flagged():
    _, given, probs, _ = case(ratio=0.0, error=0.01)
    assert find_wrong_labels(given, probs).wrong.mean() <= 0.02


def test_samples_of_no_class_get_no_suggestion():
    truth, given, probs, rng = case(n=3000, ratio=0.1, error=0.02)
    odd = np.arange(3000) < 150
    probs[odd] = rng.dirichlet(np.full(CLASSES, 8.0), 150)  # nothing fits
    found = find_wrong_labels(given, probs)
    assert found.no_class[odd].sum() > 3 * found.no_class[~odd].sum()
    assert (found.suggested[found.no_class] == -1).all() and found.wrong[found.no_class].all()
    names = np.array(list("abcde"))
    named = find_wrong_labels(names[given], probs)
    assert (named.suggested[named.no_class] == "").all() and np.array_equal(named.no_class, found.no_class)
    replaced = (found.wrong & ~found.no_class & (given != truth) & ~odd).nonzero()[0]
    assert np.mean(found.suggested[replaced] == truth[replaced]) > 0.9


def test_calibrated_levels_keep_the_order_and_ties():
    rng = np.random.default_rng(0)
    order = np.round(rng.random(500), 2)
    suspicion = calibrate(order, np.clip(order + rng.normal(0, 0.2, 500), 0, 1))
    ranked = np.argsort(order, kind="stable")
    assert (np.diff(suspicion[ranked]) >= 0).all()
    assert len(np.unique(suspicion)) == len(np.unique(order))  # nothing is clipped together, equal ones stay equal
    assert np.isnan(calibrate(np.array([np.nan, 0.5]), np.array([0.1, 0.2]))).tolist() == [True, False]


def test_flags_have_the_largest_expected_f1():
    suspicion = np.array([0.9, 0.8, 0.3, 0.05, 0.01])
    assert flag_labels(suspicion).tolist() == [True, True, False, False, False]
    assert not flag_labels(np.array([0.2, 0.1, 0.0])).any()  # all are more likely right
    assert not flag_labels(np.zeros(4)).any() and flag_labels(np.array([np.nan, 0.9])).tolist() == [False, True]


def test_confusions_are_even_for_a_class_without_counted_ones():
    spread = confusions(np.array([[0.8, 0.15, 0.05], [0.0, 1.0, 0.0], [0.1, 0.1, 0.8]]))
    assert spread == pytest.approx(np.array([[0, 0.75, 0.25], [0.5, 0, 0.5], [0.5, 0.5, 0]]))


def test_few_wrong_labels_of_many_keep_a_high_suspicion():
    rng = np.random.default_rng(0)
    order = rng.uniform(0, 0.5, 20_000)
    wrong = order / 100
    order[:20], wrong[:20] = rng.uniform(0.9, 1, 20), 0.95
    suspicion = calibrate(order, wrong)
    assert (suspicion[:20] > 0.5).all() and np.median(suspicion[:20]) > 0.9 and suspicion[20:].max() < 0.5
    assert suspicion.mean() == pytest.approx(wrong.mean(), abs=0.002)
