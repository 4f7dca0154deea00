"""Closed forms compared with hand-computed cases, identities and simulations of Claim 1."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelsieve import theory
from labelsieve.errors import InputError

steady = settings(deadline=None, max_examples=60)  # no time limit on a busy machine

HAND = np.array([[0.5, 0.5, 0.0], [0.1, 0.8, 0.1], [0.0, 0.0, 1.0]])
shares = st.floats(0, 1)
classes = st.integers(2, 50)


def random_matrix(rng: np.random.Generator, c: int) -> np.ndarray:
    """Draw transition matrices with flat, peaked and diagonal rows."""
    t = rng.dirichlet(np.full(c, rng.choice([0.2, 1.0, 5.0])), size=c)
    keep = rng.uniform(0, 0.9)
    return (1 - keep) * t + keep * np.eye(c)


@st.composite
def matrices(draw: st.DrawFn) -> np.ndarray:
    return random_matrix(np.random.default_rng(draw(st.integers(0, 2**32))), draw(classes))


# ---------------------------------------------------------------- by hand


def test_propositions_by_hand() -> None:
    np.testing.assert_allclose(theory.class_test_accuracy(HAND), [0.5, 0.66, 1.0], atol=1e-15)
    np.testing.assert_allclose(theory.class_label_precision(HAND), [0.5, 0.64 / 0.66, 1.0], atol=1e-15)
    np.testing.assert_allclose(theory.class_label_recall(HAND), [0.5, 0.8, 1.0], atol=1e-15)
    assert theory.test_accuracy(HAND) == pytest.approx(2.16 / 3, abs=1e-15)
    assert theory.label_precision(HAND) == pytest.approx(1.89 / 2.16, abs=1e-15)
    assert theory.label_recall(HAND) == pytest.approx(1.89 / 2.3, abs=1e-15)
    prior = [0.5, 0.5, 0.0]
    assert theory.test_accuracy(HAND, prior) == pytest.approx(0.58, abs=1e-15)
    assert theory.label_precision(HAND, prior) == pytest.approx(0.445 / 0.58, abs=1e-15)
    assert theory.label_recall(HAND, prior) == pytest.approx(0.445 / 0.65, abs=1e-15)
    gain = theory.selection_gain(HAND, prior)
    assert (gain.source, gain.selected) == pytest.approx((0.35, 1 - 0.445 / 0.58), abs=1e-15)


def test_numbers_of_the_paper_for_symmetric_noise_of_one_half() -> None:
    t = theory.symmetric(10, 0.5)
    assert theory.test_accuracy(t) == pytest.approx(0.25 + 0.25 / 9, abs=1e-15)
    assert theory.label_precision(t) == pytest.approx(0.9, abs=1e-15)
    assert theory.label_recall(t) == pytest.approx(0.5, abs=1e-15)


def test_matrices_by_hand() -> None:
    np.testing.assert_allclose(
        theory.symmetric(3, 0.4), [[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]], atol=1e-15
    )
    np.testing.assert_allclose(theory.pair(3, 0.4), [[0.6, 0.4, 0], [0, 0.6, 0.4], [0.4, 0, 0.6]], atol=1e-15)
    np.testing.assert_allclose(theory.symmetric_inclusive(2, 0.5), [[0.75, 0.25], [0.25, 0.75]], atol=1e-15)
    t = theory.cifar10_map(0.4)
    moved = {(int(i), int(j)) for i, j in np.argwhere(t > 0) if i != j}
    assert moved == {(9, 1), (2, 0), (4, 7), (3, 5), (5, 3)}
    assert theory.selection_gain(t).source == pytest.approx(0.2)
    # "50 %" that can redraw the true class is a noise ratio of 45 %.
    assert theory.selection_gain(theory.symmetric_inclusive(10, 0.5)).source == pytest.approx(0.45)


# ---------------------------------------------------------------- identities


@steady
@given(classes, shares)
def test_matrices_are_row_stochastic(c: int, eps: float) -> None:
    for make in (theory.symmetric, theory.symmetric_inclusive, theory.pair):
        t = make(c, eps)
        np.testing.assert_allclose(t.sum(axis=1), 1, atol=1e-12)
        assert (t >= 0).all()
    np.testing.assert_allclose(theory.cifar10_map(eps).sum(axis=1), 1, atol=1e-12)


@steady
@given(matrices())
def test_everything_follows_from_the_joint_distribution(t: np.ndarray) -> None:
    joint = t[:, :, None] * t[:, None, :]  # P(predicted j, given k | true i); claim 1: predictions are distributed as T
    diagonal = np.arange(len(t))
    agree = joint[:, diagonal, diagonal]
    np.testing.assert_allclose(theory.class_test_accuracy(t), agree.sum(axis=1), atol=1e-12)
    right = agree[diagonal, diagonal]
    np.testing.assert_allclose(theory.class_label_precision(t) * agree.sum(axis=1), right, atol=1e-12)
    np.testing.assert_allclose(theory.class_label_recall(t) * np.diagonal(t), right, atol=1e-12)


@steady
@given(matrices(), st.integers(0, 2**32))
def test_over_all_classes_is_the_prior_weighted_ratio(t: np.ndarray, seed: int) -> None:
    prior = np.random.default_rng(seed).dirichlet(np.ones(len(t)))
    diagonal = np.diagonal(t)
    accuracy = sum(p * sum(v * v for v in row) for p, row in zip(prior, t, strict=True))
    kept = sum(p * d * d for p, d in zip(prior, diagonal, strict=True))
    assert abs(theory.test_accuracy(t, prior) - accuracy) < 1e-12
    assert abs(theory.label_precision(t, prior) - kept / accuracy) < 1e-12
    assert abs(theory.label_recall(t, prior) - kept / (prior @ diagonal)) < 1e-12
    assert abs(theory.selection_gain(t, prior).selected + theory.label_precision(t, prior) - 1) < 1e-12
    uniform = np.full(len(t), 1 / len(t))
    assert abs(theory.label_precision(t) - theory.label_precision(t, uniform)) < 1e-12


@steady
@given(classes, shares)
def test_corollaries_equal_the_propositions(c: int, eps: float) -> None:
    for pattern, accuracy in (("symmetric", (1 - eps) ** 2 + eps**2 / (c - 1)), ("pair", (1 - eps) ** 2 + eps**2)):
        t = theory.matrix(pattern, c, eps)
        assert abs(theory.test_accuracy(t) - accuracy) < 1e-12
        assert abs(theory.label_precision(t) - (1 - eps) ** 2 / accuracy) < 1e-12
        assert abs(theory.label_recall(t) - (1 - eps)) < 1e-12
        np.testing.assert_allclose(theory.class_label_precision(t), theory.label_precision(t), atol=1e-12)


@steady
@given(matrices())
def test_bounds_hold_for_every_class(t: np.ndarray) -> None:
    for t_ii, precision in zip(theory.class_label_recall(t), theory.class_label_precision(t), strict=True):
        low, high = theory.label_precision_bounds(min(float(t_ii), 1.0), len(t))
        assert low - 1e-12 <= precision <= high + 1e-12


@pytest.mark.parametrize("c", [3, 10, 50])
@pytest.mark.parametrize("eps", [0.1, 0.5, 0.7])
def test_pair_attains_the_low_bound_and_symmetric_the_high(c: int, eps: float) -> None:
    low, high = theory.label_precision_bounds(1 - eps, c)
    assert theory.class_label_precision(theory.pair(c, eps))[0] == pytest.approx(low, abs=1e-12)
    assert theory.class_label_precision(theory.symmetric(c, eps))[0] == pytest.approx(high, abs=1e-12)


def test_bounds_are_equal_in_special_cases() -> None:
    assert theory.label_precision_bounds(0.7, 2)[0] == theory.label_precision_bounds(0.7, 2)[1]
    assert theory.label_precision_bounds(0, 10) == (0.0, 0.0)
    assert theory.label_precision_bounds(1, 10) == (1.0, 1.0)


# ---------------------------------------------------------------- a selected set is cleaner than its source


@steady
@given(matrices(), st.integers(0, 2**32))
def test_selection_is_never_noisier_if_the_diagonal_is_largest(t: np.ndarray, seed: int) -> None:
    prior = np.random.default_rng(seed).dirichlet(np.ones(len(t)))
    lead = t.copy()
    for i, row in enumerate(lead):  # swap the largest entry of each row onto the diagonal
        k = int(row.argmax())
        row[[i, k]] = row[[k, i]]
    gain = theory.selection_gain(lead, prior)
    assert gain.guaranteed
    assert gain.selected <= gain.source + 1e-12
    assert gain.by == gain.source - gain.selected


def test_gain_by_hand() -> None:
    gain = theory.selection_gain(theory.symmetric(10, 0.5))
    assert gain.cleaner and gain.guaranteed
    assert (gain.source, gain.selected, gain.by) == pytest.approx((0.5, 0.1, 0.4))
    dirty = theory.selection_gain(theory.pair(10, 0.6))
    assert not dirty.cleaner and not dirty.guaranteed and dirty.by < 0
    # Selection can help even if the diagonal is not the largest value in every class.
    mixed = theory.selection_gain([[0.4, 0.6], [0.0, 1.0]])
    assert mixed.cleaner == (mixed.selected < mixed.source) and not mixed.guaranteed
    for t in (np.eye(4), theory.pair(10, 0.5), theory.symmetric(10, 0.9)):
        assert not theory.selection_gain(t).cleaner  # equal, not cleaner


# ---------------------------------------------------------------- the inverse of Eq. 4 and Eq. 5


@steady
@given(classes, shares)
def test_inverse_gives_back_the_accuracy(c: int, where: float) -> None:
    for pattern in ("symmetric", "pair"):
        lowest = theory.ratio_from_accuracy(1.0, c, pattern).reach[0]
        accuracy = lowest + where * (1 - lowest)
        eps = theory.noise_ratio(accuracy, c, pattern)
        assert 0 <= eps <= 1
        assert abs(theory.test_accuracy(theory.matrix(pattern, c, eps)) - accuracy) < 1e-12


@steady
@given(classes, st.floats(0, 0.95))
def test_inverse_gives_back_the_ratio(c: int, share_of_reach: float) -> None:
    for pattern, vertex in (("symmetric", (c - 1) / c), ("pair", 0.5)):
        eps = share_of_reach * vertex
        assert abs(theory.noise_ratio(theory.test_accuracy(theory.matrix(pattern, c, eps)), c, pattern) - eps) < 1e-12


def test_inverse_equals_the_formula_of_the_authors() -> None:
    c, a = 10, 0.4
    assert theory.noise_ratio(a, c) == pytest.approx(
        (c - 1) / c * (1 - math.sqrt(1 - (1 - a) * c / (c - 1))), abs=1e-15
    )
    assert theory.noise_ratio(0.68, 2, "pair") == pytest.approx(0.2, abs=1e-15)
    with pytest.raises(InputError, match="cifar10-map"):
        theory.noise_ratio(0.7, 10, "cifar10-map")
    assert theory.noise_ratio(1.0, 10) == 0.0


def test_inverse_warns_if_the_accuracy_is_out_of_reach() -> None:
    with pytest.warns(theory.OutOfReachWarning, match=r"0\.05 is below 0\.1.*0\.9"):
        assert theory.noise_ratio(0.05, 10) == pytest.approx(0.9)
    with pytest.warns(theory.OutOfReachWarning, match="pair"):
        assert theory.noise_ratio(0.3, 10, "pair") == 0.5
    estimate = theory.ratio_from_accuracy(0.3, 10, "pair")
    assert estimate == (0.5, False, (0.5, 1.0))
    assert theory.ratio_from_accuracy(0.1, 10).in_reach  # the limit is in reach: eps = 0.9


# ---------------------------------------------------------------- simulation of claim 1


def simulate(t: np.ndarray, prior: np.ndarray, n: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Draw true classes, given labels and predictions; label and prediction are independent draws from row T_i."""
    true = rng.choice(len(t), size=n, p=prior)
    thresholds = np.cumsum(t, axis=1)
    draws = [np.minimum((rng.random((n, 1)) > thresholds[true]).sum(axis=1), len(t) - 1) for _ in range(2)]
    return true, draws[0], draws[1]


