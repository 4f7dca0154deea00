"""Protocol "auto": repeated noisy cross-validation, in which one posterior decides everything.

    iteration 1   cross-validation on two halves of all labels; the noise model is fitted to its predictions
    iteration k   cross-validation on three parts; trained on labels that are not removed, with balanced classes
    each          the predictions of all iterations are averaged, the posterior of every label follows from them, and
                  from that its verdict

A label is selected if it is the predicted one, or more likely right than wrong. It is removed if another class is more
likely than the given one. The others are candidates: no other class is more likely, but all together are.

Algorithm 2 of the paper (algorithm2.py) never checks a selected label again and never uses a removed one. Here every
label is predicted in every iteration by classifiers that have not seen it, so a wrong label that was selected by chance
is found later. benchmarks/fast-selector.md compares both.

The noise ratio is measured in iteration 1 by further trainings on the labels that agree with the predictions: one per
half that also judges, and two per half on disjoint parts whose disagreement measures their error (noise_model.py). If
these are much worse than the classifiers of all labels, two per half are trained on disjoint random parts instead.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from labelsieve.class_balance import balanced
from labelsieve.data.duplicates import MIN_DIFFERENT
from labelsieve.selection.noise_model import (
    NoiseModel,
    TwoOpinions,
    denoise,
    excess_agreement,
    fit_noise_model,
    is_comparable,
    with_mean_posterior,
    without_meaning,
)
from labelsieve.selection.posterior import calibrate, of_unlearnt_classes, posterior_of
from labelsieve.selection.settings import which_epoch
from labelsieve.selection.splits import Split, average_scores, distinct_share, over_first_split, stratified_parts
from labelsieve.selection.state import INCVState, Problem
from labelsieve.types import CANDIDATE, REMOVED, SELECTED, BoolArray, IntArray, Job, NoiseEstimate, Scores

PARTS = 3  # of the cross-validation after iteration 1: as expensive as algorithm 2
PART_SAMPLES = 50  # of each part on which the error of a classifier is measured: fewer samples train another one
Iteration = Generator[list[Job], list[Scores], tuple[INCVState, dict[str, Any]]]


def first_iteration(state: INCVState, problem: Problem) -> Iteration:
    """Judge all labels by two halves, and fit the noise model; return the new state and a line of history."""
    given, keep_best = problem.given, state.best_until >= 1
    splits: list[Split] = []
    jobs: list[Job] = []
    seeds = problem.job_seeds(1, (1, 2))
    for s in range(problem.settings.repeats):
        first, second = stratified_parts(np.arange(len(given)), given, 2, split_rng(problem, 1, s), problem.groups)
        splits.append((second, first))
        for j, (train, score) in enumerate(((first, second), (second, first))):
            jobs.append(Job(job_name(problem, 1, j, s), given, train, score, seeds[2 * s + j], keep_best))
    answers = yield jobs
    scores = over_first_split(splits, answers, given, problem.classes)
    state = yield from fit_noise(state, problem, splits, scores)
    history: dict[str, Any] = {
        "agreement": [float(np.mean(s.predicted == given[half])) for s, half in zip(scores, splits[0], strict=True)],
        "keep_best": keep_best,
        "splits": len(splits),
        "unseen_classes": unseen_classes(splits[0], given, problem.classes),
    }
    return apply_posterior(state, problem, history["unseen_classes"]), history


def later_iteration(state: INCVState, problem: Problem) -> Iteration:
    """Judge all labels again, by classifiers of the labels that are not removed."""
    k, given, classes = state.done + 1, problem.given, problem.classes
    splits = [
        stratified_parts(np.arange(len(given)), given, PARTS, split_rng(problem, k, s), problem.groups)
        for s in range(problem.settings.repeats)
    ]
    jobs = part_jobs(state, problem, splits)
    if not can_train(jobs) and len(state.removed):
        state = without_removals(state)
        jobs = part_jobs(state, problem, splits)
    if not can_train(jobs):
        return state.stop("there are too few labels to train on"), {}
    answers = yield jobs
    predictions = [
        Scores.concatenate(answers[PARTS * s : PARTS * (s + 1)]).take(np.argsort(np.concatenate(parts)))
        for s, parts in enumerate(splits)
    ]
    new = predictions[0] if len(predictions) == 1 else average_scores(predictions, given, classes)
    assert state.mean is not None
    if is_comparable(new, state.usual_agreement, given, classes):
        number = state.averaged_over
        mean = average_scores((state.mean, new), given, classes, weights=(number, 1))
        state = replace(state, mean=mean, averaged_over=number + 1)
    else:
        state = without_removals(state)
    history: dict[str, Any] = {
        "agreement": [float(np.mean(new.predicted[part] == given[part])) for part in splits[0]],
        "keep_best": jobs[0].keep_best,
        "splits": len(splits),
        "unseen_classes": unseen_classes(splits[0], given, classes),
    }
    return apply_posterior(state, problem, history["unseen_classes"]), history


def part_jobs(state: INCVState, problem: Problem, splits: Sequence[Sequence[IntArray]]) -> list[Job]:
    """For each part a training on the labels of the other parts that are not removed.

    An epoch is as long as in iteration 1: with four of five labels wrong, a quarter as many samples are left to train
    on, and a network would take a quarter of the steps.
    """
    k, half, jobs = state.done + 1, len(problem.given) // 2, []
    kept = kept_labels(state, problem)
    seeds = iter(problem.job_seeds(k, range(1, PARTS + 1)))
    for s, parts in enumerate(splits):
        for j, part in enumerate(parts):
            train = kept.copy()
            train[part] = False
            name, keep_best = job_name(problem, k, j, s), k <= state.best_until
            jobs.append(Job(name, problem.given, np.flatnonzero(train), part, next(seeds), keep_best, half))
    return jobs


def kept_labels(state: INCVState, problem: Problem) -> BoolArray:
    """The labels to train on: those that are not removed, with balanced classes unless a limit of removals is set."""
    assert state.model is not None
    kept = np.asarray(state.verdict != REMOVED)
    if state.remove_ratio is not None or not state.model.estimate.known:
        return kept
    return balanced(kept, problem.given, state.suspicion, state.model.estimate.transition)


def can_train(jobs: Sequence[Job]) -> bool:
    """Whether every training sees two classes or more, and has samples to score."""
    return all(len(np.unique(job.labels[job.train])) > 1 and len(job.score) for job in jobs)


def without_removals(state: INCVState) -> INCVState:
    """Remove nothing: a weak classifier has removed right labels, and the others make a much worse classifier."""
    if state.remove_ratio == 0.0:
        return state
    removed = state.verdict == REMOVED
    note = f"no samples are removed from iteration {state.done + 1} on: too few right labels would be left"
    notes = (*state.notes, note) if removed.any() else state.notes
    verdict = np.where(removed, CANDIDATE, state.verdict).astype(np.int8)
    iteration = np.where(removed, 0, state.iteration).astype(np.int16)
    return replace(state, verdict=verdict, iteration=iteration, remove_ratio=0.0, notes=notes)


def apply_posterior(state: INCVState, problem: Problem, unseen: Sequence[int]) -> INCVState:
    """The posterior by the mean of all predictions, and the verdicts that follow from it."""
    given, classes, model, mean = problem.given, problem.classes, state.model, state.mean
    assert model is not None and mean is not None
    known = model.estimate.known
    if state.done and known:
        # Accuracy and noise at each confidence change with the predictions. The ratio does only if their agreement with
        # the labels contradicts it: later classifiers learnt from labels that the earlier ones chose.
        model = fit_noise_model(mean, given, classes, earlier=model.estimate, distinct=distinct_share(problem.groups))
        notes = (noise_note(model.estimate), *state.notes[1:])
        state = replace(
            state, model=model, noise_ratio=model.estimate.ratio, transition=model.estimate.transition, notes=notes
        )
    posterior = posterior_of(mean, given, model)
    suspicion, agrees = calibrate(posterior.order, posterior.wrong), mean.predicted == given
    verdict = np.full(len(given), CANDIDATE, dtype=np.int8)
    # A label that no training saw could not be predicted.
    checked = ~np.isin(given, unseen)
    verdict[checked & (agrees | (known & (suspicion < 0.5)))] = SELECTED
    if known:
        other_class = suspicion * posterior.predicted_right > 1 - suspicion
        # If no label of a class is selected, the classifier does not know the class: it says nothing about its labels.
        known_class = np.isin(given, given[verdict == SELECTED])
        too_few = np.bincount(given, minlength=classes)[given] < MIN_DIFFERENT
        suspicion = of_unlearnt_classes(suspicion, given, ~known_class & too_few, model.estimate.ratio)
        doubtful = (verdict == CANDIDATE) & other_class & checked & known_class
        rows = np.flatnonzero(doubtful)
        if state.remove_ratio is not None:
            count = int(state.remove_ratio * int(np.sum(verdict == SELECTED)))
            rows = rows[np.argsort(-suspicion[rows], kind="stable")[:count]]
        verdict[rows] = REMOVED
    suggested = np.where(agrees, 1 - suspicion, suspicion * posterior.predicted_right)
    state = replace(state, suspicion=suspicion, suggested_probability=suggested, **mean.numbers())
    return state.with_verdicts(verdict)


# ---------------------------------------------------------------- the noise, in iteration 1


def fit_noise(
    state: INCVState, problem: Problem, splits: Sequence[Split], scores: tuple[Scores, Scores]
) -> Generator[list[Job], list[Scores], INCVState]:
    """Fit the noise model; return the state with it and with the mean of the predictions that judge.

    Unless the predictions are stored, further trainings measure the classifier's error.
    """
    given, classes = problem.given, problem.classes
    samples, held_out = np.concatenate(splits[0]), Scores.concatenate(scores)
    labels = given[samples]
    best, number = denoise(held_out, labels, classes), 1
    opinions: TwoOpinions | None = None
    usual = excess_agreement(held_out.predicted, labels, classes)
    jobs = [] if problem.settings.stored else estimate_jobs(state, problem, splits, best)
    if jobs:
        answers = yield jobs
        selected_on = 2 * len(splits)
        again = Scores.concatenate(over_first_split(splits, answers[:selected_on], given, classes))
        # Few selected samples can make a much worse classifier than all samples. Held-out labels tell.
        if is_comparable(again, usual, labels, classes):
            best, number = average_scores((best, again), labels, classes), 2
        if len(answers) > selected_on:
            opinions = opinions_of(answers[selected_on:], labels)
            networks = problem.settings.networks
            # Classifiers of few samples may predict one class for all, agree with each other and know nothing.
            if not opinions.are_comparable(usual, classes, networks=networks):
                opinions = None
                if not networks:  # with networks it was not measured: strong noise may make them useless
                    answers = yield random_part_jobs(problem, splits[0])
                    opinions = replace(opinions_of(answers, labels), of_random_parts=True)
    model = fit_noise_model(
        best,
        labels,
        classes,
        held_out=held_out,
        opinions=opinions,
        own_classifiers=not (problem.settings.stored or problem.settings.networks),
        distinct=distinct_share(problem.groups),
    )
    if (why := problem.settings.why_unknown) is not None and model.estimate.known:
        model = replace(model, estimate=without_meaning(model.estimate, why))
    elif opinions is None:
        estimate = with_mean_posterior(model.estimate, posterior_of(best, labels, model).wrong)
        model = replace(model, estimate=estimate)
    mean = best.take(np.argsort(samples))
    state = replace(state, mean=mean, averaged_over=number, usual_agreement=usual)
    return with_noise(state, model, problem)


def estimate_jobs(state: INCVState, problem: Problem, splits: Sequence[Split], scores: Scores) -> list[Job]:
    """Trainings on the selected samples of one half that score the other half: on all of them, for every split, and on
    two disjoint parts of them, for the first split, if they are large enough. None if one would see one class only."""
    given, keep_best = problem.given, state.best_until >= 1
    agrees = np.zeros(len(given), dtype=bool)
    samples = np.concatenate(splits[0])
    agrees[samples] = scores.predicted == given[samples]
    seeds = problem.job_seeds(1, (3, 4))
    jobs, parts = [], []
    for s, split in enumerate(splits):
        for k, half in enumerate(split):
            other = split[1 - k]
            picked, seed = np.sort(other[agrees[other]]), seeds[2 * s + k]
            name = f"{problem.name}-estimate-{1 + k}" + (f"-split{1 + s}" if s else "")
            jobs.append(Job(name, given, picked, half, seed, keep_best))
            if s == 0:
                rng = np.random.default_rng([seed, 2])
                for j, part in enumerate(stratified_parts(picked, given, 2, rng, problem.groups)):
                    parts.append(Job(f"{name}-part{1 + j}", given, part, half, (seed + 1 + j) % 2**31, keep_best))
    if any(len(np.unique(given[job.train])) < 2 for job in jobs):
        return []
    enough = all(len(np.unique(given[job.train])) > 1 and len(job.train) >= PART_SAMPLES for job in parts)
    return [*jobs, *(parts if enough else [])]


def opinions_of(answers: Sequence[Scores], labels: IntArray) -> TwoOpinions:
    """What the classifiers of two parts of each half predict for the other half."""
    first, second = (Scores.concatenate(answers[part::2]) for part in (0, 1))
    return TwoOpinions(first, second, labels)


def random_part_jobs(problem: Problem, split: Split) -> list[Job]:
    """Trainings on two disjoint random parts of one half that score the other half."""
    jobs, seeds = [], problem.job_seeds(1, (5, 6))[:2]
    for k, (half, seed) in enumerate(zip(split, seeds, strict=True)):
        parts = stratified_parts(
            np.sort(split[1 - k]), problem.given, 2, np.random.default_rng([seed, 2]), problem.groups
        )
        for j, part in enumerate(parts):
            name = f"{problem.name}-estimate-{1 + k}-random-part{1 + j}"
            jobs.append(Job(name, problem.given, part, half, (seed + 1 + j) % 2**31, False))
    return jobs


def with_noise(state: INCVState, model: NoiseModel, problem: Problem) -> INCVState:
    """Keep the fitted model and the limit of removals."""
    estimate, settings = model.estimate, problem.settings
    limit = None if settings.remove_ratio == "auto" else float(settings.remove_ratio)
    notes = [noise_note(estimate)]
    if limit != 0:  # NCV removes nothing
        if not estimate.known:
            notes.append("no samples are removed, because the noise ratio is unknown")
        elif limit is not None:
            notes.append(f"at most {limit:.3g} samples are removed per selected sample, as set")
    if settings.networks and not settings.stored:
        notes.append(which_epoch(settings.best_until(estimate.ratio)))
    return replace(state, model=model).with_noise(settings, estimate.ratio, estimate.transition, limit, notes)


def noise_note(estimate: NoiseEstimate) -> str:
    """The estimate in one sentence."""
    if not estimate.known:
        return f"noise ratio {estimate.explanation}"
    ratio, low, high = (f"{100 * share:.1f}" for share in (estimate.ratio, estimate.low, estimate.high))
    return f"noise ratio {ratio} % (95 % interval {low} to {high} %); {estimate.explanation}"


# ---------------------------------------------------------------- splits and classes


def split_rng(problem: Problem, k: int, s: int) -> np.random.Generator:
    """The generator of split `s` of iteration `k`."""
    return np.random.default_rng([problem.seed, k, 0, s] if s else [problem.seed, k])


def job_name(problem: Problem, k: int, j: int, s: int) -> str:
    return f"{problem.name}-{k}-{1 + j}" + (f"-split{1 + s}" if s else "")


def unseen_classes(parts: Sequence[IntArray], given: IntArray, classes: int) -> list[int]:
    """Classes of which a part has labels and the other parts have none."""
    counts = np.array([np.bincount(given[part], minlength=classes) for part in parts])
    return np.flatnonzero(((counts > 0) & (counts.sum(axis=0) == counts)).any(axis=0)).tolist()
