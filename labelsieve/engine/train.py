"""train(): the entry to the engine."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
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
from labelsieve.engine.rng import preserve_rng
from labelsieve.engine.schedule import Schedule
from labelsieve.engine.training import Training
from labelsieve.types import Scores, Store


@dataclass(frozen=True)
class Trained:
    """A finished training."""

    plan: Plan
    states: list[NetworkState]  # one per network, on the CPU
    history: list[dict[str, Any]]
    watched: NDArray[np.uint16]  # [epochs, networks, watched samples]: predicted class
    scores: Scores | None


def train(
    store: Store,
    factory: Factory,
    method: Method | Sequence[Method],
    plans: Sequence[Plan],
    *,
    schedule: Schedule,
    **options: Any,
) -> list[Trained]:
    """Train every plan, with one method or one method per plan, and return one result per plan.

    The keyword arguments are the fields of `Options`. As many networks as fit train in lockstep: if the device runs out
    of memory, `train` continues with half as many. A training that was stopped continues from its checkpoint when
    `train` is called again with the same arguments.
    """
    settings = Options(**{"together": None, **options})
    methods = [method] * len(plans) if isinstance(method, Method) else list(method)
    on_gpu = store.device.type == "cuda"
    together = (on_gpu if settings.together is None else settings.together) and stackable(factory)
    pending: list[tuple[list[tuple[Method, Plan]], Path | None]]
    pending = [(list(zip(methods, plans, strict=True)), settings.checkpoint)]
    finished: list[Training] = []
    while pending:
        work, folder = pending.pop(0)
        try:
            with preserve_rng(store.device):
                lockstep = Lockstep(
                    store, factory, work, schedule, replace(settings, together=together, checkpoint=folder)
                )
                # Networks that are not stacked read batches of many widths: too many shapes to try every algorithm.
                choice = fastest_convolutions(store.device) if together else nullcontext()
                with choice, threads_for(multiply_adds(lockstep)):
                    finished += lockstep.run()
            continue
        except torch.cuda.OutOfMemoryError:
            if len(work) == 1 or parallel.current().size > 1:  # the other processes would continue without this one
                raise
        warnings.warn(f"out of GPU memory with {len(work)} trainings at once; trying half as many", stacklevel=2)
        lockstep = None  # type: ignore[assignment] # frees its networks
        gc.collect()
        torch.cuda.empty_cache()
        half = len(work) // 2
        pending[:0] = [(work[:half], folder and folder / "first"), (work[half:], folder and folder / "second")]
    return [_trained(training) for training in finished]


def multiply_adds(lockstep: Lockstep) -> float:
    """The multiply-adds of a forward pass of rows of numbers on a CPU; infinite for anything larger."""
    if lockstep.store.device.type != "cpu" or len(lockstep.store.shape) > 1:
        return float("inf")
    bundle = lockstep.bundles[0]
    return sum(p.numel() for p in bundle.module.parameters()) / bundle.n * lockstep.options.batch_size


def _trained(training: Training) -> Trained:
    assert training.states is not None
    shape = (0, training.method.networks, 0)
    watched = np.stack(training.watched) if training.watched else np.empty(shape, dtype=np.uint16)
    return Trained(training.plan, training.states, training.history, watched, training.scores)
