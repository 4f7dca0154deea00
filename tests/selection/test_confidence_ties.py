"""A classifier that is equally sure of most samples does not tell its own mistakes from wrong labels, and says so."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import Perceptron
from sklearn.model_selection import cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from labelsieve import INCV, find_wrong_labels, noise, theory
from labelsieve.selection.confidence_ties import Confident, surest, ties_among
from labelsieve.selection.estimate import NoiseEstimate, estimate_from_scores, most_confident
from labelsieve.types import Scores


def digits(eps: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, true = load_digits(return_X_y=True)
    return x, true, noise.corrupt(true, theory.symmetric(10, eps), np.random.default_rng(0)) if eps else true


def scores(predicted: np.ndarray, confidence: np.ndarray, runner_up: np.ndarray | None = None) -> Scores:
    told = {}
    if runner_up is not None:
        next_one = (predicted + 1) % (predicted.max() + 1)
        told["leaders"] = np.stack([predicted, next_one], axis=1).astype(np.int32)
        told["shares"] = np.stack([confidence, runner_up], axis=1).astype(np.float32)
    return Scores(predicted, confidence, confidence, -np.log(np.maximum(confidence, 1e-12)), **told)


def estimate(looks: Scores, given: np.ndarray, c: int = 4, second: Scores | None = None) -> NoiseEstimate:
    other = None if second is None else [second]
    return estimate_from_scores([looks], [given], c, seed=0, method="test", second=other)


def planted(eps: float, mistakes: float, n: int = 4000, c: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What a classifier predicts, the labels, and where it is mistaken."""
    rng = np.random.default_rng(0)
    true = np.arange(n) % c
    given = np.where(rng.random(n) < eps, (true + rng.integers(1, c, n)) % c, true)
    mistaken = rng.random(n) < mistakes
    return np.where(mistaken, (true + 1) % c, true), given, mistaken


def test_stored_predictions_of_a_tree_change_no_label() -> None:
    x, true, given = digits(0.2)
    probs = cross_val_predict(DecisionTreeClassifier(random_state=0), x, given, cv=5, method="predict_proba")
    found = find_wrong_labels(given, probs)
    assert not found.noise_known and "noise not known, the classifier gives its highest confidence" in str(found)
    assert found.noise_interval[0] == 0 and found.noise_interval[1] > np.mean(given != true)
    np.testing.assert_array_equal(found.suggested, given)


def test_the_scale_of_a_decision_function_hides_no_order() -> None:
    """A perceptron's softmax is 1 for nearly all digits; its margins still tell which are the surest."""
    x, true, given = digits(0.2)
    incv = INCV(Perceptron(), random_state=0, n_iterations=1).fit(x, given)
    told = incv.history_[0]["estimate"]
    assert incv.noise_known_ and told["low"] <= np.mean(given != true) <= told["high"] < 0.3
    clean = INCV(Perceptron(), random_state=0, n_iterations=1).fit(x, true)
    assert clean.noise_ratio_ < 0.01 and clean.removed_.sum() < 10


def test_votes_of_ten_neighbours_are_graded_enough() -> None:
    x, true = load_breast_cancer(return_X_y=True)
    given = noise.corrupt(true, theory.symmetric(2, 0.2), np.random.default_rng(0))
    incv = INCV(make_pipeline(StandardScaler(), KNeighborsClassifier(10)), random_state=0).fit(x, given)
    assert incv.noise_known_ and incv.notes_[0].partition("; ")[2].startswith("trustworthy")
    assert incv.noise_ratio_ == pytest.approx(np.mean(given != true), abs=0.04)


@pytest.mark.parametrize("saturated", [0.5, 1.0])
def test_a_good_network_may_be_certain(saturated: float) -> None:
    """1.0 in single precision for half of the samples, or all, and right on 99 %: nothing is at stake."""
    predicted, given, _ = planted(0.0, 0.01)
    graded = np.linspace(0.5, 0.99, len(given))
    confidence = np.where(np.arange(len(given)) % 100 < 100 * saturated, 1.0, graded).astype(np.float32)
    found = estimate(scores(predicted, confidence), given)
    assert found.explanation.startswith("trustworthy") and found.ratio < 0.02 and found.known
    if saturated == 1.0:
        assert found.low == 0 < found.ratio  # these may be its own mistakes


