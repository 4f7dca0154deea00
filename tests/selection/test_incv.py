"""Algorithm 2 line by line with scripted scores, then invariants with any scores."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given as for_all
from hypothesis import settings as how
from hypothesis import strategies as st

from labelsieve import noise, theory
from labelsieve.errors import InputError
from labelsieve.selection.algorithm2 import largest_losses
from labelsieve.selection.incv import drive, drive_together, incv_steps, mostly_removed_classes, rare_classes
from labelsieve.selection.settings import INCVSettings, authors_best_until, authors_remove_ratio, ncv_settings
from labelsieve.selection.splits import halves, stratified_parts
from labelsieve.selection.state import INCVState, Problem
from labelsieve.types import REMOVED, Job, Scores, Trainer
from labelsieve.workflow.select import StoredAnswers

PAPER = INCVSettings(protocol="paper", pattern="symmetric")


class Scripted:
    """Predicts `truth`; `confused` samples get the next class until iteration `clears`. Loss grows with the index."""

    def __init__(self, truth, classes, confused=(), clears=2):
        self.truth, self.classes, self.confused, self.clears = np.asarray(truth), classes, set(confused), clears
        self.calls = []

    def train_and_score(self, jobs):
        self.calls.append(list(jobs))
        return [self.score(job) for job in jobs]

    def score(self, job):
        k = int(job.name.split("-")[1]) if job.name.split("-")[1].isdigit() else 1
        wrong = np.array([i in self.confused and k < self.clears for i in job.score], dtype=bool)
        predicted = (self.truth[job.score] + wrong) % self.classes
        agrees = predicted == job.labels[job.score]
        loss = np.where(agrees, 0.1, 1.0 + job.score / 1000)
        return Scores(predicted, np.exp(-loss), np.full(len(loss), 0.9), loss)


class Random(Trainer):
    """Any scores at all, a function of the job's name and seed."""

    def __init__(self, classes, skill):
        self.classes, self.skill = classes, skill

    def train_and_score(self, jobs):
        answers = []
        for job in jobs:
            rng = np.random.default_rng([job.seed, len(job.name), int(job.score.sum()) if len(job.score) else 0])
            given = job.labels[job.score]
            predicted = np.where(rng.random(len(given)) < self.skill, given, rng.integers(0, self.classes, len(given)))
            confidence = rng.uniform(1 / self.classes, 1, len(given))
            probability = np.where(predicted == given, confidence, rng.uniform(0, 1, len(given)) * (1 - confidence))
            answers.append(Scores(predicted, probability, confidence, -np.log(np.maximum(probability, 1e-12))))
        return answers


def small_case():
    """40 samples of 4 classes; the first 8 carry the label of the next class."""
    truth = np.arange(40) % 4
    labels = truth.copy()
    labels[:8] = (labels[:8] + 1) % 4
    return truth, labels


def test_paper_first_iteration_by_hand():
    truth, labels = small_case()
    trainer = Scripted(truth, 4)
    states = []
    selection = drive(incv_steps(labels, 4, settings=PAPER, seed=3, on_iteration=states.append), trainer)

    first, second = trainer.calls[0]
    # Lines 4, 5 and 10: two halves, each trains for the other; nothing is selected yet.
    assert sorted([*first.train, *second.train]) == list(range(40))
    assert np.array_equal(first.train, second.score) and np.array_equal(second.train, first.score)
    assert first.keep_best and second.keep_best
    # Lines 6 and 11: agreeing samples are selected.
    after = states[0]
    agreeing = np.arange(8, 40)
    assert np.array_equal(after.selected, agreeing)
    # Line 8: Eq. 4 from the first job's half alone.
    accuracy = np.mean(labels[first.score] == truth[first.score])
    eps = (3 / 4) * (1 - np.sqrt(1 - (1 - accuracy) * 4 / 3))
    assert after.noise_ratio == pytest.approx(eps, abs=1e-12)
    # Lines 7 and 12: in each half the r |S_k| others with the largest loss (here: the largest index), if there are.
    r = eps / (1 - eps)
    expected = []
    for job in (first, second):
        pool = [i for i in job.score if i < 8]
        count = int(r * (len(job.score) - len(pool)))
        expected += sorted(pool, reverse=True)[:count]
    assert np.array_equal(after.removed, np.sort(expected))
    assert selection.transition_matrix == pytest.approx(theory.symmetric(4, eps))
    assert selection.expected_precision == pytest.approx((1 - eps) ** 2 / ((1 - eps) ** 2 + eps**2 / 3))
    assert selection.expected_recall == pytest.approx(min(1, selection.expected_precision * 32 / (40 * (1 - eps))))
    assert (selection.iteration[selection.selected] == 1).all()


