"""Who measures the noise knows nothing of the labels it will count (estimate.py).

What selects inside a half was trained on the other half's labels, the very ones g then meets: where it learnt wrong
ones by heart g repeats some, is surest where they agree, and counts too little noise. Classifiers of texts, which have
more words than samples, learn much by heart and train in no time: there each half is also looked through by its own, in
folds, by classifiers that saw neither the fold nor the other half. These learn from fewer samples, so it is not done
for tables and pictures, where classifiers are weaker: their own mistakes would count as more noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from labelsieve.selection.repeats import Split
from labelsieve.selection.splits import shared_out
from labelsieve.types import BoolArray, IntArray, Job, Scores

FOLDS = 3


def fold_jobs(
    labels: IntArray,
    splits: Sequence[Split],
    *,
    folds: int,
    seeds: Sequence[int],
    name: str,
    keep_best: bool,
    groups: IntArray | None = None,
) -> list[Job]:
    """Trainings on a half less a fold, asked about the fold; `seeds` are two a split, one a half. None where a half is
    too small for folds."""
    if folds < 2 or min(len(half) for split in splits for half in split) < 2 * folds:
        return []
    jobs = []
    for s, split in enumerate(splits):
        for k, half in enumerate(split):
            seed = seeds[2 * s + k]
            rng = np.random.default_rng([seed, 0xF01D])
            for j, fold in enumerate(shared_out(half, labels, folds, rng, groups)):
                called = f"{name}-estimate-half{1 + k}-fold{1 + j}" + (f"-split{1 + s}" if s else "")
                rest = np.setdiff1d(half, fold, assume_unique=True)
                jobs.append(Job(called, labels, rest, fold, (seed + 1 + j) % 2**32, keep_best))
    return jobs


def agreeing(labels: IntArray, jobs: Sequence[Job], answers: Sequence[Scores], splits: int) -> list[BoolArray]:
    """Whose label was predicted by a classifier of the same half: one mask of all samples a split."""
    found = [np.zeros(len(labels), dtype=bool) for _ in range(splits)]
    for i, (job, answer) in enumerate(zip(jobs, answers, strict=True)):
        found[i * splits // len(jobs)][job.score] = answer.predicted == labels[job.score]
    return found
