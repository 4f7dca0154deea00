"""The posterior of each label: flags, suspicion and suggestions follow from it.

With a(r) and e(r) of the noise model at the confidence r of the prediction m, and T-hat for the confusions:

    P(z = m) = a(r),   P(z = k) = (1 - a(r)) p_k / (1 - p_m)   for the other classes
    P(z = k | y)  ~  P(z = k) P(y | z = k, r)

where P(y = k | z = k, r) = (1 - e(r)) times the factor of class k, and the rest is spread as T-hat spreads it.
Suspicion is the posterior of "wrong", made to rise along the order that ranks best: the mean of p_y and
p_y T_yy / (p T)_y.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from labelsieve.selection.noise_model import NoiseModel, class_factors, off_diagonal, rising
from labelsieve.selection.splits import SMALLEST, top_classes_of
from labelsieve.types import BoolArray, FloatArray, IntArray, Scores

# Groups of neighbours in the order whose posteriors are averaged: at most this many, for speed. With 60, few wrong
# labels of many were averaged with right ones and looked harmless.
LEVELS = 5_000
RANK_SHARE = 1e-3  # of suspicion that is the rank itself, so that no two levels tie
BLOCK_ROWS = 1 << 13  # samples at a time: they stay in the processor's cache
LEAST_SUSPICION = 1 / 3  # of a flagged label: clean labels have a low threshold of F1 (benchmarks/real-noise.md)
CERTAIN = 1e-9  # a smaller 1 - confidence is rounding
LEAST_ODDS = 1e-4  # the smallest suspicion of a selection in log-odds: a label may still turn out to be wrong


class Posterior(NamedTuple):
    """One entry per sample."""

    wrong: FloatArray  # P(the given label is wrong)
    predicted_right: FloatArray  # P(the predicted class is the true one | the given label is wrong)
    order: FloatArray  # ranks the labels, most suspicious last, 0 to 1


def posterior_of(scores: Scores, given: IntArray, model: NoiseModel) -> Posterior:
    """The posterior of every label from held-out scores."""
    starts = range(0, max(1, len(given)), BLOCK_ROWS)
    spread = confusions(model.transition)
    blocks = (slice(start, start + BLOCK_ROWS) for start in starts)
    parts = [_posterior(scores.take(block), given[block], model, spread) for block in blocks]
    return Posterior(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _posterior(scores: Scores, given: IntArray, model: NoiseModel, spread: FloatArray) -> Posterior:
    T, prior = model.transition, model.estimate.prior
    classes, confidence = len(T), scores.confidence
    top, probs, _ = top_classes_of(scores, classes)
    is_given = top == given[:, None]
    p_given = np.where(is_given.any(axis=1), (probs * is_given).sum(axis=1), scores.probability)
    p_rest = np.maximum(1 - np.where(is_given, 0.0, probs).sum(axis=1) - p_given, 0.0)

    # Ranking: what the noise makes of the predicted probabilities.
    mixed = np.where(is_given, 0.0, probs * T[top, given[:, None]]).sum(axis=1)
    others = ((T.sum(axis=0) - np.diagonal(T)) / max(classes - 1, 1))[given]
    right = p_given * T[given, given]
    order = 1 - (p_given + right / np.maximum(right + mixed + p_rest * others, SMALLEST)) / 2

    # Level: accuracy and noise at this confidence.
    accuracy, noise = model.accuracy_at(confidence), model.noise_at(confidence)
    keeps = np.clip((1 - noise)[:, None] * class_factors(T, prior)[top], 0.01, 0.999)
    keeps_given = np.clip((1 - noise) * class_factors(T, prior)[given], 0.01, 0.999)
    agrees = scores.predicted == given
    scale = (1 - accuracy) / np.maximum(1 - confidence, CERTAIN)
    weight = probs * scale[:, None]
    weight[:, 0] = accuracy
    for_given = np.where(agrees, accuracy, p_given * scale) * keeps_given
    for_top = np.where(is_given, 0.0, weight * (1 - keeps) * spread[top, given[:, None]])
    for_rest = p_rest * scale * noise * (spread.sum(axis=0) / max(classes - 1, 1))[given]
    against = for_top.sum(axis=1) + for_rest
    wrong = against / np.maximum(for_given + against, SMALLEST)
    predicted_right = np.where(agrees, 0.0, for_top[:, 0] / np.maximum(against, SMALLEST))
    return Posterior(wrong, predicted_right, order)


def confusions(transition: FloatArray) -> FloatArray:
    """P(y | z, y wrong), rows sum to 1."""
    found = off_diagonal(transition)
    total = found.sum(axis=1, keepdims=True)
    found /= np.maximum(total, SMALLEST)
    never_wrong = np.flatnonzero(total[:, 0] <= 0)
    found[never_wrong] = 1 / max(len(found) - 1, 1)
    found[never_wrong, never_wrong] = 0.0
    return found


def calibrate(order: FloatArray, wrong: FloatArray) -> FloatArray:
    """Suspicion: the nearest values to `wrong` that rise along `order`, with the rank kept. nan where either is."""
    found = np.full(len(order), np.nan)
    rows = np.flatnonzero(~(np.isnan(order) | np.isnan(wrong)))
    if len(rows) == 0:
        return found
    _, inverse, counts = np.unique(order[rows], return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - counts / 2) / len(rows)
    _, level = np.unique((rank * LEVELS).astype(np.int64), return_inverse=True)
    sizes = np.asarray(np.bincount(level, weights=counts), dtype=np.float64)
    means = np.bincount(level, weights=np.bincount(inverse, weights=wrong[rows])) / sizes
    centres = np.bincount(level, weights=rank * counts) / sizes
    suspicion = (1 - RANK_SHARE) * np.interp(rank, centres, rising(means, sizes)) + RANK_SHARE * rank
    found[rows] = suspicion[inverse]
    return found


def shift_to_mean(log_odds: FloatArray, mean: float) -> float:
    """The shift of log-odds after which their probabilities have this mean."""
    low, high = -40.0, 40.0
    while high - low > 1e-9:
        shift = (low + high) / 2
        low, high = (low, shift) if probability_of(log_odds + shift).mean() > mean else (shift, high)
    return (low + high) / 2


def probability_of(log_odds: FloatArray) -> FloatArray:
    return np.asarray(1 / (1 + np.exp(-log_odds)))


def log_odds_of(probability: FloatArray, least: float) -> FloatArray:
    """Log-odds of probabilities that are clipped to least and 1 - least."""
    clipped = np.clip(probability, least, 1 - least)
    return np.asarray(np.log(clipped / (1 - clipped)))


def of_unlearnt_classes(suspicion: FloatArray, given: IntArray, unlearnt: BoolArray, ratio: float) -> FloatArray:
    """Suspicion whose mean is the noise ratio in each class that has too few labels to be learnt.

    Such a class is never predicted, so each of its labels looks wrong, however sure the predictions are. The order
    within a class stays.
    """
    found = suspicion.copy()
    for code in np.unique(given[unlearnt]):
        rows = np.flatnonzero(unlearnt & (given == code))
        log_odds = log_odds_of(suspicion[rows], LEAST_ODDS)
        found[rows] = probability_of(log_odds + shift_to_mean(log_odds, ratio))
    return found


def flag_labels(suspicion: FloatArray) -> BoolArray:
    """The labels to check: of those with at least LEAST_SUSPICION, the set of most suspicious ones with the largest
    expected F1."""
    known = np.nan_to_num(suspicion, nan=0.0)
    if len(known) == 0 or known.max() <= 0:
        return np.zeros(len(known), dtype=bool)
    ordered = np.sort(known)[::-1]
    expected = 2 * np.cumsum(ordered) / (np.arange(1, len(known) + 1) + known.sum())
    return np.asarray(known >= max(ordered[int(expected.argmax())], LEAST_SUSPICION))