def close(hits: int, trials: int, expected: float) -> bool:
    """Check that a proportion is within 5 standard errors of its expectation."""
    if trials == 0:
        return True
    return abs(hits / trials - expected) <= 5 * math.sqrt(max(expected * (1 - expected), 1 / trials) / trials)


def check_simulation(t: np.ndarray, prior: np.ndarray, rng: np.random.Generator, n: int = 6000) -> None:
    true, given_label, predicted = simulate(t, prior, n, rng)
    selected, clean = predicted == given_label, given_label == true
    both = selected & clean
    assert close(int(selected.sum()), n, theory.test_accuracy(t, prior))
    assert close(int(both.sum()), int(selected.sum()), theory.label_precision(t, prior))
    assert close(int(both.sum()), int(clean.sum()), theory.label_recall(t, prior))
    largest = int(np.bincount(true, minlength=len(t)).argmax())
    of = true == largest
    assert close(int((both & of).sum()), int((selected & of).sum()), theory.class_label_precision(t)[largest])
    assert close(int((both & of).sum()), int((clean & of).sum()), theory.class_label_recall(t)[largest])
    assert close(int((selected & of).sum()), int(of.sum()), theory.class_test_accuracy(t)[largest])


def test_theory_matches_simulation_for_200_random_matrices() -> None:
    rng = np.random.default_rng(20)
    for _ in range(200):
        c = int(rng.integers(2, 51))
        check_simulation(random_matrix(rng, c), rng.dirichlet(np.full(c, 3.0)), rng)


