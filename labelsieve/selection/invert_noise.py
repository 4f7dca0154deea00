"""A network that learnt noisy labels predicts noisy labels: q = p T. What it knows of the true classes is p.

Under pair noise of 0.4 a perfect network gives a picture's class 0.6 and the next one 0.4, so that a small mistake
turns its prediction over; p gives them 1 and 0. For symmetric noise p and q have the same order, and nothing changes.

    p >= 0 with p T near q, in relative entropy:    p <- p * (q / (p T)) T^t    (each step nearer)

q is what a look keeps: the likeliest classes, and an even share of the rest for all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from labelsieve.selection.estimate import NoiseEstimate, estimate_from_scores, pair_counts
from labelsieve.selection.joint_counts import can_invert, non_negative_least_squares
from labelsieve.selection.repeats import SMALLEST, leaders_of
from labelsieve.types import LEADERS, FloatArray, IntArray, Scores

STEPS = 5
SMOOTHING = 0.02  # of T towards even rows: twenty counted labels cannot say that a mistake never happens
MOST_CLASSES = 200  # above, their square times the samples takes longer than it brings
BLOCK_CELLS = 4_000_000


def can_unmix(transition: FloatArray) -> bool:
    """Whether T is of a size, and tells classes apart well enough, to be undone."""
    return len(transition) <= MOST_CLASSES and can_invert(transition)


def unmixed(scores: Scores, given: IntArray, transition: FloatArray) -> Scores:
    """The same looks with p in place of q; `transition` is of the labels that the network was trained on."""
    c = len(transition)
    T = (1 - SMOOTHING) * transition + SMOOTHING / c
    rows = max(1, BLOCK_CELLS // c)
    blocks = [slice(start, start + rows) for start in range(0, max(1, len(given)), rows)]
    return Scores.joined([_unmixed(scores.take(block), given[block], T) for block in blocks])


def _unmixed(scores: Scores, given: IntArray, T: FloatArray) -> Scores:
    c, at = len(T), np.arange(len(given))
    leaders, shares, rest = leaders_of(scores, c)
    q = np.repeat(rest[:, None], c, axis=1)
    np.put_along_axis(q, leaders, shares, axis=1)
    p = np.full_like(q, 1 / c)
    for _ in range(STEPS):
        p *= (q / np.maximum(p @ T, SMALLEST)) @ T.T
    p = np.maximum(p / np.maximum(p.sum(axis=1, keepdims=True), SMALLEST), SMALLEST)
    order = np.argsort(-p, axis=1, kind="stable")[:, :LEADERS]
    best = order[:, 0]
    of_given = p[at, given]
    return Scores(
        best.astype(np.int64), of_given, p[at, best], -np.log(of_given),
        leaders=order.astype(np.int32), shares=np.take_along_axis(p, order, axis=1).astype(np.float32),
    )  # fmt: skip


def label_right(scores: Scores, given: IntArray, transition: FloatArray) -> FloatArray:
    """P(given label is right) = p_j T_jj / (p T)_j: what a look says of the classes, and what the noise makes of them.

    Where mistakes prefer some classes this ranks better than the look alone: a cat called dog is suspicious if dogs are
    what cats are called.
    """
    c, block = len(transition), 1 << 17
    T = (1 - SMOOTHING) * transition + SMOOTHING / c
    columns, found = T.sum(axis=0), np.empty(len(given))
    for start in range(0, len(given), block):
        rows = slice(start, start + block)
        j = given[rows]
        leaders, shares, rest = leaders_of(scores.take(rows), c)
        own = T[leaders, j[:, None]]
        mixed = (shares * own).sum(axis=1) + rest * (columns[j] - own.sum(axis=1))
        found[rows] = scores.probability[rows] * T[j, j] / np.maximum(mixed, SMALLEST)
    return np.clip(found, 0.0, 1.0)


def expected_accuracy(looks: Sequence[Scores], given: Sequence[IntArray], noise: NoiseEstimate) -> float:
    """How often the predictions are right if the noise is T-hat: from their joint with the given labels (`joint`).

    Where T-hat cannot be undone: how often they agree with the given labels, which orders them as well if the noise is
    even. (If it is not, a prediction of the class that mistakes prefer agrees more often than other wrong ones.)
    """
    c = len(noise.transition)
    joint = sum((pair_counts(s.predicted, y, c) for s, y in zip(looks, given, strict=True)), np.zeros((c, c)))
    if not can_unmix(noise.transition):
        return float(np.trace(joint) / joint.sum())
    M = joint.sum() * noise.prior[:, None] * noise.transition
    P = non_negative_least_squares(M, joint)
    return float(np.diagonal(P) @ noise.prior)


def better_unmixed(
    answers: Sequence[Scores], given: Sequence[IntArray], noise: NoiseEstimate
) -> tuple[list[Scores], bool]:
    """The halves' looks unmixed, if the noise is uneven and they are then right more often, as far as held-out labels
    can tell; otherwise as they are."""
    if not (can_unmix(noise.transition) and noise.uneven):
        return list(answers), False
    found = [unmixed(scores, labels, noise.transition) for scores, labels in zip(answers, given, strict=True)]
    better = expected_accuracy(found, given, noise) > expected_accuracy(answers, given, noise)
    return (found, True) if better else (list(answers), False)


def counted_again(
    looks: Sequence[Scores], given: Sequence[IntArray], noise: NoiseEstimate, *, seed: int, names: Sequence[Any] | None
) -> NoiseEstimate:
    """The noise counted once more from the looks with the first count undone: they are sure of others, and more often
    right of what they are sure of. The same estimate where undoing does not help."""
    undone, better = better_unmixed(looks, given, noise)
    if not better:
        return noise
    method = f"{noise.method}, twice"
    return estimate_from_scores(
        undone, given, len(noise.transition), seed=seed, method=method, held_out=looks, names=names
    )
