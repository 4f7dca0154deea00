"""Iterative noisy cross-validation as a generator that asks for trainings.

A selection yields lists of jobs and receives their scores, so that the same code runs on scikit-learn classifiers,
networks, a cluster or stored predictions. algorithm2.py has the iterations of protocol "paper", automatic.py those of
protocol "auto".
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from labelsieve.data.duplicates import MIN_DIFFERENT
from labelsieve.progress import counted, join_names
from labelsieve.selection import algorithm2, automatic
from labelsieve.selection.finalize import finish
from labelsieve.selection.settings import INCVSettings
from labelsieve.selection.state import INCVState, Problem
from labelsieve.types import IntArray, Job, Scores, Selection, Trainer

Steps = Generator[list[Job], list[Scores], Selection]
# Protocol "auto" stops when an iteration changed fewer verdicts than this share of all samples.
LEAST_CHANGE = 0.005
LISTED_CLASSES = 5  # classes that a note names


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
    problem = Problem(given, classes, settings, seed, name, names, groups)
    state = replace(INCVState.start(len(problem.given), classes), best_until=settings.best_until(None))
    while state.done < settings.n_iterations and not state.stopped:
        state = yield from iteration(state, problem)
        if on_iteration is not None:
            on_iteration(state)
    if note := mostly_removed_classes(state, problem):
        state = replace(state, notes=(*state.notes, note))
    return finish(state, settings)


def iteration(before: INCVState, problem: Problem) -> Generator[list[Job], list[Scores], INCVState]:
    """One more iteration, or the same state, stopped."""
    automatically = problem.settings.protocol == "auto"
    number = len(problem.given) if automatically else len(before.candidates)
    if number < 2:
        what = "samples" if automatically else "candidates"
        return before.stop(f"there are {number} {what} left, too few for two halves")
    if automatically:
        run = automatic.later_iteration if before.done else automatic.first_iteration
    else:
        run = algorithm2.iteration
    after, line = yield from run(before, problem)
    return after if after.done == before.done else with_history(before, after, line, problem)


def with_history(before: INCVState, after: INCVState, line: dict[str, Any], problem: Problem) -> INCVState:
    """Append the iteration's line of history; protocol "auto" also decides whether to go on."""
    k, n, settings, changed = after.done, len(problem.given), problem.settings, after.verdict != before.verdict
    line = {
        "iteration": k,
        "candidates": len(before.candidates),
        **line,
        "selected": int(np.sum(changed[after.selected])),
        "removed": int(np.sum(changed[after.removed])),
        "selected_total": len(after.selected),
        "removed_total": len(after.removed),
        "candidates_left": len(after.candidates),
        "remove_ratio": after.remove_ratio,
        "noise_ratio": after.noise_ratio,
    }
    if settings.protocol == "auto":
        line["expected_precision"] = after.expected_precision()
    if after.model is not None:
        line["estimate"] = after.model.estimate.record()
    after = replace(after, history=(*after.history, line))
    if line["unseen_classes"] and k == 1:
        listed = some_classes(line["unseen_classes"], problem)
        note = f"too few labels for both halves of the data: {listed}. These samples stay candidates in iteration 1"
        after = replace(after, notes=(*after.notes, note))
    if settings.protocol == "auto" and k < settings.n_iterations and changed.sum() < LEAST_CHANGE * n:
        after = after.stop(f"it changed the verdict of {int(changed.sum()):,} of {n:,} samples, too few to continue")
    return after


def mostly_removed_classes(state: INCVState, problem: Problem) -> str:
    """A note on classes that lost most of their labels although most labels of the data stay."""
    number = np.bincount(problem.given, minlength=problem.classes)
    removed = np.bincount(problem.given[state.removed], minlength=problem.classes)
    if 2 * len(state.removed) > len(problem.given):
        return ""
    codes = np.flatnonzero((2 * removed > number) & (number >= MIN_DIFFERENT)).tolist()
    if not codes:
        return ""
    listed = some_classes(codes, problem, removed)
    return (
        f"most labels of some classes were removed: {listed}. The classifier may confuse these classes with others: "
        "review their suspects before you use the result"
    )


def some_classes(codes: Sequence[int], problem: Problem, removed: IntArray | None = None) -> str:
    """The classes with the most labels, of which `removed` were removed, and how many more classes there are."""
    counts = np.bincount(problem.given, minlength=problem.classes).tolist()
    names = range(problem.classes) if problem.names is None else problem.names
    ordered = sorted(codes, key=lambda code: (-counts[code], code))
    parts = {code: "" if removed is None else f"{removed[code]:,} of " for code in ordered}
    shown = [f"class {names[code]!r} ({parts[code]}{counted(counts[code], 'label')})" for code in ordered]
    return join_names(shown, LISTED_CLASSES)


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
