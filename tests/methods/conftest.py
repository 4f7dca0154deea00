"""A batch, a plan and a training's view, small enough to check by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from labelsieve.engine.method import Batch, Method, Plan, State


def _batch(
    labels: list[list[int]],
    *,
    index: list[list[int]] | None = None,
    epoch: float | list[float] = 0.0,
    state: State | None = None,
) -> Batch:
    """Padded where the index is -1; the index counts up unless given."""
    t, b = len(labels), len(labels[0])
    where = torch.arange(b).repeat(t, 1) if index is None else torch.tensor(index)
    valid = where >= 0
    epochs = torch.tensor(epoch if isinstance(epoch, list) else [epoch] * t, dtype=torch.float32)
    return Batch(where, torch.tensor(labels) * valid, valid, epochs, state or {})


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    return _batch


def _plan(**changes: Any) -> Plan:
    settings: dict[str, Any] = {
        "name": "a plan",
        "labels": np.arange(40) % 4,
        "train": np.arange(40),
        "seed": 3,
        "noise_ratio": 0.25,
    }
    return Plan(**settings | changes)


@pytest.fixture
def make_plan() -> Callable[..., Plan]:
    return _plan


def _stacked(method: Method, *plans: Plan, samples: int = 40, classes: int = 4, epochs: int = 20) -> State:
    """The plans' states with the training axis in front, as the engine lays them out."""
    states = [method.state(plan, samples=samples, classes=classes, epochs=epochs) for plan in plans]
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


@pytest.fixture
def stacked() -> Callable[..., State]:
    return _stacked


@dataclass
class FakeView:
    """A TrainingView that plays back what it is given."""

    plan: Plan
    state: State
    epochs: int
    classes: int = 4
    epoch: int = 0
    outputs: Tensor = field(default_factory=lambda: torch.empty(0))
    hidden: Tensor = field(default_factory=lambda: torch.empty(0))
    restarts: int = 0

    def predict(self, indices: Any, *, network: int = 0) -> Tensor:
        return self.outputs[torch.as_tensor(indices)]

    def features(self, indices: Any, *, network: int = 0) -> Tensor:
        return self.hidden[torch.as_tensor(indices)]

    def restart(self) -> None:
        self.restarts += 1


@pytest.fixture
def fake_view() -> type[FakeView]:
    return FakeView
