"""Several looks at a sample are better than one: the mean of the networks' log-probabilities.

A look keeps a sample's likeliest classes and their probabilities (`Scores.leaders`); all others get an even share of
the rest, at most what the last leader has. So the mean takes O(n) memory, and is nearly that of whole probabilities:

    L_i = mean over the looks of  log P(i)         the class with the largest L wins

The probability of the given label is known too, but must not enter: a prediction that knows the label it is to check
would confirm it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from labelsieve.types import LEADERS, BoolArray, FloatArray, IntArray, Scores

SMALLEST = 1e-12
BLOCK = 1 << 17  # samples at a time
Split = tuple[IntArray, IntArray]


def averaged(looks: Sequence[Scores], given: IntArray, classes: int) -> Scores:
    """One Scores of several for the same samples; `given` are their labels."""
    blocks = [slice(start, start + BLOCK) for start in range(0, max(1, len(given)), BLOCK)]
    return Scores.joined([_averaged([look.take(rows) for look in looks], given[rows], classes) for rows in blocks])


def _averaged(looks: Sequence[Scores], given: IntArray, classes: int) -> Scores:
    known = [leaders_of(look, classes) for look in looks]
    candidates = np.concatenate([leaders for leaders, _, _ in known], axis=1)
    levels = np.zeros(candidates.shape)
    for leaders, shares, rest in known:
        own = np.broadcast_to(rest[:, None], candidates.shape).copy()
        for column in range(leaders.shape[1]):
            np.copyto(own, shares[:, column, None], where=candidates == leaders[:, column, None])
        levels += np.log(own) / len(looks)
    others = np.mean([np.log(rest) for _, _, rest in known], axis=0)  # of a class that leads nowhere
    first = _first_of_its_kind(candidates)
    total = np.where(first, np.exp(levels), 0.0).sum(axis=1)
    total += np.maximum(classes - first.sum(axis=1), 0) * np.exp(others)
    rows, best = np.arange(len(given)), levels.argmax(axis=1)
    predicted, confidence = candidates[rows, best], np.exp(levels[rows, best]) / total

    # What a look said of the given label itself is finer than the even share, and asks for no argmax.
    of_given = np.exp(np.mean([np.log(np.maximum(look.probability, SMALLEST)) for look in looks], axis=0)) / total
    probability = np.where(predicted == given, confidence, np.minimum(of_given, np.minimum(confidence, 1 - confidence)))
    probability = np.maximum(probability, SMALLEST)
    order = np.argsort(np.where(first, -levels, np.inf), axis=1, kind="stable")[:, : min(LEADERS, classes)]
    return Scores(
        predicted, probability, confidence, -np.log(probability),
        leaders=np.take_along_axis(candidates, order, axis=1).astype(np.int32),
        shares=(np.exp(np.take_along_axis(levels, order, axis=1)) / total[:, None]).astype(np.float32),
    )  # fmt: skip


def leaders_of(look: Scores, classes: int) -> tuple[IntArray, FloatArray, FloatArray]:
    """A look's likeliest classes, their probabilities, and that of any other class."""
    told = look.leaders is not None and look.shares is not None
    leaders = np.asarray(look.leaders if told else look.predicted[:, None], dtype=np.int64)
    shares = np.clip(np.asarray(look.shares if told else look.confidence[:, None], dtype=np.float64), SMALLEST, 1.0)
    rest = (1 - shares.sum(axis=1)) / max(classes - leaders.shape[1], 1)
    return leaders, shares, np.clip(rest, SMALLEST, shares[:, -1])


def _first_of_its_kind(candidates: IntArray) -> BoolArray:
    """Where a row's value stands for the first time."""
    found = np.ones(candidates.shape, dtype=np.bool_)
    for column in range(1, candidates.shape[1]):
        found[:, column] = (candidates[:, :column] != candidates[:, column, None]).all(axis=1)
    return found


def over_first_split(
    splits: Sequence[Split], answers: Sequence[Scores], labels: IntArray, classes: int
) -> tuple[Scores, Scores]:
    """The average over all splits, cut into the first one's halves; `answers` are two a split, in order."""
    if len(splits) == 1:
        return answers[0], answers[1]
    samples = np.sort(np.concatenate(splits[0]))
    looks = []
    for s, split in enumerate(splits):
        order = np.searchsorted(samples, np.concatenate(split))
        looks.append(_placed(answers[2 * s : 2 * s + 2], order))
    mean = averaged(looks, labels[samples], classes)
    first, second = (mean.take(np.searchsorted(samples, half)) for half in splits[0])
    return first, second


def _placed(parts: Sequence[Scores], order: IntArray) -> Scores:
    """Two halves' scores as one, each sample's in its place."""
    return Scores.joined(parts).take(np.argsort(order))
