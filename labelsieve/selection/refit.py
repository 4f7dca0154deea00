"""Train the classifier that selected once more, on the labels that are probably right, to predict new samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from labelsieve.execute.sklearn_trainer import SCALE_SAMPLES, decision_scale, fit, probabilities, take
from labelsieve.types import FloatArray, IntArray

# A label that is more likely wrong than right is not trained on. On a held-out part of banking77's training file with
# 30 % wrong labels, limits of 0.1, 0.3 and 0.5 and weights by probability below 0.5 have accuracies within 0.004
# (benchmarks/text-speed.md).
MOST_SUSPICION = 0.5


def trusted_samples(suspicion: FloatArray, labels: IntArray) -> IntArray:
    """Return the samples to train on; a class whose labels are all suspicious keeps them."""
    trusted = ~(suspicion > MOST_SUSPICION)
    lost = np.setdiff1d(labels, labels[trusted])
    return np.flatnonzero(trusted | np.isin(labels, lost))


@dataclass(frozen=True)
class Refit:
    """A classifier that was trained on the trusted samples."""

    model: Any
    known: IntArray  # the class codes of its columns
    scale: float  # of its decision function, if it has no probabilities

    @classmethod
    def train(cls, estimator: Any, x: Any, labels: IntArray, suspicion: FloatArray, seed: int) -> Refit:
        """Train a copy of `estimator`."""
        from threadpoolctl import threadpool_limits

        rows = trusted_samples(suspicion, labels)
        with threadpool_limits(1, user_api="blas"), np.errstate(invalid="ignore"):  # as in execute.sklearn_trainer
            model, known = fit(estimator, take(x, rows), labels[rows], seed)
            return cls(model, known, decision_scale(model, take(x, rows[:SCALE_SAMPLES]), known))

    def predict_proba(self, x: Any, classes: int) -> FloatArray:
        """Return the probability of each class for each sample, [n, classes]."""
        found = probabilities(self.model, x, self.known, scale=self.scale)
        full = np.zeros((len(found), classes))
        full[:, self.known] = found
        return full