@pytest.mark.parametrize("pattern", ["symmetric", "pair"])
@pytest.mark.parametrize("c", [2, 10, 50])
@pytest.mark.parametrize("eps", [0.0, 0.2, 0.5, 0.8])
def test_theory_matches_simulation_for_both_patterns(pattern: str, c: int, eps: float) -> None:
    check_simulation(theory.matrix(pattern, c, eps), np.full(c, 1 / c), np.random.default_rng(int(100 * eps) + c))


# ---------------------------------------------------------------- invalid input


@pytest.mark.parametrize(
    ("t", "message"),
    [
        ([[0.5, 0.5], [0.5, 0.4]], r"T: row 1 sums to 0\.9, not 1"),
        ([[1.5, -0.5], [0, 1]], r"T: entry \[0, 1\] is -0\.5"),
        ([[0.5, 0.5]], "square"),
        ([[1.0]], "at least 2 classes"),
        ([[0.5, np.nan], [0, 1]], "row 0 holds a value that is NaN"),
        ([[0.5, np.inf], [0, 1]], "row 0"),
        ([[0.5, 0.5], [1.0]], "ragged"),
        ([["a", "b"], ["c", "d"]], "numbers"),
    ],
)
def test_invalid_matrices_are_refused(t: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        theory.label_precision(t)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [-0.1, 1.1, float("nan"), float("inf"), "0.4", None, True])
def test_ratio_outside_the_unit_interval(bad: object) -> None:
    for call in (
        lambda: theory.symmetric(10, bad),  # type: ignore[arg-type]
        lambda: theory.pair(10, bad),  # type: ignore[arg-type]
        lambda: theory.symmetric_inclusive(10, bad),  # type: ignore[arg-type]
        lambda: theory.cifar10_map(bad),  # type: ignore[arg-type]
        lambda: theory.noise_ratio(bad, 10),  # type: ignore[arg-type]
        lambda: theory.label_precision_bounds(bad, 10),  # type: ignore[arg-type]
    ):
        with pytest.raises(InputError):
            call()


