"""Standard training: cross-entropy on the given labels, the baseline for all other methods.

Needs nothing. Fails when the network memorises: with enough epochs it fits every wrong label, and its accuracy on clean
data falls to that of the noisy labels (theory.test_accuracy). Label smoothing (Szegedy et al., CVPR 2016; Lukasik et
al., "Does label smoothing mitigate label noise?", ICML 2020) reduces this a little and is off by default.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from labelsieve.checks import between
from labelsieve.engine.method import Batch, Method, mean_over


def smoothed_losses(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Return the cross-entropy with targets (1 - s) * given + s / c, [t,k,B]."""
    log_p = torch.log_softmax(logits.float(), dim=-1)
    t, k, b, _ = logits.shape
    of_given = log_p.gather(-1, labels[:, None, :, None].expand(t, k, b, 1)).squeeze(-1)
    return -((1 - smoothing) * of_given + smoothing * log_p.mean(-1))


@dataclass(frozen=True)
class Standard(Method):
    """Cross-entropy on the samples of `plan.train`.

    Parameters
    ----------
    label_smoothing
        Share s of the target that is spread evenly over all classes.
    """

    name = "standard"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        between("standard: label_smoothing", self.label_smoothing, 0, 1, ends="[)")

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return mean_over(smoothed_losses(logits, batch.labels, self.label_smoothing), batch.valid[:, None])
