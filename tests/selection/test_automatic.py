"""The iterations of protocol "auto", with scripted scores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from labelsieve import INCV, metrics, noise, theory
from labelsieve.selection.automatic import PARTS, unseen_classes
from labelsieve.selection.incv import drive, incv_steps
from labelsieve.selection.settings import INCVSettings
from labelsieve.types import REMOVED, SELECTED, Job, Scores, Trainer, Trust

CLASSES = 4


class Scripted(Trainer):
    """Predicts the true class, and for some samples their given label, in iteration 1 only."""

    def __init__(self, truth: Any, fooled: Any = ()) -> None:
        self.truth, self.fooled, self.calls = np.asarray(truth), np.asarray(fooled, dtype=int), list[list[Job]]()

    def train_and_score(self, jobs: Any) -> list[Scores]:
        self.calls.append(list(jobs))
        return [self.score(job) for job in jobs]

    def score(self, job: Job) -> Scores:
        early = job.name.split("-")[1] in ("1", "estimate")
        given = job.labels[job.score]
        repeats = np.isin(job.score, self.fooled) if early else np.zeros(len(job.score), dtype=bool)
        predicted = np.where(repeats, given, self.truth[job.score])
        confidence = np.where(repeats, 0.5, 0.9)
        probability = np.where(predicted == given, confidence, (1 - confidence) / (CLASSES - 1))
        return Scores(predicted, probability, confidence, -np.log(probability))


def case(n: int = 800, wrong: int = 160) -> tuple[Any, Any]:
    """The first labels are those of the next class."""
    truth = np.arange(n) % CLASSES
    labels = truth.copy()
    labels[:wrong] = (labels[:wrong] + 1) % CLASSES
    return truth, labels


def test_later_iterations_score_every_sample_and_train_on_what_is_not_removed() -> None:
    truth, labels = case()
    trainer, states = Scripted(truth, fooled=range(20)), list[Any]()
    drive(incv_steps(labels, CLASSES, seed=0, on_iteration=states.append), trainer)
    jobs = trainer.calls[2]  # after iteration 1 and the noise estimate
    assert len(jobs) == PARTS
    assert sorted(np.concatenate([job.score for job in jobs]).tolist()) == list(range(800))
    usable = states[0].verdict != REMOVED
    assert not usable.all()
    for job in jobs:
        expected = usable.copy()
        expected[job.score] = False
        assert np.array_equal(job.train, np.flatnonzero(expected))
        assert job.epoch_samples == 400  # epochs as long as in iteration 1, which trains on halves


def test_later_iterations_train_on_a_class_that_is_hardly_predicted() -> None:
    truth, labels = case()

    class Blind(Scripted):
        def score(self, job: Job) -> Scores:
            found = super().score(job)
            given, unsure = job.labels[job.score], (self.truth[job.score] == 3) & (job.score % 20 != 3)
            predicted = np.where(unsure, 2, found.predicted)
            confidence = np.where(unsure, 0.5, found.confidence)
            probability = np.where(predicted == given, confidence, (1 - confidence) / (CLASSES - 1))
            return Scores(predicted, probability, confidence, -np.log(probability))

    trainer, states = Blind(truth), list[Any]()
    drive(incv_steps(labels, CLASSES, seed=0, on_iteration=states.append), trainer)
    kept = np.bincount(labels[states[0].verdict != REMOVED], minlength=CLASSES)
    trained = np.unique(np.concatenate([job.train for job in trainer.calls[2]]))
    assert kept[3] < 100 < np.bincount(labels[trained], minlength=CLASSES)[3]


def test_a_wrong_label_that_was_selected_is_found_later() -> None:
    truth, labels = case()
    states: list[Any] = []
    found = drive(incv_steps(labels, CLASSES, seed=0, on_iteration=states.append), Scripted(truth, fooled=range(20)))
    assert (states[0].verdict[:20] == SELECTED).all()
    assert not found.selected[:20].any()
    assert (found.iteration[:20][found.removed[:20]] > 1).all()  # the iteration since which the verdict holds
    assert (found.iteration[20:160] == 1).all() and found.removed[20:160].all()


def test_a_later_iteration_corrects_the_noise_estimate() -> None:
    truth, labels = case()
    found = drive(incv_steps(labels, CLASSES, seed=0), Scripted(truth, fooled=range(120)))
    ratios = [line["estimate"]["ratio"] for line in found.history]
    assert ratios[0] < 0.12 and ratios[-1] == pytest.approx(0.2, abs=0.03)
    assert found.noise is not None and found.noise.ratio == found.noise_ratio == ratios[-1]
    assert f"{100 * ratios[-1]:.1f} %" in found.notes[0]
    right = np.diagonal(found.transition_matrix).mean()
    assert 1 - right == pytest.approx(ratios[-1], abs=0.01)
    assert found.noise.low <= found.noise.ratio <= found.noise.high


def test_verdicts_follow_from_suspicion_and_suggestion() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, CLASSES, 1500)
    labels = np.asarray(noise.corrupt(truth, theory.symmetric(CLASSES, 0.3), rng=1))
    x = np.eye(CLASSES)[truth] + rng.normal(0, 0.35, (1500, CLASSES))
    found = INCV("logistic", random_state=0).fit(x, labels)
    agrees = found.predicted_ == labels
    assert found.selected_[agrees].all()
    assert np.array_equal(found.selected_, agrees | (found.suspicion_ < 0.5))
    assert (found.suspicion_[found.removed_] >= 0.5).all()
    assert metrics.label_precision(found.removed_, labels, truth) < 0.15


def test_nothing_is_removed_where_too_few_right_labels_would_be_left() -> None:
    class Forgetful(Scripted):
        """Without the removed labels it knows nothing."""

        def score(self, job: Job) -> Scores:
            scores = super().score(job)
            if len(job.train) > 500 or not job.name.startswith("incv-2"):
                return scores
            predicted = np.zeros(len(job.score), dtype=int)
            flat = np.full(len(job.score), 1 / CLASSES)
            return Scores(predicted, flat, flat, -np.log(flat))

    truth, labels = case()
    found = drive(incv_steps(labels, CLASSES, seed=0), Forgetful(truth))
    assert any("no samples are removed from iteration 2 on" in note for note in found.notes)
    assert not found.removed.any() and not found.selected[:160].any()
    assert (found.iteration[found.candidate] == 0).all()


def test_a_limit_removes_the_most_suspicious_ones() -> None:
    truth, labels = case()
    found = drive(incv_steps(labels, CLASSES, settings=INCVSettings(remove_ratio=0.05), seed=0), Scripted(truth))
    assert found.removed.sum() == int(0.05 * found.selected.sum())
    assert found.suspicion[found.removed].min() >= found.suspicion[found.candidate].max()
    none = drive(incv_steps(labels, CLASSES, settings=INCVSettings(remove_ratio=0.0), seed=0), Scripted(truth))
    assert not none.removed.any()


def test_members_of_a_group_are_never_on_both_sides() -> None:
    truth, labels = case()
    groups = np.arange(800) // 8
    trainer = Scripted(truth, fooled=range(20))
    drive(incv_steps(labels, CLASSES, seed=0, groups=groups), trainer)
    assert len(trainer.calls) > 2
    for job in (job for call in trainer.calls for job in call):
        assert not set(groups[job.train]) & set(groups[job.score])


@pytest.mark.parametrize(("labels", "expected"), [([0, 0, 1, 1, 2], [2]), ([0, 0, 1, 1, 0], [])])
def test_a_class_in_one_part_alone_is_unseen(labels: list[int], expected: list[int]) -> None:
    assert unseen_classes([np.array([0, 2]), np.array([1, 3, 4])], np.array(labels), 3) == expected


@pytest.mark.parametrize("networks", [False, True])
def test_classifiers_of_random_samples_measure_the_error_if_those_of_selected_ones_are_worse(networks: bool) -> None:
    truth, labels = case()

    class Worse(Scripted):
        """Trained on a part of the selected samples, it predicts one class."""

        def score(self, job: Job) -> Scores:
            found = super().score(job)
            if "-part" not in job.name:  # one confidence for all would not tell which predictions are the surest
                return replace(found, confidence=found.confidence + job.score * 37 % 101 / 1e4)
            given, predicted = job.labels[job.score], np.zeros(len(job.score), dtype=int)
            probability = np.where(given == 0, 0.9, 0.1 / (CLASSES - 1))
            return Scores(predicted, probability, found.confidence, -np.log(probability))

    trainer = Worse(truth)
    settings = INCVSettings(n_iterations=1, networks=networks)
    selection = drive(incv_steps(labels, CLASSES, settings=settings, seed=0), trainer)
    low = selection.history[0]["estimate"]["low"]
    if networks:
        assert len(trainer.calls) == 2 and low > 0.05
        return
    jobs = trainer.calls[2]
    assert [job.name.rpartition("-random-")[2] for job in jobs] == ["part1", "part2"] * 2 and low == 0
    for one, other in (jobs[:2], jobs[2:]):
        assert np.array_equal(one.score, other.score) and not np.intersect1d(one.train, other.train).size
        assert sorted([*one.train, *other.train, *one.score]) == list(range(len(labels)))


def test_small_data_with_a_good_classifier_train_no_random_parts() -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(220) % 3
    x = rng.normal(size=(220, 3)) + 4 * np.eye(3)[truth]
    given = np.asarray(noise.corrupt(truth, theory.symmetric(3, 0.2), rng))
    estimate = INCV("logistic", random_state=0, n_iterations=1).fit(x, given).history_[0]["estimate"]
    assert estimate["ratio"] == pytest.approx(np.mean(given != truth), abs=0.05)


@pytest.mark.parametrize("samples", [1500, 150])
def test_labels_that_do_not_follow_from_the_columns_may_all_be_right(samples: int) -> None:
    """The label is a coin with a known probability. With 150 samples the error of a classifier cannot be measured."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(samples, 4))
    labels = (rng.random(samples) < 1 / (1 + np.exp(-1.5 * x[:, 0]))).astype(int)
    found = INCV("logistic", random_state=0).fit(x, labels)
    assert found.noise_interval_ is not None and found.noise_interval_[0] == 0 and found.trust_ is Trust.ROUGH
