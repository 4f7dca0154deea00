"""Logistic regression for embeddings whose regularisation is chosen on labels that were held out.

The more labels are wrong, the stronger it has to be, else the classifier repeats wrong labels. On photos and on texts,
with 10 and 30 % wrong labels, the strength with the smallest loss on held-out given labels is also the one whose
held-out predictions rank wrong labels best (benchmarks/embeddings.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.utils import check_random_state

from labelsieve.types import IntArray

# C times the number of standardised columns, which is the variance of the log-odds before any sample is seen. 0.3 was
# never the best value on the data of benchmarks/embeddings.md.
STRENGTHS = (1.0, 3.0, 10.0, 30.0)
TYPICAL_STRENGTH = 3.0  # if too few classes are left to compare: most often chosen (benchmarks/embeddings.md)
TUNING_SAMPLES = 2_000  # of each half: limits the time; the best strength depends little on the number of samples
TUNING_TOLERANCE = 1e-3  # ten times that of the final fit: the losses of two strengths differ by more than 1 %


class TunedLogistic(LogisticRegression):  # type: ignore[misc]
    """Logistic regression on standardised columns; `fit` chooses C."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TunedLogistic:
        """Choose C with one half of the samples on the other half, then fit all samples."""
        labels, size = np.asarray(y), min(len(y) // 2, TUNING_SAMPLES)
        order = check_random_state(self.random_state).permutation(len(labels))
        self.C = self._best_strength(X, labels, order[:size], order[size : 2 * size]) / X.shape[1]
        super().fit(X, y, sample_weight)
        return self

    def _best_strength(self, x: Any, labels: IntArray, train: IntArray, held_out: IntArray) -> float:
        """Return the strength with the smallest loss on the held-out labels, from the strongest regularisation on."""
        held_out = held_out[np.isin(labels[held_out], labels[train])]
        if len(held_out) == 0 or len(np.unique(labels[train])) < 2:
            return TYPICAL_STRENGTH
        model = LogisticRegression(tol=TUNING_TOLERANCE, max_iter=self.max_iter, warm_start=True)
        best, least = TYPICAL_STRENGTH, np.inf
        for strength in STRENGTHS:
            model.set_params(C=strength / x.shape[1]).fit(x[train], labels[train])
            columns = np.searchsorted(model.classes_, labels[held_out])
            loss = -model.predict_log_proba(x[held_out])[np.arange(len(held_out)), columns].mean()
            if loss >= least:
                break
            best, least = strength, loss
        return best