def test_other_bad_arguments() -> None:
    with pytest.raises(InputError, match="at least 2"):
        theory.symmetric(1, 0.1)
    with pytest.raises(InputError, match=r"asym.*symmetric"):
        theory.matrix("asym", 10, 0.1)
    with pytest.raises(InputError, match="asym"):
        theory.noise_ratio(0.5, 10, "asym")
    with pytest.raises(InputError, match="10 classes, not 3"):
        theory.matrix("cifar10-map", 3, 0.1)
    with pytest.raises(InputError, match=r"prior: sums to 0\.9"):
        theory.test_accuracy(HAND, [0.3, 0.3, 0.3])
    with pytest.raises(InputError, match="prior: expected 3"):
        theory.test_accuracy(HAND, [0.5, 0.5])
    with pytest.raises(InputError, match="not negative"):
        theory.test_accuracy(HAND, [1.5, -0.5, 0])
    assert issubclass(InputError, ValueError)


def test_arguments_are_not_changed_or_shared() -> None:
    t = HAND.copy()
    theory.class_label_recall(t)[0] = 9
    theory.check_transition_matrix(t)[0, 0] = 9
    np.testing.assert_array_equal(t, HAND)


@steady
@given(matrices())
def test_summary_is_json_and_consistent(t: np.ndarray) -> None:
    import json

    text = json.loads(json.dumps(theory.summary(t)))
    assert text["classes"] == len(t)
    assert text["label_precision"] == pytest.approx(1 - text["selected_noise_ratio"], abs=1e-12)
    assert len(text["class_bounds"]) == len(t)


def test_a_set_without_clean_labels() -> None:
    t = theory.pair(3, 1.0)
    assert (theory.label_precision(t), theory.label_recall(t), theory.test_accuracy(t)) == (0.0, 0.0, 1.0)
