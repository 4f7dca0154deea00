"""Iterative noisy cross-validation, algorithm 2 of the paper, as a generator that asks for trainings.

    S = {}, C = everything
    repeat:  split C at random into C_1 and C_2
             train f on S + C_1; S_1 = {samples of C_2 where f predicts the given label}
             R_1 = the r |S_1| others of C_2 with the largest loss
             the same with the halves exchanged: S_2, R_2
             S = S + S_1 + S_2,  C = C - S_1 - S_2 - R_1 - R_2

Protocol "paper" is given the noise pattern and reads the ratio from the first half of iteration 1 (Eq. 4). Protocol
"auto" fits the noise model in iteration 1 (noise_model.py), which takes further trainings on the samples selected so
far: one network per half that also selects, and two per half on disjoint parts whose disagreement measures their error.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from labelsieve import theory
from labelsieve.scoring import suspicion_of
from labelsieve.selection.finalize import finish
from labelsieve.selection.noise_model import (
    NoiseModel,
    TwoOpinions,
    concentration,
    denoise,
    fit_noise_model,
    is_comparable,
    with_mean_posterior,
    without_meaning,
)
from labelsieve.selection.posterior import posterior_of
from labelsieve.selection.settings import INCVSettings, authors_remove_ratio
from labelsieve.selection.splits import Split, averaged, halves, over_first_split, shared_out
from labelsieve.selection.state import INCVState
from labelsieve.types import (
    REMOVED,
    SELECTED,
    BoolArray,
    FloatArray,
    IntArray,
    Job,
    NoiseEstimate,
    Scores,
    Selection,
    Trainer,
)

Steps = Generator[list[Job], list[Scores], Selection]
# Protocol "auto" stops when an iteration selected less than this share of all samples (benchmarks/detection.md).
LEAST_GAIN = 0.005
MISSED_CLASS = 4  # labels per prediction of a class from which on its labels are not removed (benchmarks/detection.md)
PART_SAMPLES = 50  # of each part on which the error of a classifier is measured: fewer samples train another one
LISTED_CLASSES = 5  # classes that a note names


@dataclass(frozen=True)
class Problem:
    """The arguments of a selection that every step needs."""

    given: IntArray
    classes: int
    settings: INCVSettings
    seed: int
    name: str = "incv"
    names: Sequence[Any] | None = None
    groups: IntArray | None = None


def incv_steps(
    labels: Any,
    classes: int | Sequence[Any],
    *,
    settings: INCVSettings | None = None,
    seed: int,
    on_iteration: Callable[[INCVState], None] | None = None,
    name: str = "incv",
    groups: IntArray | None = None,
) -> Steps:
    """Select clean labels: yield lists of jobs, receive their scores, return the Selection.

    `classes` is the number of classes, or their names, which appear in notes. `on_iteration` receives the state after
    each iteration. `name` starts every job's name. Samples with the same code in `groups` are never on both sides of a
    split; protocol "paper" ignores them.
    """
    names, classes = (None, int(classes)) if isinstance(classes, int | np.integer) else (classes, len(classes))
    given = np.asarray(labels, dtype=np.int64)
    settings = settings or INCVSettings()
    groups = None if settings.protocol == "paper" else groups
    problem = Problem(given, classes, settings, seed, name, names, groups)
    state = replace(INCVState.start(len(problem.given), classes), best_until=settings.best_until(None))
    while state.done < settings.n_iterations and not state.stopped:
        state = yield from iteration(state, problem)
        if on_iteration is not None:
            on_iteration(state)
    return finish(state, classes, settings)


def iteration(state: INCVState, problem: Problem) -> Generator[list[Job], list[Scores], INCVState]:
    """Lines 3 to 13 of algorithm 2."""
    k, given, settings, candidates = state.done + 1, problem.given, problem.settings, state.candidates
    if len(candidates) < 2:
        note = f"stopped after iteration {state.done}: {len(candidates)} candidates are left, too few for two halves"
        return replace(state, stopped=True, notes=(*state.notes, note))

    splits, jobs = splits_and_jobs(state, problem)
    answers = yield jobs
    scored, scores = splits[0], over_first_split(splits, answers, given, problem.classes)
    history: dict[str, Any] = {
        "iteration": k,
        "candidates": len(candidates),
        "agreement": [float(np.mean(s.predicted == given[half])) for s, half in zip(scores, scored, strict=True)],
        "keep_best": k <= state.best_until,
        "splits": len(splits),
    }
    if settings.protocol == "paper":
        state = with_scores(state, scored, scores, given, None)
        state = with_paper_noise(state, history["agreement"][0], problem.classes, settings) if k == 1 else state
    elif k == 1:
        state, history["estimate"] = yield from measured(state, problem, splits, scores)
    else:
        # Not denoised: the probabilities of suggested labels would be far too high (benchmarks/fast-selector.md).
        state = with_scores(state, scored, scores, given, state.model)

    verdict, fell = state.verdict.copy(), state.iteration.copy()
    unseen: set[int] = set()
    for half, job in zip(scored, jobs[:2], strict=True):
        agrees = state.predicted[half] == given[half]
        # A label that the training never saw could not be predicted: its samples stay candidates.
        seen = np.bincount(given[job.train], minlength=problem.classes) > 0
        unseen.update(np.unique(given[half][~seen[given[half]]]).tolist())
        removable = ~agrees & (seen & ~missed_classes(state.predicted[half], given[half], problem.classes))[given[half]]
        if settings.protocol == "auto" and settings.remove_ratio == "auto":
            removable &= state.wrong[half] > 0.5
        pool = half[removable]
        removed = largest_losses(pool, state.loss[pool], int(state.remove_ratio * int(agrees.sum())))
        verdict[half[agrees]], verdict[removed] = SELECTED, REMOVED
        fell[half[agrees]] = fell[removed] = k
    history["unseen_classes"] = sorted(unseen)
    return with_history(replace(state, verdict=verdict, iteration=fell, done=k), history, problem)


def splits_and_jobs(state: INCVState, problem: Problem) -> tuple[list[Split], list[Job]]:
    """The held-out halves of every split, and the trainings that score them."""
    k, paper, chosen, seed = state.done + 1, problem.settings.protocol == "paper", state.selected, problem.seed
    keep_best, repeats = k <= state.best_until, problem.settings.repeats
    # The paper starts every training from the same weights; the split has its own generator.
    seeds = (seed, seed) if paper else split_seeds(seed, k, (1, 2), repeats)
    splits, jobs = [], []
    for s in range(repeats):
        rng = np.random.default_rng([seed, k, 0, s] if s else [seed, k])
        first, second = halves(state.candidates, problem.given, rng, even=not paper, groups=problem.groups)
        suffix = f"-split{1 + s}" if s else ""
        splits.append((second, first))
        for j, (train, score) in enumerate(((first, second), (second, first))):
            known = chosen
            if problem.groups is not None:  # a selected copy would confirm the label of a copy that is scored
                known = chosen[~np.isin(problem.groups[chosen], problem.groups[score])]
            name, rows = f"{problem.name}-{k}-{1 + j}{suffix}", np.sort(np.concatenate([known, train]))
            jobs.append(Job(name, problem.given, rows, score, seeds[2 * s + j], keep_best))
    return splits, jobs


# ---------------------------------------------------------------- the noise, in iteration 1


def measured(
    state: INCVState, problem: Problem, splits: Sequence[Split], scores: tuple[Scores, Scores]
) -> Generator[list[Job], list[Scores], tuple[INCVState, dict[str, Any]]]:
    """Fit the noise model. Unless the predictions are stored, further trainings measure the classifier's error."""
    given, classes, scored = problem.given, problem.classes, splits[0]
    samples, held_out = np.concatenate(scored), Scores.joined(scores)
    labels = given[samples]
    best, opinions = denoise(held_out, labels, classes), None
    jobs = [] if problem.settings.stored else estimate_jobs(state, problem, splits, best)
    if jobs:
        answers = yield jobs
        selected_on = 2 * len(splits)
        again = Scores.joined(over_first_split(splits, answers[:selected_on], given, classes))
        # Few selected samples can make a much worse classifier than all samples. Held-out labels tell.
        if is_comparable(again, held_out, labels, classes):
            best = averaged((best, again), labels, classes)
        if len(answers) > selected_on:
            first, second = (Scores.joined(answers[selected_on + part :: 2]) for part in (0, 1))
            pair = TwoOpinions(first, second, labels)
            opinions = pair if pair.is_comparable(held_out, classes) else None
    distinct = 1.0 if problem.groups is None else len(np.unique(problem.groups)) / len(problem.groups)
    model = fit_noise_model(best, labels, classes, held_out=held_out, opinions=opinions, distinct=distinct)
    if (why := problem.settings.why_unknown) is not None and model.estimate.known:
        model = replace(model, estimate=without_meaning(model.estimate, why))
    elif opinions is None:
        estimate = with_mean_posterior(model.estimate, posterior_of(best, labels, model).wrong)
        model = replace(model, estimate=estimate)
    state = with_noise(state, model, problem)
    parts = [best.take(slice(0, len(scored[0]))), best.take(slice(len(scored[0]), None))]
    return with_scores(state, scored, parts, given, model), model.estimate.record()


