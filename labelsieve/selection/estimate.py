"""How noisy the labels are, and which class becomes which, without being told.

Cross-fitted confident counting: in iteration 1 each half's network selects inside the other half; of texts each half
is looked through by its own classifiers for this (own_half.py). Train g on the selected samples of one half alone, let
it predict all of the other half, and the mirror. Per predicted class take the
10 % most confident samples (at least 20, at most half) and count their given labels: that is a row of T, as far as so
few can tell (shared_rows.py). g has seen none of the labels it counts, and where it is most confident it is right, so
what it counts is the noise.

Counting all predictions instead of the confident ones also counts g's own mistakes: an upper bound, as long as g does
not repeat wrong labels. Where g is as confident of most samples as of the surest, that is what happens in any case
(ties.py).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from labelsieve import theory, types
from labelsieve.selection.confidence_ties import Confident, Ties, surest, ties_among
from labelsieve.selection.repeats import Split, over_first_split
from labelsieve.selection.settings import authors_remove_ratio
from labelsieve.selection.shrink_transition import transition_from_counts, uneven
from labelsieve.selection.within_half_folds import agreeing, fold_jobs
from labelsieve.types import BoolArray, FloatArray, IntArray, Job, Scores, Trust, WhyUnknown

CONFIDENT_SHARE = 0.1
CONFIDENT_LEAST = 20
CONFIDENT_MOST = 1 / 2  # of a predicted class: more are not the surest, and count the classifier's mistakes as noise
BOOTSTRAP_DRAWS = 400
# How often g must be wrong to explain the labels, were the noise the same for every sample of a class: above the first
# its mistakes may hide some noise, above the second one should doubt that the noise is the same.
NOTICEABLE_ERROR, SUSPICIOUS_ERROR = 0.10, 0.25
# In so few columns classes may overlap everywhere: then no sample is sure, and the surest count the overlap as noise.
FEW_COLUMNS, FEW_COLUMNS_ERROR = 3, 0.025
OVERLAP = "cannot tell apart looks to the classifier like wrong labels"
HARDLY, SELDOM = 10, 4  # labels of a class for each time it is predicted
SMALL_SHARE = 0.1  # of all labels: a class whose labels one can leave unjudged and still speak of the rest
RANDOM, WEAK = "not distinguishable from random", "the classifier is weak"  # then the numbers say nothing
TIED = "the classifier gives its highest confidence to"  # nor then
WIDE_INTERVAL = 0.05  # half the width of the interval above which the number alone says too little
WORTH_SAYING = 0.01  # of all labels: so many that were not judged change what is said of the rest


@dataclass(frozen=True)
class NoiseEstimate:
    """What the noise looks like, how sure that is, and where the number came from."""

    ratio: float  # of all labels
    low: float  # 95 % bootstrap interval of `judged_ratio`; of the labels not judged none may be wrong, or all, and of
    # those read as wrong where confidences tie, none
    high: float
    transition: FloatArray  # T-hat, rows sum to 1
    prior: FloatArray  # share of each true class
    upper_bound: float  # 1 - agreement: noise and the classifier's own mistakes together, unless it repeats wrong
    # labels; `high` if that is more. As with `high`, every label that was not judged counts as wrong
    concentration: float  # 1/(c-1) symmetric ... 1 pair
    uneven: bool  # mistakes prefer some classes, by more than chance
    counts: FloatArray  # labels that were counted for each row of T-hat
    method: str
    explanation: str  # one plain sentence
    judged_ratio: float  # of the labels that were judged: what `transition` says
    unjudged: float = 0.0  # share of all labels that were not, for classes that are hardly ever predicted
    unjudged_ratio: float = float("nan")  # how much of these `ratio` takes for wrong; nan where all were judged

    @property
    def known(self) -> bool:
        """Whether the numbers say anything."""
        return says_something(self.explanation)

    @property
    def trust(self) -> Trust:
        return types.NoiseEstimate.from_record({"trust": self.explanation}).trust

    @property
    def why_unknown(self) -> WhyUnknown | None:
        return types.NoiseEstimate.from_record({"trust": self.explanation}).why_unknown

    def summary(self) -> dict[str, Any]:
        """Everything but the arrays, for the history."""
        kept = {key: value for key, value in asdict(self).items() if not isinstance(value, np.ndarray)}
        if not self.unjudged:
            del kept["unjudged_ratio"]  # JSON has no NaN
        why = None if self.why_unknown is None else str(self.why_unknown)
        told = {"counted": int(self.counts.sum()), "known": self.known, "trust": str(self.trust), "why_unknown": why}
        return kept | told


def says_something(trust: str) -> bool:
    """Whether the numbers that this sentence is about do."""
    return not trust.startswith((RANDOM, WEAK, TIED))


def eq4_ratio(test_accuracy: float, classes: int) -> float:
    """The exact root of Eq. 4, symmetric noise; clamped where the accuracy is below 1/c."""
    return theory.ratio_from_accuracy(test_accuracy, classes, "symmetric").ratio


def pair_counts(first: IntArray, second: IntArray, classes: int) -> FloatArray:
    """How often each pair of codes occurs, c x c."""
    flat = np.bincount(first * classes + second, minlength=classes * classes)
    return flat.reshape(classes, classes).astype(np.float64)


def most_confident(
    scores: Scores, classes: int, *, share: float = CONFIDENT_SHARE, least: int = CONFIDENT_LEAST
) -> Confident:
    """The most confident samples of each predicted class; equal confidence counts equally.

    A tenth of them; where that is less than `least`, so many, but never more than half.
    """
    confident = np.zeros(len(scores.predicted), dtype=bool)
    meant = np.zeros(classes, dtype=np.int64)
    order = np.argsort(scores.predicted, kind="stable")
    bounds = np.searchsorted(scores.predicted[order], np.arange(classes + 1))
    for label, (start, end) in enumerate(pairwise(bounds.tolist())):
        if end > start:
            members = order[start:end]
            few = min(least, np.ceil(CONFIDENT_MOST * len(members)))
            meant[label] = max(few, np.ceil(share * len(members)))
            confident[members] = surest(scores, members, int(meant[label]))
    return Confident(confident, meant, np.diff(bounds))


def confident_counts(
    scores: Scores, given: IntArray, classes: int, *, share: float = CONFIDENT_SHARE, least: int = CONFIDENT_LEAST
) -> FloatArray:
    """Given labels of the most confident samples of each predicted class."""
    counts = most_confident(scores, classes, share=share, least=least).counts
    return pair_counts(scores.predicted[counts], given[counts], classes)


def concentration(transition: FloatArray, prior: FloatArray) -> float:
    """h = sum_i pi_i max_{j != i} T_ij / eps: how much of the noise goes to one class. 1/(c-1) symmetric, 1 pair."""
    off = transition * (1 - np.eye(len(transition)))
    noise = float(prior @ off.sum(axis=1))
    return float(prior @ off.max(axis=1)) / noise if noise > 0 else 1 / (len(transition) - 1)


def remove_ratio(noise_ratio: float, h: float, classes: int) -> float:
    """r = min(2, eps/(1-eps)) (1-h) / (1-1/(c-1)): the authors' choice for symmetric noise, 0 for pair, else between.

    With two classes the patterns are the same and nothing tells a hard sample from a wrong label: none is removed.
    """
    if classes < 3:
        return 0.0
    return authors_remove_ratio(noise_ratio) * min(1.0, max(0.0, (1 - h) / (1 - 1 / (classes - 1))))


def bootstrap_interval(counts: FloatArray, prior: FloatArray, seed: int) -> tuple[float, float]:
    """95 % interval of eps when each row's counted labels are drawn again."""
    rng = np.random.default_rng([seed, 0xB007])
    counted = counts.sum(axis=1)  # no whole number where copies count less
    total = np.ceil(counted).astype(np.int64)
    right = np.where(counted > 0, np.minimum(np.diagonal(counts) / np.maximum(counted, 1e-300), 1.0), 1.0)
    kept = rng.binomial(total, right, size=(BOOTSTRAP_DRAWS, len(counts))) / np.maximum(total, 1)
    draws = 1 - np.where(total > 0, kept, 1.0) @ prior
    return float(np.quantile(draws, 0.025)), float(np.quantile(draws, 0.975))