def test_later_iterations_train_on_selected_and_half_of_candidates():
    truth, labels = small_case()
    trainer = Scripted(truth, 4, confused=[20, 21, 22], clears=2)
    states = []
    settings = INCVSettings(protocol="paper", pattern="pair", n_iterations=2)
    drive(incv_steps(labels, 4, settings=settings, seed=0, on_iteration=states.append), trainer)

    assert len(states[0].removed) == 0  # r = 0 for pair noise
    assert set(states[0].candidates) == {*range(8), 20, 21, 22}
    first, second = trainer.calls[1]
    chosen = set(states[0].selected)
    assert set(first.train) == chosen | set(second.score) and set(second.train) == chosen | set(first.score)
    assert set(first.score) | set(second.score) == set(states[0].candidates)
    assert abs(len(first.score) - len(second.score)) <= 1
    assert set(states[1].selected) == chosen | {20, 21, 22}
    assert (states[1].iteration[[20, 21, 22]] == 2).all()
    assert not first.keep_best  # asymmetric: the best checkpoint selects in iteration 1 only
    # The paper starts every training from the same weights.
    assert {job.seed for call in trainer.calls for job in call} == {0}


def test_paper_protocol_ignores_groups():
    truth, labels = small_case()
    settings = INCVSettings(protocol="paper", pattern="pair", n_iterations=2)
    jobs = []
    for groups in (None, np.arange(40) // 4):
        trainer = Scripted(truth, 4, confused=[20, 21, 22], clears=2)
        drive(incv_steps(labels, 4, settings=settings, seed=0, groups=groups), trainer)
        jobs.append([(job.name, *job.train, -1, *job.score) for call in trainer.calls for job in call])
    assert jobs[0] == jobs[1]


def test_pair_noise_too_is_read_by_eq_4_and_nothing_removed():
    truth, labels = small_case()
    trainer = Scripted(truth, 4)
    selection = drive(incv_steps(labels, 4, settings=INCVSettings(protocol="paper", pattern="pair"), seed=3), trainer)
    accuracy = np.mean(labels[trainer.calls[0][0].score] == truth[trainer.calls[0][0].score])
    eps = selection.noise_ratio
    assert (1 - eps) ** 2 + eps**2 / 3 == pytest.approx(accuracy)
    assert selection.transition_matrix == pytest.approx(theory.pair(4, eps))
    assert not selection.removed.any()


def test_resumed_after_any_request_is_the_same(tmp_path):
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 5, 400)

    class Stopped(Random):
        left = 0

        def train_and_score(self, jobs):
            if not self.left:
                raise InterruptedError
            self.left -= 1
            return super().train_and_score(jobs)

    for case, settings in enumerate((PAPER, INCVSettings(), INCVSettings(remove_ratio=0.3, n_iterations=3))):
        whole = drive(incv_steps(labels, 5, settings=settings, seed=11), Random(5, 0.3))
        trainer = Stopped(5, 0.3)
        stored = StoredAnswers(trainer, tmp_path / str(case), tmp_path / "checkpoints")
        resumed = None
        while resumed is None:  # every attempt takes one request further than the one before it
            trainer.left = 1
            try:
                resumed = drive(incv_steps(labels, 5, settings=settings, seed=11), stored)
            except InterruptedError:
                assert not trainer.left
        assert np.array_equal(whole.verdict, resumed.verdict)
        assert np.array_equal(whole.suspicion, resumed.suspicion)
        assert np.array_equal(whole.suggested_probability, resumed.suggested_probability, equal_nan=True)
        assert whole.history == resumed.history and whole.notes == resumed.notes
        assert whole.expected_precision == resumed.expected_precision


