"""Iterative noisy cross-validation, algorithm 2 of the paper, as a generator that asks for trainings.

    S = {}, C = everything
    repeat:  split C at random into C_1 and C_2
             train f on S + C_1; S_1 = {samples of C_2 where f predicts the given label}
             R_1 = the r |S_1| others of C_2 with the largest loss
             the same with the halves exchanged: S_2, R_2
             S = S + S_1 + S_2,  C = C - S_1 - S_2 - R_1 - R_2

Protocol "paper" is told the noise pattern and reads the ratio from iteration 1's first half (Eq. 4). Protocol
"auto" is told nothing: in iteration 1 it measures the noise (`estimate`), which takes two more trainings, lets those
select too where they are better, and takes r from the noise. Uneven noise is undone in what networks predict (`unmix`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from labelsieve import theory
from labelsieve.errors import InputError
from labelsieve.scoring import suspicion_of
from labelsieve.selection.calibrate import judge
from labelsieve.selection.estimate import (
    NoiseEstimate,
    cross_fitted_steps,
    estimate_from_scores,
    hardly_predicted,
    pair_counts,
    remove_ratio,
    seldom_predicted,
)
from labelsieve.selection.finalize import JudgedSelection, finish
from labelsieve.selection.invert_noise import (
    better_unmixed,
    can_unmix,
    counted_again,
    expected_accuracy,
    label_right,
    unmixed,
)
from labelsieve.selection.joint_counts import MOST_CLASSES, can_invert, expected_right, left_over, selected_pairs
from labelsieve.selection.repeats import Split, averaged, over_first_split
from labelsieve.selection.settings import INCVSettings, authors_remove_ratio
from labelsieve.selection.shrink_transition import rows_to_one
from labelsieve.selection.splits import halves
from labelsieve.selection.state import NOT_JUDGED, INCVState
from labelsieve.selection.within_half_folds import FOLDS
from labelsieve.types import CANDIDATE, REMOVED, SELECTED, FloatArray, IntArray, Job, Scores, Selection

Steps = Generator[list[Job], list[Scores], JudgedSelection]
# Protocol "auto" stops when an iteration selected less than this share of all samples.
WORTH_AN_ITERATION = 0.005
NAMED = 5  # classes in a note that is about many


def together(chosen: IntArray, half: IntArray) -> IntArray:
    """Both, in order: no sample is in both, so nothing needs to be made unique."""
    return np.sort(np.concatenate([chosen, half]), kind="stable")


def largest_losses(pool: IntArray, loss: FloatArray, count: int) -> IntArray:
    """The `count` samples of `pool` with the largest loss; the earlier one where losses are equal."""
    order = np.lexsort((pool, -loss))
    return np.asarray(pool[order[: max(0, count)]])


def incv_steps(
    labels: Any,
    classes: int,
    *,
    settings: INCVSettings | None = None,
    seed: int,
    state: INCVState | None = None,
    on_iteration: Callable[[INCVState], None] | None = None,
    name: str = "incv",
    names: Sequence[Any] | None = None,
    groups: IntArray | None = None,
) -> Steps:
    """Select clean labels: yields lists of jobs, wants their scores, returns the Selection.

    `state` takes up a stopped run after its last iteration; `on_iteration` is handed the state after each.
    `name` starts every job's name; `names` are the users' own names of the classes, for the notes.
    `groups`: one code a sample; samples with the same one are never on both sides (protocol "paper" has none).
    """
    settings = settings or INCVSettings()
    given = check_labels(labels, classes)
    if seed < 0:
        raise InputError(f"seed: expected a whole number of at least 0, got {seed}")
    if state is None:
        state = replace(INCVState.start(len(given), classes), best_until=settings.best_until(None))
    if len(state.verdict) != len(given) or len(state.transition) != classes:
        raise InputError(
            f"the stored state is of {len(state.verdict)} samples and {len(state.transition)} classes, the labels are"
            f" {len(given)} of {classes}; start the selection anew"
        )
    while state.done < settings.n_iterations and not state.stopped:
        state = yield from iteration(state, given, classes, settings, seed, name, names, groups)
        if on_iteration is not None:
            on_iteration(state)
    return finish(state, classes, settings)


def iteration(
    state: INCVState,
    given: IntArray,
    classes: int,
    settings: INCVSettings,
    seed: int,
    name: str,
    names: Sequence[Any] | None,
    groups: IntArray | None,
) -> Generator[list[Job], list[Scores], INCVState]:
    """Lines 3 to 13 of algorithm 2."""
    k, paper, candidates = state.done + 1, settings.protocol == "paper", state.candidates
    if len(candidates) < 2:
        note = f"stopped after iteration {state.done}: {len(candidates)} candidates are left, too few for two halves"
        return replace(state, stopped=True, notes=(*state.notes, note))

    keep_best = k <= state.best_until
    splits, jobs = splits_and_jobs(state, given, settings, seed, name, keep_best, groups)
    answers = yield jobs
    check_answers(jobs, answers)
    scored, looks = splits[0], over_first_split(splits, answers, given, classes)
    history: dict[str, Any] = {
        "iteration": k,
        "candidates": len(candidates),
        "agreement": [float(np.mean(s.predicted == given[half])) for s, half in zip(looks, scored, strict=True)],
        "keep_best": keep_best,
        "splits": len(splits),
    }
    if paper:
        state = with_scores(state, scored, looks, given)
        state = with_paper_noise(state, history["agreement"][0], classes, settings) if k == 1 else state
    elif k == 1:
        seeds = split_seeds(seed, k, (3, 4), settings.repeats)
        state, told = yield from measured(
            state, given, classes, splits, looks, settings, seed, seeds, name, keep_best, names, groups
        )
        history |= told
    else:
        looks_now = unmixed_again(state, scored, looks, given)
        state = with_scores(state, scored, looks_now, given, state.transition if state.unmixes else None)

    verdict, fell = state.verdict.copy(), state.iteration.copy()
    for half, job in zip(scored, jobs[:2], strict=True):
        agrees = state.predicted[half] == given[half]
        # A label the training never saw could not be predicted: its samples stay candidates, whatever their loss.
        seen = np.bincount(given[job.train], minlength=classes) > 0
        # Nor can labels be judged of a class that is hardly ever predicted; one that seldom is would lose right ones.
        found = seen if paper else seen & ~seldom_predicted(state.predicted[half], given[half], classes)
        pool = half[~agrees & found[given[half]] & ~state.unjudged[half]]
        removed = largest_losses(pool, state.loss[pool], int(state.remove_ratio * int(agrees.sum())))
        verdict[half[agrees]], verdict[removed] = SELECTED, REMOVED
        fell[half[agrees]] = fell[removed] = k
        history.setdefault("unseen_classes", []).extend(np.unique(given[half][~seen[given[half]]]).tolist())
    state = replace(state, verdict=verdict, iteration=fell, done=k)
    if not paper:
        state = with_expected_right(state, candidates, given, classes)
    return with_history(state, history, given, settings, names)


def splits_and_jobs(
    state: INCVState,
    given: IntArray,
    settings: INCVSettings,
    seed: int,
    name: str,
    keep_best: bool,
    groups: IntArray | None,
) -> tuple[list[Split], list[Job]]:
    """The held-out halves of every split, and the trainings that are asked about them."""
    k, paper, chosen = state.done + 1, settings.protocol == "paper", state.selected
    # The paper starts every training from the same weights; the split's own generator is another one.
    seeds = (seed, seed) if paper else split_seeds(seed, k, (1, 2), settings.repeats)
    splits, jobs = [], []
    for s in range(settings.repeats):
        rng = np.random.default_rng([seed, k, 0, s] if s else [seed, k])
        first, second = halves(state.candidates, given, rng, even=not paper, groups=groups)
        suffix = f"-split{1 + s}" if s else ""
        splits.append((second, first))
        jobs += [
            Job(f"{name}-{k}-1{suffix}", given, together(chosen, first), second, seeds[2 * s], keep_best),
            Job(f"{name}-{k}-2{suffix}", given, together(chosen, second), first, seeds[2 * s + 1], keep_best),
        ]
    return splits, jobs


def measured(
    state: INCVState,
    given: IntArray,
    classes: int,
    splits: Sequence[Split],
    looks: tuple[Scores, Scores],
    settings: INCVSettings,
    seed: int,
    job_seeds: Sequence[int],
    name: str,
    keep_best: bool,
    names: Sequence[Any] | None,
    groups: IntArray | None,
) -> Generator[list[Job], list[Scores], tuple[INCVState, dict[str, Any]]]:
    """Iteration 1 of protocol "auto": the noise, what follows from it, and who selects."""
    scored = splits[0]
    labels = [given[half] for half in scored]
    estimate = estimate_from_scores(looks, labels, classes, seed=seed, method="confident counting", names=names)
    again: tuple[Scores, Scores] | None = None
    if settings.stored:
        estimate = counted_again(looks, labels, estimate, seed=seed, names=names)
    else:
        # The first count is good enough to choose what g learns from; the estimate by g is better.
        first, second = better_unmixed(looks, labels, estimate)[0]
        estimate, again = yield from cross_fitted_steps(
            given, classes, scored, (first, second), held_out=looks, seed=seed, job_seeds=job_seeds, name=name,
            keep_best=keep_best, more=splits[1:], own_folds=FOLDS if settings.own_half else 0, names=names,
            groups=groups, columns=settings.columns,
        )  # fmt: skip
    answers, unmixes = better_unmixed(looks, labels, estimate)
    told: dict[str, Any] = {"estimate": estimate.summary(), "unmixes": unmixes}
    state = with_scores(state, scored, answers, given, estimate.transition if unmixes else None)
    state = replace(state, unmixes=unmixes)
    if again is not None:
        state, told["selector"] = best_of_both(state, scored, answers, again, given, estimate)
    state = with_measured_noise(with_judgement(state, given, estimate), estimate, settings)
    if unjudged := np.unique(given[state.unjudged]).tolist():
        told["unjudged_classes"] = unjudged  # the note names a few of them, the pages want them all
        state = replace(state, notes=(*state.notes, about_unjudged(unjudged, given, names)))
    if unmixes:
        note = "mistakes prefer some classes: what was predicted is corrected for it before it selects"
        state = replace(state, notes=(*state.notes, note))
    return state, told


def unmixed_again(state: INCVState, scored: Split, looks: Sequence[Scores], given: IntArray) -> Sequence[Scores]:
    """After iteration 1: networks that were trained on the selected and half of the candidates."""
    if not state.unmixes:
        return looks
    trained_on = rows_to_one(state.kept + state.left / 2)
    if not can_unmix(trained_on):
        return looks
    return [unmixed(s, given[half], trained_on) for s, half in zip(looks, scored, strict=True)]


def with_scores(
    state: INCVState,
    scored: Sequence[IntArray],
    answers: Sequence[Scores],
    given: IntArray,
    noise: FloatArray | None = None,
) -> INCVState:
    """The candidates' held-out scores replace their older ones; suspicion is the mean over all looks.

    `noise` is the transition matrix of the given labels, where it is known to be uneven: it weighs into suspicion.
    """
    keys = ("predicted", "probability", "confidence", "loss", "suspicion", "looks")
    arrays = {key: getattr(state, key).copy() for key in keys}
    for half, scores in zip(scored, answers, strict=True):
        for key in keys[:4]:
            arrays[key][half] = getattr(scores, key)
        looks = arrays["looks"][half]
        new = suspicion_of(scores, given[half]) if noise is None else 1 - label_right(scores, given[half], noise)
        old = np.where(looks > 0, arrays["suspicion"][half], 0.0)
        arrays["suspicion"][half] = (old * looks + new) / (looks + 1)
        arrays["looks"][half] = looks + 1
    # Another label than the judged one: the network's own word on how much of what it does not give the given label.
    changed = ~np.isnan(state.share) & (arrays["predicted"] != state.predicted)
    of_rest = arrays["confidence"] / np.maximum(1 - arrays["probability"], 1e-12)
    share = np.where(changed, np.minimum(of_rest, 1.0), state.share)
    return replace(state, share=share, **arrays)


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
    best_until = settings.best_until(eps)
    told = "told" if settings.pattern != "auto" else "assumed: protocol paper must be told the pattern, and was not"
    formula = "0 for pair noise" if pattern == "pair" else "min(2, eps/(1-eps))"
    source = formula if settings.remove_ratio == "auto" else "as given"
    notes = [
        f"noise ratio {eps:.4f} by Eq. 4 from the first half's agreement {accuracy:.4f}; {pattern}, {told}",
        f"remove ratio {r:.4f}, {source}; {which_epoch(best_until)}",
    ]
    if not found.in_reach:
        notes.append(f"agreement {accuracy:.4f} is below what Eq. 4 explains; the noise ratio was clamped")
    transition = theory.pair(classes, eps) if pattern == "pair" else theory.symmetric(classes, eps)
    return replace(
        state,
        noise_ratio=eps,
        transition=transition,
        remove_ratio=r,
        best_until=best_until,
        notes=(*state.notes, *notes),
    )


def which_epoch(best_until: int) -> str:
    """In words."""
    if best_until < 1:
        return "a network's last epoch selects"
    return f"a network's best epoch selects up to iteration {best_until}, then its last one"


def best_of_both(
    state: INCVState,
    scored: Sequence[IntArray],
    answers: Sequence[Scores],
    again: Sequence[Scores],
    given: IntArray,
    noise: NoiseEstimate,
) -> tuple[INCVState, str]:
    """The estimate's networks, trained on what was just selected, are there anyway: of them, the first ones and the
    average of both, whoever is right most often, as far as held-out labels can tell, selects. All looks count for the
    suspicion."""
    labels = [given[half] for half in scored]
    pairs = zip(answers, again, labels, strict=True)
    selectors: dict[str, Sequence[Scores]] = {
        "trained on a half": answers,
        "trained on the first selection": again,
        "the average of both": [averaged((f, g), y, len(noise.transition)) for f, g, y in pairs],
    }
    name = max(selectors, key=lambda name: expected_accuracy(selectors[name], labels, noise))
    looked = with_scores(state, scored, again, given, noise.transition if state.unmixes else None)
    chosen = with_scores(state, scored, selectors[name], given)
    return replace(chosen, suspicion=looked.suspicion, looks=looked.looks), name


def with_judgement(state: INCVState, given: IntArray, estimate: NoiseEstimate) -> INCVState:
    """How likely each label is wrong, from iteration 1: later ones look at the doubtful samples only."""
    if len(estimate.transition) > MOST_CLASSES:
        return state
    wrong, suggested = judge(
        given, state.predicted, state.probability, state.confidence, estimate.transition, estimate.prior
    )
    # Where predicted and given label are the same, no other one is suggested.
    differ = state.predicted != given
    share = np.where(differ, np.minimum(suggested / np.maximum(wrong, 1e-12), 1.0), 0.0)
    unknown = np.isin(given, hardly_predicted(state.predicted, given, len(estimate.transition)))
    if not unknown.all():
        wrong[unknown] = share[unknown] = np.nan
    return replace(state, wrong=wrong, share=share)


def with_measured_noise(state: INCVState, estimate: NoiseEstimate, settings: INCVSettings) -> INCVState:
    """What protocol "auto" concludes from iteration 1."""
    classes, eps = len(estimate.transition), estimate.ratio
    h = estimate.concentration
    if settings.pattern != "auto":
        h = 1.0 if settings.asymmetric else 1 / (classes - 1)
    r = remove_ratio(estimate.judged_ratio, h, classes)  # labels that were not judged are not removed either
    source = f"from the noise ratio and concentration {h:.2f}"
    if not estimate.known:
        r, source = 0.0, "because the noise ratio is unknown"
    if settings.remove_ratio != "auto":
        r, source = float(settings.remove_ratio), "as given"
    low, high, most = (f"{100 * share:.1f}" for share in (estimate.low, estimate.high, estimate.upper_bound))
    interval = f"95 % interval {low} to {high} %, {most} % with the classifier's own mistakes"
    measured = f"{100 * eps:.1f} % ({interval}) by {estimate.method}" if estimate.known else "not known"
    notes = [f"noise ratio {measured}; {estimate.explanation}"]
    if not settings.stored:
        which = f"; {which_epoch(settings.best_until(eps))}" if settings.networks else ""
        notes.append(f"{r:.2f} samples are removed for each selected one, {source}{which}")
    return replace(
        state,
        noise_ratio=eps,
        transition=estimate.transition,
        left=len(state.verdict) * estimate.prior[:, None] * estimate.transition,
        precision_cap=theory.label_precision(estimate.transition, estimate.prior) if classes > MOST_CLASSES else 1.0,
        remove_ratio=r,
        best_until=settings.best_until(eps),
        notes=(*state.notes, *notes),
    )


def with_expected_right(state: INCVState, candidates: IntArray, given: IntArray, classes: int) -> INCVState:
    """How many of the labels just selected are right, and what the rest then looks like.

    Counted from the joint of predictions and labels; where that cannot tell classes apart, label by label (`judge`).
    """
    if classes > MOST_CLASSES:  # all that agree, under the cap of proposition 2
        agreeing = int(np.sum(state.predicted[candidates] == given[candidates]))
        return replace(state, right=state.right + agreeing)
    joint = pair_counts(state.predicted[candidates], given[candidates], classes)
    right, P = expected_right(joint, state.left)
    cell, stays = state.predicted[candidates] * classes + given[candidates], state.verdict[candidates] == CANDIDATE
    wrong, shares = np.where(np.isnan(state.wrong), state.noise_ratio, state.wrong), []
    for weight in (1 - wrong[candidates], wrong[candidates]):
        whole, part = (np.bincount(cell, weights=w, minlength=classes**2) for w in (weight, weight * stays))
        shares.append((part / np.maximum(whole, 1e-300)).reshape(classes, classes))
    left = left_over(state.left, P, joint, *shares)
    kept = state.kept + selected_pairs(joint, state.left, P)
    if not can_invert(state.transition):
        right = float(np.sum(1 - wrong[state.selected])) - state.right
    return replace(state, right=state.right + right, left=left, kept=kept)


def with_history(
    state: INCVState, history: dict[str, Any], given: IntArray, settings: INCVSettings, names: Sequence[Any] | None
) -> INCVState:
    """The iteration's line of history; with protocol "auto" also whether to go on."""
    k, n, chosen = state.done, len(given), state.selected
    new = int(np.sum(state.iteration[chosen] == k))
    history |= {
        "selected": new,
        "removed": int(np.sum(state.iteration[state.removed] == k)),
        "selected_total": len(chosen),
        "removed_total": len(state.removed),
        "candidates_left": len(state.candidates),
        "remove_ratio": state.remove_ratio,
        "noise_ratio": state.noise_ratio,
        "unseen_classes": sorted(set(history["unseen_classes"])),
    }
    if settings.protocol == "auto":
        history["expected_precision"] = min(state.precision_cap, state.right / max(1, len(chosen)))
    notes, stopped = list(state.notes), state.stopped
    if history["unseen_classes"] and k == 1:
        notes.append(about_unseen(history["unseen_classes"], given, names))
    if settings.protocol == "auto" and k < settings.n_iterations and new < WORTH_AN_ITERATION * n:
        stopped = True
        notes.append(f"stopped after iteration {k}: it selected {new} of {n} samples, a further one would add less")
    return replace(state, history=(*state.history, history), notes=tuple(notes), stopped=stopped)