def estimate_jobs(state: INCVState, problem: Problem, splits: Sequence[Split], scores: Scores) -> list[Job]:
    """Trainings on the selected samples of one half that score the other half: on all of them, for every split, and on
    two disjoint parts of them, for the first split, if they are large enough. None if one would see one class only."""
    given, keep_best = problem.given, state.best_until >= 1
    agrees = np.zeros(len(given), dtype=bool)
    samples = np.concatenate(splits[0])
    agrees[samples] = scores.predicted == given[samples]
    seeds = split_seeds(problem.seed, 1, (3, 4), problem.settings.repeats)
    jobs, parts = [], []
    for s, split in enumerate(splits):
        for k, half in enumerate(split):
            other = split[1 - k]
            picked, seed = np.sort(other[agrees[other]]), seeds[2 * s + k]
            name = f"{problem.name}-estimate-{1 + k}" + (f"-split{1 + s}" if s else "")
            jobs.append(Job(name, given, picked, half, seed, keep_best))
            if s == 0:
                rng = np.random.default_rng([seed, 2])
                for j, part in enumerate(shared_out(picked, given, 2, rng, problem.groups)):
                    parts.append(Job(f"{name}-part{1 + j}", given, part, half, (seed + 1 + j) % 2**31, keep_best))
    if any(len(np.unique(given[job.train])) < 2 for job in jobs):
        return []
    enough = all(len(np.unique(given[job.train])) > 1 and len(job.train) >= PART_SAMPLES for job in parts)
    return [*jobs, *(parts if enough else [])]


