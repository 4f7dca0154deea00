"""The number of labels of each class that a training sees."""

from __future__ import annotations

import numpy as np

from labelsieve import theory
from labelsieve.class_balance import TOLERANCE, balanced, class_prior


def test_the_prior_explains_the_given_labels() -> None:
    prior, transition = np.array([0.5, 0.3, 0.2]), theory.symmetric(3, 0.3)
    labels = np.repeat(np.arange(3), np.round(10_000 * prior @ transition).astype(int))
    shares = np.bincount(labels) / len(labels)
    found = class_prior(labels, transition)
    assert np.abs(found - prior).max() < 0.2 * np.abs(shares - prior).max()


def test_a_wrong_matrix_does_not_make_a_class_vanish() -> None:
    """The shares of these labels cannot be explained: the matrix says that a third of all labels is class 2."""
    transition = np.array([[0.6, 0.1, 0.3], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]])
    labels = np.repeat([0, 1, 2], [480, 400, 120])
    assert class_prior(labels, transition)[2] > 0.01


def test_a_class_with_too_many_labels_loses_the_most_suspicious_and_one_with_too_few_gets_the_least() -> None:
    labels = np.repeat([0, 1, 2], 100)
    suspicion = np.tile(np.linspace(0, 1, 100), 3)
    chosen = np.zeros(300, dtype=bool)
    chosen[:90] = True  # 50 of each class are right
    chosen[100:105] = True
    chosen[200:250:] = True
    found = balanced(chosen, labels, suspicion, theory.symmetric(3, 0.5))
    most, least = round(50 * TOLERANCE), round(50 / TOLERANCE)
    assert np.flatnonzero(found[:100]).tolist() == list(range(most))
    assert np.flatnonzero(found[100:200]).tolist() == list(range(least))
    assert np.array_equal(found[200:], chosen[200:])


def test_chosen_labels_stay_before_others_are_added() -> None:
    labels = np.repeat([0, 1], 20)
    suspicion = np.tile(np.linspace(0, 1, 20), 2)
    chosen = labels == 1
    chosen[19] = True  # the most suspicious label of its class
    found = balanced(chosen, labels, suspicion, np.eye(2))
    assert found[19] and found[:20].sum() == round(20 / TOLERANCE) and found[20:].all()


def test_a_class_without_labels_has_none() -> None:
    labels = np.zeros(10, dtype=np.int64)
    found = balanced(np.ones(10, dtype=bool), labels, np.zeros(10), theory.symmetric(3, 0.2))
    assert found.shape == (10,) and found.sum() >= 8