def test_stored_answers_leave_the_checkpoints_of_later_requests(tmp_path):
    checkpoints = tmp_path / "checkpoints"
    stored = StoredAnswers(Random(2, 0.5), tmp_path / "answers", checkpoints)
    job = Job("first", np.array([0, 1, 0, 1]), np.array([0, 1]), np.array([2, 3]), seed=0)
    checkpoints.mkdir()
    stored.train_and_score([job])
    assert not checkpoints.exists()
    checkpoints.mkdir()  # of a later request that was stopped
    stored.train_and_score([job])
    assert checkpoints.exists()


def test_together_is_the_same_as_alone_in_fewer_calls():
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, 120)

    class Counting(Random):
        calls = 0

        def train_and_score(self, jobs):
            self.calls += 1
            return super().train_and_score(jobs)

    settings = [INCVSettings(n_iterations=1), INCVSettings(), PAPER]

    def steps():
        return [incv_steps(labels, 3, settings=s, seed=i, name=f"run{i}") for i, s in enumerate(settings)]

    alone, together = Counting(3, 0.5), Counting(3, 0.5)
    one_by_one = [drive(s, alone) for s in steps()]
    at_once = drive_together(steps(), together)
    for a, b in zip(one_by_one, at_once, strict=True):
        assert np.array_equal(a.verdict, b.verdict) and np.array_equal(a.loss, b.loss)
    assert together.calls < alone.calls
    assert drive_together([], together) == []


@how(max_examples=60, deadline=None)
@for_all(
    n=st.integers(2, 60),
    classes=st.integers(2, 6),
    skill=st.floats(0, 1),
    seed=st.integers(0, 10**6),
    remove=st.one_of(st.just("auto"), st.floats(0, 5)),
    protocol=st.sampled_from(["auto", "paper"]),
    pattern=st.sampled_from(["auto", "symmetric", "pair"]),
)
def test_invariants(n, classes, skill, seed, remove, protocol, pattern):
    labels = np.random.default_rng(seed).integers(0, classes, n)
    labels[:2] = [0, 1]
    states = []
    settings = INCVSettings(remove_ratio=remove, protocol=protocol, pattern=pattern)
    selection = drive(
        incv_steps(labels, classes, settings=settings, seed=seed, on_iteration=states.append), Random(classes, skill)
    )
    assert (selection.selected.astype(int) + selection.candidate + selection.removed == 1).all()
    agrees = selection.predicted == labels
    if protocol == "paper":
        for before, after in pairwise(states):
            assert (after.verdict[before.selected] == 1).all() and (after.verdict[before.removed] == 2).all()
        assert (selection.selected == agrees).all()
    else:
        several = np.bincount(labels, minlength=classes)[labels] > 1  # a label that no training saw is not selected
        assert selection.selected[agrees & several].all()
        others = selection.selected & ~agrees
        assert (selection.suspicion[others] < 0.5).all()
        assert (selection.suggested_probability > 1 - selection.suspicion)[selection.removed].all()
    assert ((selection.iteration == 0) == selection.candidate).all()
    assert ((selection.suspicion >= 0) & (selection.suspicion <= 1)).all()
    likely = selection.suggested_probability
    assert np.isnan(likely).all() if protocol == "paper" else ((likely >= 0) & (likely <= 1)).all()
    assert 0 <= selection.noise_ratio <= 1
    assert 0 <= selection.expected_precision <= 1 + 1e-9 and 0 <= selection.expected_recall <= 1
    assert selection.transition_matrix.sum(axis=1) == pytest.approx(np.ones(classes))
    for line in selection.history:
        if line["remove_ratio"] is not None:
            assert line["removed_total"] <= line["remove_ratio"] * line["selected_total"] + 1e-9
    json.dumps(selection.history)


