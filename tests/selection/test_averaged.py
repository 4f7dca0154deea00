"""Several splits: the average by hand, and that INCV asks for and uses them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import settings as how
from hypothesis import strategies as st

from labelsieve import INCV, metrics, noise, theory
from labelsieve.errors import InputError
from labelsieve.selection import splits as averaging
from labelsieve.selection.incv import drive, incv_steps
from labelsieve.selection.settings import INCVSettings
from labelsieve.selection.splits import average_scores, over_first_split
from labelsieve.types import Scores


def looks_of(probs, given):
    rows = np.arange(len(given))
    predicted = probs.argmax(1)
    p, q = probs[rows, given], probs[rows, predicted]
    return Scores(predicted, p, q, -np.log(p))


def test_two_looks_at_two_samples_by_hand():
    given = np.array([0, 2])
    one = Scores(np.array([1, 2]), np.array([0.2, 0.9]), np.array([0.6, 0.9]), np.zeros(2))
    two = Scores(np.array([0, 2]), np.array([0.9, 0.5]), np.array([0.9, 0.5]), np.zeros(2))
    found = average_scores([one, two], given, 3)
    # sample 0: class 0 has (0.2, 0.9), class 1 (0.6, 0.05), class 2 (0.2, 0.05)
    top_probs = np.sqrt([0.2 * 0.9, 0.6 * 0.05, 0.2 * 0.05])
    assert found.predicted.tolist() == [0, 2]
    np.testing.assert_allclose(found.confidence[0], top_probs[0] / top_probs.sum())
    top_probs = np.sqrt([0.05 * 0.25, 0.05 * 0.25, 0.9 * 0.5])
    np.testing.assert_allclose(found.confidence[1], top_probs[2] / top_probs.sum())
    np.testing.assert_allclose(found.probability, found.confidence)
    np.testing.assert_allclose(found.loss, -np.log(found.probability))


@how(deadline=None, max_examples=60)
@examples(st.integers(2, 6), st.integers(1, 5), st.integers(0, 10**6))
def test_the_label_does_not_move_the_prediction(classes, repeats, seed):
    rng = np.random.default_rng(seed)
    probs = [0.98 * rng.dirichlet(np.full(classes, 0.5), 40) + 0.02 / classes for _ in range(repeats)]
    labels = rng.integers(0, classes, (2, 40))
    first, second = (average_scores([looks_of(p, y) for p in probs], y, classes) for y in labels)
    assert np.array_equal(first.predicted, second.predicted)
    np.testing.assert_allclose(first.confidence, second.confidence)
    for found, y in ((first, labels[0]), (second, labels[1])):
        assert (found.probability <= found.confidence + 1e-12).all() and (found.probability > 0).all()
        assert (found.confidence <= 1 + 1e-9).all()
        assert (found.probability[found.predicted == y] == found.confidence[found.predicted == y]).all()
    if classes == 2:  # nothing is left out: the average of the whole probabilities
        whole = np.mean(np.log(probs), axis=0)
        assert np.array_equal(first.predicted, whole.argmax(1))
        np.testing.assert_allclose(
            first.confidence, (np.exp(whole) / np.exp(whole).sum(1, keepdims=True)).max(1), atol=1e-6
        )


def with_leaders(probs, given, count):
    order = np.argsort(-probs, axis=1, kind="stable")[:, :count]
    look = looks_of(probs, given)
    return Scores(**look.arrays(), top_classes=order, top_probs=np.take_along_axis(probs, order, axis=1))


@how(deadline=None, max_examples=60)
@examples(st.integers(2, 4), st.integers(1, 4), st.integers(0, 10**6))
def test_with_all_classes_told_it_is_the_mean_of_the_log_probabilities(classes, repeats, seed):
    rng = np.random.default_rng(seed)
    probs = [0.98 * rng.dirichlet(np.full(classes, 0.5), 30) + 0.02 / classes for _ in range(repeats)]
    given = rng.integers(0, classes, 30)
    found = average_scores([with_leaders(p, given, classes) for p in probs], given, classes)
    whole = np.exp(np.mean(np.log(probs), axis=0))
    whole /= whole.sum(1, keepdims=True)
    assert np.array_equal(found.predicted, whole.argmax(1))
    np.testing.assert_allclose(found.confidence, whole.max(1), rtol=1e-6)
    np.testing.assert_allclose(np.sort(found.top_probs, axis=1), np.sort(whole, axis=1), rtol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(whole, found.top_classes, axis=1), found.top_probs, rtol=1e-6)


def test_blocks_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    given = rng.integers(0, 5, 23)
    looks = [with_leaders(rng.dirichlet(np.ones(5), 23), given, 3) for _ in range(2)]
    whole = average_scores(looks, given, 5)
    monkeypatch.setattr(averaging, "BLOCK", 7)
    for name, array in average_scores(looks, given, 5).arrays().items():
        assert np.array_equal(array, getattr(whole, name))


def test_a_runner_up_may_win_the_average():
    given = np.zeros(1, dtype=np.int64)
    looks = [np.array([[0.5, 0.45, 0.03, 0.02]]), np.array([[0.02, 0.45, 0.03, 0.5]])]
    assert average_scores([with_leaders(p, given, 2) for p in looks], given, 4).predicted == 1
    without = [with_leaders(p, given, 1) for p in looks]  # no prediction has class 1
    assert average_scores(without, given, 4).predicted != 1


def test_every_sample_is_averaged_with_itself():
    splits = [(np.array([1, 5, 9]), np.array([2, 7])), (np.array([2, 9]), np.array([1, 5, 7]))]
    labels = np.zeros(10, dtype=np.int64)

    def sure(samples, bonus):
        q = 0.5 + np.asarray(samples) / 100 + bonus
        return Scores(np.asarray(samples), q, q, -np.log(q))  # predicts the sample's own number

    answers = [sure(half, 0.1 * s) for s, split in enumerate(splits) for half in split]
    found = over_first_split(splits, answers, labels, 10)
    assert [part.predicted.tolist() for part in found] == [[1, 5, 9], [2, 7]]
    alone = over_first_split(splits[:1], answers[:2], labels, 10)
    assert alone[0] is answers[0] and alone[1] is answers[1]


class Noticing:
    """Right half of the time, independently each time; remembers what it was asked."""

    def __init__(self, true, classes):
        self.true, self.classes, self.asked = true, classes, []

    def train_and_score(self, jobs):
        self.asked.append(jobs)
        answers = []
        for job in jobs:
            assert not set(job.train) & set(job.score)
            rng = np.random.default_rng(job.seed)
            right = rng.random(len(job.score)) < 0.5
            other = (self.true[job.score] + rng.integers(1, self.classes, len(job.score))) % self.classes
            predicted = np.where(right, self.true[job.score], other)
            q = np.where(right, 0.8, 0.6)
            p = np.where(predicted == job.labels[job.score], q, (1 - q) / (self.classes - 1))
            answers.append(Scores(predicted, p, q, -np.log(p)))
        return answers


def test_more_splits_select_more_and_better():
    rng = np.random.default_rng(0)
    true = rng.integers(0, 4, 800)
    labels = np.asarray(noise.corrupt(true, theory.symmetric(4, 0.3), rng))
    found = {}
    for repeats in (1, 5):
        trainer = Noticing(true, 4)
        settings = INCVSettings(n_iterations=1, repeats=repeats)
        found[repeats] = drive(incv_steps(labels, 4, settings=settings, seed=3), trainer)
        assert [len(jobs) for jobs in trainer.asked] == [2 * repeats, 2 * repeats + 4]
        names = [job.name for jobs in trainer.asked for job in jobs]
        assert len(set(names)) == len(names) and names[:2] == ["incv-1-1", "incv-1-2"]
        assert len({job.seed for jobs in trainer.asked for job in jobs}) == 4 * repeats + 4
        for jobs in trainer.asked:
            for k in range(repeats):
                both = np.concatenate([jobs[2 * k].score, jobs[2 * k + 1].score])
                assert np.array_equal(np.sort(both), np.arange(800))
    once, often = (
        (
            metrics.label_precision(s.selected, labels, true),
            metrics.label_recall(s.selected, labels, true),
        )
        for s in found.values()
    )
    assert often[0] > once[0] + 0.02 and often[1] > once[1] + 0.1, (once, often)


def test_repeats_in_python_and_what_is_refused():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    x = rng.normal(size=(60, 2)) + 5 * y[:, None]
    assert INCV("nearest", repeats=2, random_state=0).fit(x, y).selected_.mean() > 0.9
    with pytest.raises(InputError, match="repeats is 0: choose"):
        INCV(repeats=0).fit(x, y)
    with pytest.raises(InputError, match="one split"):
        INCVSettings(repeats=2, protocol="paper")
