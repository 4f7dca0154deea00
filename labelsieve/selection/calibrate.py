"""How likely a label is wrong: a probability that means what it says, from what selection has, without true labels.

A held-out classifier predicts class i with confidence q; the given label is j; T is the measured noise.

1. How often it is right. Among samples of equal confidence, a = P(true = i), the given labels agree with the
   prediction in A = a T_ii + (1 - a) u_i of the cases, u_i = sum_{k != i} w_ik T_ki, w_ik the classes it takes for i
   (`joint`). A is counted, so a = (A - u) / (t - u): its accuracy by confidence, however far its confidence is off.
2. Bayes. Where they agree, P(right) = a T_ii / A. Where not, the classifier gives label j the share s = p / (1 - q) of
   what it does not give i:  P(right) ~ (1 - a) s T_jj  against  a T_ij  and  (1 - a) (1 - s) v_j.
3. Its shares may be off as well: one shift of the log-odds makes the expected number of right labels among the
   disagreeing ones what step 1 says it is, sum (1 - a) sum_k w_ik T_kk.

Everything is a few numbers a sample: O(n) memory. benchmarks/calibration.md measures it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from labelsieve.selection.estimate import hardly_predicted, pair_counts
from labelsieve.selection.joint_counts import can_invert, non_negative_least_squares
from labelsieve.types import FloatArray, IntArray

BINS, BIN_LEAST = 20, 50  # of confidence: as many as there are samples for, the least where there is no noise
ORDER_BINS, ORDER_LEAST = 50, 25  # of a side of the order: what is judged of a handful is mostly chance
SHRINK = 0.2  # of each row of T-hat towards the mean row: twenty counted labels cannot say that a mistake never happens
RATIO_FLOOR = 1e-3
SHARE_FLOOR = 1e-4
MOST_ODDS = 20.0


class Judgement(NamedTuple):
    """One entry a sample; nan where the label is of a class that is hardly ever predicted, unless all are."""

    wrong: FloatArray  # P(given label is not the true one)
    suggested: FloatArray  # P(predicted label is the true one)


def rising(values: FloatArray, weights: FloatArray) -> FloatArray:
    """The nearest sequence that never falls (pool adjacent violators)."""
    means: list[float] = []
    sizes: list[float] = []
    counts: list[int] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        means.append(value)
        sizes.append(weight)
        counts.append(1)
        while len(means) > 1 and means[-2] > means[-1]:
            size = sizes[-2] + sizes[-1]
            means[-2:] = [(means[-2] * sizes[-2] + means[-1] * sizes[-1]) / size]
            sizes[-2:] = [size]
            counts[-2:] = [counts[-2] + counts[-1]]
    return np.repeat(means, counts)


def alike(x: FloatArray, number: int) -> list[IntArray]:
    """About `number` groups of equal size from the smallest x to the largest; equal ones stay together, so that the
    order of the samples does not count."""
    order = np.argsort(x, kind="stable")
    cuts = np.linspace(0, len(x), max(1, min(number, len(x))) + 1).astype(np.int64)[1:-1]
    ends = np.searchsorted(x[order], x[order[cuts]], side="left") if len(cuts) else cuts
    return [group for group in np.split(order, np.unique(ends)) if len(group)]


def curve(x: FloatArray, groups: list[IntArray], values: FloatArray) -> FloatArray:
    """Group values made rising and read off at every x, straight between the groups' means."""
    centres = np.array([x[group].mean() for group in groups])
    rise = rising(values, np.array([len(group) for group in groups], dtype=np.float64))
    return np.asarray(np.interp(x, centres, rise))


def shrunk(transition: FloatArray, prior: FloatArray, *, share: float = SHRINK) -> FloatArray:
    """T-hat whose rows borrow a share of the mean ratio and of an even spread over the other classes."""
    c = len(transition)
    apart = 1 - np.eye(c)
    own = 1 - np.diagonal(transition)
    ratio = np.clip((1 - share) * own + share * float(prior @ own), RATIO_FLOOR, 1 - RATIO_FLOOR)
    off = transition * apart
    total = off.sum(axis=1, keepdims=True)
    spread = np.where(total > 0, off / np.maximum(total, 1e-300), apart / (c - 1))
    spread = (1 - share) * spread + share * apart / (c - 1)
    return np.asarray(spread * ratio[:, None] + np.diag(1 - ratio))


def mistaken_for(predicted: IntArray, given: IntArray, transition: FloatArray, prior: FloatArray) -> FloatArray:
    """w_ik = P(true = k | predicted i, true != i), c x c; the prior alone where T-hat cannot tell classes apart."""
    c, n = len(transition), len(given)
    found = np.zeros((c, c))
    if can_invert(transition):
        M = n * prior[:, None] * transition
        found = non_negative_least_squares(M, pair_counts(predicted, given, c)) * M.sum(axis=1)
    found = (found + np.maximum(prior, 1e-9)) * (1 - np.eye(c))  # one sample's worth of prior
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def accuracy_by_confidence(agrees: FloatArray, confidence: FloatArray, t: FloatArray, u: FloatArray) -> FloatArray:
    """a of step 1, one a sample; `t` and `u` are how often labels agree with a right and with a wrong prediction."""
    # A group's a is as far off as its agreement by chance, over t - u: heavy noise needs larger groups.
    gap = max(float(np.mean(t - u)), 0.1)
    number = max(1, min(BINS, int(len(confidence) * gap**2 / BIN_LEAST)))
    groups = alike(confidence, number)
    counted = [(agrees[g].mean() - u[g].mean()) / max(float(t[g].mean() - u[g].mean()), 0.02) for g in groups]
    return np.clip(curve(confidence, groups, np.clip(np.array(counted), 0.0, 1.0)), 1e-3, 1 - 1e-3)


