"""Decoupling: Malach and Shalev-Shwartz, "Decoupling 'when to update' from 'how to update'", NeurIPS 2017.

Two networks see the same batch, and both update on those samples alone for which their predictions differ:

    loss = sum over the samples they disagree on / max(how many these are, min_fraction * B)

The floor under the divisor is the released code's (min_fraction 0.1): without it one disputed sample would make a
whole step. `warmup_epochs` epochs of plain training come first; as released, none.

Needs nothing. When the networks never disagree in a batch the loss is zero and so is its gradient: they learn nothing
from it (momentum and weight decay still move them). Two networks from one seed would never learn at all. Fails under
strong noise: as training goes on, what they dispute is mostly wrong labels, and these are what they then learn.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from labelsieve.checks import between, whole
from labelsieve.engine.method import Batch, Method, Plan, sample_losses
from labelsieve.errors import InputError


def disputed(logits: Tensor, valid: Tensor) -> Tensor:
    """Where the two predictions differ, [t,B] bool; never on padding."""
    predicted = logits.detach().argmax(-1)
    return (predicted[:, 0] != predicted[:, 1]) & valid


@dataclass(frozen=True)
class Decoupling(Method):
    """Update by disagreement."""

    name = "decoupling"
    networks = 2
    min_fraction: float = 0.1
    warmup_epochs: int = 0

    def __post_init__(self) -> None:
        between("decoupling: min_fraction", self.min_fraction, 0, 1)
        whole("decoupling: warmup_epochs", self.warmup_epochs)

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    def check(self, plan: Plan, epochs: int) -> None:
        if self.warmup_epochs > epochs:
            raise InputError(f"decoupling: warmup_epochs {self.warmup_epochs} is beyond the last epoch, {epochs}")

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        warming_up = (batch.epoch < self.warmup_epochs)[:, None]
        chosen = (disputed(logits, batch.valid) | (warming_up & batch.valid)).float()[:, None]
        floor = (self.min_fraction * batch.valid.sum(-1)).clamp_min(1)[:, None]
        return (sample_losses(logits, batch) * chosen).sum(-1) / torch.maximum(chosen.sum(-1), floor)
