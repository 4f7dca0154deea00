"""The most confident samples tell the noise as long as they are few: where confidences tie, nearly all of them count.

A tree, the nearest neighbour or a classifier with nothing but `predict` is equally sure of everything. Then it counts
its own mistakes as noise, and what is counted cannot even show it: among all samples it agrees with the labels exactly
as often as among the surest. What can be done, in this order:

1. A network's 1.0 in single precision is not yet certain: 1 less the probabilities of the other classes is finer.
2. Ties that hardly disagree with the labels say that hardly any is wrong, whoever is to blame for the rest.
3. A classifier that does grade, only coarsely (ten neighbours' votes), is asked a second time: mistakes that are its
   own would not all be repeated by the first classifier, which learnt from other labels. Where that one contradicts the
   tied far more seldom than their labels do, it is the labels that are wrong.
4. Otherwise the noise is not known: none of the labels may be wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from labelsieve.types import BoolArray, FloatArray, IntArray, Scores

MANY = 1 / 2  # of the samples that were not meant to count: where more do, they tie
NEARLY_ALL = 9 / 10  # of the same: then the classifier does not grade, and a second look cannot help
SELDOM_CONTRADICTED = 1 / 3  # of how often the labels disagree with the tied
HARMLESS = 0.05  # of all labels: as much as an interval may be wide to either side and still be called trustworthy
SINGLE = 2.0**-23  # what single precision does not tell from 1


class Confident(NamedTuple):
    """Which samples of some scores count, and of each predicted class how many there are and were meant to."""

    counts: BoolArray
    meant: IntArray
    there: IntArray


class Ties(NamedTuple):
    """What rests on tied confidences."""

    stake: float  # of all labels: so many that were read as wrong may be the classifier's own mistakes
    tied: int  # samples that count where too many do
    of: int

    @property
    def harm(self) -> bool:
        return self.stake > HARMLESS


def excess(counted: Any, meant: Any, there: Any) -> Any:
    """The share of those that were not meant to count and do."""
    return (counted - meant) / np.maximum(there - meant, 1)


def surest(scores: Scores, members: IntArray, size: int) -> BoolArray:
    """The `size` most confident of `members`, and all that are as sure as the last of them."""
    confidence = scores.confidence[members]
    found = _at_least(confidence, size)
    if scores.shares is None or excess(found.sum(), size, len(members)) <= MANY:
        return found
    inside = np.flatnonzero(found)
    if confidence[inside].min() >= 1 - SINGLE:
        others = scores.shares[members[inside], 1:].astype(np.float64).sum(axis=1)
        found[inside] = _at_least(1 - others, size)
    return found


def _at_least(confidence: FloatArray, size: int) -> BoolArray:
    """Where it is no less than the `size`-th largest."""
    return np.asarray(confidence >= np.partition(confidence, len(confidence) - size)[len(confidence) - size])


def ties_among(
    found: Sequence[Confident],
    scores: Sequence[Scores],
    second: Sequence[Scores] | None,
    given: Sequence[IntArray],
    noise: FloatArray,
) -> Ties:
    """How much of the noise rests on ties; `noise` is what each predicted class adds to the ratio, `second` what other
    classifiers say of the same samples."""
    counts = np.concatenate([f.counts for f in found])
    predicted = np.concatenate([s.predicted for s in scores])
    counted = np.bincount(predicted[counts], minlength=len(noise))
    meant, there = (np.sum([getattr(f, name) for f in found], axis=0) for name in ("meant", "there"))
    overall = float(excess(counted.sum(), meant.sum(), there.sum()))
    # Where all classes together tie, those that by themselves just do not are no better.
    tied = (excess(counted, meant, there) > MANY) | (overall > MANY)
    stake = float(noise[tied].sum())
    if stake > HARMLESS and overall <= NEARLY_ALL and second is not None:
        inside = np.flatnonzero(counts & tied[predicted])
        other, labels = np.concatenate([s.predicted for s in second]), np.concatenate(given)
        contradicted, disagreed = (np.sum((codes != predicted)[inside]) for codes in (other, labels))
        if contradicted <= SELDOM_CONTRADICTED * disagreed:
            stake = 0.0
    return Ties(stake, int(counted[tied].sum()), len(predicted))