def with_noise(state: INCVState, model: NoiseModel, problem: Problem) -> INCVState:
    """Keep the fitted model, and derive the remove ratio from it."""
    estimate, settings = model.estimate, problem.settings
    h = concentration(estimate.transition, estimate.prior)
    if settings.pattern != "auto":
        h = 1.0 if settings.asymmetric else 1 / (problem.classes - 1)
    r = remove_ratio(estimate.ratio, h, problem.classes)
    source = "from the noise ratio and the spread of the wrong labels over the classes"
    if problem.classes < 3:
        source = "because hard samples cannot be distinguished from wrong labels with two classes"
    if not estimate.known:
        r, source = 0.0, "because the noise ratio is unknown"
    if settings.remove_ratio != "auto":
        r, source = float(settings.remove_ratio), "as set"
    notes = [noise_note(estimate)]
    if not settings.stored:
        which = f"; {which_epoch(settings.best_until(estimate.ratio))}" if settings.networks else ""
        amount = f"at most {r:.3g} samples are removed per selected sample" if r else "no samples are removed"
        notes.append(f"{amount}, {source}{which}")
    return with_ratio(replace(state, model=model), settings, estimate.ratio, estimate.transition, r, notes)


def with_ratio(
    state: INCVState, settings: INCVSettings, ratio: float, transition: FloatArray, r: float, notes: Sequence[str]
) -> INCVState:
    """Keep the noise that was found, and what follows from it: the remove ratio and the epochs that select."""
    best_until, notes = settings.best_until(ratio), (*state.notes, *notes)
    return replace(state, noise_ratio=ratio, transition=transition, remove_ratio=r, best_until=best_until, notes=notes)


