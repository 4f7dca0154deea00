"""The noise model: how many labels are wrong, and how often the classifier is, as functions of its confidence.

A sample has a true class z, a given label y and held-out probabilities p(x) with the predicted class m. At confidence r

    P(y = m | r) = A(r) = a (1 - e) + (1 - a) e / (c - 1)     a(r): accuracy of the classifier, e(r): wrong labels

A is counted. The surest predictions are right, so e starts at the floor e0 = 1 - A(surest). Less sure predictions agree
less often, and labels alone cannot tell why: the classifier may be wrong (a falls) or people mislabel hard samples
(e rises). One number, `noise_share`, says how much of the unexplained disagreement is label noise:

    a(r) = 1 - (1 - noise_share) (1 - a0(r))                  a0(r): the accuracy if e(r) = e0 everywhere

- Own trainings measure it: two networks trained on disjoint halves of the selected samples disagree on held-out samples
  about as often as each of them is wrong, in the mean (generalisation disagreement, Jiang et al., ICLR 2022).
- If the selected samples make worse classifiers, the classifier is weak: its surest predictions may be wrong, and
  its selected samples repeat its mistakes. Two classifiers of disjoint random parts of all samples then measure it.
- Stored predictions cannot. `noise_share` is 1/2 if the surest labels show no noise, less the more of the disagreement
  the floor explains, and more if the classifier states a smaller error than the disagreement suggests.

A measured `noise_share` is at most 1 - e0 / disagreement, with the lower end of the 95 % interval of e0: if the surest
labels are wrong about as often as labels and predictions disagree, the noise does not depend on the confidence. With
strong noise, a ratio that is a little too high makes the classifier seem perfect: if 16 % of the predictions agree with
labels of which 80 % are wrong (symmetric, ten classes), its accuracy is 0.64, and 0.87 if the estimate is 0.83.

The interval runs from "the classifier makes the mistakes" to "all disagreement is noise". Two classifiers of a type
that does not fit the data, or of labels that do not follow from the columns, agree although they are wrong. So, except
with networks, the lower end also allows that the classifier causes the unexplained disagreement, and that some of its
surest predictions are wrong (benchmarks/table-classifiers.md). docs/theory.md derives the model,
benchmarks/real-noise.md measures it and says what each part is worth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelsieve.scoring import likeliest
from labelsieve.selection.splits import SMALLEST, top_classes_of
from labelsieve.types import BoolArray, FloatArray, IntArray, NoiseEstimate, Scores, Trust, WhyUnknown

# All constants below were set on the development families of benchmarks/real-noise.md.
# Without rounds 2 and 3, F1 of tables with pair noise is 0.758 instead of 0.765. Rounds 4 and 5 gain nothing. At most
# this many samples are used in the rounds.
DENOISE_ROUNDS, DENOISE_SAMPLES = 3, 15_000
DENOISE_STEPS = 10  # more steps sharpen p without ranking better
MOST_CLASSES_TO_DENOISE = 50  # a step costs samples x classes^2; worse order at 77 classes (banking77, no stored page)
BLOCK_CELLS = 100_000  # samples x classes that are expanded at a time: they stay in the processor's cache
# Per cell of a transition matrix: a row of c classes starts with 2 c labels of symmetric noise. With 20 labels for any
# number of classes, the matrix of 77 classes was mostly chance, and suspicion ranked worse than p_y.
PSEUDO_COUNTS = 2.0
# Tried for the confusions of a class (`concentration`). With PSEUDO_COUNTS alone, the AUROC of 40 % pair noise in 77
# classes is 0.837 instead of 0.903 (benchmarks/real-noise.md).
CONCENTRATIONS = np.geomspace(0.5, 10_000, 40)
MOST_COUNTED = 10_000  # labels per class that choose among them: more need memory, and pseudo counts no longer matter
CONFIDENCE_BINS, BIN_SAMPLES = 25, 60  # bins of equal size in which agreement is counted: at most, samples per bin
SUREST_SHARE, SUREST_SAMPLES = 0.1, 40  # samples that measure the floor: the share, and the least number
# For the lower end of the interval with own classifiers: among 40 labels, chance decides. With 150, 48 instead of 43 of
# 276 runs are `fair`, and as many intervals contain the ratio (benchmarks/table-classifiers.md).
MORE_SUREST_SAMPLES = 150
SAME_CONFIDENCE = 1e-6  # relative difference of confidences that count as equal: probabilities are often rounded
TRANSITION_SHARE = 0.3  # of each predicted class, the surest: their labels are counted for the transition matrix
EVEN_SHARE = 0.5  # `noise_share` if nothing is known: half of the unexplained disagreement
FLOOR_WEIGHT = 1.4  # `noise_share` is 0 if the floor explains this part (1 / 1.4) of the disagreement
OVERCONFIDENCE = 1.0  # weight of an error that the classifier states too low; 0 ignores it
# The noise ratio is at most this multiple of the disagreement in the surer half: people mislabel hard samples more
# often, but not only these. With 4, fewer wrong Roman numerals are found; clean digits are read as less noisy with 5
# than with 8.
HARD_TO_EASY = 5.0
SUREST_ERROR = 0.75  # the classifier's error among the surest is at most this share of its mean error (lower bound)
# The error of two classifiers of selected samples as a multiple of their disagreement, at least and at most
# (benchmarks/own-training.md). They imitate the classifier that selected the samples and share its mistakes, up to 2.4
# times if that one is weak. The least value is below the measured ones, because predictions that repeat people's
# mistakes count as right.
LEAST_ERROR, MOST_ERROR = 0.4, 2.4
# Bins of their confidence. Disagreement measures the error in the mean, not in each bin: sure predictions are wrong
# more often than they disagree. The ends of the interval allow for this; with one bin fewer runs would be `fair`
# (30 instead of 37 of 134 when it was chosen).
RATIO_BINS, INTERVAL_BINS = 1, 10
# Classifiers of the selected samples are used only if their agreement with held-out labels, above chance, is at least
# this part of that of the classifiers of all samples. Without both limits the ratio is off by 0.070 instead of 0.051
# (benchmarks/own-training.md), and few selected samples of CIFAR-10 with 80 % noise gave narrow, wrong intervals.
COMPARABLE_AGREEMENT = 0.75
# The same for classifiers of parts of the selected samples, which measure the error, but not for networks. If fewer
# samples make a worse classifier, all samples make a weak one, whose mistakes are shared (benchmarks/own-training.md).
PART_AGREEMENT = 0.9
# Smallest singular value of T below which predictions are not denoised, because that would amplify chance. Without
# it, F1 is 0.778 instead of 0.781 with 70 % class-dependent noise.
NEAR_SINGULAR = 0.02
RULE_OF_THREE = 2.3  # a count of none among n samples leaves room for a share of 3 / n
LEAST, MOST_AGREEMENT = 0.02, 0.999  # limits of counted agreement: few samples cannot show more
TRUSTWORTHY_ERROR, FAIR_ERROR = 0.03, 0.10  # the largest possible error of the ratio, by the interval


@dataclass(frozen=True)
class NoiseModel:
    """A fitted model. The curves give the values at the mean confidence of each bin, in rising order."""

    estimate: NoiseEstimate
    transition: FloatArray  # c x c: labels of the surest predictions; `estimate.transition` has the estimated ratio
    confidence: FloatArray
    accuracy: FloatArray  # of the classifier
    noise: FloatArray  # share of wrong labels

    def accuracy_at(self, confidence: FloatArray) -> FloatArray:
        return np.asarray(np.interp(confidence, self.confidence, self.accuracy))

    def noise_at(self, confidence: FloatArray) -> FloatArray:
        return np.asarray(np.interp(confidence, self.confidence, self.noise))


# ---------------------------------------------------------------- predictions without the noise they learnt


def denoise(scores: Scores, given: IntArray, classes: int) -> Scores:
    """Undo the label noise in predicted probabilities. With too many classes the scores are returned unchanged."""
    n = len(given)
    if classes > MOST_CLASSES_TO_DENOISE or n == 0:
        return scores
    some = rows_to_learn_from(n)
    noise = LearntNoise.of(expand(scores.take(some), classes), given[some])
    size = max(1, BLOCK_CELLS // classes)
    rows = [slice(start, start + size) for start in range(0, n, size)]
    found = Scores.concatenate([noise.undo(expand(scores.take(part), classes), given[part]) for part in rows])
    # The stored probability of a given label outside the top classes is finer than the even share: it keeps the order.
    top, _, share = top_classes_of(scores, classes)
    outside = ~(top == given[:, None]).any(axis=1)
    finer = found.probability * np.where(outside, np.minimum(scores.probability / share, 1.0), 1.0)
    finer = np.maximum(finer, SMALLEST)
    return replace(found, probability=finer, loss=-np.log(finer))


def rows_to_learn_from(n: int) -> IntArray:
    """At most `DENOISE_SAMPLES` of n rows, in random order."""
    return np.random.default_rng(0).permutation(n)[:DENOISE_SAMPLES]


@dataclass(frozen=True)
class LearntNoise:
    """The label noise in predictions: a classifier that was trained on noisy labels predicts noisy labels, q = p T.

    T is the mean prediction of each class. It needs the classes and they need T, so both are estimated in turn. The
    round that agrees most often with the held-out labels is used.
    """

    T: FloatArray
    prior: FloatArray  # shares of the classes

    @classmethod
    def of(cls, q: NDArray[Any], given: IntArray) -> LearntNoise:
        """Estimate the noise in held-out predictions q [n, c] of samples with these labels."""
        classes, predicted = q.shape[1], q.argmax(axis=1)
        best, most = cls(np.eye(classes, dtype=np.float32), np.full(classes, 1 / classes, dtype=np.float32)), -1.0
        for _ in range(DENOISE_ROUNDS):
            noise = cls.in_classes(q, predicted)
            if np.linalg.svd(noise.T, compute_uv=False)[-1] < NEAR_SINGULAR:
                break
            predicted = noise.without(q).argmax(axis=1)
            if (agreement := float(np.mean(predicted == given))) > most:
                best, most = noise, agreement
        return best

    @classmethod
    def in_classes(cls, q: NDArray[Any], codes: IntArray) -> LearntNoise:
        """The noise if these are the true classes."""
        classes, before = q.shape[1], PSEUDO_COUNTS * q.shape[1]
        number = np.bincount(codes, minlength=classes)
        sums = np.eye(classes, dtype=q.dtype)[codes].T @ q
        T = (sums + before * q.mean(axis=0)) / (number[:, None] + before)
        return cls(T.astype(np.float32), ((number + 1) / (len(q) + classes)).astype(np.float32))

    def without(self, q: NDArray[Any]) -> NDArray[np.float32]:
        """Solve q = p T for p >= 0, by multiplicative updates from the shares of the classes."""
        q = q.astype(np.float32, copy=False)
        p, mixed, back = np.tile(self.prior, (len(q), 1)), np.empty_like(q), np.ascontiguousarray(self.T.T)
        for _ in range(DENOISE_STEPS):
            np.maximum(np.matmul(p, self.T, out=mixed), SMALLEST, out=mixed)
            p *= np.divide(q, mixed, out=mixed) @ back
        return np.asarray(p)

    def undo(self, q: NDArray[Any], given: IntArray) -> Scores:
        """Scores of the predictions without the noise."""
        p = self.without(q)
        p = np.maximum(p / p.sum(axis=1, keepdims=True), SMALLEST)
        best = p.argmax(axis=1)
        order = likeliest(p, best)
        of_given = p[np.arange(len(given)), given].astype(np.float64)
        top_probs = np.take_along_axis(p, order, axis=1)
        return Scores(
            best, of_given, top_probs[:, 0].astype(np.float64), -np.log(of_given),
            top_classes=order.astype(np.int32), top_probs=top_probs,
        )  # fmt: skip


def expand(scores: Scores, classes: int) -> NDArray[np.float32]:
    """Probabilities of all classes, [samples, classes]; those that were not kept get an even share of the rest."""
    top, probs, rest = top_classes_of(scores, classes)
    q = np.repeat(rest[:, None].astype(np.float32), classes, axis=1)
    np.put_along_axis(q, top, probs.astype(np.float32), axis=1)
    return np.asarray(q / q.sum(axis=1, keepdims=True))


# ---------------------------------------------------------------- counting


def pair_counts(first: IntArray, second: IntArray, classes: int) -> FloatArray:
    """How often each pair of codes occurs, c x c."""
    flat = np.bincount(first * classes + second, minlength=classes * classes)
    return flat.reshape(classes, classes).astype(np.float64)


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


def bins_of(values: FloatArray, number: int) -> list[IntArray]:
    """About `number` groups of equal size from the smallest value to the largest; equal values stay together."""
    order = np.argsort(values, kind="stable")
    cuts = np.linspace(0, len(values), max(1, min(number, len(values))) + 1).astype(np.int64)[1:-1]
    ends = np.searchsorted(values[order], values[order[cuts]], side="left") if len(cuts) else cuts
    return [group for group in np.split(order, np.unique(ends)) if len(group)]


def surest_of_each_class(scores: Scores, classes: int) -> BoolArray:
    """The most confident samples of each predicted class; all or none of equal confidence."""
    order = np.lexsort((scores.confidence, scores.predicted))
    bounds = np.searchsorted(scores.predicted[order], np.arange(classes + 1))
    least = np.full(classes, np.inf)
    for label, (start, end) in enumerate(pairwise(bounds.tolist())):
        if end > start:
            least[label] = scores.confidence[order[end - int(np.ceil(TRANSITION_SHARE * (end - start)))]]
    return np.asarray(scores.confidence >= least[scores.predicted])


def count_transition(scores: Scores, given: IntArray, classes: int) -> FloatArray:
    """T-hat, c x c: the labels of the surest predictions of each class, with pseudo counts of symmetric noise.

    There are PSEUDO_COUNTS per cell, but fewer for the confusions of a class if the labels show that it is confused
    with few others (`concentration`).
    """
    surest = surest_of_each_class(scores, classes)
    counts = pair_counts(scores.predicted[surest], given[surest], classes)
    noise = 1 - np.trace(counts) / max(counts.sum(), 1.0)
    even = np.full((classes, classes), noise / max(classes - 1, 1))
    np.fill_diagonal(even, 1 - noise)
    before = PSEUDO_COUNTS * classes
    found = np.asarray((counts + before * even) / (counts.sum(axis=1, keepdims=True) + before))
    wrong = off_diagonal(counts)
    confused = off_diagonal(wrong + min(before * noise, concentration(wrong)) / max(classes - 1, 1))
    confused *= ((1 - np.diagonal(found)) / np.maximum(confused.sum(axis=1), SMALLEST))[:, None]
    return np.asarray(confused + np.diag(np.diagonal(found)))


def concentration(wrong: FloatArray) -> float:
    """With how many evenly spread labels per class to start counting which classes are confused.

    The likeliest concentration of a Dirichlet distribution from which the confusions of each class are drawn: large if
    wrong labels are spread evenly, small if each class is confused with few others. `wrong` [c, c] are counts.
    """

    def above(counts: FloatArray) -> IntArray:
        """How many counts are above 0, 1, 2, ..."""
        return np.cumsum(np.bincount(counts.astype(np.int64).ravel())[::-1])[::-1][1:]

    wrong = np.floor(wrong * min(1.0, MOST_COUNTED / max(wrong.sum(axis=1).max(), 1.0)))
    cells, rows = above(wrong), above(wrong.sum(axis=1))
    tried = CONCENTRATIONS[:, None]
    fit = np.log(tried / max(len(wrong) - 1, 1) + np.arange(len(cells))) @ cells
    fit -= np.log(tried + np.arange(len(rows))) @ rows
    return float(CONCENTRATIONS[np.argmax(fit)])


def excess_agreement(predicted: IntArray, given: IntArray, classes: int) -> float:
    """How much more often predictions agree with the given labels than independent ones would."""
    return float(np.mean(predicted == given)) - _chance_agreement(predicted, given, classes) if len(given) else 0.0


def agrees_by_chance(predicted: IntArray, given: IntArray, classes: int) -> bool:
    """Whether predictions agree with the given labels no more often than independent ones would.

    The limit is three standard deviations of the agreement of independent codes with these shares of the classes
    (Fleiss, Cohen and Everitt 1969) and one sample. Without the shares, a rare class would hide that others are learnt.
    """
    n = max(len(given), 1)
    a, b = (np.bincount(codes, minlength=classes) / n for codes in (predicted, given))
    variance = a @ b + (a @ b) ** 2 - (a * b) @ (a + b)
    return bool(excess_agreement(predicted, given, classes) <= 3 * np.sqrt(np.maximum(variance, 0) / n) + 1 / n)


def is_comparable(scores: Scores, usual: float, given: IntArray, classes: int) -> bool:
    """Whether scores agree with held-out labels about as often as the usual ones, above chance (`usual`)."""
    return excess_agreement(scores.predicted, given, classes) >= COMPARABLE_AGREEMENT * usual


def _chance_agreement(predicted: IntArray, given: IntArray, classes: int) -> float:
    """The agreement of independent predictions and labels with these shares of the classes."""
    shares = (np.bincount(codes, minlength=classes) / max(len(given), 1) for codes in (predicted, given))
    return float(np.dot(*shares))


# ---------------------------------------------------------------- the fit


@dataclass(frozen=True)
class TwoOpinions:
    """Predictions of the same held-out samples by two classifiers that were trained on disjoint samples."""

    first: Scores
    second: Scores
    given: IntArray
    of_random_parts: bool = False  # not of selected samples

    def are_comparable(self, usual: float, classes: int, *, networks: bool) -> bool:
        """Whether both agree with the labels about as often as the usual scores, above chance (`usual`)."""
        least = (COMPARABLE_AGREEMENT if networks else PART_AGREEMENT) * usual
        return all(excess_agreement(one.predicted, self.given, classes) >= least for one in (self.first, self.second))

    def ratio(self, classes: int, error: float, bins: int) -> float:
        """The share of wrong labels if the error of the classifiers is this multiple of their disagreement."""
        confidence = (self.first.confidence + self.second.confidence) / 2
        agrees = ((self.first.predicted == self.given).astype(float) + (self.second.predicted == self.given)) / 2
        differ, meet = self.first.predicted != self.second.predicted, self.chance_to_meet(classes)
        wrong = 0.0
        for rows in bins_of(confidence, max(1, min(bins, len(self.given) // BIN_SAMPLES))):
            right = np.array([max(1 - error * float(differ[rows].mean()), 1 / classes)])
            wrong += len(rows) * float(noise_from(np.array([agrees[rows].mean()]), right, meet)[0])
        return wrong / max(len(self.given), 1)

    def chance_to_meet(self, classes: int) -> float:
        """P(a wrong prediction is the given label | that is wrong too), if both depend on the true class alone.

        The classes that the two confuse and the labels that both contradict tell: 1 / (c - 1) for symmetric noise.
        """
        first, second = self.first.predicted, self.second.predicted
        differ, against = first != second, (first == second) & (first != self.given)
        confused = pair_counts(first[differ], second[differ], classes)
        confused += confused.T
        labels = pair_counts(first[against], self.given[against], classes)
        labels += PSEUDO_COUNTS * classes * (1 - np.eye(classes)) / (classes - 1) ** 2
        labels /= labels.sum(axis=1, keepdims=True)
        return float((confused * labels).sum() / confused.sum()) if differ.any() else 1 / (classes - 1)


@dataclass(frozen=True)
class Curve:
    """Agreement by confidence, and what follows from it for each noise share: see the docstring of this file."""

    centres: FloatArray  # mean confidence of each bin
    weights: FloatArray  # share of the samples in each bin
    agreement: FloatArray
    least_accuracy: FloatArray  # a0: of the classifier, if noise does not depend on the confidence
    classes: int

    @classmethod
    def of(cls, scores: Scores, given: IntArray, classes: int, floor: float) -> Curve:
        agrees, confidence = scores.predicted == given, scores.confidence
        bins = bins_of(confidence, int(np.clip(len(given) // BIN_SAMPLES, 3, CONFIDENCE_BINS)))
        sizes = np.array([len(rows) for rows in bins], dtype=float)
        agreement = rising(np.array([agrees[rows].mean() for rows in bins]), sizes).clip(LEAST, MOST_AGREEMENT)
        by_chance = 1 / (classes - 1)
        gap = max(1 - floor * (1 + by_chance), LEAST)
        least_accuracy = np.clip((agreement - floor * by_chance) / gap, 0.0, 1.0)
        centres = np.array([confidence[rows].mean() for rows in bins])
        return cls(centres, sizes / len(given), agreement, least_accuracy, classes)

    @property
    def unexplained(self) -> float:
        """The share of disagreement that the floor does not explain."""
        return float(self.weights @ (1 - self.least_accuracy))

    def accuracy(self, noise_share: float) -> FloatArray:
        found = 1 - (1 - noise_share) * (1 - self.least_accuracy)
        return np.asarray(np.clip(found, 1 / self.classes, MOST_AGREEMENT))

    def noise(self, noise_share: float) -> FloatArray:
        """The share of wrong labels in each bin; a wrong prediction meets a wrong label by chance."""
        return noise_from(self.agreement, self.accuracy(noise_share), 1 / (self.classes - 1))

    def ratio(self, noise_share: float) -> float:
        return float(self.weights @ self.noise(noise_share))

    def share_for(self, ratio: float) -> float:
        """The noise share that gives a ratio, or the nearest one."""
        grid = np.linspace(0, 1, 41)
        return float(np.interp(ratio, [self.ratio(share) for share in grid], grid))


def surest_rows(confidence: FloatArray, least: int = SUREST_SAMPLES) -> IntArray:
    """The most confident predictions, which measure the floor."""
    n = len(confidence)
    number = max(1, min(n // 2, max(least, int(SUREST_SHARE * n))))
    return np.flatnonzero(confidence >= np.partition(confidence, n - number)[n - number])


def is_graded(confidence: FloatArray) -> bool:
    """Whether the confidence tells which predictions are the surest: at most half of them have the largest one.

    One neighbour and a tree are sure of most predictions. Denoised predictions do not show this: many are sure.
    """
    return bool(2 * np.count_nonzero(confidence > (1 - SAME_CONFIDENCE) * confidence.max()) <= len(confidence))


def floor_of(scores: Scores, given: IntArray, surest: IntArray) -> float:
    """The share of the surest predictions that disagree with the labels; never 0 or 1."""
    agreed = int(np.sum(scores.predicted[surest] == given[surest]))
    return 1 - (agreed + 0.5) / (len(surest) + 1)


def fit_noise_model(
    scores: Scores,
    given: IntArray,
    classes: int,
    *,
    held_out: Scores | None = None,
    opinions: TwoOpinions | None = None,
    own_classifiers: bool = False,
    earlier: NoiseEstimate | None = None,
    distinct: float = 1.0,
) -> NoiseModel:
    """Fit the model to denoised held-out scores of all samples.

    `held_out` are the scores before they were denoised, of classifiers that saw none of the labels they score: only
    their agreement can show that labels are random, and only their confidence whether it tells which predictions are
    the surest. Otherwise, these measure no floor. `opinions` measure the classifier's error; without them it is only
    bounded. Those of random parts are for a weak classifier: even its surest predictions may be wrong, so its error is
    not bounded. They are wrong more often than the classifier, so the ratio by their disagreement tends to be too low.
    `own_classifiers` says that labelsieve trained the classifiers, and that they are not networks: those of one type
    share mistakes, so the lower end of the interval is lower, and 0 if nothing measures the error. `earlier` is a known
    estimate for the same labels: its ratio and interval stay, unless the agreement contradicts them. `distinct` is the
    share of samples that are not copies of others: copies do not make an estimate surer.
    """
    n = len(given)
    held_out = held_out or scores
    graded = earlier is not None or is_graded(held_out.confidence)
    weak, opinions = (opinions, None) if opinions is not None and opinions.of_random_parts else (None, opinions)
    agrees, confidence = scores.predicted == given, scores.confidence
    disagreement = 1 - float(agrees.mean())
    surest = surest_rows(confidence)
    floor = floor_of(scores, given, surest) if graded else 0.0
    least_floor = floor - _sampling_error(floor, len(surest) * distinct)
    limit = 1.0 if earlier is None else earlier.surest_limit
    if weak is not None:
        limit = weak.ratio(classes, 1.0, RATIO_BINS)
    if least_floor > limit:  # the surest labels are wrong at most as often as all labels
        floor = least_floor = limit
    curve = Curve.of(scores, given, classes, floor)
    if opinions is not None:
        margin = _sampling_error(disagreement, n * distinct)
        upper, lower = (opinions.ratio(classes, error, INTERVAL_BINS) for error in (LEAST_ERROR, MOST_ERROR))
        low, high = lower - margin, upper + margin
        if own_classifiers:
            low = min(low, _low_by_surest(scores, given, classes, MORE_SUREST_SAMPLES, distinct))
    elif earlier is not None:
        low, high = earlier.low, earlier.high
    else:
        bounded = graded and weak is None and not own_classifiers
        low = _low_by_surest(scores, given, classes, SUREST_SAMPLES, distinct) if bounded else 0.0
        # The more noise, the more wrong labels the classifier repeats, which then count as agreement.
        high = disagreement * (1 + disagreement / 2) + _sampling_error(disagreement, n * distinct)
    share = _noise_share(curve, scores, agrees, floor, earlier, opinions)
    if weak is not None:
        # The ratio by the rule is too high for weak classifiers, and `limit` is too low for small data sets.
        by_rule = curve.ratio(share)
        share = curve.share_for(min(by_rule, (limit + by_rule) / 2))
    if opinions is not None or earlier is not None:  # not by the rule: F1 of two-class tables would fall by 0.06
        share = min(share, float(np.clip(1 - least_floor / max(disagreement, SMALLEST), 0, 1)))
    ratio = curve.ratio(share)
    interval = (float(np.clip(min(low, ratio), 0, 1)), float(np.clip(max(high, ratio), 0, 1)))
    random = earlier is None and agrees_by_chance(held_out.predicted, given, classes)
    error = 1 - float(curve.weights @ curve.accuracy(share))
    prior = (np.bincount(scores.predicted, minlength=classes) + 1) / (n + classes)
    counted = count_transition(scores, given, classes)
    estimate = replace(
        describe(ratio, interval, error, WhyUnknown.RANDOM if random else None),
        transition=scale_transition(counted, prior, ratio), prior=prior, surest_limit=limit,
    )  # fmt: skip
    return NoiseModel(estimate, counted, curve.centres, curve.accuracy(share), curve.noise(share))


def _low_by_surest(scores: Scores, given: IntArray, classes: int, samples: int, distinct: float) -> float:
    """A lower bound of the noise ratio, perhaps negative: the surest labels, less chance and mistakes among them.

    The mistakes are bounded by the disagreement of the less sure predictions, as if all of it were the classifier's.
    """
    surest = surest_rows(scores.confidence, samples)
    floor = floor_of(scores, given, surest)
    error = SUREST_ERROR * Curve.of(scores, given, classes, floor).unexplained
    return floor - _sampling_error(floor, len(surest) * distinct) - error


def _noise_share(
    curve: Curve, scores: Scores, agrees: BoolArray, floor: float, earlier: NoiseEstimate | None,
    opinions: TwoOpinions | None,
) -> float:  # fmt: skip
    """The noise share by an earlier estimate, by two classifiers, or by the rule for stored predictions."""
    if earlier is not None:
        return curve.share_for(earlier.ratio)
    surer = scores.confidence >= np.median(scores.confidence)
    most = HARD_TO_EASY * ((~agrees[surer]).sum() + 0.5) / (surer.sum() + 1)
    if opinions is not None:
        return curve.share_for(min(opinions.ratio(curve.classes, 1.0, RATIO_BINS), most))
    disagreement = 1 - float(agrees.mean())
    by_floor = EVEN_SHARE * max(0.0, 1 - FLOOR_WEIGHT * floor / max(disagreement, SMALLEST))
    stated = (1 - float(scores.confidence.mean())) / max(curve.unexplained, SMALLEST)
    overconfident = OVERCONFIDENCE * (1 - float(np.sqrt(stated))) if floor else 0.0  # none: confidence says nothing
    return min(max(by_floor, overconfident), curve.share_for(most))


def noise_from(agreement: FloatArray, accuracy: FloatArray, meet: float) -> FloatArray:
    """The share of wrong labels that explains the agreement of labels with predictions of this accuracy.

    `meet` is the probability that a wrong prediction and a wrong label are the same class.
    """
    gap = np.maximum(accuracy - (1 - accuracy) * meet, LEAST)
    return np.asarray(np.clip((accuracy - agreement) / gap, 0.0, 1.0))


def _sampling_error(share: float, samples: float) -> float:
    """Half of the 95 % interval of a counted share; never 0, because a count of none does not prove that."""
    samples = max(samples, 1.0)
    return float(1.96 * np.sqrt(max(share * (1 - share), RULE_OF_THREE / samples) / samples))


def off_diagonal(matrix: FloatArray) -> FloatArray:
    """A copy with zeros on the diagonal; with 10,000 classes a matrix has 800 MB."""
    found = np.array(matrix, dtype=np.float64)
    np.fill_diagonal(found, 0.0)
    return found


def class_factors(transition: FloatArray, prior: FloatArray) -> FloatArray:
    """How much more often the labels of each class are right than on average."""
    diagonal = np.diagonal(transition)
    return np.asarray(diagonal / max(float(prior @ diagonal), SMALLEST))


def scale_transition(transition: FloatArray, prior: FloatArray, ratio: float) -> FloatArray:
    """The same confusions with this share of wrong labels in all."""
    off = off_diagonal(transition)
    right = np.clip(class_factors(transition, prior) * (1 - ratio), 0.0, 1.0)
    scaled = off / np.maximum(off.sum(axis=1, keepdims=True), SMALLEST) * (1 - right)[:, None]
    return np.asarray(scaled + np.diag(1 - scaled.sum(axis=1)))


class Why(NamedTuple):
    """Why a noise estimate says nothing, in words, and what that means for the suspects."""

    reason: str
    consequence: str

    @property
    def sentence(self) -> str:
        return f"{self.reason}, so {self.consequence}"


WHY_UNKNOWN = {
    WhyUnknown.RANDOM: Why(
        "the labels cannot be distinguished from random ones", "suspects and suggestions are little better than guesses"
    ),
    WhyUnknown.LEAK: Why(
        "one column predicts the labels by itself", "wrong labels that this column repeats are not found"
    ),
    WhyUnknown.OUTCOME: Why(
        "the labels look like outcomes", "a suspect can be an unusual case instead of a wrong label"
    ),
}


def describe(
    ratio: float, interval: tuple[float, float], error: float, why_unknown: WhyUnknown | None
) -> NoiseEstimate:
    """The estimate with its trust, which follows from the interval alone, and one sentence for people."""
    low, high = interval
    share = f"{100 * error:.0f} %" if error >= 0.005 else "less than 1 %"
    most = max(ratio - low, high - ratio)
    if why_unknown is not None:
        trust, text = Trust.UNKNOWN, WHY_UNKNOWN[why_unknown].sentence
    elif most <= TRUSTWORTHY_ERROR:
        trust, text = Trust.TRUSTWORTHY, "the classifier is almost always right, so disagreement is label noise"
    elif most <= FAIR_ERROR:
        trust, text = Trust.FAIR, f"the classifier seems to be wrong on {share} of the samples"
    else:
        trust = Trust.ROUGH
        text = (
            "mistakes of the classifier and chance look like wrong labels, so the ratio is uncertain; use the interval"
        )
    return NoiseEstimate(ratio, low, high, trust, why_unknown, f"{trust}: {text}", error)


def without_meaning(estimate: NoiseEstimate, why: WhyUnknown) -> NoiseEstimate:
    """The estimate of labels whose agreement with predictions says nothing about wrong labels."""
    text = f"{Trust.UNKNOWN}: {WHY_UNKNOWN[why].sentence}"
    return replace(estimate, trust=Trust.UNKNOWN, why_unknown=why, explanation=text)


# ---------------------------------------------------------------- results of the estimate


def with_mean_posterior(estimate: NoiseEstimate, wrong: FloatArray) -> NoiseEstimate:
    """The estimate with the mean posterior as its ratio: better than the curve alone if classes differ in noise."""
    ratio = float(np.clip(np.mean(wrong), estimate.low, estimate.high))
    found = describe(ratio, (estimate.low, estimate.high), estimate.classifier_error, estimate.why_unknown)
    transition = scale_transition(estimate.transition, estimate.prior, ratio)
    return replace(found, transition=transition, prior=estimate.prior)
