"""A robust method is a loss, not a loop.

The engine trains many *trainings* in lockstep; a training has `Method.networks` networks (1 or 2) that see the same
batches. Shapes: t trainings in the lockstep, k networks a training, B samples a batch, c classes.

    loss(logits[t,k,B,c], batch) -> [t,k]      called in every step, inside a captured CUDA graph: tensor operations
                                               only, no data-dependent shapes, no .item(), no Python branch on values
    before_epoch(view)                         called between epochs for one training: anything is allowed

Whatever changes with the epoch lives in `batch.state`, tensors whose first axis is the training; the engine saves them
in checkpoints. True labels are not here and cannot be.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from labelsieve.errors import InputError
from labelsieve.types import IntArray

State = dict[str, Tensor]
Needs = Literal["nothing", "ratio", "selection"]


@dataclass(frozen=True)
class Plan:
    """One training: on which samples, with which given labels, from which seed."""

    name: str
    labels: IntArray  # codes of all samples, the given ones
    train: IntArray  # indices; algorithm 3: the selected set S
    seed: int
    candidates: IntArray | None = None  # algorithm 3: the candidate set C
    noise_ratio: float | None = None  # of `train`: what co-teaching forgets, eps_S in algorithm 3
    transition: Any = None  # a known T for f-correction
    score: IntArray | None = None  # samples to score at the end (selection's held-out half)
    keep_best: bool = False  # score with the epoch that agrees best with the given labels of `score`


@dataclass(frozen=True)
class Batch:
    """What every network of a training sees in one step. Padding has index -1 and is not `valid`."""

    index: Tensor  # [t,B] int64, position in the data set, -1 where padded
    labels: Tensor  # [t,B] int64, given labels, 0 where padded
    valid: Tensor  # [t,B] bool
    epoch: Tensor  # [t] float32, the epoch running, from 0
    state: State = field(default_factory=dict)


class TrainingView(Protocol):
    """One training between two epochs, as `before_epoch` sees it."""

    plan: Plan
    epoch: int  # the epoch about to start, from 0
    epochs: int
    classes: int
    state: State  # this training's rows (views): write into them in place

    def predict(self, indices: IntArray, *, network: int = 0) -> Tensor:
        """Softmax outputs [len(indices), c] in inference mode, no augmentation, on the engine's device."""
        ...

    def features(self, indices: IntArray, *, network: int = 0) -> Tensor:
        """Last hidden layer's outputs [len(indices), d] in inference mode."""
        ...

    def restart(self) -> None:
        """New initial weights (the training's own seed), fresh optimizer; the learning-rate schedule begins again."""
        ...


class Method:
    """Defaults: one network, every sample of `plan.train` once an epoch, no state."""

    name = "method"
    networks = 1

    def settings(self) -> dict[str, Any]:
        """Every setting, for the record of the run."""
        return {}

    def needs(self) -> Needs:
        """What must be known of the labels first: "nothing", their noise "ratio", or the "selection", S and C."""
        return "nothing"

    def check(self, plan: Plan, epochs: int) -> None:
        """Raise InputError where the plan cannot be trained with these settings; `tell` what should be known of it."""

    def epochs(self, schedule_epochs: int) -> int:
        """How many epochs the training takes (f-correction runs the schedule twice)."""
        return schedule_epochs

    def batch_size(self, plan: Plan, batch_size: int) -> int:
        """Samples in the largest batch."""
        return batch_size

    def batches(self, plan: Plan, epoch: int, batch_size: int, rng: np.random.Generator) -> IntArray:
        """The epoch's batches, [steps, batch] indices, -1 for padding; a function of its arguments alone."""
        return in_batches(rng.permutation(plan.train), batch_size)

    def state(self, plan: Plan, *, samples: int, classes: int, epochs: int) -> State:
        """This training's tensors, without the leading t."""
        return {}

    def before_epoch(self, view: TrainingView) -> None:
        """Look at the training, write into `view.state`."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Losses [t, k] of logits [t, k, B, c]: every method has its own."""
        raise NotImplementedError


