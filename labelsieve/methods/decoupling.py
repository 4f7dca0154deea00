"""Decoupling: Malach and Shalev-Shwartz, "Decoupling 'when to update' from 'how to update'", NeurIPS 2017.

Two networks see the same batch, and both are updated only on the samples for which their predictions differ:

    loss = sum over these samples / max(number of these samples, min_fraction * B)

The lower limit of the divisor is from the released code (min_fraction 0.1); without it a single sample could determine
a step. `warmup_epochs` epochs of standard training come first; the released code has none.

Needs nothing. If the networks agree on a whole batch, the loss and its gradient are zero, and only momentum and weight
decay change the weights. Two networks with the same initial weights would never learn. Fails under strong noise: late
in training the predictions differ mostly on wrong labels, and the networks then learn these.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from labelsieve.checks import check_integer, check_range
from labelsieve.engine.method import Batch, Method, Plan, sample_losses
from labelsieve.errors import InputError


def disagreement(logits: Tensor, valid: Tensor) -> Tensor:
    """Return whether the two predictions differ, [t,B]; False for padding."""
    predicted = logits.detach().argmax(-1)
    return (predicted[:, 0] != predicted[:, 1]) & valid


@dataclass(frozen=True)
class Decoupling(Method):
    """Two networks that are updated where they disagree.

    Parameters
    ----------
    min_fraction
        Lower limit of the divisor, as a share of the batch.
    warmup_epochs
        Number of epochs of standard training at the start.
    """

    name = "decoupling"
    networks = 2
    min_fraction: float = 0.1
    warmup_epochs: int = 0

    def __post_init__(self) -> None:
        check_range("decoupling: min_fraction", self.min_fraction, 0, 1)
        check_integer("decoupling: warmup_epochs", self.warmup_epochs)

    def check(self, plan: Plan, epochs: int) -> None:
        if self.warmup_epochs > epochs:
            raise InputError(
                f"decoupling: warmup_epochs {self.warmup_epochs} is larger than the number of epochs, {epochs}; "
                "decrease it"
            )

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        warming_up = (batch.epoch < self.warmup_epochs)[:, None]
        chosen = (disagreement(logits, batch.valid) | (warming_up & batch.valid)).float()[:, None]
        floor = (self.min_fraction * batch.valid.sum(-1)).clamp_min(1)[:, None]
        return (sample_losses(logits, batch) * chosen).sum(-1) / torch.maximum(chosen.sum(-1), floor)
