"""The state of one running training, the view that its method gets, and checkpoints.

A checkpoint is one safetensors file, written atomically; the two newest are kept. Its header contains a JSON
description and a checksum of the tensors. Nothing is unpickled. If the newest file is damaged, a warning is given and
the one before it is used.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelsieve.engine import evaluate, rng
from labelsieve.engine.bundle import Bundle, Factory, NetworkState, initial_state
from labelsieve.engine.method import Method, Plan, State
from labelsieve.errors import FailedError, first_line
from labelsieve.files import atomic_file, regular_file
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
            self.scores = Scores(**{name: tensor.numpy() for name, tensor in with_prefix(tensors, "scores.").items()})
        if was["final"]:
            self.states = [with_prefix(tensors, f"final{k}.") for k in range(self.method.networks)]


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
    return short_hash(
        *shared,
        [
            [t.method.name, t.method.settings(), t.plan.name, t.plan.seed, t.plan.noise_ratio, t.plan.keep_best]
            for t in trainings
        ],
        *(plan.labels for plan in plans),
        *(plan.train for plan in plans),
        *(plan.candidates for plan in plans if plan.candidates is not None),
        *(plan.score for plan in plans if plan.score is not None),
        *(plan.suspicion for plan in plans if plan.suspicion is not None),
        *(np.asarray(plan.transition, dtype=np.float64) for plan in plans if plan.transition is not None),
    )


def progress_state(trainings: Sequence[Training], rate: float, elapsed: float) -> dict[str, Any]:
    """The state of the trainings for a progress display."""
    done = sum(min(t.epoch, t.epochs) for t in trainings)
    total = sum(t.epochs for t in trainings)
    return {
        "epoch": min((t.epoch for t in trainings if not t.done), default=max(t.epochs for t in trainings)),
        "epochs": max(t.epochs for t in trainings),
        "done": done / total,
        "images_per_second": rate,
        "elapsed": elapsed,
        "loss": [t.history[-1]["loss"] for t in trainings if t.history],
    }


def with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names start with a prefix, without the prefix."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


# -- checkpoints

KEEP = 2  # if the newest checkpoint is damaged, the one before it is used


class CheckpointWarning(UserWarning):
    """A checkpoint is damaged; an older one is used."""


def short_hash(*parts: Any) -> str:
    """A short hash of settings and arrays."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(str((part.dtype.str, part.shape)).encode() + np.ascontiguousarray(part).tobytes())
        else:
            digest.update(json.dumps(part, sort_keys=True, default=str).encode())
    return digest.hexdigest()[:16]


def save_checkpoint(folder: Path, number: int, tensors: dict[str, Tensor], meta: dict[str, Any]) -> Path:
    """Write checkpoint `number`, which must increase, and remove all but the newest ones."""
    from safetensors.torch import save as to_bytes

    folder.mkdir(parents=True, exist_ok=True)
    on_cpu = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    described = {"meta": json.dumps(meta), "checksum": _checksum(on_cpu, meta)}
    path = folder / f"{number:09d}.safetensors"
    with atomic_file(path) as file:
        file.write(to_bytes(on_cpu, metadata=described))
    for old in _files(folder)[:-KEEP]:
        old.unlink(missing_ok=True)
    return path


def newest_checkpoint(folder: Path) -> tuple[int, dict[str, Tensor], dict[str, Any]] | None:
    """Return number, tensors and description of the newest readable checkpoint, or None."""
    for path in reversed(_files(folder)):
        try:
            tensors, meta = load_checkpoint(path)
        except (OSError, ValueError) as problem:
            warnings.warn(f"{path.name} is damaged ({problem}); using the one before it", CheckpointWarning, 2)
            continue
        return int(path.stem), tensors, meta
    return None


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a checkpoint. Raise ValueError if it is damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(regular_file(path), framework="pt") as file:
            described = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, RuntimeError) as problem:
        raise ValueError(first_line(problem)) from None
    try:
        meta = json.loads(described["meta"])
        expected = described["checksum"]
    except (KeyError, json.JSONDecodeError, RecursionError):
        raise ValueError("its description is missing") from None
    if _checksum(tensors, meta) != expected:
        raise ValueError("its checksum does not match")
    return tensors, meta


def _checksum(tensors: dict[str, Tensor], meta: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(meta).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if re.fullmatch(r"\d{9}\.safetensors", path.name))