def in_batches(order: IntArray, batch_size: int) -> IntArray:
    """[steps, batch_size]; the last batch is filled up with -1.

    A last batch of one sample is left out (another one next epoch): batch norm has no variance of one.
    """
    if len(order) % batch_size == 1 and len(order) > 1:
        order = order[:-1]
    steps = -(-len(order) // batch_size)
    filled = np.full(steps * batch_size, -1, dtype=np.int64)
    filled[: len(order)] = order
    return filled.reshape(steps, batch_size)


def sample_losses(logits: Tensor, batch: Batch) -> Tensor:
    """Cross-entropy of the given label, [t,k,B]; 0 where padded."""
    t, k, b, c = logits.shape
    target = batch.labels[:, None].expand(t, k, b)
    losses = F.cross_entropy(logits.reshape(-1, c).float(), target.reshape(-1), reduction="none")
    return losses.view(t, k, b) * batch.valid[:, None]


def mean_over(losses: Tensor, weight: Tensor) -> Tensor:
    """Weighted mean over the batch, [t,k]; 0 where nothing has weight."""
    weight = weight.to(losses.dtype)
    return (losses * weight).sum(-1) / weight.sum(-1).clamp_min(1e-12)


def called(method: Method) -> str:
    """Its class for a message: `name` may be another method's that it was derived from."""
    return type(method).__name__


def as_batches(order: Any, name: str) -> IntArray:
    """What `batches` returned, as [steps, batch] whole numbers, or an InputError that names the method."""
    said = f"method {name}: batches() returned"
    try:
        found = np.asarray(order)
    except (TypeError, ValueError):  # rows of different lengths
        found = np.empty(0, dtype=object)
    if found.dtype.kind not in "iuf" or not (np.isfinite(found) & (np.floor(found) == found)).all():
        raise InputError(f"{said} no whole numbers: return an array of indices, [steps, batch], -1 where filled up")
    if found.ndim != 2:
        raise InputError(f"{said} the shape {list(found.shape)}: return [steps, batch], the epoch's batches")
    whole = found.astype(np.int64)
    if ((whole[:, 1:] >= 0) & (whole[:, :-1] < 0)).any():  # the engine takes a batch's first ones, as many as are real
        raise InputError(f"{said} -1 before a sample: fill batches up at their end")
    return whole


def checked_batches(order: Any, samples: int, name: str) -> IntArray:
    """`as_batches` of samples that are there."""
    found = as_batches(order, name)
    if not (found >= 0).any():
        raise InputError(f"method {name}: batches() returned no sample: an epoch needs at least one batch of them")
    if found.max() >= samples or found.min() < -1:
        wrong = found.max() if found.max() >= samples else found.min()
        raise InputError(f"method {name}: batches() returned the index {wrong}: the samples are 0 to {samples - 1}")
    return found


def checked_state(state: Any, name: str) -> State:
    """What `state` returned, or an InputError that names the method."""
    if not isinstance(state, dict):
        raise InputError(f"method {name}: state() returned {type(state).__name__}: return a dict of tensors")
    for key, value in state.items():
        if not (isinstance(key, str) and isinstance(value, Tensor)):
            kind = type(value).__name__
            raise InputError(f"method {name}: state() returned {kind} for {key!r}: a dict of names to torch tensors")
    return state


NO_GRADIENT = "loss() has no gradient: compute it from logits, without detach(), argmax() or no_grad()"


class MethodWarning(UserWarning):
    """A method trains, but not as its name promises, or it could not be tried before."""


_heard: ContextVar[bool] = ContextVar("heard", default=True)  # not warnings' own filters: those are all threads' alike


def tell(line: str) -> None:
    """A line for whoever asked for the training: the command line prints it, Python warns."""
    if _heard.get():
        warnings.warn(line, MethodWarning, stacklevel=2)  # where it is told, not asked: asked twice, it is shown once


@contextmanager
def silenced() -> Iterator[None]:
    """Where nobody is to be told: the engine checks what its caller has checked, or trains a trial so on purpose."""
    before = _heard.set(False)
    try:
        yield
    finally:
        _heard.reset(before)


__all__ = [
    "NO_GRADIENT",
    "Batch",
    "Method",
    "MethodWarning",
    "Needs",
    "Plan",
    "State",
    "TrainingView",
    "as_batches",
    "called",
    "checked_batches",
    "checked_state",
    "in_batches",
    "mean_over",
    "sample_losses",
    "silenced",
    "tell",
]