def about_unjudged(codes: Sequence[int], given: IntArray, names: Sequence[Any] | None) -> str:
    """One sentence, however many classes it is about: a line a class would bury all other notes."""
    if len(codes) > 1:
        few = some(codes, given, names)
        return f"{len(codes)} classes are hardly ever predicted, so their labels are not judged, and stay: {few}"
    named = names[codes[0]] if names is not None else codes[0]
    count = int(np.sum(given == codes[0]))
    return f"class {named!r} ({count} labels) is hardly ever predicted: {NOT_JUDGED}, and stay"


def about_unseen(codes: Sequence[int], given: IntArray, names: Sequence[Any] | None) -> str:
    """Likewise."""
    rare, stay = "too rare for both halves", "samples stay candidates in iteration 1"
    if len(codes) > 1:
        return f"{len(codes)} classes are {rare}, so their {stay}: {some(codes, given, names)}"
    named = names[codes[0]] if names is not None else codes[0]
    return f"class {named!r} is {rare}: its {stay}"


def some(codes: Sequence[int], given: IntArray, names: Sequence[Any] | None) -> str:
    """The classes with the most labels, and how many more there are."""
    counts = np.bincount(given, minlength=max(codes) + 1).tolist()
    listed = []
    for code in sorted(codes, key=lambda code: (-counts[code], code))[:NAMED]:
        named = names[code] if names is not None else code
        listed.append(f"{named!r} ({counts[code]} label{'s' * (counts[code] != 1)})")
    more = f" and {len(codes) - NAMED} more" if len(codes) > NAMED else ""
    return ", ".join(listed) + more


