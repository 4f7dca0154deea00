"""Losses of single networks without a robust method: cross-entropy and generalised cross-entropy.

Standard training, cross-entropy on the given labels, is the baseline for all other methods. Needs nothing. Fails when
the network memorises: with enough epochs it fits every wrong label, and its accuracy on clean data falls to that of the
noisy labels (theory.test_accuracy). Label smoothing (Szegedy et al., CVPR 2016; Lukasik et al., "Does label smoothing
mitigate label noise?", ICML 2020) reduces this a little and is off by default.

Generalised cross-entropy (Zhang & Sabuncu, NeurIPS 2018) is between cross-entropy and the mean absolute error:

    l_q = (1 - p^q) / q       p is the probability of the given label; q -> 0: -log p;  q = 1: 1 - p

Needs only q (0.7 in their paper). The gradient of an improbable label is that of cross-entropy times p^q, so wrong
labels are memorised later. Fails if there are many classes or hard ones, because the same factor slows down everything
that is learned slowly. It is a loss for the selector of INCV (benchmarks/repeats.md) and not part of table 1, so it is
not in METHODS. Its batches are of equal size, instead of full ones and a small last one: with few, large batches the
last update of the batch-norm statistics matters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from labelsieve.checks import check_range
from labelsieve.engine.method import Batch, Method, Plan, in_batches, mean_over
from labelsieve.types import IntArray


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
        check_range("standard: label_smoothing", self.label_smoothing, 0, 1, ends="[)")

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return mean_over(generalised_losses(logits, batch.labels, 0.0, self.label_smoothing), batch.valid[:, None])


def generalised_losses(logits: Tensor, labels: Tensor, q: float, smoothing: float = 0.0) -> Tensor:
    """Return l_q with targets (1 - s) * given + s / c, [t,k,B]."""
    log_p = torch.log_softmax(logits.float(), dim=-1)
    # expm1 is accurate for p near 1; q = 0 is the limit
    each = -torch.expm1(q * log_p) / q if q > 0 else -log_p
    t, k, b, _ = logits.shape
    of_given = each.gather(-1, labels[:, None, :, None].expand(t, k, b, 1)).squeeze(-1)
    return (1 - smoothing) * of_given + smoothing * each.mean(-1) if smoothing else of_given


def even_batches(order: IntArray, batch_size: int) -> IntArray:
    """Split into the smallest number of batches, whose sizes differ by at most one: [steps, size], -1 for padding."""
    steps = max(1, -(-len(order) // batch_size))
    size = -(-len(order) // steps)
    if steps == 1 or len(order) < 2 * steps:
        return in_batches(order, batch_size)
    batches = np.full((steps, size), -1, dtype=np.int64)
    for row, part in zip(batches, np.array_split(order, steps), strict=True):
        row[: len(part)] = part
    return batches


@dataclass(frozen=True)
class GeneralisedCE(Method):
    """Generalised cross-entropy on the samples of `plan.train`.

    Parameters
    ----------
    q
        Exponent; 0 is cross-entropy, 1 the mean absolute error.
    label_smoothing
        Share of the target that is spread evenly over all classes.
    """

    name = "generalised-ce"
    q: float = 0.7
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        check_range("generalised-ce: q", self.q, 0, 1)
        check_range("generalised-ce: label_smoothing", self.label_smoothing, 0, 1, ends="[)")

    def batches(self, plan: Plan, epoch: int, batch_size: int, rng: np.random.Generator) -> IntArray:
        return even_batches(rng.permutation(plan.train), batch_size)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return mean_over(generalised_losses(logits, batch.labels, self.q, self.label_smoothing), batch.valid[:, None])