def unseen(counted: float, joint: FloatArray) -> float:
    """How many may be wrong where none of those counted is, so that every draw is the same: so many that none would be
    seen once in twenty times. The same holds of those disagreed with, of all that were predicted."""
    rare, rarer = (1 - 0.05 ** (1 / max(n, 1)) for n in (counted, joint.sum()))
    return float(min(rare, 1 - np.trace(joint) / joint.sum() + rarer))


def by_chance(joint: FloatArray) -> bool:
    """Do predictions agree with the given labels no more than independent ones would?"""
    n = joint.sum()
    agreement = float(np.trace(joint)) / n
    chance = float(joint.sum(axis=1) @ joint.sum(axis=0)) / n**2
    return bool(agreement - chance < 3 * np.sqrt(max(chance * (1 - chance), 1e-12) / n))


def hardly_predicted(predicted: IntArray, given: IntArray, classes: int) -> IntArray:
    """Codes of classes with few labels, or few beside the others, that are hardly ever predicted: what a classifier
    does not know it cannot judge. (Of a class with more labels the whole estimate speaks: `weak`.)"""
    labelled, found = (np.bincount(codes[codes >= 0], minlength=classes) for codes in (given, predicted))
    rare = (labelled > 0) & ((labelled < 2 * CONFIDENT_LEAST) | (labelled <= SMALL_SHARE * labelled.sum()))
    return np.flatnonzero(rare & (HARDLY * found <= labelled))


