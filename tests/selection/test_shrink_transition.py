"""T-hat from counted labels: chance is taken out, what is there stays."""

import numpy as np
import pytest

from labelsieve import theory
from labelsieve.selection.shrink_transition import rows_to_one, transition_from_counts, uneven

EVEN = np.full(10, 0.1)


def drawn(T, labels, seed):
    return np.random.default_rng(seed).multinomial(labels, T).astype(float)


def row_error(found, T):
    return np.abs(found - T).sum(axis=1).mean()


def test_rows_by_hand():
    assert rows_to_one(np.array([[3.0, 1.0], [0.0, 0.0]])).tolist() == [[0.75, 0.25], [0.0, 1.0]]


@pytest.mark.parametrize(("pattern", "expected"), [("pair", True), ("symmetric", False)])
def test_chance_is_not_unevenness(pattern, expected):
    T = theory.matrix(pattern, 5, 0.4)
    found = [uneven(drawn(T, 40, seed)) for seed in range(50)]
    assert np.mean(found) == 1 if expected else np.mean(found) < 0.1


@pytest.mark.parametrize("eps", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("labels", [50, 500])
def test_even_noise_is_read_far_better_than_its_rows_one_by_one(eps, labels):
    T = theory.symmetric(10, eps)
    alone, shared = zip(
        *((row_error(rows_to_one(n), T), row_error(transition_from_counts(n, EVEN, EVEN), T))
          for n in (drawn(T, labels, seed) for seed in range(20))),
        strict=True,
    )  # fmt: skip
    assert np.mean(shared) < 0.5 * np.mean(alone)


@pytest.mark.parametrize("T", [theory.pair(10, 0.4), theory.cifar10_map(0.4), theory.pair(10, 0.1), np.eye(10)])
def test_uneven_noise_stays_as_it_was_counted(T):
    for seed in range(10):
        counts = drawn(T, 500, seed)
        assert row_error(transition_from_counts(counts, EVEN, EVEN), T) < row_error(rows_to_one(counts), T) + 0.01


@pytest.mark.parametrize("T", [theory.symmetric(10, 0.6), theory.cifar10_map(0.4), theory.symmetric_inclusive(10, 1.0)])
@pytest.mark.parametrize("labels", [np.full(10, 200), np.array([1000, 500, 200, 100, 50, 20, 20, 5, 1, 0])])
def test_a_transition_matrix_with_the_counted_ratio(T, labels):
    counts = np.stack(
        [np.random.default_rng(i).multinomial(n, row) for i, (n, row) in enumerate(zip(labels, T, strict=True))]
    )
    prior = labels / labels.sum()
    found = transition_from_counts(counts.astype(float), prior, prior)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1)
    counted = prior @ (1 - np.diagonal(rows_to_one(counts.astype(float))))
    assert prior @ (1 - np.diagonal(found)) == pytest.approx(counted)


def test_a_rare_class_borrows_more_than_a_common_one():
    counts = np.array([[300.0, 50, 50], [60, 280, 60], [0, 0, 2]])  # two right labels do not make a class without noise
    found = transition_from_counts(counts, np.array([0.5, 0.49, 0.01]), np.full(3, 1 / 3))
    assert found[2, 2] < 0.85
    np.testing.assert_allclose(found[:2], rows_to_one(counts)[:2], atol=0.03)


def test_two_classes_nothing_counted_and_no_noise():
    T = transition_from_counts(np.array([[80.0, 20], [40, 60]]), *np.full((2, 2), 0.5))
    np.testing.assert_allclose(T, [[0.8, 0.2], [0.4, 0.6]], atol=0.03)
    assert np.array_equal(transition_from_counts(np.zeros((3, 3)), *np.full((2, 3), 1 / 3)), np.eye(3))
    assert np.array_equal(transition_from_counts(np.diag([5.0, 9, 0]), *np.tile([0.4, 0.6, 0], (2, 1))), np.eye(3))


def test_no_more_noise_goes_to_a_class_than_there_are_labels_of_it():
    counts = np.array([[16.0, 2, 2, 0], [2, 16, 2, 0], [2, 3, 15, 0], [0, 0, 0, 0]])  # the last one is never predicted
    prior, given = np.array([0.3, 0.4, 0.3, 0.0]), np.array([0.3, 0.4, 0.29, 0.01])
    found = transition_from_counts(counts, prior, given)
    assert (prior @ found)[3] < 0.015  # 0.01 of all labels; an even spread would say 0.07
    assert found[3, 3] == pytest.approx(1 - 13 / 60, abs=0.01)  # as the others
