"""Several random splits instead of one: each sample is looked at by several networks, whose answers are averaged.

The mean of the log-probabilities would need all c of them for every sample. What is kept of a look is the predicted
class with its probability q, so every other class is given an even share of the rest, (1 - q) / (c - 1):

    L_i = mean over the looks of  log q  where i was predicted,  log (1 - q) / (c - 1)  where not

and the class with the largest L wins: a vote, weighted by confidence. It needs O(n) memory a look. The probability of
the given label is known too, but must not enter: a prediction that knows the label it is to check would confirm it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from labelsieve.types import FloatArray, IntArray, Scores

SMALLEST = 1e-12
Split = tuple[IntArray, IntArray]


def averaged(looks: Sequence[Scores], given: IntArray, classes: int) -> Scores:
    """One Scores of several for the same samples; `given` are their labels."""
    q = [np.clip(look.confidence, SMALLEST, 1.0) for look in looks]
    rest = [np.maximum((1 - one) / max(classes - 1, 1), SMALLEST) for one in q]

    def level(which: IntArray) -> FloatArray:
        each = [
            np.log(np.where(which == look.predicted, a, b)) for look, a, b in zip(looks, q, rest, strict=True)
        ]  # fmt: skip
        return np.asarray(np.mean(each, axis=0))

    others = np.mean(np.log(rest), axis=0)  # of a class that nobody predicted
    predicted, best = looks[0].predicted.copy(), level(looks[0].predicted)
    total, distinct = np.exp(best), np.ones(len(given))
    for k, look in enumerate(looks[1:], start=1):
        found = level(look.predicted)
        new = np.all([look.predicted != earlier.predicted for earlier in looks[:k]], axis=0)
        total += np.where(new, np.exp(found), 0.0)
        distinct += new
        predicted, best = np.where(found > best, look.predicted, predicted), np.maximum(found, best)
    total += np.maximum(classes - distinct, 0.0) * np.exp(others)
    confidence = np.exp(best) / total
    of_given = np.exp(np.mean([np.log(np.maximum(look.probability, SMALLEST)) for look in looks], axis=0)) / total
    probability = np.where(predicted == given, confidence, np.minimum(of_given, np.minimum(confidence, 1 - confidence)))
    probability = np.maximum(probability, SMALLEST)
    return Scores(predicted, probability, confidence, -np.log(probability))


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
    first, second = (_cut(mean, np.searchsorted(samples, half)) for half in splits[0])
    return first, second


def _placed(parts: Sequence[Scores], order: IntArray) -> Scores:
    """Two halves' scores as one, each sample's in its place."""
    back = np.argsort(order)
    names = ("predicted", "probability", "confidence", "loss")
    return Scores(*(np.concatenate([getattr(part, name) for part in parts])[back] for name in names))


def _cut(scores: Scores, rows: IntArray) -> Scores:
    return Scores(scores.predicted[rows], scores.probability[rows], scores.confidence[rows], scores.loss[rows])
