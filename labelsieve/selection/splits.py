"""Random splits of the samples, and the mean of the predictions of several splits.

A split is even by class. Copies of a sample, and samples of one group, are on one side: a copy with a wrong label in
the half that trains would confirm that label in the other half.

Several predictions of a sample are combined by the mean of their log-probabilities. Scores keep the top classes of a
sample and their probabilities; all other classes get an even share of the rest, at most the probability of the last
class kept. So the mean takes O(n) memory and is nearly that of whole probabilities:

    L_i = mean over the predictions of  log P(i)         the class with the largest L wins

The probability of the given label must not enter: a prediction that knows the label it checks would confirm it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from labelsieve.types import TOP_CLASSES, BoolArray, FloatArray, IntArray, Scores


def halves(candidates: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Return two random halves."""
    order = rng.permutation(candidates)
    middle = (len(order) + 1) // 2
    return np.sort(order[:middle]), np.sort(order[middle:])


def stratified_parts(
    members: IntArray, labels: IntArray, parts: int, rng: np.random.Generator, groups: IntArray | None = None
) -> list[IntArray]:
    """Return random parts with equal shares of every class; the members of a group (equal codes) are in one part."""
    order = rng.permutation(members)
    if groups is not None:
        found = _by_group(order, labels, groups, parts)
        if all(len(part) for part in found):  # with too few groups, parts that share groups are better than none
            return found
    order = order[np.argsort(labels[order], kind="stable")]
    return [np.sort(order[k::parts]) for k in range(parts)]


def _by_group(order: IntArray, labels: IntArray, groups: IntArray, parts: int) -> list[IntArray]:
    """Deal groups to the parts by class, the largest first, in alternating order, so that parts have similar sizes."""
    codes, first, inverse, size = np.unique(groups[order], return_index=True, return_inverse=True, return_counts=True)
    lead = labels[order[first]]
    rank = np.lexsort((first, -size, lead))
    begins = np.diff(lead[rank], prepend=lead[rank[:1]] - 1) != 0
    kind = np.cumsum(begins) - 1
    turn, at = np.divmod(np.arange(len(codes)) - np.flatnonzero(begins)[kind], parts)
    part = np.empty(len(codes), dtype=np.int64)
    part[rank] = (np.where(turn % 2, parts - 1 - at, at) + kind) % parts  # not every class begins with the same part
    return [np.sort(order[part[inverse] == k]) for k in range(parts)]


SMALLEST = 1e-12  # avoids a division by 0
BLOCK = 1 << 17  # samples at a time
Split = tuple[IntArray, IntArray]


def distinct_share(groups: IntArray | None) -> float:
    """The share of samples that are not copies of others, or in a group with them."""
    return 1.0 if groups is None else len(np.unique(groups)) / len(groups)


def average_scores(
    predictions: Sequence[Scores], given: IntArray, classes: int, weights: Sequence[float] | None = None
) -> Scores:
    """Return the mean of several scores of the same samples; `given` are their labels."""
    shares = np.array(weights or [1.0] * len(predictions)) / sum(weights or [len(predictions)])
    blocks = [slice(start, start + BLOCK) for start in range(0, max(1, len(given)), BLOCK)]
    parts = (([one.take(rows) for one in predictions], given[rows]) for rows in blocks)
    return Scores.concatenate([_average_some(some, labels, classes, shares) for some, labels in parts])


def _average_some(predictions: Sequence[Scores], given: IntArray, classes: int, shares: FloatArray) -> Scores:
    known = [top_classes_of(one, classes) for one in predictions]
    candidates = np.concatenate([top_classes for top_classes, _, _ in known], axis=1)
    levels = np.zeros(candidates.shape)
    for share, (top_classes, top_probs, rest) in zip(shares, known, strict=True):
        own = np.broadcast_to(rest[:, None], candidates.shape).copy()
        for column in range(top_classes.shape[1]):
            np.copyto(own, top_probs[:, column, None], where=candidates == top_classes[:, column, None])
        levels += share * np.log(own)
    # Of a class that no prediction kept.
    others = np.average([np.log(rest) for _, _, rest in known], axis=0, weights=shares)
    first = _first_of_its_kind(candidates)
    total = np.where(first, np.exp(levels), 0.0).sum(axis=1)
    total += np.maximum(classes - first.sum(axis=1), 0) * np.exp(others)
    rows, best = np.arange(len(given)), levels.argmax(axis=1)
    predicted, confidence = candidates[rows, best], np.exp(levels[rows, best]) / total

    # The stored probability of the given label is finer than the even share.
    logs = [np.log(np.maximum(one.probability, SMALLEST)) for one in predictions]
    of_given = np.exp(np.average(logs, axis=0, weights=shares)) / total
    probability = np.where(predicted == given, confidence, np.minimum(of_given, np.minimum(confidence, 1 - confidence)))
    probability = np.maximum(probability, SMALLEST)
    order = np.argsort(np.where(first, -levels, np.inf), axis=1, kind="stable")[:, : min(TOP_CLASSES, classes)]
    return Scores(
        predicted, probability, confidence, -np.log(probability),
        top_classes=np.take_along_axis(candidates, order, axis=1).astype(np.int32),
        top_probs=(np.exp(np.take_along_axis(levels, order, axis=1)) / total[:, None]).astype(np.float32),
    )  # fmt: skip


def top_classes_of(scores: Scores, classes: int) -> tuple[IntArray, FloatArray, FloatArray]:
    """The top classes of each sample, their probabilities, and the probability of each other class."""
    kept = scores.top_classes is not None and scores.top_probs is not None
    top_classes = np.asarray(scores.top_classes if kept else scores.predicted[:, None], dtype=np.int64)
    top_probs = np.clip(
        np.asarray(scores.top_probs if kept else scores.confidence[:, None], dtype=np.float64), SMALLEST, 1.0
    )
    rest = (1 - top_probs.sum(axis=1)) / max(classes - top_classes.shape[1], 1)
    return top_classes, top_probs, np.clip(rest, SMALLEST, top_probs[:, -1])


def _first_of_its_kind(candidates: IntArray) -> BoolArray:
    """True where a value is the first of its kind in the row."""
    found = np.ones(candidates.shape, dtype=np.bool_)
    for column in range(1, candidates.shape[1]):
        found[:, column] = (candidates[:, :column] != candidates[:, column, None]).all(axis=1)
    return found


def over_first_split(
    splits: Sequence[Split], answers: Sequence[Scores], labels: IntArray, classes: int
) -> tuple[Scores, Scores]:
    """The mean over all splits, for the halves of the first one; `answers` are two per split, in order."""
    if len(splits) == 1:
        return answers[0], answers[1]
    samples = np.sort(np.concatenate(splits[0]))
    predictions = []
    for s, split in enumerate(splits):
        order = np.searchsorted(samples, np.concatenate(split))
        predictions.append(Scores.concatenate(answers[2 * s : 2 * s + 2]).take(np.argsort(order)))
    mean = average_scores(predictions, labels[samples], classes)
    first, second = (mean.take(np.searchsorted(samples, half)) for half in splits[0])
    return first, second
