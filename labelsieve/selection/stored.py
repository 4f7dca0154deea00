"""Predictions that were made elsewhere, judged: which labels are wrong, without training anything.

Stored out-of-sample probabilities take the place of the two trainings of noisy cross-validation, algorithm 1. What
follows is the same: the noise is counted where they are most confident, undone where it is uneven, and every label gets
a probability of being wrong.

    found = find_wrong_labels(labels, pred_probs)
    labels[~found.wrong]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelsieve.scoring import checked, class_names, named_columns, score_probabilities
from labelsieve.selection.ncv import ncv_settings, ncv_steps
from labelsieve.selection.run_selection import drive
from labelsieve.selection.settings import INCVSettings
from labelsieve.types import BoolArray, FloatArray, Job, NoiseEstimate, Scores, Trainer, Trust

ALL_PREDICTED = "every label was predicted: had the model been trained on these samples, that would say nothing"


@dataclass(frozen=True)
class WrongLabels:
    """What `find_wrong_labels` found, one entry a sample in the order of the labels."""

    wrong: BoolArray
    """Labels that are more likely wrong than right, and in any case the most suspicious ones, as many as `noise_ratio`
    says; where another label was predicted, and none of a class that could not be judged."""

    suspicion: FloatArray
    """How likely each label is wrong, 0 to 1; one number for all that could not be judged, and `suggested_probability`
    is nan there."""

    suggested: NDArray[Any]
    """The labels, those of `wrong` that are likelier wrong than right replaced by what was predicted; all as they are
    where not `noise_known`."""

    suggested_probability: FloatArray
    """How likely the predicted label is the right one."""

    noise_ratio: float
    """The share of wrong labels; it says something only where `noise_known`."""

    noise_interval: tuple[float, float]
    """The 95 % interval of `noise_ratio`; of labels that could not be judged, none or all may be wrong."""

    transition_matrix: FloatArray
    """Rows: true classes, columns: given labels; in the order of `classes`."""

    classes: NDArray[Any]
    """The classes, in the order of the columns of `pred_probs`."""

    trust: Trust
    """How far to trust the numbers; `explanation` says why in one sentence."""

    explanation: str

    @property
    def noise_known(self) -> bool:
        """Whether the numbers say anything; False if `trust` is unknown."""
        return self.trust is not Trust.UNKNOWN

    def __str__(self) -> str:
        low, high = self.noise_interval
        noise = "not known"
        if self.noise_known:
            noise = f"{100 * self.noise_ratio:.1f} % ({100 * low:.1f} to {100 * high:.1f} %)"
        return f"{int(self.wrong.sum()):,} of {len(self.wrong):,} labels flagged; noise {noise}, {self.explanation}"


@dataclass
class StoredPredictions(Trainer):
    """A `Trainer` that trains nothing: `scores` are of all samples."""

    scores: Scores

    def train_and_score(self, jobs: Sequence[Job]) -> list[Scores]:
        return [self.scores.take(job.score) for job in jobs]


def stored_settings(settings: INCVSettings | None = None) -> INCVSettings:
    """One round that removes nothing and trains nothing."""
    return replace(ncv_settings(settings), stored=True)


def find_wrong_labels(labels: ArrayLike, pred_probs: ArrayLike, *, classes: ArrayLike | None = None) -> WrongLabels:
    """Which labels are wrong, how likely each is, and how noisy they are, from predictions you have.

    `pred_probs` must be out of sample: from models that did not train on the rows they predict, as
    `sklearn.model_selection.cross_val_predict` makes them. Columns are the labels 0..c-1, or `classes`, or the sorted
    distinct labels where those are text. Of a data frame (pandas, polars) they are what they are called, in whatever
    order, unless that is their number. Nothing is told about the noise.
    """
    classes = named_columns(labels, pred_probs, classes)
    codes, probs = checked(labels, pred_probs, classes)
    names = class_names(labels, probs.shape[1], classes)
    trainer = StoredPredictions(score_probabilities(codes, probs))
    given = codes.astype(np.int64)
    found = drive(ncv_steps(given, len(names), settings=stored_settings(), seed=0, names=names.tolist()), trainer)
    likelier_wrong = found.suspicion > 0.5
    estimate = found.history[0]["estimate"]
    unknown = np.isnan(found.suggested_probability)
    judged = np.flatnonzero(~unknown | unknown.all())
    most = np.zeros(len(given), dtype=bool)
    most[judged] = most_suspicious(found.suspicion[judged], estimate["judged_ratio"])
    wrong = (likelier_wrong | most) & found.doubted(given)
    noise = NoiseEstimate.from_record(estimate)
    explanation = noise.explanation
    if (found.predicted == given).all():
        explanation += f"; {ALL_PREDICTED}"
    # As on export: predictions that say nothing of the labels may rank them, but do not replace them.
    replaced = wrong & likelier_wrong & noise.known
    return WrongLabels(
        wrong=wrong,
        suspicion=found.suspicion,
        suggested=names[np.where(replaced, found.predicted, given)],
        suggested_probability=found.suggested_probability,
        noise_ratio=found.noise_ratio,
        noise_interval=(estimate["low"], estimate["high"]),
        transition_matrix=found.transition_matrix,
        classes=names,
        trust=noise.trust,
        explanation=explanation,
    )


def most_suspicious(suspicion: FloatArray, noise_ratio: float) -> BoolArray:
    """As many as the noise ratio says are wrong; equal ones all or none.

    Where few samples make the noise look a little smaller than it is, no label is likelier wrong than right, and the
    order still holds.
    """
    count = round(noise_ratio * len(suspicion))
    if count == 0:
        return np.zeros(len(suspicion), dtype=bool)
    return np.asarray(suspicion >= np.partition(suspicion, -count)[-count])