def seldom_predicted(predicted: IntArray, given: IntArray, classes: int) -> BoolArray:
    """Classes with far more labels than predictions: the classifier misses them, whatever their labels are."""
    labelled, found = (np.bincount(codes[codes >= 0], minlength=classes) for codes in (given, predicted))
    return np.asarray(labelled >= SELDOM * np.maximum(found, 1))


def of_known_classes(scores: Sequence[Scores], given: Sequence[IntArray], classes: int) -> list[IntArray | slice]:
    """Rows whose label and prediction are both of classes that the classifier knows: only these tell noise."""
    unknown = hardly_predicted(np.concatenate([s.predicted for s in scores]), np.concatenate(given), classes)
    known = [~np.isin(y, unknown) & ~np.isin(s.predicted, unknown) for s, y in zip(scores, given, strict=True)]
    if len(unknown) == 0 or not any(part.any() for part in known):
        return [slice(None)] * len(scores)
    return [np.flatnonzero(part) for part in known]


def wrong_of_unjudged(given: IntArray, judged: IntArray, ratio: float, classes: int, *, even: bool) -> float:
    """How much of the labels left out is likely wrong: `given` are all labels, `judged` those that were.

    Nobody can see it, but a rare class gets as many wrong labels as any other where mistakes are spread evenly, and has
    fewer right ones: n ratio / (c - 1) of each judged class, as they get from each other. Where mistakes prefer some
    classes, or too few were judged to tell, these labels are taken for as wrong as the others.
    """
    labelled, known = (np.bincount(codes, minlength=classes) for codes in (given, judged))
    left_out, found = labelled - known, int(np.sum(known > 0))
    if not even or found < 3:
        return ratio
    arrives = len(judged) * ratio / (found - 1)
    # Labels of judged classes are among them where a class that is hardly ever predicted was, for once.
    wrong = np.where(known > 0, ratio * left_out, np.minimum(left_out, arrives))
    return float(wrong.sum() / left_out.sum())