def test_ncv_is_one_round_without_removal():
    truth, labels = small_case()
    trainer = Scripted(truth, 4)
    selection = drive(incv_steps(labels, 4, settings=ncv_settings(PAPER), seed=0), trainer)
    assert len(trainer.calls) == 1 and len(selection.history) == 1
    assert np.array_equal(np.flatnonzero(selection.selected), np.arange(8, 40))
    assert not selection.removed.any()


def test_auto_stops_when_nothing_is_gained():
    truth, labels = np.arange(400) % 4, np.arange(400) % 4
    labels[:80] = (labels[:80] + 1) % 4
    selection = drive(incv_steps(labels, 4, seed=0), Scripted(truth, 4))
    assert len(selection.history) == 2 and selection.history[-1]["selected"] == 0
    assert any("stopped after iteration 2" in note for note in selection.notes)


def test_rare_class_stays_candidate_whatever_its_loss():
    truth = np.array([0, 1] * 20 + [2])
    labels = truth.copy()
    labels[:8] = 1 - labels[:8]
    trainer = Scripted(np.where(truth == 2, 0, truth), 3)
    settings = INCVSettings(protocol="paper", pattern="symmetric", remove_ratio=5.0)
    selection = drive(incv_steps(labels, ["a", "b", "rare"], settings=settings, seed=0), trainer)
    assert selection.candidate[-1] and selection.removed[:8].all()
    assert rare_classes(selection) == [2]
    assert any("'rare'" in note for note in selection.notes)


def test_halves_are_random_even_and_complete():
    labels = np.repeat(np.arange(5), [2, 3, 10, 1, 84])
    a, b = stratified_parts(np.arange(100), labels, 2, np.random.default_rng(0))
    assert sorted([*a, *b]) == list(range(100))
    assert (np.abs(np.bincount(labels[a], minlength=5) - np.bincount(labels[b], minlength=5)) <= 1).all()
    c, d = halves(np.arange(101), np.random.default_rng(0))
    assert sorted([*c, *d]) == list(range(101)) and abs(len(c) - len(d)) == 1
    assert not np.array_equal(c, np.arange(51))


def test_largest_losses_break_ties_by_position():
    pool, loss = np.array([4, 7, 9, 12]), np.array([1.0, 2.0, 2.0, 3.0])
    assert largest_losses(pool, loss, 2).tolist() == [12, 7]
    assert largest_losses(pool, loss, 9).tolist() == [12, 7, 9, 4]
    assert largest_losses(pool, loss, 0).tolist() == []


@pytest.mark.parametrize(
    ("eps", "asymmetric", "until", "ratio"),
    [
        (0.2, False, 4, 0.25),
        (0.31, False, 2, 0.31 / 0.69),
        (0.61, False, 1, 0.61 / 0.39),
        (0.8, False, 1, 2.0),
        (0.2, True, 1, 0.0),
    ],
)
def test_authors_rules(eps, asymmetric, until, ratio):
    assert authors_best_until(eps, asymmetric=asymmetric) == until
    assert authors_remove_ratio(eps, asymmetric=asymmetric) == pytest.approx(ratio)


@pytest.mark.parametrize("checkpoint", ["last", "best-until-2"])
def test_checkpoint_can_be_said(checkpoint):
    labels = np.random.default_rng(0).integers(0, 4, 200)
    trainer = Random(4, 0.3)
    asked = []

    class Spy:
        def train_and_score(self, jobs):
            asked.append({job.keep_best for job in jobs})
            return trainer.train_and_score(jobs)

    settings = INCVSettings(protocol="paper", pattern="symmetric", checkpoint=checkpoint)
    drive(incv_steps(labels, 4, settings=settings, seed=0), Spy())
    assert asked == ([{False}] * 4 if checkpoint == "last" else [{True}] * 2 + [{False}] * 2)


