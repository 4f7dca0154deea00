"""Protocol "paper": iterative noisy cross-validation, algorithm 2 of the paper.

    S = {}, C = everything
    repeat:  split C at random into C_1 and C_2
             train f on S + C_1; S_1 = {samples of C_2 where f predicts the given label}
             R_1 = the r |S_1| others of C_2 with the largest loss
             the same with the halves exchanged: S_2, R_2
             S = S + S_1 + S_2,  C = C - S_1 - S_2 - R_1 - R_2

It is given the noise pattern, reads the ratio from the first half of iteration 1 (Eq. 4) and ignores groups.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from labelsieve import theory
from labelsieve.scoring import suspicion_of
from labelsieve.selection.settings import INCVSettings, authors_remove_ratio, which_epoch
from labelsieve.selection.splits import halves
from labelsieve.selection.state import INCVState, Problem
from labelsieve.types import REMOVED, SELECTED, FloatArray, IntArray, Job, Scores


def iteration(
    state: INCVState, problem: Problem
) -> Generator[list[Job], list[Scores], tuple[INCVState, dict[str, Any]]]:
    """Lines 3 to 13 of algorithm 2; return the new state and a line of history."""
    k, given, settings = state.done + 1, problem.given, problem.settings
    rng, chosen = np.random.default_rng([problem.seed, k]), state.selected
    first, second = halves(state.candidates, rng)
    keep_best = k <= state.best_until
    jobs = []
    for j, (train, score) in enumerate(((first, second), (second, first))):
        name, rows = f"{problem.name}-{k}-{1 + j}", np.sort(np.concatenate([chosen, train]))
        # The paper starts every training from the same weights.
        jobs.append(Job(name, given, rows, score, problem.seed, keep_best))
    answers = yield jobs
    agreement = [float(np.mean(a.predicted == given[job.score])) for a, job in zip(answers, jobs, strict=True)]
    state = with_scores(state, jobs, answers, given)
    state = with_noise(state, agreement[0], problem.classes, settings) if k == 1 else state

    verdict = state.verdict.copy()
    unseen: set[int] = set()
    for job in jobs:
        half = job.score
        agrees = state.predicted[half] == given[half]
        # A label that the training never saw could not be predicted: its samples stay candidates.
        seen = np.bincount(given[job.train], minlength=problem.classes) > 0
        unseen.update(np.unique(given[half][~seen[given[half]]]).tolist())
        pool = half[~agrees & seen[given[half]]]
        removed = largest_losses(pool, state.loss[pool], int((state.remove_ratio or 0.0) * int(agrees.sum())))
        verdict[half[agrees]], verdict[removed] = SELECTED, REMOVED
    return state.with_verdicts(verdict), {
        "agreement": agreement,
        "keep_best": keep_best,
        "splits": 1,
        "unseen_classes": sorted(unseen),
    }


def with_scores(state: INCVState, jobs: Sequence[Job], answers: Sequence[Scores], given: IntArray) -> INCVState:
    """The candidates' new held-out scores replace their older ones; suspicion is the mean over all scores."""
    arrays = {key: getattr(state, key).copy() for key in ("predicted", "probability", "confidence", "loss")}
    suspicion, times_scored = state.suspicion.copy(), state.times_scored.copy()
    for job, scores in zip(jobs, answers, strict=True):
        half = job.score
        for key, values in scores.numbers().items():
            arrays[key][half] = values
        before = np.where(times_scored[half] > 0, suspicion[half], 0.0)
        suspicion[half] = (before * times_scored[half] + suspicion_of(scores, given[half])) / (times_scored[half] + 1)
        times_scored[half] += 1
    return replace(state, suspicion=suspicion, times_scored=times_scored, **arrays)


def with_noise(state: INCVState, accuracy: float, classes: int, settings: INCVSettings) -> INCVState:
    """Line 8: the ratio from the first half's test accuracy by Eq. 4, then r and the checkpoints.

    Eq. 4 for pair noise too, as in all of the paper's experiments (section 5.2): Eq. 5 never falls below 0.5.
    """
    pattern = "pair" if settings.asymmetric else "symmetric"
    estimate = theory.ratio_from_accuracy(accuracy, classes, "symmetric")
    eps = estimate.ratio
    r = authors_remove_ratio(eps, asymmetric=settings.asymmetric)
    if settings.remove_ratio != "auto":
        r = float(settings.remove_ratio)
    known = "as set" if settings.pattern != "auto" else "assumed because no pattern was set"
    formula = "0 for pair noise" if pattern == "pair" else "min(2, eps/(1-eps))"
    source = formula if settings.remove_ratio == "auto" else "as set"
    notes = [
        f"noise ratio {eps:.4f} (Eq. 4 with the agreement of the first half, {accuracy:.4f}); {pattern} noise, {known}",
        f"remove ratio {r:.4f}, {source}" + (f"; {which_epoch(settings.best_until(eps))}" if settings.networks else ""),
    ]
    if not estimate.in_reach:
        notes.append(f"agreement {accuracy:.4f} is below the range of Eq. 4; the nearest noise ratio is used")
    transition = theory.pair(classes, eps) if pattern == "pair" else theory.symmetric(classes, eps)
    return state.with_noise(settings, eps, transition, r, notes)


def largest_losses(pool: IntArray, loss: FloatArray, count: int) -> IntArray:
    """The `count` samples of `pool` with the largest loss; the earlier one of equal losses."""
    order = np.lexsort((pool, -loss))
    return np.asarray(pool[order[: max(0, count)]])
