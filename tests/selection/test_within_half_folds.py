from __future__ import annotations

import numpy as np

from labelsieve import noise, theory
from labelsieve.execute.sklearn_trainer import SklearnTrainer
from labelsieve.models.choose import named_classifier
from labelsieve.selection.incv import incv_steps
from labelsieve.selection.run_selection import drive
from labelsieve.selection.settings import INCVSettings
from labelsieve.selection.within_half_folds import agreeing, fold_jobs
from labelsieve.types import Scores


def answer(predicted: np.ndarray) -> Scores:
    ones = np.ones(len(predicted))
    return Scores(predicted, ones, ones, np.zeros(len(predicted)))


def test_nobody_is_judged_by_who_saw_the_sample_or_the_other_half() -> None:
    labels = np.arange(24) % 2
    splits = [(np.arange(12), np.arange(12, 24)), (np.arange(0, 24, 2), np.arange(1, 24, 2))]
    jobs = fold_jobs(labels, splits, folds=3, seeds=(1, 2, 3, 4), name="x", keep_best=False)
    assert len(jobs) == 12 and len({job.name for job in jobs}) == 12
    for job in jobs:
        assert not set(job.train) & set(job.score)
        assert any(set(job.train) | set(job.score) == set(half) for split in splits for half in split)
    wrong_in_second = [answer(labels[job.score] if i < 6 else 1 - labels[job.score]) for i, job in enumerate(jobs)]
    first, second = agreeing(labels, jobs, wrong_in_second, 2)
    assert first.all() and not second.any()
    assert fold_jobs(labels, splits, folds=0, seeds=(1, 2, 3, 4), name="x", keep_best=False) == []
    assert (
        fold_jobs(labels[:8], [(np.arange(4), np.arange(4, 8))], folds=3, seeds=(1, 2), name="x", keep_best=False) == []
    )


def texts(count: int, seed: int) -> tuple[list[str], np.ndarray]:
    """Two pairs of look-alikes."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 4, count)
    made = []
    for own in label.tolist():
        which = np.where(rng.random(10) < 0.2, own ^ 1, own)
        words = np.where(rng.random(10) < 0.5, "common", np.char.add("own", which.astype(str)))
        made.append(" ".join(f"{word}x{int(rng.exponential(12))}" for word in words.tolist()))
    return made, label


def test_a_classifier_that_learns_by_heart_no_longer_hides_noise() -> None:
    errors: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(3):
        x, true = texts(1200, seed)
        given = np.asarray(noise.corrupt(true, theory.pair(4, 0.3), np.random.default_rng(seed)))
        for own_half, found in errors.items():
            steps = incv_steps(given, 4, settings=INCVSettings(n_iterations=1, own_half=own_half), seed=seed)
            selection = drive(steps, SklearnTrainer(x, named_classifier("tfidf"), 4))
            found.append(float(selection.history[0]["estimate"]["ratio"] - (given != true).mean()))
    assert abs(np.mean(errors[True])) < 0.03
    assert np.mean(errors[False]) < np.mean(errors[True]) - 0.02  # or the further trainings are for nothing


def test_too_few_samples_for_folds_are_measured_as_before() -> None:
    x = np.random.default_rng(0).normal(size=(10, 2)) + np.repeat([0, 8], 5)[:, None]
    given = np.repeat([0, 1], 5)
    steps = incv_steps(given, 2, settings=INCVSettings(n_iterations=1, own_half=True), seed=0)
    assert drive(steps, SklearnTrainer(x, named_classifier("forest"), 2)).selected.sum() >= 8