def about_unjudged(trust: str, share: float, wrong: float) -> str:
    """The sentence on the judged labels, with what it does not speak of; nobody calls a guess trustworthy."""
    if share < WORTH_SAYING or not says_something(trust):
        return trust
    told = (
        f"{percent(share)} of the labels, of classes that the classifier does not know, were not judged: the ratio"
        f" takes {percent(wrong)} of them for wrong, the interval none to all"
    )
    start, _, rest = trust.partition(": ")
    return f"fair: {told}; of the others {rest}" if start == "trustworthy" else f"{trust}; {told}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def trust_sentence(
    counts: FloatArray,
    joint: FloatArray,
    prior: FloatArray,
    ratio: float,
    held_out: FloatArray | None = None,
    *,
    most: float | None = None,
    names: Sequence[Any] | None = None,
    ties: Ties | None = None,
    columns: int | None = None,
) -> str:
    """How far to trust the estimate, and where it is little that at `most` so many are wrong; `joint` counts all
    predictions against given labels, `ties` says what rests on tied confidences, `columns` how many were read.

    `held_out` counts those of networks that saw nothing of what they predict. g's are not of that kind: its training
    samples are those that a network trained on the very labels g then meets agreed with, and g repeats that network.
    """
    n = joint.sum()
    agreement = float(np.trace(joint)) / n
    if by_chance(joint if held_out is None else held_out):
        return f"{RANDOM}: held-out predictions agree with the labels no more than by chance"
    used, labelled = counts.sum(axis=1), joint.sum(axis=0)
    fewest = int(used[prior > 0].min())
    if n >= 2 * CONFIDENT_LEAST * len(counts):
        # By their labels there are samples enough of the class, and the classifier hardly finds one: its mistakes then
        # raise the ratio itself, which says nothing of how many are there.
        missed = (used < CONFIDENT_LEAST) & (labelled >= np.maximum(2 * CONFIDENT_LEAST, SELDOM * joint.sum(axis=1)))
        if missed.any():
            worst = int(np.argmax(np.where(missed, labelled, -1)))
            named = repr(names[worst]) if names is not None else str(worst)
            return (
                f"{WEAK}: it predicts class {named} for {int(joint[worst].sum())} samples where"
                f" {int(labelled[worst])} are labelled so, too few to count its noise; try a better model"
            )
    if ties is not None and ties.harm:
        return (
            f"{TIED} {ties.tied:,} of {ties.of:,} samples, so its own mistakes cannot be told from wrong labels; use"
            " one that gives graded probabilities"
        )
    if n < 2 * CONFIDENT_LEAST * len(counts) or fewest < CONFIDENT_LEAST:
        return f"too few samples: some class was counted from {fewest} labels; read the interval, not the number"
    error = 1 - agreement / max(1 - ratio, 1e-12)
    # A wrong label that it repeats counts as agreement: under heavy pair noise it learns some.
    wrong = percent(1 - agreement if most is None else most)
    bound = f"at most {wrong} of the labels are wrong, unless it repeats wrong ones"
    if error > SUSPICIOUS_ERROR:
        return (
            f"looks instance-dependent, or the classifier is weak: it would have to be wrong on {percent(error)} of the"
            f" samples to explain the labels; {bound}"
        )
    if columns is not None and columns <= FEW_COLUMNS and error > FEW_COLUMNS_ERROR:
        return f"fair: what {columns} column{'s' * (columns != 1)} {OVERLAP}; {bound}"
    if error > NOTICEABLE_ERROR:
        return f"fair: the classifier's own mistakes may count as noise, or hide some; {bound}"
    counted = counts.sum()
    if 1.96 * np.sqrt(ratio * (1 - ratio) / counted) > WIDE_INTERVAL:
        return f"fair: {int(counted)} labels were counted, which leaves a wide interval: read that, not the number"
    return "trustworthy: the noise looks the same for all samples of a class"


def estimate_from_scores(
    scores: Sequence[Scores],
    given: Sequence[IntArray],
    classes: int,
    *,
    seed: int,
    method: str,
    held_out: Sequence[Scores] | None = None,
    second: Sequence[Scores] | None = None,
    names: Sequence[Any] | None = None,
    distinct: float = 1.0,
    columns: int | None = None,
) -> NoiseEstimate:
    """The estimate from scores of both halves, whoever made them; `held_out` tells whether there is anything to it.

    `second` are other classifiers' scores of the same samples, which are asked where the first ones' confidences tie.
    `distinct` is the share of samples that are not another's copy (or of its group): these say nothing twice, so that
    as many fewer were counted when it comes to chance.
    """
    told = None if held_out is None else _joint(held_out, given, classes)
    labels = np.concatenate(given)
    rows = of_known_classes(scores, given, classes)
    given = [y[r] for y, r in zip(given, rows, strict=True)]
    scores = [s.take(r) for s, r in zip(scores, rows, strict=True)]
    if second is not None:
        second = [s.take(r) for s, r in zip(second, rows, strict=True)]
    judged = np.concatenate(given)
    found = [most_confident(s, classes) for s in scores]
    counts = sum(
        (
            pair_counts(s.predicted[f.counts], y[f.counts], classes)
            for s, y, f in zip(scores, given, found, strict=True)
        ),
        np.zeros((classes, classes)),
    )
    joint = _joint(scores, given, classes)
    prior = joint.sum(axis=1) / joint.sum()
    transition = transition_from_counts(counts, prior, joint.sum(axis=0) / joint.sum())
    ratio = float(np.clip(prior @ (1 - np.diagonal(transition)), 0, 1))  # sums of shares may round to more than 1
    by_itself = distinct * counts
    low, high = bootstrap_interval(by_itself, prior, seed)
    high = high or unseen(by_itself.sum(), distinct * joint)
    ties = ties_among(found, scores, second, given, prior * (1 - np.diagonal(transition)))
    low, high = min(low, ratio), max(high, ratio)
    upper = max(high, 1 - float(np.trace(joint) / joint.sum()))  # few counted labels may say more than all
    if ties.harm:
        low, high = 0.0, upper
    elif ties.stake:
        low = max(low - ties.stake, 0.0)
    prefers, unjudged, wrong, all_of_them = uneven(by_itself), 1 - len(judged) / len(labels), float("nan"), ratio
    if unjudged:
        wrong = wrong_of_unjudged(labels, judged, ratio, classes, even=not prefers)
        all_of_them = (1 - unjudged) * ratio + unjudged * wrong
        low, high, upper = (1 - unjudged) * low, *((1 - unjudged) * most + unjudged for most in (high, upper))
    trust = trust_sentence(by_itself, joint, prior, ratio, told, most=upper, names=names, ties=ties, columns=columns)
    return NoiseEstimate(
        ratio=all_of_them,
        low=low,
        high=high,
        transition=transition,
        prior=prior,
        upper_bound=upper,
        concentration=concentration(transition, prior),
        uneven=prefers,
        counts=counts.sum(axis=1),
        method=method,
        explanation=about_unjudged(trust, unjudged, wrong),
        judged_ratio=ratio,
        unjudged=unjudged,
        unjudged_ratio=wrong,
    )