@pytest.mark.parametrize("protocol", ["auto", "paper"])
@pytest.mark.parametrize("networks", [True, False])
def test_notes_are_about_networks_only_if_there_are_networks(protocol, networks):
    labels = np.random.default_rng(0).integers(0, 4, 200)
    settings = INCVSettings(protocol=protocol, networks=networks, n_iterations=1)
    notes = drive(incv_steps(labels, 4, settings=settings, seed=0), Random(4, 0.5)).notes
    assert any("network" in note for note in notes) == networks


def test_pattern_unknown_to_the_paper_protocol_is_noted():
    labels = np.random.default_rng(0).integers(0, 4, 100)
    selection = drive(incv_steps(labels, 4, settings=INCVSettings(protocol="paper"), seed=0), Random(4, 0.5))
    assert "assumed" in selection.notes[0]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"n_iterations": 0}, "n_iterations"),
        ({"n_iterations": 2.5}, "n_iterations"),
        ({"remove_ratio": -1}, "remove_ratio"),
        ({"remove_ratio": "some"}, "remove_ratio"),
        ({"remove_ratio": float("nan")}, "remove_ratio"),
        ({"pattern": "odd"}, "pattern"),
        ({"protocol": "odd"}, "protocol"),
        ({"checkpoint": "first"}, "checkpoint"),
    ],
)
def test_bad_settings_are_named(change, word):
    with pytest.raises(InputError, match=word):
        INCVSettings(**change)


class Skilled:
    """Knows nothing of the given labels; right as often as its confidence says. Half of its errors are every network's,
    so that two networks disagree as often as each is wrong."""

    def __init__(self, truth, classes, seed=0):
        rng = np.random.default_rng(seed)
        self.truth, self.classes, self.ease = truth, classes, rng.uniform(0.2, 1, len(truth))
        misleading = rng.random(len(truth)) > (1 + self.ease) / 2
        self.looks = np.where(misleading, (truth + rng.integers(1, classes, len(truth))) % classes, truth)

    def train_and_score(self, jobs):
        return [self.score(job, np.random.default_rng(job.seed)) for job in jobs]

    def score(self, job, rng):
        truth, ease, given = self.truth[job.score], self.ease[job.score], job.labels[job.score]
        wrong = (truth + rng.integers(1, self.classes, len(truth))) % self.classes
        predicted = np.where(rng.random(len(truth)) < (1 + ease) / 2, self.looks[job.score], wrong)
        probability = np.where(predicted == given, ease, (1 - ease) / (self.classes - 1))
        return Scores(predicted, probability, ease, -np.log(probability))


def test_heavy_noise_leaves_an_expected_precision_that_is_near():
    truth = np.arange(12_000) % 10
    labels = noise.corrupt(truth, theory.symmetric(10, 0.85), rng=1)
    found = drive(incv_steps(labels, 10, settings=INCVSettings(n_iterations=1), seed=0), Skilled(truth, 10))
    measured = np.mean(labels[found.selected] == truth[found.selected])
    assert found.expected_precision == pytest.approx(measured, abs=0.08)
    assert found.expected_precision == pytest.approx(np.mean(1 - found.suspicion[found.selected]))
    assert found.expected_precision > theory.label_precision(theory.symmetric(10, 0.85)) + 0.1  # proposition 2


