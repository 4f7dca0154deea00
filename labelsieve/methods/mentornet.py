"""MentorNet PD: Jiang et al., "MentorNet: learning data-driven curriculum for very deep networks", ICML 2018.

A small network, the mentor, first learns a predefined curriculum and then weights the samples of the student. Its
inputs for each sample are the loss, the loss minus a moving average of the batch's p-percentile loss, the label, and
the completed part of the training (0..99 %). The curriculum is the released mixture (equation 5 of the paper):

    up to 18 %     weight 1
    up to 90 %     self-paced: 1 if the loss is below the moving percentile, else 0
    from 90 % on   linear: 1 - difference, clipped to 0..1

While the student trains, samples are also dropped at random: half of them in the first 17 % of the training, 5 % later.
The loss of a batch is sum(weight * loss) / batch size, as released, so few trusted samples make a small step.

The mentor is the published one: loss and difference go through a bidirectional LSTM, label and epoch through embeddings
(widths 2 and 5), and all of them into 20 tanh units and one sigmoid. As released the LSTM has one time step and a zero
state, which makes it a gated layer. It has 10 units per direction here and 1 in the release. It is trained once, from
`mentor_seed`, in seconds, on the released grid of losses, differences and epochs.

Needs no noise ratio, but the percentile has its role: the published value is 0.75 for 20 and 40 % noise, 0.5 for 80 %.
A fixed percentile ignores a fixed share, so it fails if the noise is stronger than 1 - percentile and wastes clean
samples if it is weaker. Samples are dropped for a whole epoch, not for a batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from labelsieve.checks import check_integer, check_range
from labelsieve.engine.method import Batch, Method, Plan, State, TrainingView, sample_losses
from labelsieve.models.kernels.reference import BETA_1, BETA_2, EPSILON

BURN_IN_PERCENT, LINEAR_PERCENT = 18, 90  # of the training, as released
MENTOR_RATE, MENTOR_STEPS = 0.03, 600  # of Adam; the mentor learns its curriculum with them
LSTM_UNITS, LABEL_WIDTH, EPOCH_WIDTH, HIDDEN = 10, 2, 5, 20  # sizes of the authors' released network


def curriculum(difference: Tensor, percent: Tensor) -> Tensor:
    """Return the weights that the mentor learns, from the loss difference and the completed part of the training."""
    self_paced = (difference <= 0).float()
    linear = (1 - difference).clamp(0, 1)
    return torch.where(
        percent <= BURN_IN_PERCENT, torch.ones_like(linear), torch.where(percent < LINEAR_PERCENT, self_paced, linear)
    )


def mentor_weights(mentor: State, losses: Tensor, difference: Tensor, labels: Tensor, percent: Tensor) -> Tensor:
    """Run the mentor for t trainings: [t,k,B] losses and differences, [t,B] labels, [t] percent -> [t,k,B].

    Every tensor of `mentor` has the training as its first axis.
    """
    t, k, b = losses.shape
    inputs = torch.stack([losses, difference], -1).reshape(t, k * b, 2)
    gates = torch.baddbmm(mentor["lstm_bias"][:, None], inputs, mentor["lstm"])
    gate_in, candidate, gate_out = gates.chunk(3, -1)
    seen = gate_out.sigmoid() * torch.tanh(gate_in.sigmoid() * candidate.tanh())
    label = mentor["label"].gather(1, labels[:, :, None].expand(t, b, LABEL_WIDTH))
    label = label[:, None].expand(t, k, b, LABEL_WIDTH).reshape(t, k * b, LABEL_WIDTH)
    epoch = mentor["epoch"].gather(1, percent.long()[:, None, None].expand(t, 1, EPOCH_WIDTH))
    features = torch.cat([label, epoch.expand(t, k * b, EPOCH_WIDTH), seen], -1)
    hidden = torch.baddbmm(mentor["hidden_bias"][:, None], features, mentor["hidden"]).tanh()
    return torch.baddbmm(mentor["out_bias"][:, None], hidden, mentor["out"]).sigmoid().view(t, k, b)


@lru_cache(maxsize=8)
def trained_mentor(classes: int, seed: int) -> State:
    """Train the mentor; returns tensors without a training axis, the same for the same arguments."""
    draw = torch.Generator().manual_seed(seed)
    width = LABEL_WIDTH + EPOCH_WIDTH + 2 * LSTM_UNITS
    shapes = {
        "lstm": (2, 6 * LSTM_UNITS),
        "lstm_bias": (6 * LSTM_UNITS,),
        "label": (classes, LABEL_WIDTH),
        "epoch": (100, EPOCH_WIDTH),
        "hidden": (width, HIDDEN),
        "hidden_bias": (HIDDEN,),
        "out": (HIDDEN, 1),
        "out_bias": (1,),
    }
    mentor = {name: torch.randn(1, *shape, generator=draw) / math.sqrt(shape[0]) for name, shape in shapes.items()}
    loss_grid = torch.cat([torch.arange(0, 10, 0.1), torch.arange(10.0, 30.0)])
    percent = torch.arange(100)  # 100 "trainings", one per percentage, with eight samples per step

    def choose(high: int) -> Tensor:
        return torch.randint(high, (100, 8), generator=draw)

    parameters = [tensor.requires_grad_() for tensor in mentor.values()]
    moments = [(torch.zeros_like(tensor), torch.zeros_like(tensor)) for tensor in parameters]
    for step in range(MENTOR_STEPS):
        with torch.enable_grad():
            losses, difference, labels = loss_grid[choose(len(loss_grid))], -5 + 0.1 * choose(100), choose(classes)
            rows = {name: tensor.expand(100, *tensor.shape[1:]) for name, tensor in mentor.items()}
            given = mentor_weights(rows, losses[:, None], difference[:, None], labels, percent)
            error = F.mse_loss(given[:, 0], curriculum(difference, percent[:, None]))
            gradients = torch.autograd.grad(error, parameters)
        # Adam with a cosine schedule, written out: torch.optim imports a compiler, which takes seconds.
        rate = MENTOR_RATE * (1 + math.cos(math.pi * step / MENTOR_STEPS)) / 2 / (1 - BETA_1 ** (step + 1))
        with torch.no_grad():
            for parameter, gradient, (first, second) in zip(parameters, gradients, moments, strict=True):
                first.lerp_(gradient, 1 - BETA_1)
                second.mul_(BETA_2).addcmul_(gradient, gradient, value=1 - BETA_2)
                spread = second.div(1 - BETA_2 ** (step + 1)).sqrt_().add_(EPSILON)
                parameter.addcdiv_(first, spread, value=-rate)
    return {name: tensor.detach().squeeze(0) for name, tensor in mentor.items()}


def batch_percentile(losses: Tensor, valid: Tensor, percentile: float) -> Tensor:
    """Return the nearest-rank percentile of the valid losses, [t,k]; 0 if none is valid."""
    ordered = losses.masked_fill(~valid[:, None], float("inf")).sort(-1).values
    count = valid.sum(-1)
    rank = torch.round(percentile * (count - 1).clamp_min(0)).long()
    found = ordered.gather(-1, rank[:, None, None].expand(*losses.shape[:2], 1)).squeeze(-1)
    return torch.where(count[:, None] > 0, found, torch.zeros_like(found))


@dataclass(frozen=True)
class MentorNet(Method):
    """A pre-trained mentor weights the samples of the network.

    Parameters
    ----------
    percentile
        Losses above this share of a batch get a low weight.
    decay
        Weight of the past in the moving average of the percentile.
    burn_in_dropout
        Share of samples dropped at random in the first 17 % of the training.
    dropout
        Share of samples dropped afterwards.
    mentor_seed
        Seed of the mentor's training.
    """

    name = "mentornet"
    percentile: float = 0.75
    decay: float = 0.5
    burn_in_dropout: float = 0.5
    dropout: float = 0.05
    mentor_seed: int = 0

    def __post_init__(self) -> None:
        check_range("mentornet: percentile", self.percentile, 0, 1)
        shares = {"decay": self.decay, "burn_in_dropout": self.burn_in_dropout, "dropout": self.dropout}
        for name, share in shares.items():
            check_range(f"mentornet: {name}", share, 0, 1, ends="[)")
        check_integer("mentornet: mentor_seed", self.mentor_seed)

    def state(self, plan: Plan, *, samples: int, classes: int, epochs: int) -> State:
        trained = trained_mentor(classes, int(self.mentor_seed))  # torch does not accept numpy integers
        return {f"mentor_{name}": tensor.clone() for name, tensor in trained.items()} | {
            "percent": torch.tensor(0),
            "moving_percentile": torch.tensor(0.0),
            "dropped": torch.zeros(samples, dtype=torch.bool),
        }

    def before_epoch(self, view: TrainingView) -> None:
        percent = min(99, 100 * view.epoch // view.epochs)
        rate = self.burn_in_dropout if percent < BURN_IN_PERCENT - 1 else self.dropout
        dropped = view.state["dropped"]
        rng = np.random.default_rng([view.plan.seed, view.epoch, 20180710])
        dropped.copy_(torch.from_numpy(rng.random(len(dropped)) < rate))
        view.state["percent"].fill_(percent)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        losses = sample_losses(logits, batch)
        with torch.no_grad():
            weights = self.weights(losses.detach(), batch)
        return (losses * weights).sum(-1) / batch.valid.sum(-1).clamp_min(1)[:, None]

    def weights(self, losses: Tensor, batch: Batch) -> Tensor:
        """Return the weights [t,1,B] and update the moving average of the percentile in place."""
        average = batch.state["moving_percentile"]
        found = batch_percentile(losses, batch.valid, self.percentile)[:, 0]
        moved = self.decay * average + (1 - self.decay) * found
        average.copy_(torch.where(batch.valid.any(-1), moved, average))
        mentor = {
            name.removeprefix("mentor_"): value for name, value in batch.state.items() if name.startswith("mentor_")
        }
        difference = losses - average[:, None, None]
        weights = mentor_weights(mentor, losses, difference, batch.labels, batch.state["percent"])
        dropped = batch.state["dropped"].gather(1, batch.index.clamp_min(0))
        return weights * (batch.valid & ~dropped)[:, None]