def noise_note(estimate: NoiseEstimate) -> str:
    """The estimate in one sentence."""
    if not estimate.known:
        return f"noise ratio {estimate.explanation}"
    ratio, low, high = (f"{100 * share:.1f}" for share in (estimate.ratio, estimate.low, estimate.high))
    return f"noise ratio {ratio} % (95 % interval {low} to {high} %); {estimate.explanation}"


def remove_ratio(noise_ratio: float, h: float, classes: int) -> float:
    """r = min(2, eps/(1-eps)) (1-h) / (1-1/(c-1)): the authors' choice for symmetric noise, 0 for pair noise.

    With two classes the patterns are the same and nothing tells a hard sample from a wrong label: none is removed.
    """
    if classes < 3:
        return 0.0
    return authors_remove_ratio(noise_ratio) * min(1.0, max(0.0, (1 - h) / (1 - 1 / (classes - 1))))


def with_paper_noise(state: INCVState, accuracy: float, classes: int, settings: INCVSettings) -> INCVState:
    """Line 8: the ratio from the first half's test accuracy by Eq. 4, then r and the checkpoints.

    Eq. 4 for pair noise too, as in all of the paper's experiments (section 5.2): Eq. 5 never falls below 0.5.
    """
    pattern = "pair" if settings.asymmetric else "symmetric"
    found = theory.ratio_from_accuracy(accuracy, classes, "symmetric")
    eps = found.ratio
    r = authors_remove_ratio(eps, asymmetric=settings.asymmetric)
    if settings.remove_ratio != "auto":
        r = float(settings.remove_ratio)
    known = "as set" if settings.pattern != "auto" else "assumed because no pattern was set"
    formula = "0 for pair noise" if pattern == "pair" else "min(2, eps/(1-eps))"
    source = formula if settings.remove_ratio == "auto" else "as set"
    notes = [
        f"noise ratio {eps:.4f} (Eq. 4 with the agreement of the first half, {accuracy:.4f}); {pattern} noise, {known}",
        f"remove ratio {r:.4f}, {source}; {which_epoch(settings.best_until(eps))}",
    ]
    if not found.in_reach:
        notes.append(f"agreement {accuracy:.4f} is below the range of Eq. 4; the nearest noise ratio is used")
    transition = theory.pair(classes, eps) if pattern == "pair" else theory.symmetric(classes, eps)
    return with_ratio(state, settings, eps, transition, r, notes)


def which_epoch(best_until: int) -> str:
    """Which epoch of a network makes the predictions, in words."""
    if best_until < 1:
        return "networks predict with their last epoch"
    return f"networks predict with their best epoch up to iteration {best_until}, then with their last epoch"


# ---------------------------------------------------------------- scores, removal, history


def with_scores(
    state: INCVState,
    scored: Sequence[IntArray],
    answers: Sequence[Scores],
    given: IntArray,
    model: NoiseModel | None,
) -> INCVState:
    """The candidates' new held-out scores replace their older ones; order and posterior are means over all scores.

    Without a model (protocol "paper") the order is `scoring.suspicion_of`, and nothing is known of the posterior.
    """
    keys = ("predicted", "probability", "confidence", "loss", "order", "wrong", "predicted_right", "looks")
    arrays = {key: getattr(state, key).copy() for key in keys}
    for half, scores in zip(scored, answers, strict=True):
        for key, values in scores.numbers().items():
            arrays[key][half] = values
        looks = arrays["looks"][half]
        new = {"order": suspicion_of(scores, given[half])}
        if model is not None:
            posterior = posterior_of(scores, given[half], model)
            new = {"order": posterior.order, "wrong": posterior.wrong}
            arrays["predicted_right"][half] = posterior.predicted_right
        for key, values in new.items():
            old = np.where(looks > 0, arrays[key][half], 0.0)
            arrays[key][half] = (old * looks + values) / (looks + 1)
        arrays["looks"][half] = looks + 1
    return replace(state, **arrays)


def largest_losses(pool: IntArray, loss: FloatArray, count: int) -> IntArray:
    """The `count` samples of `pool` with the largest loss; the earlier one of equal losses."""
    order = np.lexsort((pool, -loss))
    return np.asarray(pool[order[: max(0, count)]])


