from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import nnls

from labelsieve import theory
from labelsieve.selection.joint_counts import expected_right, left_over, non_negative_least_squares


@pytest.mark.parametrize("c", [2, 5, 20])
def test_least_squares_as_scipy(c):
    rng = np.random.default_rng(c)
    M = 100 * rng.dirichlet(np.ones(c), size=c)
    J = 30 * rng.random((c, c))
    expected = np.array([nnls(M.T, row)[0] for row in J])
    found = non_negative_least_squares(M, J)
    assert (found >= 0).all()
    residual = np.linalg.norm(found @ M - J)
    assert residual == pytest.approx(np.linalg.norm(expected @ M - J), rel=1e-6)


def test_nothing_in_gives_nothing():
    assert not non_negative_least_squares(np.zeros((3, 3)), np.ones((3, 3))).any()


@pytest.mark.parametrize("transition", [theory.symmetric(4, 0.4), theory.pair(4, 0.3)])
def test_right_labels_and_what_is_left_are_exact_without_sampling_error(transition):
    prior = np.array([0.1, 0.2, 0.3, 0.4])
    M = 1000 * prior[:, None] * transition
    P = np.full((4, 4), 0.05) + 0.8 * np.eye(4)  # columns: P(predicted | true)
    J = P @ M
    right, found = expected_right(J, M)
    assert found == pytest.approx(P, abs=1e-5)
    assert right == pytest.approx(float(np.diagonal(P) @ np.diagonal(M)), rel=1e-5)
    stay = 1 - np.eye(4)  # all that disagree stay candidates
    left = left_over(M, found, J, stay, stay)
    by_hand = np.array([[M[i, j] * (1 - P[j, i]) for j in range(4)] for i in range(4)])
    assert left == pytest.approx(by_hand, rel=1e-4)
    # A second round, with another classifier, over what is left.
    Q = np.full((4, 4), 0.1) + 0.6 * np.eye(4)
    again, _ = expected_right(Q @ left, left)
    assert again == pytest.approx(float(np.diagonal(Q) @ np.diagonal(left)), rel=1e-3)


def test_what_is_removed_is_taken_from_the_wrong_labels_when_it_is_known_to_be_wrong():
    M = 1000 * np.full(3, 1 / 3)[:, None] * theory.symmetric(3, 0.4)
    P = np.full((3, 3), 0.1) + 0.7 * np.eye(3)
    apart = 1 - np.eye(3)
    left = left_over(M, P, P @ M, apart, 0.5 * apart)
    assert np.diagonal(left) == pytest.approx(np.diagonal(M) * 0.2, rel=1e-6)  # right labels that were not predicted
    assert left[0, 1] == pytest.approx(M[0, 1] * 0.9 / 2, rel=1e-6)
