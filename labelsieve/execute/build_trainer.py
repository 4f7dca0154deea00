"""Make the trainer of a chosen model. No other module does this. Importing this module does not import torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelsieve import stopping
from labelsieve.errors import InputError
from labelsieve.models.choose import ModelChoice, ModelKind, SampleInfo
from labelsieve.progress import Note, NoteKind
from labelsieve.types import LabelledData, Trainer

if TYPE_CHECKING:
    from labelsieve.engine.bundle import Factory
    from labelsieve.engine.method import Method
    from labelsieve.execute.network_trainer import EngineTrainer

# Generalised cross-entropy learns doubtful labels late: wrong ones, and those of hard classes (benchmarks/repeats.md).
LOSSES = ("ce", "gce")  # cross-entropy, generalised cross-entropy
GCE_Q = 0.7  # as published
CHECKPOINT_SECONDS = 5.0  # at least between two checkpoints of the networks that select


@dataclass(frozen=True)
class TrainerOptions:
    """How the trainings of a selection run."""

    epochs: int | None = None  # None: the default of the model
    loss: str = "ce"
    device: str = "auto"
    executor: Any = "threads"  # of classifiers: as `execute.sklearn_trainer` takes it
    protocol: str = "auto"  # with "auto", pictures are not mirrored if that changes their class
    checkpoint: Path | None = None
    note: Callable[[Note], None] | None = None


def device_type(device: str, samples: SampleInfo) -> str:
    """Name the kind of device that decides which model is chosen: only for pictures does it matter."""
    if samples.kind != "pictures":
        return "cpu"
    from labelsieve.engine.device import choose_device

    return choose_device(device).type


def build_trainer(choice: ModelChoice, data: LabelledData, options: TrainerOptions) -> Trainer:
    """Return a trainer that answers the jobs of a selection with the chosen model, on this machine."""
    if choice.kind is ModelKind.CLASSIFIER:
        from labelsieve.execute.sklearn_trainer import SklearnTrainer

        rows = choice.rows(data, choice.learn_edges(data))
        return SklearnTrainer(rows, choice.classifier, len(data.classes), options.executor)
    trainer = _network_trainer(choice, data, options)
    if data.kind == "pictures" and options.protocol == "auto":
        harmful = trainer.disable_harmful_mirroring(data.x, data.y)
        if harmful and options.note is not None:
            options.note(Note.of(NoteKind.SELECTION_NOT_MIRRORED))
    return trainer


def build_cluster_trainer(choice: ModelChoice, data: LabelledData, options: TrainerOptions, pool: Any) -> Trainer:
    """Return a trainer that answers the jobs with tasks of a Ray cluster."""
    from labelsieve.execute.ray_cluster import RayTrainer

    assert options.checkpoint is not None
    build = partial(_build_in_task, choice, replace(options, note=None))
    return RayTrainer(data, build, pool=pool, checkpoint=options.checkpoint)


def _build_in_task(choice: ModelChoice, options: TrainerOptions, data: LabelledData, *, checkpoint: Path) -> Trainer:
    return build_trainer(choice, data, replace(options, checkpoint=checkpoint))


def build_network(choice: ModelChoice, shape: tuple[int, ...], classes: int) -> Factory:
    """Return the factory of a chosen network; the user's own is tried once, and its lazy layers get their sizes."""
    assert choice.factory is not None
    if ":" not in choice.name:
        return choice.factory
    from labelsieve.engine.bundle import check_factory, materialize

    check_factory(choice.factory, shape, classes, name=choice.name)
    return materialize(choice.factory, shape)


def _network_trainer(choice: ModelChoice, data: LabelledData, options: TrainerOptions) -> EngineTrainer:
    shared: dict[str, Any] = {
        "classes": len(data.classes), "epochs": choice.epochs(options.epochs), "device": options.device,
        "checkpoint": options.checkpoint, "stop": stopping.requested, "checkpoint_seconds": CHECKPOINT_SECONDS,
    }  # fmt: skip
    if choice.kind is ModelKind.FAST:
        from labelsieve.execute.network_trainer import LABEL_SMOOTHING, FastTrainer

        return FastTrainer(data.x, method=method_of(options.loss, label_smoothing=LABEL_SMOOTHING), **shared)
    from labelsieve.execute.network_trainer import EngineTrainer

    factory = build_network(choice, SampleInfo.of(data).shape, len(data.classes))
    name = choice.name if ":" in choice.name else "the network"
    return EngineTrainer(data.x, factory, method=method_of(options.loss), name=name, **shared)


def check_loss(loss: str) -> None:
    """Raise InputError if the loss is not known."""
    if loss not in LOSSES:
        raise InputError(f"unknown loss {loss!r}; choose {' or '.join(LOSSES)}")


def method_of(loss: str, *, label_smoothing: float = 0.0) -> Method:
    """The engine's method for a loss."""
    from labelsieve.methods.standard import GeneralisedCE, Standard

    check_loss(loss)
    if loss == "ce" and label_smoothing == 0:
        return Standard()
    return GeneralisedCE(q=GCE_Q if loss == "gce" else 0.0, label_smoothing=label_smoothing)
