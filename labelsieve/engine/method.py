"""A robust method is a loss, not a loop.

The engine runs several *trainings* in lockstep; a training has `Method.networks` networks (1 or 2) that read the same
batches. Shapes: t trainings in the lockstep, k networks per training, B samples per batch, c classes.

    loss(logits[t,k,B,c], batch) -> [t,k]      called in every step, inside a captured CUDA graph: tensor operations
                                               only, no data-dependent shapes, no .item(), no Python branch on values
    before_epoch(view)                         called between epochs for one training: anything is allowed

A method that defines `views` trains with a teacher (a moving average of each network), strong views or mixup: the
engine makes them, and `Batch` says what the networks saw. Targets of mixed samples are mixed by `mix_targets`.

Everything that changes with the epoch is in `batch.state`, tensors whose first axis is the training. A memory per
sample is such a tensor too. The engine saves them in checkpoints. Methods never see true labels.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from labelsieve.engine.schedule import Schedule
from labelsieve.errors import InputError
from labelsieve.types import FloatArray, IntArray

State = dict[str, Tensor]
Needs = Literal["nothing", "ratio", "selection", "transition"]


@dataclass(frozen=True)
class Plan:
    """One training: its samples, given labels and seed."""

    name: str
    labels: IntArray  # codes of all samples, the given ones
    train: IntArray  # indices; algorithm 3: the selected set S
    seed: int
    candidates: IntArray | None = None  # algorithm 3: the candidate set C
    noise_ratio: float | None = None  # of `train`: what co-teaching forgets, eps_S in algorithm 3
    transition: Any = None  # a known T for f-correction
    score: IntArray | None = None  # samples to score at the end (selection's held-out half)
    keep_best: bool = False  # score with the epoch that agrees best with the given labels of `score`
    suspicion: FloatArray | None = None  # the selection's probability that each label is wrong, nan if not known
    epoch_samples: int = 0  # an epoch reads at least this many, in several rounds over `train` if necessary


@dataclass(frozen=True)
class Views:
    """What the networks of a method see besides the plain batch.

    Parameters
    ----------
    teacher_decay
        The engine keeps a copy of each network whose weights are a moving average with this decay. The copy reads the
        plain batch, has its own batch-norm statistics, and is the network that is evaluated and stored. None: no copy.
    strong
        The networks read strongly augmented pictures (engine/step.py).
    mixup
        The networks read mixtures of two samples with weights from Beta(mixup, mixup), the larger one first; 0: none.
    unmixed
        Share of the epochs of the schedule, at the end, without mixtures.
    hidden
        Share of the values of a row of numbers that the networks do not see: each reads the mean of the column in other
        places. It has no effect on pictures.
    """

    teacher_decay: float | None = None
    strong: bool = False
    mixup: float = 0.0
    unmixed: float = 0.0
    hidden: float = 0.0

    def mixup_at(self, epoch: int, epochs: int) -> float:
        return self.mixup if not self.unmixed or epoch < (1 - self.unmixed) * epochs else 0.0

    def check(self, *, pictures: bool) -> None:
        """Raise InputError for strong views of samples that are not pictures."""
        if self.strong and not pictures:
            raise InputError("strong augmentation (strong=true) is for pictures, but these samples are not: omit it")


@dataclass(frozen=True)
class Recipe:
    """How a method trains pictures on a GPU, unless the user sets these numbers."""

    epochs: int
    batch_size: int
    schedule: Callable[[int, int], Schedule]  # of the numbers of epochs and of samples per batch
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the method, instead of its defaults
    of_network: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # more settings, by name of the network
    network: str = "auto"  # for small pictures, if the user chose none

    def settings_for(self, network: str) -> dict[str, Any]:
        return {**self.settings, **self.of_network.get(network, {})}


@dataclass(frozen=True)
class Batch:
    """The samples of one step. Padding has index -1 and is not `valid`."""

    index: Tensor  # [t,B] int64, position in the data set, -1 for padding
    labels: Tensor  # [t,B] int64, given labels, 0 for padding
    valid: Tensor  # [t,B] bool
    epoch: Tensor  # [t] float32, current epoch, from 0
    state: State = field(default_factory=dict)
    teacher: Tensor | None = None  # [t,k,B,c], logits of the teachers for the plain batch
    partner: Tensor | None = None  # [t,B] int64, the place in the batch of the sample that each one is mixed with
    weight: Tensor | None = None  # [t], weight of the sample itself in a mixture, 0.5 to 1


class TrainingView(Protocol):
    """A training between two epochs, the argument of `before_epoch`."""

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
        """Start again with new initial weights, a new optimizer state and the first learning rate."""
        ...


class Method:
    """Base class of methods. Default: one network, every sample of `plan.train` once per epoch, no state."""

    name = "method"
    networks: int = 1
    recipe: Recipe | None = None

    def settings(self) -> dict[str, Any]:
        """All settings, for the record of the run. Default: the arguments of a dataclass."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.init} if is_dataclass(self) else {}

    def needs(self) -> Needs:
        """What the method needs: "nothing", the noise "ratio", the "selection" (S, C), or also its "transition"."""
        return "nothing"

    def views(self) -> Views:
        """What the networks see besides the plain batch. Default: nothing."""
        return Views()

    def check(self, plan: Plan, epochs: int) -> None:
        """Raise InputError if the plan cannot be trained with a schedule of `epochs` epochs; `warn_user` warns."""

    def epochs(self, plan: Plan, schedule_epochs: int) -> int:
        """The number of epochs of the training (f-correction runs the schedule twice)."""
        return schedule_epochs

    def batches(self, plan: Plan, epoch: int, batch_size: int, rng: np.random.Generator) -> IntArray:
        """The batches of an epoch, [steps, batch] indices, -1 for padding; a function of its arguments only."""
        return in_batches(rng.permutation(plan.train), batch_size)

    def state(self, plan: Plan, *, samples: int, classes: int, epochs: int) -> State:
        """The tensors of one training, without the leading axis t."""
        return {}

    def judges_labels(self, plan: Plan) -> bool:
        """Whether the networks judge the labels again after the training."""
        return False

    def before_epoch(self, view: TrainingView) -> None:
        """Look at the training, write into `view.state`."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Losses [t, k] of logits [t, k, B, c]: every method has its own."""
        raise NotImplementedError


