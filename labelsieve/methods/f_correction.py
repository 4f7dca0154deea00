"""Forward correction: Patrini et al., "Making deep neural networks robust to label noise", CVPR 2017.

1. Train with cross-entropy on the noisy labels.
2. Estimate T, T[i,j] = P(given j | true i). Row i is the softmax output of the anchor of class i: the sample whose
   probability of i is the 97th percentile of all samples (CIFAR-10, as published) or the largest one (CIFAR-100:
   `percentile=None`). Ties are broken by rank, so saturated outputs have an anchor too. A percentile must leave fewer
   samples above it than a class has, 100 - percentile < 100 / classes; otherwise the anchor could be of another class.
   If it does not (the 97th percentile with 34 or more classes), the largest probability is used.
3. Start again, with new weights and a new schedule, and train with -log (p T)[y]; p are the softmax outputs and y is
   the given label.

Needs samples that certainly belong to their class. Fails if the first network has memorised the noise: its outputs are
then one-hot and T is close to the identity. A smaller `estimate_epochs` shortens the first stage. With a known T
nothing is estimated: `FCorrection(transition=T)`, or `estimate_epochs=0` and `plan.transition`, run the schedule once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelsieve.checks import check_integer, check_range
from labelsieve.engine.method import Batch, Method, Plan, State, TrainingView, mean_over
from labelsieve.errors import InputError
from labelsieve.theory import check_transition_matrix


def estimate_transition(probabilities: Tensor, percentile: float | None = 97.0) -> Tensor:
    """Estimate T [c,c] from noisy posteriors [n,c]: the outputs of the anchor of each class, normalised to sum to 1."""
    n, classes = probabilities.shape
    if percentile is not None and (100 - percentile) * classes >= 100:
        percentile = None
    rank = n - 1 if percentile is None else math.floor(percentile / 100 * (n - 1))
    anchors = probabilities.argsort(dim=0, stable=True)[rank]
    rows = probabilities[anchors].double()
    return rows / rows.sum(1, keepdim=True)


def forward_losses(logits: Tensor, labels: Tensor, transition: Tensor) -> Tensor:
    """Return -log (softmax(logits) T)[label], [t,k,B], computed in log space; T [t,c,c]."""
    t, b = labels.shape
    log_columns = transition.clamp_min(1e-12).log().transpose(1, 2)  # [t, given, true]
    of_given = log_columns.gather(1, labels[:, :, None].expand(t, b, log_columns.shape[-1]))  # [t,B,true]
    return -torch.logsumexp(torch.log_softmax(logits.float(), -1) + of_given[:, None], -1)


def checked_transition(given: Any, method: str = "f-correction") -> NDArray[np.float64]:
    """Return T as an array, or raise InputError if it is not a square matrix with rows of probabilities."""
    try:
        return check_transition_matrix(given)
    except InputError as problem:
        raise InputError(f"{method}: transition matrix {problem}") from None


@dataclass(frozen=True)
class FCorrection(Method):
    """Cross-entropy of predictions that are multiplied by the transition matrix.

    Parameters
    ----------
    percentile
        Percentile of the anchor's probability; None is the largest.
    estimate_epochs
        Length of the first stage; None is the full schedule, 0 means that T is known.
    transition
        The transition matrix, if it is known.
    """

    name = "f-correction"
    percentile: float | None = 97.0
    estimate_epochs: int | None = None
    transition: Any = None

    def __post_init__(self) -> None:
        if self.percentile is not None:
            otherwise = ", or None for the largest"
            check_range("f-correction: percentile", self.percentile, 0, 100, ends="(]", otherwise=otherwise)
        if self.estimate_epochs is not None:
            otherwise = ", or None for the full schedule"
            check_integer("f-correction: estimate_epochs", self.estimate_epochs, otherwise=otherwise)
        if self.transition is not None:
            checked_transition(self.transition)

    def settings(self) -> dict[str, Any]:
        known = None if self.transition is None else np.asarray(self.transition).tolist()
        return {"percentile": self.percentile, "estimate_epochs": self.estimate_epochs, "transition": known}

    def first_stage(self, schedule_epochs: int) -> int:
        if self.transition is not None:
            return 0
        return schedule_epochs if self.estimate_epochs is None else self.estimate_epochs

    def epochs(self, plan: Plan, schedule_epochs: int) -> int:
        return self.first_stage(schedule_epochs) + schedule_epochs

    def known(self, plan: Plan) -> NDArray[np.float64] | None:
        given = plan.transition if self.transition is None else self.transition
        return None if given is None else checked_transition(given)

    def check(self, plan: Plan, epochs: int) -> None:
        known = self.known(plan)
        if known is None:
            if self.estimate_epochs == 0:
                raise InputError("f-correction: estimate_epochs is 0 but no transition matrix is given")
            return
        if self.transition is None and self.estimate_epochs != 0:
            raise InputError(
                "f-correction: a transition matrix is given, so nothing is estimated: set estimate_epochs=0"
            )
        if len(known) <= int(np.max(plan.labels, initial=0)):
            raise InputError(f"f-correction: the transition matrix has shape {known.shape}, not classes x classes")

    def state(self, plan: Plan, *, samples: int, classes: int, epochs: int) -> State:
        known = self.known(plan)
        if known is not None and known.shape != (classes, classes):
            raise InputError(f"f-correction: the transition matrix has shape {known.shape}, the data {classes} classes")
        # With the identity the loss is plain cross-entropy, so the first stage needs no branch.
        start = torch.eye(classes) if known is None else torch.tensor(known, dtype=torch.float32)
        return {"transition": start}

    def before_epoch(self, view: TrainingView) -> None:
        first = view.epochs // 2 if self.estimate_epochs is None else self.estimate_epochs
        if self.known(view.plan) is None and view.epoch == first:
            outputs = view.predict(view.plan.train).cpu()
            view.state["transition"].copy_(estimate_transition(outputs, self.percentile))
            view.restart()

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        losses = forward_losses(logits, batch.labels, batch.state["transition"])
        return mean_over(losses, batch.valid[:, None])