def shifted_to(probability: FloatArray, total: float) -> FloatArray:
    """The probabilities with one shift of all log-odds, so that they sum to `total`."""
    p = np.clip(probability, 1e-6, 1 - 1e-6)
    odds = np.log(p) - np.log1p(-p)
    low, high = -MOST_ODDS, MOST_ODDS
    for _ in range(50):
        shift = (low + high) / 2
        low, high = (shift, high) if (1 / (1 + np.exp(-odds - shift))).sum() < total else (low, shift)
    return np.asarray(1 / (1 + np.exp(-odds - shift)))


def judge(
    given: IntArray,
    predicted: IntArray,
    probability: FloatArray,
    confidence: FloatArray,
    transition: FloatArray,
    prior: FloatArray,
) -> Judgement:
    """P(wrong) of every label from held-out scores, T-hat and the share of each true class.

    `probability` is the given label's, `confidence` the predicted one's, as in `Scores`. Labels of classes that are
    hardly ever predicted say nothing of T-hat, nor it of them: all disagree, and would be given the wrong ones that it
    counted among the others.
    """
    found = Judgement(np.full(len(given), np.nan), np.full(len(given), np.nan))
    known = np.flatnonzero(~np.isin(given, hardly_predicted(predicted, given, len(transition))))
    rows = known if len(known) else np.arange(len(given))
    if len(rows) == 0:
        return found
    given, predicted, probability, confidence = given[rows], predicted[rows], probability[rows], confidence[rows]
    T = shrunk(transition, prior)
    diagonal = np.diagonal(T)
    w = mistaken_for(predicted, given, T, prior)
    agrees = given == predicted
    t, u = diagonal[predicted], (w * T.T).sum(axis=1)[predicted]
    a = accuracy_by_confidence(agrees.astype(np.float64), confidence, t, u)
    right = a * t / (a * t + (1 - a) * u)
    suggested = right.copy()

    d = np.flatnonzero(~agrees)
    if len(d):
        i, j, a_d = predicted[d], given[d], a[d]
        v = (prior @ T - prior * diagonal) / np.maximum(1 - prior, 1e-9)  # P(given = j | true != j)
        share = np.clip(probability[d] / np.maximum(1 - confidence[d], 1e-9), SHARE_FLOOR, 1 - SHARE_FLOOR)
        for_given, for_predicted, for_others = (
            (1 - a_d) * share * T[j, j],
            a_d * T[i, j],
            (1 - a_d) * (1 - share) * v[j],
        )
        expected = float(((1 - a) * (w @ diagonal)[predicted]).sum())
        right[d] = shifted_to(for_given / (for_given + for_predicted + for_others), min(expected, 0.999 * len(d)))
        suggested[d] = (1 - right[d]) * for_predicted / (for_predicted + for_others)
    found.wrong[rows], found.suggested[rows] = 1 - right, suggested
    return found


def calibrated_suspicion(suspicion: FloatArray, wrong: FloatArray, *, both: bool = True) -> FloatArray:
    """Suspicion (the mean over a sample's looks) as a probability: `wrong` says how large, both say in what order.

    Samples are ordered by the sum of the two, which ranks better than either; by suspicion alone where `wrong` rests on
    a T-hat that hardly tells classes apart (not `both`). Along that order the mean of `wrong`, made rising, is the
    answer, with as many wrong labels in all. Predicted labels (suspicion below 1/2) and others are never averaged: few
    wrong labels would drown among the right ones next to them. A sample never looked at (nan in either) stays nan.
    """
    found = np.full(len(suspicion), np.nan)
    seen = np.flatnonzero(~(np.isnan(suspicion) | np.isnan(wrong)))
    if len(seen):
        order = (suspicion[seen] + wrong[seen]) / 2 if both else suspicion[seen]
        sides = (np.flatnonzero(suspicion[seen] < 0.5), np.flatnonzero(suspicion[seen] >= 0.5))
        groups = [side[g] for side in sides for g in alike(order[side], min(ORDER_BINS, len(side) // ORDER_LEAST))]
        groups.sort(key=lambda group: float(order[group].mean()))
        level = curve(order, groups, np.array([wrong[seen][g].mean() for g in groups]))
        # The curve is flat before its first centre and after its last: that changed the total.
        level = shifted_to(level, float(wrong[seen].sum()))
        # A trace of the order itself keeps ranks apart where the curve is flat.
        found[seen] = np.clip(level + 1e-4 * (order - 0.5), 0.0, 1.0)
    return found