def test_single_precision_is_told_apart_by_what_it_leaves_to_the_others() -> None:
    predicted, given, mistaken = planted(0.2, 0.06)
    rng = np.random.default_rng(1)
    left = np.where(mistaken, 10 ** rng.uniform(-10, -8.5, len(given)), 10 ** rng.uniform(-14, -9, len(given)))
    certain = np.ones(len(given), dtype=np.float32)
    tied = estimate(scores(predicted, certain), given)
    assert not tied.known and tied.ratio == pytest.approx(0.25, abs=0.02) and tied.low == 0
    graded = estimate(scores(predicted, certain, left), given)
    assert graded.known and graded.explanation.startswith(("trustworthy", "fair")) and graded.counts.sum() < 410
    assert graded.low < 0.2 < graded.high and graded.ratio < tied.ratio


def test_a_few_equal_ones_change_nothing() -> None:
    """Votes of a hundred trees come in steps of 0.01: all that are at the limit count, and nothing is said of it."""
    predicted, given, _ = planted(0.2, 0.03)
    votes = np.round(np.random.default_rng(2).beta(5, 2, len(given)), 2)
    looks = scores(predicted, votes, np.random.default_rng(3).uniform(0, 0.1, len(given)))
    for label in range(4):
        members = np.flatnonzero(predicted == label)
        limit = np.sort(votes[members])[-int(np.ceil(0.1 * len(members)))]
        np.testing.assert_array_equal(surest(looks, members, int(np.ceil(0.1 * len(members)))), votes[members] >= limit)
    found = estimate(looks, given)
    assert found.known and found.counts.sum() > 400
    assert found.low > 0.1


@pytest.mark.parametrize(
    ("share", "contradicted", "known"),
    [(0.7, 0.02, True), (0.7, 0.15, False), (0.97, 0.02, False)],
    ids=["coarse", "coarse, and another one sees it otherwise", "not graded"],
)
def test_coarse_votes_stand_where_another_look_seldom_contradicts(
    share: float, contradicted: float, known: bool
) -> None:
    predicted, given, _ = planted(0.2, 0.0)
    rng = np.random.default_rng(4)
    votes = np.where(rng.random(len(given)) < share, 1.0, rng.uniform(0.5, 0.9, len(given)))
    other = np.where(rng.random(len(given)) < contradicted, (predicted + 1) % 4, predicted)
    assert not estimate(scores(predicted, votes), given).known  # nobody else was asked
    found = estimate(scores(predicted, votes), given, second=scores(other, votes))
    assert found.known == known and (found.low > 0.15) == known


def test_ties_are_seen_in_one_class_and_in_all_together() -> None:
    predicted, given, _ = planted(0.3, 0.0)
    rng = np.random.default_rng(5)
    graded = rng.uniform(0.5, 0.99, len(given))

    def stake(votes: np.ndarray) -> float:
        looks = scores(predicted, votes)
        found = most_confident(looks, 4)
        assert isinstance(found, Confident) and found.meant.tolist() == [100] * 4 and found.there.tolist() == [1000] * 4
        return ties_among([found], [looks], None, [given], np.full(4, 0.075)).stake

    assert stake(graded) == 0
    assert stake(np.where(predicted == 2, 1.0, graded)) == pytest.approx(0.075)
    # Two thirds of all: three classes entirely, of the fourth a third, by itself too few.
    most = np.where((predicted < 3) | (rng.random(len(given)) < 0.33), 1.0, graded)
    assert stake(most) == pytest.approx(0.3)


def test_no_more_is_called_the_most_than_can_be_known() -> None:
    """Under heavy pair noise the classifier repeats wrong labels, which then are no disagreement."""
    x, true, _ = digits(0.0)
    given = noise.corrupt(true, theory.pair(10, 0.45), np.random.default_rng(0))
    note = INCV(random_state=0, n_iterations=1).fit(x, given).notes_[0]
    assert np.mean(given != true) > 0.45
    assert (
        "of the labels are wrong, unless it repeats wrong ones" in note
        and "with the classifier's own mistakes)" in note
    )
    assert note.count("at most") == note.count("unless")
