"""Undoing the noise in what a network predicts: exact where it can be, left alone where there is nothing to undo."""

from __future__ import annotations

import numpy as np
import pytest

from labelsieve import metrics, noise, theory
from labelsieve.selection import invert_noise as unmix
from labelsieve.selection.estimate import estimate_from_scores
from labelsieve.selection.incv import incv_steps
from labelsieve.selection.joint_counts import selected_pairs
from labelsieve.selection.run_selection import drive
from labelsieve.selection.settings import INCVSettings
from labelsieve.types import LEADERS, Scores


def looks(probs, given):
    order = np.argsort(-probs, axis=1, kind="stable")[:, :LEADERS]
    of_given = probs[np.arange(len(given)), given]
    shares = np.take_along_axis(probs, order, axis=1)
    return Scores(order[:, 0], of_given, shares[:, 0], -np.log(of_given), order, shares)


def softmax(levels):
    e = np.exp(levels - levels.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_a_sure_posterior_comes_back():
    T = theory.pair(4, 0.4)
    p = np.eye(4)[[0, 1, 2, 3]]
    q = p @ ((1 - unmix.SMOOTHING) * T + unmix.SMOOTHING / 4)
    found = unmix.unmixed(looks(q, np.array([1, 1, 3, 0])), np.array([1, 1, 3, 0]), T)
    assert found.predicted.tolist() == [0, 1, 2, 3]
    assert (found.confidence > 0.85).all() and found.probability[0] < 0.1


def test_the_next_class_no_longer_wins_by_a_little():
    q = np.array([[0.48, 0.5, 0.01, 0.01]])  # a picture of class 0, whose next class is a little ahead
    given = np.array([1])
    assert looks(q, given).predicted == 1
    assert unmix.unmixed(looks(q, given), given, theory.pair(4, 0.4)).predicted == 0
    assert unmix.unmixed(looks(q, given), given, theory.symmetric(4, 0.4)).predicted == 1


def test_symmetric_noise_changes_no_prediction():
    rng = np.random.default_rng(0)
    q, given = rng.dirichlet(np.ones(6), 300), rng.integers(0, 6, 300)
    before = looks(q, given)
    after = unmix.unmixed(before, given, theory.symmetric(6, 0.5))
    assert np.array_equal(before.predicted, after.predicted)
    np.testing.assert_allclose(after.shares[:, 0], after.confidence)


def test_blocks_change_nothing(monkeypatch):
    rng = np.random.default_rng(1)
    q, given = rng.dirichlet(np.ones(5), 23), rng.integers(0, 5, 23)
    whole = unmix.unmixed(looks(q, given), given, theory.pair(5, 0.3))
    monkeypatch.setattr(unmix, "BLOCK_CELLS", 35)
    for name, array in unmix.unmixed(looks(q, given), given, theory.pair(5, 0.3)).arrays().items():
        np.testing.assert_allclose(array, getattr(whole, name), rtol=1e-12)


def test_what_cannot_be_undone():
    assert unmix.can_unmix(theory.pair(10, 0.4)) and unmix.can_unmix(theory.symmetric(10, 0.5))
    assert not unmix.can_unmix(theory.symmetric(10, 0.9))  # labels say nothing
    assert not unmix.can_unmix(np.eye(unmix.MOST_CLASSES + 1))


class NoisyPosterior:
    """What a network that learnt T perfectly says, but for its own mistakes: softmax of noisy levels, times T."""

    def __init__(self, true, transition, classes, sure=2.5):
        self.true, self.transition, self.classes, self.sure = true, transition, classes, sure

    def train_and_score(self, jobs):
        answers = []
        for job in jobs:
            rng = np.random.default_rng(job.seed)
            levels = self.sure * np.eye(self.classes)[self.true[job.score]] + rng.normal(
                0, 1, (len(job.score), self.classes)
            )
            answers.append(looks(softmax(levels) @ self.transition, job.labels[job.score]))
        return answers


@pytest.mark.parametrize("pattern", ["pair", "symmetric"])
def test_a_selection_under_pair_noise_gets_better_and_no_other_worse(pattern, monkeypatch):
    rng = np.random.default_rng(3)
    true = rng.integers(0, 6, 3000)
    T = theory.matrix(pattern, 6, 0.4)
    given = np.asarray(noise.corrupt(true, T, rng))
    found = {}
    for on in (False, True):
        if not on:
            monkeypatch.setattr(unmix, "can_unmix", lambda transition: False)
        state = []
        selection = drive(
            incv_steps(
                given, 6, settings=INCVSettings(n_iterations=1, remove_ratio=0.0), seed=0, on_iteration=state.append
            ),
            NoisyPosterior(true, T, 6),
        )
        monkeypatch.undo()
        found[on] = (
            metrics.label_precision(selection.selected, given, true),
            metrics.label_recall(selection.selected, given, true),
        )
        assert state[0].unmixes == (on and pattern == "pair")
    if pattern == "pair":
        assert found[True][0] > found[False][0] + 0.02 and found[True][1] > found[False][1] + 0.02, found
    else:
        assert found[True] == found[False]


def test_without_more_agreement_it_stays_as_it_is():
    rng = np.random.default_rng(4)
    true = rng.integers(0, 4, 400)
    given = np.asarray(noise.corrupt(true, theory.pair(4, 0.2), rng))
    sure = 0.97 * np.eye(4)[true] + 0.0075  # nothing of the noise in it
    answers = [looks(sure, given)]
    estimate = estimate_from_scores(answers, [given], 4, seed=0, method="")
    found, changed = unmix.better_unmixed(answers, [given], estimate)
    assert not changed and found[0] is answers[0]


def test_selected_pairs_by_hand():
    M = np.array([[60.0, 40.0], [10.0, 90.0]])  # true class, given label
    P = np.array([[0.9, 0.2], [0.1, 0.8]])  # predicted, true class
    found = selected_pairs(P @ M, M, P)
    np.testing.assert_allclose(found, [[54, 4], [2, 72]])
    np.testing.assert_allclose(found.sum(0), np.diagonal(P @ M))


def test_a_label_is_right_by_bayes():
    T = np.array([[0.6, 0.4, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    p = np.array([[0.7, 0.2, 0.1], [0.7, 0.2, 0.1]])
    given = np.array([0, 1])
    found = unmix.label_right(looks(p, given), given, T)
    smooth = 0.98 * T + 0.02 / 3
    for row, j in enumerate(given):
        assert found[row] == pytest.approx(p[row, j] * smooth[j, j] / (p[row] @ smooth[:, j]), abs=1e-6)
    assert found[1] < 0.5 < found[0]  # what zeros are called is doubted, a zero that was not called so is not


def test_even_noise_leaves_the_order_of_the_probabilities():
    rng = np.random.default_rng(0)
    p, given = rng.dirichlet(np.ones(4), 200), rng.integers(0, 4, 200)
    found = unmix.label_right(looks(p, given), given, theory.symmetric(4, 0.3))
    assert np.array_equal(np.argsort(found), np.argsort(p[np.arange(200), given]))
