"""The state of one running training, how it is stored in a checkpoint, and the view that its method gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelsieve.engine import checkpoint as checkpoints
from labelsieve.engine import evaluate, rng
from labelsieve.engine.bundle import Bundle, Factory, NetworkState, initial_state
from labelsieve.engine.method import Method, Plan, State
from labelsieve.errors import FailedError
from labelsieve.types import IntArray, Scores, Store


class OutOfTime(Exception):  # noqa: N818 - not an error: the training continues next time
    """The training was asked to stop. It wrote a checkpoint and continues from there next time."""


class Diverged(FailedError, ValueError):  # noqa: N818
    """A loss became infinite or NaN. The last checkpoint is from before."""


@dataclass
class Training:
    """One running training: its plan, position and results."""

    plan: Plan
    method: Method
    epochs: int
    epoch: int = 0
    step: int = 0
    restarted_at: int = 0
    steps_per_epoch: int = 0
    width: int = 0
    began: bool = False  # whether the batches of the current epoch are on the device
    history: list[dict[str, Any]] = field(default_factory=list)
    watched: list[NDArray[np.uint16]] = field(default_factory=list)  # per epoch [networks, samples]
    scores: Scores | None = None
    best: float = -1.0
    states: list[NetworkState] | None = None  # when finished
    seeds: NDArray[np.int64] | None = None  # [steps, networks] of the current epoch

    def network_seed(self, network: int) -> int:
        """The seed of the initial weights of a network."""
        return self.plan.seed * 1000 + network

    def seed_generators(self, generators: rng.Generators, use: int) -> None:
        """Seed the random numbers that the networks or the method draw between epochs."""
        generators.seed(int(rng.seeds(self.plan.seed, self.epoch, use)))

    @property
    def done(self) -> bool:
        return self.epoch >= self.epochs

    def keep_scores(self, found: Scores) -> float:
        """Keep the scores if they are the best or the last ones, and return their agreement with the labels."""
        assert self.plan.score is not None
        agreement = float((found.predicted == self.plan.labels[self.plan.score]).mean())
        if not self.plan.keep_best or agreement > self.best:
            self.best, self.scores = agreement, found
        return agreement

    def description(self) -> dict[str, Any]:
        """The part of the state that is JSON."""
        return {
            "epoch": self.epoch, "step": self.step, "restarted_at": self.restarted_at, "began": self.began,
            "history": self.history, "best": self.best, "final": self.states is not None,
        }  # fmt: skip

    def findings(self) -> dict[str, Tensor]:
        """The part of the state that is tensors: final weights, watched classes, scores."""
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
        """Restore the state from a `description` and `findings`."""
        self.epoch, self.step, self.restarted_at = was["epoch"], was["step"], was["restarted_at"]
        self.began, self.history, self.best = was["began"], was["history"], was["best"]
        if "watched" in tensors:
            self.watched = list(tensors["watched"].numpy().astype(np.uint16))
        if "scores.loss" in tensors:
            self.scores = Scores(**{name: tensor.numpy() for name, tensor in below(tensors, "scores.").items()})
        if was["final"]:
            self.states = [below(tensors, f"final{k}.") for k in range(self.method.networks)]


@dataclass
class View:
    """The `engine.method.TrainingView` of a training: `networks` are its bundles and places in them."""

    training: Training
    networks: Sequence[tuple[Bundle, int]]
    store: Store
    factory: Factory
    classes: int
    state: State

    def __post_init__(self) -> None:
        self.plan, self.epoch, self.epochs = self.training.plan, self.training.epoch, self.training.epochs

    def predict(self, indices: IntArray, *, network: int = 0) -> Tensor:
        bundle, i = self.networks[network]
        return evaluate.probabilities(bundle, self.store, indices, i)

    def features(self, indices: IntArray, *, network: int = 0) -> Tensor:
        bundle, i = self.networks[network]
        return evaluate.features(bundle, self.store, indices, i)

    def restart(self) -> None:
        self.training.restarted_at = self.training.epoch
        for k, (bundle, i) in enumerate(self.networks):
            bundle.load_network(i, initial_state(self.factory, self.training.network_seed(k) + 500))


def fingerprint(trainings: Sequence[Training], *shared: Any) -> str:
    """A hash of everything that decides these trainings, to compare with that of a checkpoint."""
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
        *(plan.groups for plan in plans if plan.groups is not None),
        *(np.asarray(plan.transition, dtype=np.float64) for plan in plans if plan.transition is not None),
    )


def standing(trainings: Sequence[Training], rate: float, elapsed: float) -> dict[str, Any]:
    """The state of the trainings for a progress display."""
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
    """The tensors whose names start with a prefix, without the prefix."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