def missed_classes(predicted: IntArray, given: IntArray, classes: int) -> BoolArray:
    """Classes that the classifier hardly ever predicts: that it disagrees with their labels says nothing."""
    counts = (np.bincount(codes, minlength=classes) for codes in (given, predicted))
    labelled, found = counts
    return np.asarray(labelled >= MISSED_CLASS * np.maximum(found, 1))


def with_history(state: INCVState, history: dict[str, Any], problem: Problem) -> INCVState:
    """Append the iteration's line of history; protocol "auto" also decides whether to go on."""
    k, n, chosen, settings = state.done, len(problem.given), state.selected, problem.settings
    new = int(np.sum(state.iteration[chosen] == k))
    history |= {
        "selected": new,
        "removed": int(np.sum(state.iteration[state.removed] == k)),
        "selected_total": len(chosen),
        "removed_total": len(state.removed),
        "candidates_left": len(state.candidates),
        "remove_ratio": state.remove_ratio,
        "noise_ratio": state.noise_ratio,
    }
    notes, stopped = list(state.notes), state.stopped
    if settings.protocol == "auto":
        history["expected_precision"] = state.expected_precision()
    if history["unseen_classes"] and k == 1:
        listed = some_classes(history["unseen_classes"], problem)
        notes.append(
            "these classes are too rare for both halves of the data, so their samples stay candidates in iteration 1: "
            f"{listed}"
        )
    if settings.protocol == "auto" and k < settings.n_iterations and new < LEAST_GAIN * n:
        stopped = True
        notes.append(f"stopped after iteration {k}: it selected {new} of {n} samples, too few to continue")
    return replace(state, history=(*state.history, history), notes=tuple(notes), stopped=stopped)


def some_classes(codes: Sequence[int], problem: Problem) -> str:
    """The classes with the most labels, and how many more there are."""
    counts = np.bincount(problem.given, minlength=problem.classes).tolist()
    listed = []
    for code in sorted(codes, key=lambda code: (-counts[code], code))[:LISTED_CLASSES]:
        name = problem.names[code] if problem.names is not None else code
        listed.append(f"class {name!r} ({counts[code]} label{'s' * (counts[code] != 1)})")
    more = f" and {len(codes) - LISTED_CLASSES} more" if len(codes) > LISTED_CLASSES else ""
    return ", ".join(listed) + more


# ---------------------------------------------------------------- seeds, and running a selection


def job_seed(seed: int, *place: int) -> int:
    """A seed for each training, the same wherever and whenever it runs."""
    return int(np.random.SeedSequence([seed, *place]).generate_state(1)[0] >> 1)


def split_seeds(seed: int, k: int, places: tuple[int, int], repeats: int) -> list[int]:
    """Two seeds for each split of iteration `k`; those of the first split do not depend on the number of repeats."""
    return [job_seed(seed, k, place, *((s,) if s else ())) for s in range(repeats) for place in places]


def rare_classes(selection: Selection) -> list[int]:
    """Codes of classes that never were in both halves, so that none of their labels could be checked both ways."""
    unseen = [set(line.get("unseen_classes", ())) for line in selection.history]
    return sorted(set.intersection(*unseen)) if unseen else []


def drive(steps: Steps, trainer: Trainer) -> Selection:
    """Run one selection to its end."""
    return drive_together([steps], trainer)[0]


def drive_together(generators: Sequence[Steps], trainer: Trainer) -> list[Selection]:
    """Run several selections at once: the jobs that they ask for at the same time are one request to the trainer."""
    results: dict[int, Selection] = {}
    wanted: dict[int, list[Job]] = {}

    def advance(which: int, scores: list[Scores] | None) -> None:
        steps = generators[which]
        try:
            wanted[which] = next(steps) if scores is None else steps.send(scores)
        except StopIteration as end:
            results[which] = end.value

    for which in range(len(generators)):
        advance(which, None)
    while wanted:
        asked, wanted = wanted, {}
        answers = trainer.train_and_score([job for jobs in asked.values() for job in jobs])
        start = 0
        for which, jobs in asked.items():
            advance(which, answers[start : start + len(jobs)])
            start += len(jobs)
    return [results[which] for which in range(len(generators))]