def _joint(scores: Sequence[Scores], given: Sequence[IntArray], classes: int) -> FloatArray:
    """All predictions against given labels."""
    counted = np.zeros((classes, classes))
    for s, y in zip(scores, given, strict=True):
        counted += pair_counts(s.predicted, y, classes)
    return counted


def cross_fitted_steps(
    labels: IntArray,
    classes: int,
    halves: Split,
    scores: tuple[Scores, Scores],
    *,
    seed: int,
    job_seeds: Sequence[int],
    name: str = "incv",
    keep_best: bool = False,
    more: Sequence[Split] = (),
    own_folds: int = 0,
    held_out: Sequence[Scores] | None = None,
    names: Sequence[Any] | None = None,
    groups: IntArray | None = None,
    columns: int | None = None,
) -> Generator[list[Job], list[Scores], tuple[NoiseEstimate, tuple[Scores, Scores] | None]]:
    """Ask for the two g and count. `scores[k]` are the held-out scores of `halves[k]` from iteration 1.

    `more` are further splits of the same samples, each with two g of its own; their predictions are averaged.
    `own_folds`: two more g, which learn from what was selected within their own half, in so many folds, do the counting
    (own_half.py); the scores returned are those of the first two, which learnt from more.
    `job_seeds` are two a split; `held_out` are the scores as the networks gave them, where `scores` are no longer.
    Where too little was selected to train g on, the first scores themselves are counted (and no g's scores returned).
    """
    agrees = np.zeros(len(labels), dtype=bool)
    for half, s in zip(halves, scores, strict=True):
        agrees[half] = s.predicted == labels[half]
    splits = (halves, *more)
    given = [labels[half] for half in halves]
    distinct = 1.0 if groups is None else len(np.unique(groups)) / len(groups)

    def jobs_of(masks: Sequence[BoolArray], suffix: str = "") -> list[Job]:
        """One g a half, on what is selected of the other; none where some would know one class only."""
        picked = [[half[mask[half]] for half in split] for split, mask in zip(splits, masks, strict=True)]
        if min(len(np.unique(labels[p])) for both in picked for p in both) < 2:
            return []
        return [
            Job(
                f"{name}-estimate-{1 + k}{suffix}" + (f"-split{1 + s}" if s else ""),
                labels, np.sort(picked[s][1 - k]), split[k], job_seeds[2 * s + k], keep_best,
            )
            for s, split in enumerate(splits)
            for k in (0, 1)
        ]  # fmt: skip

    jobs = jobs_of([agrees] * len(splits))
    if not jobs:
        method = "confident counting without cross-fitting: too few samples were selected"
        found = estimate_from_scores(
            scores, given, classes, seed=seed, method=method, names=names, distinct=distinct, columns=columns
        )
        return found, None
    inner = fold_jobs(labels, splits, folds=own_folds, seeds=job_seeds, name=name, keep_best=keep_best, groups=groups)
    answers = yield [*jobs, *inner]
    counting = both = over_first_split(splits, answers[: len(jobs)], labels, classes)
    if inner and (own := jobs_of(agreeing(labels, inner, answers[len(jobs) :], len(splits)), "-own")):
        counting = over_first_split(splits, (yield own), labels, classes)
    estimate = estimate_from_scores(
        counting,
        given,
        classes,
        seed=seed,
        method="cross-fitted confident counting",
        held_out=scores if held_out is None else held_out,
        second=scores if held_out is None else held_out,
        names=names,
        distinct=distinct,
        columns=columns,
    )
    return estimate, both
