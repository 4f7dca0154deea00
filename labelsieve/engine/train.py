"""train(): many trainings, as many in lockstep as the device holds."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from labelsieve.engine import parallel
from labelsieve.engine.bundle import Factory, NetworkState, stackable
from labelsieve.engine.device import fastest_convolutions, threads_for
from labelsieve.engine.lockstep import Lockstep, Options
from labelsieve.engine.method import Method, Plan
from labelsieve.engine.rng import borrowed
from labelsieve.engine.schedule import Schedule
from labelsieve.engine.store import Store
from labelsieve.engine.training import OutOfTime, Training
from labelsieve.types import Scores


@dataclass(frozen=True)
class Trained:
    """A finished training."""

    plan: Plan
    states: list[NetworkState]  # one a network, on the CPU
    history: list[dict[str, Any]]
    watched: NDArray[np.uint16]  # [epochs, networks, samples watched]: predicted class
    scores: Scores | None


def train(
    store: Store,
    factory: Factory,
    method: Method | Sequence[Method],
    plans: Sequence[Plan],
    *,
    schedule: Schedule,
    batch_size: int = 128,
    watch: Store | None = None,
    watch_every: int = 1,
    checkpoint: Path | None = None,
    checkpoint_seconds: float = 0.0,
    stop: Callable[[], bool] | None = None,
    progress: Callable[[dict[str, Any]], None] | None = None,
    together: bool | None = None,
    capture: bool = True,
    classes: int | None = None,
) -> list[Trained]:
    """Train every plan, with one method or one method a plan; one result a plan, in order.

    `watch` is a store whose samples' predicted classes are recorded each epoch. `checkpoint` is a folder: a training
    that was stopped (`stop()` true, a kill) goes on from its last finished epoch when called
    again with the same arguments. `together` stacks the networks in one module (default: on a GPU, where the factory
    allows it); a device that runs out of memory is asked for half as many.
    `classes`: those the networks tell apart, where the last of them may have no label.
    """
    methods = [method] * len(plans) if isinstance(method, Method) else list(method)
    work = list(zip(methods, plans, strict=True))
    can_stack = stackable(factory)
    together = (store.device.type == "cuda" and can_stack) if together is None else together and can_stack
    options = Options(batch_size=batch_size, together=together, capture=capture, watch_every=watch_every)

    def attempt(piece: list[tuple[Method, Plan]], folder: Path | None) -> list[Training]:
        """By itself, so that nothing holds its networks any more when they were too many."""
        with borrowed(store.device):
            lockstep = Lockstep(
                store, factory, piece, schedule, options, watch=watch, checkpoint=folder, classes=classes
            )
            # networks by themselves take batches of any width: too many shapes to try
            choice = fastest_convolutions(store.device) if together else nullcontext()
            with choice, threads_for(multiply_adds(lockstep)):
                return lockstep.run(stop=stop, progress=progress, checkpoint_seconds=checkpoint_seconds)

    def run(piece: list[tuple[Method, Plan]], folder: Path | None) -> list[Training]:
        try:
            return attempt(piece, folder)
        except torch.cuda.OutOfMemoryError:
            if len(piece) == 1 or parallel.current().size > 1:  # the other processes would go on without this one
                raise
            warnings.warn(f"out of GPU memory with {len(piece)} trainings at once; trying half as many", stacklevel=2)
        gc.collect()
        torch.cuda.empty_cache()
        half = len(piece) // 2
        first = run(piece[:half], folder and folder / "first")
        return first + run(piece[half:], folder and folder / "second")

    return [_trained(training) for training in run(work, checkpoint)]


def multiply_adds(lockstep: Lockstep) -> float:
    """Of a network's forward pass over a batch, where that is all there is to it: rows of numbers on a CPU."""
    if lockstep.store.device.type != "cpu" or len(lockstep.store.shape) > 1:
        return float("inf")
    bundle = lockstep.bundles[0]
    return sum(p.numel() for p in bundle.module.parameters()) / bundle.n * lockstep.options.batch_size


def _trained(training: Training) -> Trained:
    assert training.states is not None
    shape = (0, training.method.networks, 0)
    watched = np.stack(training.watched) if training.watched else np.empty(shape, dtype=np.uint16)
    return Trained(training.plan, training.states, training.history, watched, training.scores)


__all__ = ["OutOfTime", "Trained", "train"]
