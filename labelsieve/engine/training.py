"""One training as it runs: its plan, its clock, what it found; and how that goes into a checkpoint and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelsieve.engine import checkpoint as checkpoints
from labelsieve.engine import rng as draws
from labelsieve.engine.bundle import NetworkState
from labelsieve.engine.method import Method, Plan
from labelsieve.errors import FailedError
from labelsieve.types import Scores


class OutOfTime(Exception):  # noqa: N818 - no error: the training goes on next time
    """The budget is spent; a checkpoint lies where the training can go on."""


class Diverged(FailedError, ValueError):  # noqa: N818
    """A loss became infinite or NaN; the last checkpoint is from before."""


@dataclass
class Training:
    """One training as it runs: its plan, clock and findings."""

    plan: Plan
    method: Method
    epochs: int
    epoch: int = 0
    step: int = 0
    restarted_at: int = 0
    steps_per_epoch: int = 0
    width: int = 0
    began: bool = False  # whether the current epoch's batches are laid out
    history: list[dict[str, Any]] = field(default_factory=list)
    watched: list[NDArray[np.uint16]] = field(default_factory=list)  # [networks, samples] an epoch
    scores: Scores | None = None
    best: float = -1.0
    states: list[NetworkState] | None = None  # when finished
    seeds: NDArray[np.int64] | None = None  # [steps, networks] of the epoch: of what the networks draw in training

    def begin_draws(self, generators: draws.Draws, what: int) -> None:
        """What the networks or the method draw between epochs is this training's and this epoch's alone."""
        generators.begin(int(draws.seeds(self.plan.seed, self.epoch, what)))

    @property
    def done(self) -> bool:
        return self.epoch >= self.epochs

    def description(self) -> dict[str, Any]:
        """What of it is no tensor."""
        return {
            "epoch": self.epoch, "step": self.step, "restarted_at": self.restarted_at, "began": self.began,
            "history": self.history, "best": self.best, "final": self.states is not None,
        }  # fmt: skip

    def findings(self) -> dict[str, Tensor]:
        """What of it are tensors: final weights, watched classes, scores."""
        found: dict[str, Tensor] = {}
        for k, state in enumerate(self.states or []):
            found |= {f"final{k}.{name}": tensor for name, tensor in state.items()}
        if self.watched:
            watched = np.stack(self.watched)
            found["watched"] = torch.as_tensor(watched.astype(np.uint8 if watched.max() < 256 else np.int32))
        if self.scores is not None:
            found |= {f"scores.{name}": torch.as_tensor(array) for name, array in self.scores.arrays().items()}
        return found

    def restore(self, was: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Back to what `description` and `findings` told."""
        self.epoch, self.step, self.restarted_at = was["epoch"], was["step"], was["restarted_at"]
        self.began, self.history, self.best = was["began"], was["history"], was["best"]
        if "watched" in tensors:
            self.watched = list(tensors["watched"].numpy().astype(np.uint16))
        if "scores.loss" in tensors:
            self.scores = Scores(**{name: tensor.numpy() for name, tensor in below(tensors, "scores.").items()})
        if was["final"]:
            self.states = [below(tensors, f"final{k}.") for k in range(self.method.networks)]


def fingerprint(trainings: Sequence[Training], *shared: Any) -> str:
    """Of what decides these trainings, and of what they share: where it differs, a checkpoint is another one's."""
    plans = [t.plan for t in trainings]
    return checkpoints.fingerprint(
        *shared,
        [
            [t.method.name, t.method.settings(), t.plan.name, t.plan.seed, t.plan.noise_ratio, t.plan.keep_best]
            for t in trainings
        ],
        *(plan.labels for plan in plans),
        *(plan.train for plan in plans),
        *(plan.candidates for plan in plans if plan.candidates is not None),
        *(plan.score for plan in plans if plan.score is not None),
        *(np.asarray(plan.transition, dtype=np.float64) for plan in plans if plan.transition is not None),
    )


def standing(trainings: Sequence[Training], rate: float, elapsed: float) -> dict[str, Any]:
    """How far they are, for whoever wants to be told."""
    done = sum(min(t.epoch, t.epochs) for t in trainings)
    total = sum(t.epochs for t in trainings)
    return {
        "epoch": min(t.epoch for t in trainings),
        "epochs": max(t.epochs for t in trainings),
        "done": done / total,
        "images_per_second": rate,
        "elapsed": elapsed,
        "loss": [t.history[-1]["loss"] for t in trainings if t.history],
    }


def below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin so, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