def test_auto_measures_the_noise_with_trainings_on_the_first_selection():
    truth, labels = np.arange(400) % 4, np.arange(400) % 4
    labels[:80] = (labels[:80] + 1) % 4
    trainer = Scripted(truth, 4)
    selection = drive(incv_steps(labels, 4, settings=INCVSettings(n_iterations=1), seed=0), trainer)
    (f1, f2), (g1, g2, *parts) = trainer.calls
    for job, first, other in ((g1, f1, f2), (g2, f2, f1)):
        assert set(job.train) == {i for i in other.score if i >= 80} and np.array_equal(job.score, first.score)
    # Two trainings per half on disjoint parts of the same samples measure how often such a classifier is wrong.
    for whole, (one, two) in ((g1, parts[:2]), (g2, parts[2:])):
        assert sorted([*one.train, *two.train]) == whole.train.tolist() and one.seed != two.seed
        assert np.array_equal(one.score, whole.score) and np.array_equal(two.score, whole.score)
    assert selection.noise_ratio == pytest.approx(0.2, abs=0.01)
    assert selection.transition_matrix == pytest.approx(theory.pair(4, 0.2), abs=0.03)
    assert selection.expected_precision > 0.98 and selection.noise.low <= 0.2 <= selection.noise.high


def test_a_class_that_is_never_predicted_loses_no_labels():
    truth = np.r_[np.arange(400) % 3, np.full(12, 3)]
    labels = truth.copy()
    labels[:80] = (labels[:80] + 1) % 3
    rare = truth == 3
    trainer = Scripted(np.where(rare, np.arange(412) % 3, truth), 4)
    selection = drive(incv_steps(labels, 4, settings=INCVSettings(remove_ratio=2.0), seed=0), trainer)
    assert selection.candidate[rare].all() and selection.removed[:80].any()
    assert selection.noise is not None and selection.noise.known  # one class does not make everything unknown


def test_a_class_too_small_to_be_learnt_is_as_suspicious_as_all_labels():
    truth = np.r_[np.arange(400) % 3, np.full(2, 3)]
    labels = truth.copy()
    labels[:80] = (labels[:80] + 1) % 3
    rare = truth == 3
    selection = drive(incv_steps(labels, 4, seed=0), Scripted(np.where(rare, 0, truth), 4))
    assert selection.candidate[rare].all() and selection.suspicion[:80].min() > 0.9
    assert selection.suspicion[rare].mean() == pytest.approx(selection.noise_ratio, abs=1e-3)
    assert (selection.suggested_probability[rare] < 0.5).all()


def test_precision_and_recall_are_expected_from_the_same_suspicions():
    truth = np.arange(600) % 3
    labels = truth.copy()
    labels[:60] = (labels[:60] + 1) % 3
    found = drive(incv_steps(labels, 3, seed=0), Scripted(truth, 3))
    right = (1 - found.suspicion).sum()
    assert found.expected_recall == pytest.approx(found.expected_precision * found.selected.sum() / right)
    assert found.expected_recall <= 1


def test_classes_too_rare_for_both_halves_are_one_note():
    truth = np.array([0, 1] * 20 + [2, 3])
    settings = INCVSettings(protocol="paper", pattern="symmetric", n_iterations=1)
    trainer = Scripted(np.where(truth > 1, 0, truth), 4)
    selection = drive(incv_steps(truth, list("abcd"), settings=settings, seed=0), trainer)
    (note,) = [note for note in selection.notes if "'c'" in note]
    assert "'c' (1 label)" in note and "'d' (1 label)" in note


def test_a_note_names_classes_that_lost_most_of_their_labels() -> None:
    given = np.repeat([0, 1, 2], [60, 20, 4])
    problem = Problem(given, 3, INCVSettings(), seed=0, names=("ash", "elm", "fir"))
    state = INCVState.start(len(given), 3)
    verdict = np.zeros(len(given), dtype=np.int8)
    verdict[60:71] = REMOVED
    verdict[80:] = REMOVED  # too few labels for a statement
    note = mostly_removed_classes(replace(state, verdict=verdict), problem)
    assert "'elm' (11 of 20 labels)" in note and "ash" not in note and "fir" not in note
    assert not mostly_removed_classes(replace(state, verdict=np.full(len(given), REMOVED)), problem)  # strong noise
