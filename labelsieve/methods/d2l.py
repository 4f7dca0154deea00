"""D2L: Ma et al., "Dimensionality-driven learning with noisy labels", ICML 2018.

Before each epoch the local intrinsic dimensionality (LID) of the last hidden layer is measured: by maximum likelihood
from the k = 20 nearest neighbours within batches of 128 random training samples, averaged over 1,280 samples. The LID
falls while the network generalises and rises when it starts to memorise noise. The turning point is the first epoch
after init_epochs + window epochs whose LID exceeds the mean of the previous `window` epochs by two standard deviations.
From then on, in epoch i of E (counted from 0),

    alpha = exp(-(i / E) * LID_i / min_j LID_j)
    loss = cross-entropy with target alpha * given + (1 - alpha) * predicted

where `predicted` is the one-hot class predicted in the same forward pass. Before the turning point alpha is 1.

Needs at least 11 epochs, and more than k samples. The released CIFAR-10 run waits 10 epochs, not 5. The paper
resets the network by one epoch at the turning point; the released code reloads its newest checkpoint, which changes
nothing, and this implementation does not reset either. Fails if the turning point is missed or late: memorised labels
are then predicted by the network itself. Under 80 % noise it collapses (table 1: 10 %).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from labelsieve.checks import check_integer
from labelsieve.engine.method import Batch, Method, Plan, State, TrainingView, mean_over, warn_user
from labelsieve.errors import InputError


def local_dimension(features: Tensor, neighbours: int = 20) -> Tensor:
    """Return the LID of each row of [n,d], -k / sum_j log(r_j / r_k) over its k nearest neighbours.

    NaN if all neighbours have the same distance.
    """
    k = min(neighbours, len(features) - 1)
    flat = features.double().flatten(1)
    distances = torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist")
    distances.fill_diagonal_(-1.0)  # the sample itself comes first, also if it has duplicates
    nearest = distances.sort(dim=1).values[:, 1 : k + 1]
    spread = torch.log(nearest / nearest[:, -1:] + 1e-8).sum(1)
    lid = -k / spread
    return torch.where(lid.isfinite() & (lid > 0) & (spread < -1e-6), lid, torch.nan)


def is_turning_point(lids: list[float], *, init_epochs: int, window: int) -> bool:
    """Return whether the dimensionality starts to rise at the last LID."""
    if len(lids) <= init_epochs + window:
        return False
    before = np.asarray(lids[-window - 1 : -1])
    rounding = 1e-6 * before.mean()  # a constant LID has no standard deviation, only rounding errors
    return bool(lids[-1] - before.mean() > 2 * before.std() + rounding)


def mixed_losses(logits: Tensor, labels: Tensor, alpha: Tensor) -> Tensor:
    """Return the cross-entropy with target alpha * given + (1 - alpha) * predicted, [t,k,B]; alpha [t]."""
    log_p = torch.log_softmax(logits.float(), -1)
    t, k, b, _ = logits.shape
    of_given = log_p.gather(-1, labels[:, None, :, None].expand(t, k, b, 1)).squeeze(-1)
    of_predicted = log_p.amax(-1)
    share = alpha[:, None, None]
    return -(share * of_given + (1 - share) * of_predicted)


@dataclass(frozen=True)
class D2L(Method):
    """Mixes predictions into the labels when the dimensionality rises.

    Parameters
    ----------
    init_epochs
        Number of epochs before the window in which the turning point is not looked for.
    window
        Number of epochs that the LID is compared with.
    neighbours
        Number of nearest neighbours, k.
    lid_samples
        Number of random training samples that the LID is averaged over.
    lid_batch
        Number of samples in which neighbours are looked for.
    """

    name = "d2l"
    init_epochs: int = 5
    window: int = 5
    neighbours: int = 20
    lid_samples: int = 1280
    lid_batch: int = 128

    def __post_init__(self) -> None:
        for field, low in (("init_epochs", 0), ("window", 1), ("neighbours", 2), ("lid_samples", 3), ("lid_batch", 3)):
            check_integer(f"d2l: {field}", getattr(self, field), least=low)

    def check(self, plan: Plan, epochs: int) -> None:
        if len(plan.train) < 3:
            raise InputError(
                f"d2l: {len(plan.train)} training samples are too few to measure the dimensionality; use another method"
            )
        first = self.init_epochs + self.window  # first possible turning point, counted from 0
        if epochs <= first:
            warn_user(
                f"d2l has no effect before epoch {first + 1}, so with {epochs} epochs it is the same as standard: "
                f"train for at least {first + 1} epochs, or set a smaller init_epochs or window"
            )

    def state(self, plan: Plan, *, samples: int, classes: int, epochs: int) -> State:
        return {
            "alpha": torch.tensor(1.0),
            "turning_epoch": torch.tensor(-1),
            "lids": torch.full((epochs,), torch.nan),
        }

    def measure(self, view: TrainingView) -> float:
        """Return the mean LID of random training samples; NaN if it cannot be measured."""
        rng = np.random.default_rng([view.plan.seed, view.epoch, 20180201])
        chosen = rng.permutation(view.plan.train)[: self.lid_samples]
        features = view.features(chosen).cpu()  # double precision is not available on every device
        starts = range(0, max(1, len(chosen) - self.lid_batch + 1), self.lid_batch)  # full batches, or the only one
        lids = torch.cat([local_dimension(features[i : i + self.lid_batch], self.neighbours) for i in starts])
        return float(lids.nanmean())

    def before_epoch(self, view: TrainingView) -> None:
        measured = self.measure(view)
        if math.isnan(measured):  # as released: use the last value if the LID cannot be measured
            measured = float(view.state["lids"][view.epoch - 1]) if view.epoch else 1.0
        view.state["lids"][view.epoch] = measured
        lids = view.state["lids"][: view.epoch + 1].tolist()
        if int(view.state["turning_epoch"]) < 0:
            if not is_turning_point(lids, init_epochs=self.init_epochs, window=self.window):
                return
            view.state["turning_epoch"].fill_(view.epoch)
        view.state["alpha"].fill_(math.exp(-(view.epoch / view.epochs) * lids[-1] / min(lids)))

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return mean_over(mixed_losses(logits, batch.labels, batch.state["alpha"]), batch.valid[:, None])
