"""Co-teaching: Han et al., "Robust training of deep neural networks with extremely noisy labels", NeurIPS 2018.

Two networks see the same batch. Each ranks it by loss, and its smallest-loss samples update the *other* network. In
epoch e = 1, 2, ... a batch of B samples keeps

    n(e) = round(B * R(e)),    R(e) = 1 - noise_ratio * min(e / gradual_epochs, 1)

samples, with halves rounded up and at least one sample kept. The engine counts epochs from 0, so e = epoch + 1. Padding
does not count: B is the number of valid samples. The loss is the mean over the kept samples; the released code divides
this mean by the number of kept samples again. Ranking and update use the same forward pass.

Needs the noise ratio, given or estimated. Fails if the ratio is wrong, and if the noise is so strong that a small loss
does not mean a clean label: at 80 % symmetric noise both networks soon agree on wrong labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from labelsieve.checks import check_integer, check_range
from labelsieve.engine.method import Batch, Method, Needs, Plan, State, mean_over, sample_losses
from labelsieve.errors import InputError

WORST_RATIO = 0.95  # limit of an estimated noise ratio: with 1.0 no sample would be used
# In float32 an exact half such as 0.7 * 35 is slightly too small. Other products are not this close to a half.
_HALF = 0.5 + 1e-4


def kept_count(size: Tensor, noise_ratio: Tensor, epoch: Tensor, gradual_epochs: int) -> Tensor:
    """Return n(e) for batches of `size` samples, as whole float32 numbers; `epoch` counts from 0."""
    rate = 1 - noise_ratio * ((epoch + 1) / gradual_epochs).clamp(max=1)
    return torch.minimum(torch.floor(size * rate + _HALF).clamp_min(1), size)


def exchanged_loss(losses: Tensor, valid: Tensor, kept: Tensor) -> Tensor:
    """Return each network's mean loss over the `kept` samples with the smallest loss of the other network.

    losses [t,2,B], kept [t] -> [t,2]
    """
    easiest_first = losses.detach().masked_fill(~valid[:, None], float("inf")).argsort(dim=-1, stable=True)
    of_peers_choice = losses.gather(-1, easiest_first.flip(1))
    position = torch.arange(losses.shape[-1], device=losses.device)
    return mean_over(of_peers_choice, position < kept[:, None, None])


def check_ratio(noise_ratio: float | None, method: str) -> float:
    """Return the noise ratio, or raise InputError if it is missing or out of range."""
    if noise_ratio is None:
        raise InputError(
            f"method {method!r} needs a noise ratio: set noise_ratio, or run `labelsieve select` to estimate it"
        )
    check_range(f"method {method!r}: the noise ratio", noise_ratio, 0, 1, ends="[)")
    return float(noise_ratio)


@dataclass(frozen=True)
class CoTeaching(Method):
    """Two networks that select samples for each other.

    Parameters
    ----------
    noise_ratio
        Share of samples that are not used; by default the estimated noise ratio.
    gradual_epochs
        Number of epochs over which this share rises from 0 to noise_ratio.
    """

    name = "coteaching"
    networks = 2
    noise_ratio: float | None = None
    gradual_epochs: int = 10

    def __post_init__(self) -> None:
        if self.noise_ratio is not None:
            check_ratio(self.noise_ratio, self.name)
        check_integer("coteaching: gradual_epochs", self.gradual_epochs, least=1)

    def needs(self) -> Needs:
        return "ratio" if self.noise_ratio is None else "nothing"

    def ratio(self, plan: Plan) -> float:
        return check_ratio(plan.noise_ratio if self.noise_ratio is None else self.noise_ratio, self.name)

    def check(self, plan: Plan, epochs: int) -> None:
        self.ratio(plan)

    def state(self, plan: Plan, *, samples: int, classes: int, epochs: int) -> State:
        return {"noise_ratio": torch.tensor(self.ratio(plan))}

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        size = batch.valid.sum(-1).float()
        kept = kept_count(size, batch.state["noise_ratio"], batch.epoch, self.gradual_epochs)
        return exchanged_loss(sample_losses(logits, batch), batch.valid, kept)
