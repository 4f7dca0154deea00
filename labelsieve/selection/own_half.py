"""What g may learn from, so that it knows nothing of the labels it will count (estimate.py).

What selects inside a half was trained on the other half's labels, the very ones g then meets: where it learnt wrong
ones by heart g repeats some, is surest where they agree, and counts too little noise. So where a training is cheap
each half is looked through by its own: in folds, by classifiers that saw neither the fold nor the other half.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np

from labelsieve.selection.repeats import Split
from labelsieve.types import BoolArray, IntArray, Job, Scores

FOLDS = 3


def folds_of(half: IntArray, labels: IntArray, folds: int, rng: np.random.Generator) -> list[IntArray]:
    """Random parts of a half, each with its share of every given class."""
    order = rng.permutation(half)
    order = order[np.argsort(labels[order], kind="stable")]
    return [np.sort(order[k::folds]) for k in range(folds)]


def agreeing_in_own_half(
    labels: IntArray, splits: Sequence[Split], *, folds: int, seeds: Sequence[int], name: str, keep_best: bool
) -> Generator[list[Job], list[Scores], list[BoolArray]]:
    """Whose label a classifier of the same half predicts that never saw it: one mask of all samples a split.

    `seeds` are two a split, as its g have.
    """
    jobs = []
    for s, split in enumerate(splits):
        for k, half in enumerate(split):
            seed = seeds[2 * s + k]
            for j, fold in enumerate(folds_of(half, labels, folds, np.random.default_rng([seed, 0xF01D]))):
                called = f"{name}-estimate-half{1 + k}-fold{1 + j}" + (f"-split{1 + s}" if s else "")
                rest = np.setdiff1d(half, fold, assume_unique=True)
                jobs.append(Job(called, labels, rest, fold, (seed + 1 + j) % 2**32, keep_best))
    answers = yield jobs
    found = [np.zeros(len(labels), dtype=bool) for _ in splits]
    for i, (job, answer) in enumerate(zip(jobs, answers, strict=True)):
        found[i // (2 * folds)][job.score] = answer.predicted == labels[job.score]
    return found