def check_labels(labels: Any, classes: int) -> IntArray:
    """Codes 0 .. classes-1 of at least two classes."""
    given = np.asarray(labels)
    if given.ndim != 1 or not np.issubdtype(given.dtype, np.integer):
        raise InputError("labels: expected one whole number a sample")
    given = given.astype(np.int64)
    if len(given) and (given.min() < 0 or given.max() >= classes):
        raise InputError(f"labels: codes must lie in 0 .. {classes - 1}, found {given.min()} .. {given.max()}")
    if len(np.unique(given)) < 2:
        raise InputError("labels: there is one class only; selection needs samples of two classes or more")
    return given


def check_answers(jobs: Sequence[Job], answers: Sequence[Scores]) -> None:
    if len(answers) != len(jobs) or any(len(s.predicted) != len(j.score) for j, s in zip(jobs, answers, strict=False)):
        raise InputError("the trainer must answer every job with one score for each sample asked for")


def job_seed(seed: int, *place: int) -> int:
    """A seed of its own for each training, the same wherever and whenever it runs."""
    return int(np.random.SeedSequence([seed, *place]).generate_state(1)[0] >> 1)


def split_seeds(seed: int, k: int, places: tuple[int, int], repeats: int) -> list[int]:
    """Two trainings' seeds for each split of iteration `k`; the first split's are what they are without repeats."""
    return [job_seed(seed, k, place, *((s,) if s else ())) for s in range(repeats) for place in places]


def rare_classes(selection: Selection) -> list[int]:
    """Codes of classes that never were in both halves, so that none of their labels could be checked both ways."""
    unseen = [set(line.get("unseen_classes", ())) for line in selection.history]
    return sorted(set.intersection(*unseen)) if unseen else []