def in_batches(order: IntArray, batch_size: int) -> IntArray:
    """Cut indices into [steps, batch_size]; the last batch is padded with -1.

    A last batch of one sample is dropped, as batch norm has no variance of one sample. Another sample is dropped in the
    next epoch.
    """
    if len(order) % batch_size == 1 and len(order) > 1:
        order = order[:-1]
    steps = -(-len(order) // batch_size)
    filled = np.full(steps * batch_size, -1, dtype=np.int64)
    filled[: len(order)] = order
    return filled.reshape(steps, batch_size)


def repeat_batches(batches: Callable[[], IntArray], steps: int) -> IntArray:
    """Batches of one round over the samples, and of further rounds until there are `steps`."""
    found = batches()
    while len(found) < steps:
        found = np.concatenate([found, batches()[: steps - len(found)]])
    return found


def sample_losses(logits: Tensor, batch: Batch) -> Tensor:
    """Cross-entropy of the given label, [t,k,B]; 0 for padding."""
    t, k, b, c = logits.shape
    target = batch.labels[:, None].expand(t, k, b)
    losses = F.cross_entropy(logits.reshape(-1, c).float(), target.reshape(-1), reduction="none")
    return losses.view(t, k, b) * batch.valid[:, None]


def mean_over(losses: Tensor, weight: Tensor) -> Tensor:
    """Weighted mean over the batch, [t,k]; 0 if all weights are 0."""
    weight = weight.to(losses.dtype)
    return (losses * weight).sum(-1) / weight.sum(-1).clamp_min(1e-12)


def mix_targets(targets: Tensor, batch: Batch) -> Tensor:
    """Targets [t,k,B,c] of the samples, mixed as the samples were."""
    if batch.partner is None or batch.weight is None:
        return targets
    partner = batch.partner[:, None, :, None].expand_as(targets)
    return torch.lerp(targets.gather(2, partner), targets, batch.weight[:, None, None, None])


def class_name(method: Method) -> str:
    """The class name of a method, for messages; `name` may be inherited from another method."""
    return type(method).__name__


def as_batches(order: Any, name: str) -> IntArray:
    """The return value of `batches` as integers [steps, batch]; raise InputError if it is something else."""
    said = f"method {name}: batches() returned"
    try:
        found = np.asarray(order)
    except (TypeError, ValueError):  # rows of different lengths
        found = np.empty(0, dtype=object)
    if found.dtype.kind not in "iuf" or not (np.isfinite(found) & (np.floor(found) == found)).all():
        raise InputError(f"{said} values that are not integers: return indices, [steps, batch], -1 for padding")
    if found.ndim != 2:
        raise InputError(f"{said} the shape {list(found.shape)}: return [steps, batch]")
    whole = found.astype(np.int64)
    if ((whole[:, 1:] >= 0) & (whole[:, :-1] < 0)).any():  # the engine reads the first samples of a batch
        raise InputError(f"{said} -1 before a sample: put the padding at the end")
    return whole


def checked_batches(order: Any, samples: int, name: str) -> IntArray:
    """`as_batches`, with a check that the samples exist."""
    found = as_batches(order, name)
    if not (found >= 0).any():
        raise InputError(f"method {name}: batches() returned no sample: an epoch needs at least one")
    if found.max() >= samples or found.min() < -1:
        wrong = found.max() if found.max() >= samples else found.min()
        raise InputError(f"method {name}: batches() returned the index {wrong}: indices are 0 to {samples - 1}")
    return found


def checked_state(state: Any, name: str) -> State:
    """The return value of `state`; raise InputError if it is not a dict of tensors."""
    if not isinstance(state, dict):
        raise InputError(f"method {name}: state() returned {type(state).__name__}: return a dict of tensors")
    for key, value in state.items():
        if not (isinstance(key, str) and isinstance(value, Tensor)):
            kind = type(value).__name__
            raise InputError(f"method {name}: state() returned {kind} for {key!r}: return a dict of tensors")
    return state


NO_GRADIENT = "loss() has no gradient: compute it from logits, without detach(), argmax() or no_grad()"


class MethodWarning(UserWarning):
    """A method trains, but with a restriction, or it could not be checked before."""


_audible: ContextVar[bool] = ContextVar("audible", default=True)  # the filters of `warnings` apply to all threads


def warn_user(line: str) -> None:
    """Warn the user: the command line prints the line, Python issues a warning."""
    if _audible.get():
        warnings.warn(line, MethodWarning, stacklevel=2)


@contextmanager
def silenced() -> Iterator[None]:
    """Suppress `warn_user`, for checks that the caller has already made."""
    before = _audible.set(False)
    try:
        yield
    finally:
        _audible.reset(before)
