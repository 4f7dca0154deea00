"""Find wrong labels from predictions that exist already, without training anything.

found = find_wrong_labels(labels, pred_probs)
labels[~found.wrong]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelsieve.checks import as_labels, distinct, refuse_missing
from labelsieve.errors import InputError
from labelsieve.frames import installed_frame
from labelsieve.progress import NoteKind
from labelsieve.scoring import (
    check_inputs,
    check_rows,
    class_names,
    named_columns,
    probability_blocks,
    score_probabilities,
)
from labelsieve.selection.noise_model import (
    BIN_SAMPLES,
    MOST_CLASSES_TO_DENOISE,
    LearntNoise,
    fit_noise_model,
    rows_to_learn_from,
    with_mean_posterior,
)
from labelsieve.selection.posterior import calibrate, flag_labels, posterior_of
from labelsieve.selection.settings import INCVSettings, ncv_settings
from labelsieve.selection.splits import SMALLEST
from labelsieve.types import LEAST_SUGGESTED_SHARE, BoolArray, FloatArray, IntArray, Job, Scores, Trainer, Trust


@dataclass(frozen=True)
class WrongLabels:
    """The result of `find_wrong_labels`. Arrays have one entry per sample, in the order of the labels."""

    wrong: BoolArray
    """Whether each label is flagged as wrong. The number of flags maximises their expected F1 score. If `trust` is
    unknown, flags are little better than guesses: do not remove these labels."""

    suspicion: FloatArray
    """The probability that each label is wrong. Sort by it to rank the labels."""

    suggested: NDArray[Any]
    """The suggested label of each sample. It is the predicted class if the label is flagged, and the given label
    otherwise or if `trust` is unknown. If a flagged sample may belong to none of the classes (`no_class`), it is empty,
    which is "" for text labels and -1 for numbers. If that is a class of your data, it is the first of -1, -2, ... that
    is not. Bools keep the given label."""

    suggested_probability: FloatArray
    """The probability that the predicted class is right."""

    labels: NDArray[Any]
    """The given labels."""

    predicted: NDArray[Any]
    """The likeliest class of each sample. With up to 50 classes, `pred_probs` are first corrected for the label noise
    that the models have learnt, so it can differ from the largest of `pred_probs`."""

    no_class: BoolArray
    """Whether the label is flagged and the sample may belong to none of the classes."""

    noise_ratio: float
    """The estimated proportion of wrong labels. It has no meaning if `trust` is unknown."""

    noise_interval: tuple[float, float]
    """95 % interval of `noise_ratio`. It is wide if wrong labels cannot be distinguished from errors of the
    classifier."""

    transition_matrix: FloatArray
    """The probability of each given label (column) for each true class (row), in the order of `classes`."""

    classes: NDArray[Any]
    """The classes, in the order of the columns of `pred_probs`."""

    trust: Trust
    """How reliable `noise_ratio` is (trustworthy, fair, rough or unknown)."""

    explanation: str
    """The reason for `trust`, in one sentence."""

    @property
    def noise_known(self) -> bool:
        """Whether `noise_ratio` has a meaning. It is false if `trust` is unknown."""
        return self.trust is not Trust.UNKNOWN

    def to_frame(self) -> Any:
        """Return one row per sample: label, predicted, suspicion, suggested, suggested_probability, wrong, no_class.

        Returns
        -------
        DataFrame
            A data frame of pandas if it is installed, else of polars, else an arrow table.
        """
        names = ("predicted", "suspicion", "suggested", "suggested_probability", "wrong", "no_class")
        return installed_frame({"label": self.labels} | {name: getattr(self, name) for name in names})

    def __repr__(self) -> str:
        low, high = self.noise_interval
        noise = f"noise_ratio={self.noise_ratio:.4f}, noise_interval=({low:.4f}, {high:.4f}), "
        counts = f"samples={len(self.wrong)}, wrong={int(self.wrong.sum())}"
        return f"WrongLabels({counts}, {noise if self.noise_known else ''}trust={str(self.trust)!r})"

    def __str__(self) -> str:
        low, high = self.noise_interval
        ratio = f"{100 * self.noise_ratio:.1f} % ({100 * low:.1f} to {100 * high:.1f} %), " if self.noise_known else ""
        return f"{int(self.wrong.sum()):,} of {len(self.wrong):,} labels flagged; noise {ratio}{self.explanation}"


@dataclass
class StoredPredictions(Trainer):
    """A `Trainer` that trains nothing: `scores` are those of all samples."""

    scores: Scores

    def train_and_score(self, jobs: Sequence[Job]) -> list[Scores]:
        return [self.scores.take(job.score) for job in jobs]


def stored_settings(settings: INCVSettings | None = None) -> INCVSettings:
    """One round that removes nothing and trains nothing."""
    return replace(ncv_settings(settings), stored=True)


def find_wrong_labels(
    labels: ArrayLike, pred_probs: ArrayLike, *, folds: ArrayLike | None = None, classes: ArrayLike | None = None
) -> WrongLabels:
    """Find wrong labels, and estimate how many there are, from out-of-sample predictions.

    Parameters
    ----------
    labels : array-like of shape (n_samples,)
        The given labels: numbers, text or bools.
    pred_probs : array-like of shape (n_samples, n_classes)
        Predicted probabilities from models that were not trained on the rows that they predict, as
        `sklearn.model_selection.cross_val_predict` returns them. Rows that sum to within 2 % of 1 are renormalised with
        a warning. The columns of a data frame (pandas, polars) have the names of the labels, in any order. Without
        names, or with the names 0, 1, ..., the columns are in the order of `classes`; by default, these are 0 to c - 1,
        or the sorted distinct labels if the labels are texts.
    folds : array-like of shape (n_samples,), optional
        The fold of each row. Pass it if the models of the folds may have different scales of confidence: all folds are
        brought to the same scale.
    classes : array-like of shape (n_classes,), optional
        The classes in the order of the columns.

    Returns
    -------
    WrongLabels
        Flags, suspicion, suggestions, and the noise ratio with its interval and trust.

    Examples
    --------
    >>> import numpy as np
    >>> from labelsieve import find_wrong_labels
    >>> rng = np.random.default_rng(0)
    >>> true = rng.integers(0, 3, 600)
    >>> labels = np.where(rng.random(600) < 0.1, (true + 1) % 3, true)
    >>> pred_probs = 0.05 + 0.85 * np.eye(3)[true]
    >>> found = find_wrong_labels(labels, pred_probs)
    >>> bool((found.wrong == (labels != true)).all()), str(found.trust)
    (True, 'fair')
    """
    labels = as_labels(labels)
    classes = named_columns(labels, pred_probs, classes)
    codes, probs = check_inputs(labels, pred_probs, classes)
    names = class_names(labels, probs.shape[1], classes)
    given = codes.astype(np.int64)
    if len(np.unique(given)) < 2:
        raise InputError("labels: there is only one class; two classes or more are needed")
    check_rows(given, probs)
    scores = denoised_scores(given, probs if folds is None else on_one_scale(probs, folds))
    model = fit_noise_model(scores, given, probs.shape[1], held_out=score_probabilities(given, probs, warn=False))
    posterior = posterior_of(scores, given, model)
    estimate = with_mean_posterior(model.estimate, posterior.wrong)
    suspicion = calibrate(posterior.order, posterior.wrong)
    differ = scores.predicted != given
    suggested = np.where(differ, suspicion * posterior.predicted_right, 1 - suspicion)
    wrong = flag_labels(suspicion) & differ.any()
    # Rounded, so that the order of the columns does not matter.
    no_class = wrong & (np.round(posterior.predicted_right, 6) < LEAST_SUGGESTED_SHARE) & estimate.known
    return WrongLabels(
        wrong=wrong,
        suspicion=suspicion,
        suggested=suggestions(
            names, given, np.where(wrong & differ & estimate.known, scores.predicted, given), no_class
        ),
        suggested_probability=suggested,
        labels=names[given],
        predicted=names[scores.predicted],
        no_class=no_class,
        noise_ratio=estimate.ratio,
        noise_interval=(estimate.low, estimate.high),
        transition_matrix=estimate.transition,
        classes=names,
        trust=estimate.trust,
        explanation=estimate.explanation if differ.any() else f"{estimate.explanation}; {NoteKind.ALL_PREDICTED.value}",
    )


def denoised_scores(given: IntArray, probs: NDArray[Any]) -> Scores:
    """Scores of denoised predictions."""
    if probs.shape[1] > MOST_CLASSES_TO_DENOISE:
        return score_probabilities(given, probs, warn=False)
    some = rows_to_learn_from(len(given))
    noise = LearntNoise.of(probs[some], given[some])
    return Scores.concatenate([noise.undo(q, labels) for labels, q in probability_blocks(given, probs)])


def on_one_scale(probs: NDArray[Any], folds: ArrayLike) -> NDArray[Any]:
    """The probabilities with one scale of confidence: p^t, renormalised, with one t per fold.

    Folds are random parts of the same data, so the median log-odds of the two likeliest classes should be the same in
    all of them. Folds with few samples keep their scale. benchmarks/real-noise.md measures the gain.
    """
    names = as_labels(folds, "folds")
    if len(names) != len(probs):
        raise InputError(f"folds: expected {len(probs)} entries, one per label, got {len(names)}")
    refuse_missing(names, "folds", entry="fold")
    fold = np.searchsorted(distinct(names, "folds"), names)
    sizes = np.bincount(fold)
    logs = np.log(np.maximum(probs, SMALLEST, dtype=np.float32))
    log_odds = np.diff(np.partition(logs, -2, axis=1)[:, -2:], axis=1)[:, 0]
    medians, median = np.array([np.median(log_odds[fold == k]) for k in range(len(sizes))]), float(np.median(log_odds))
    scaled = (sizes >= BIN_SAMPLES) & (np.minimum(medians, median) > SMALLEST)
    power = np.where(scaled, median / np.maximum(medians, SMALLEST), 1.0)
    found = np.exp(logs * power[fold][:, None])
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def suggestions(names: NDArray[Any], given: IntArray, codes: IntArray, no_class: BoolArray) -> NDArray[Any]:
    """The suggested labels; empty (see `WrongLabels.suggested`) for `no_class`, except for bools."""
    found = names[codes]
    if names.dtype.kind == "b":
        return np.where(no_class, names[given], found)
    if names.dtype.kind in "mM":  # dates have an empty value of their own
        found[no_class] = "NaT"
        return found
    if names.dtype.kind == "u":
        found = found.astype(np.int64)
    empty = no_suggestion(names)
    found = found.astype(np.promote_types(found.dtype, np.min_scalar_type(empty)), copy=False)
    found[no_class] = empty
    return found


def no_suggestion(names: NDArray[Any]) -> NDArray[Any]:
    """The empty suggestion, which is never one of the classes: "" for texts and -1 for numbers, or -1, -2, ..."""
    if names.dtype.kind in "iuf":
        taken = set(names.tolist())
        return np.array(next(number for number in count(-1, -1) if number not in taken))
    taken = set(names.astype(str).tolist())
    empty = np.array(next(text for text in chain([""], map(str, count(-1, -1))) if text not in taken))
    return empty.astype("S") if names.dtype.kind == "S" else empty
