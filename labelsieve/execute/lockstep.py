"""Selection's trainings on the engine: all jobs that may run at once train in lockstep on one device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labelsieve.data.pictures import PictureSequence
from labelsieve.engine import Method, Plan, Schedule, Store, VectorStore, stage_pictures, train
from labelsieve.engine.augment import mirror_test
from labelsieve.engine.bundle import Factory
from labelsieve.engine.device import choose_device
from labelsieve.engine.factory import check_factory
from labelsieve.engine.picture_stores import picture_store
from labelsieve.types import FloatArray, IntArray, Job, Scores, Trainer


def stage(x: Any, device: torch.device, *, augment: bool = True) -> Store:
    """An array onto the device: pictures (uint8, 4 axes), or rows of numbers and arrays of more axes, standardised."""
    if isinstance(x, PictureSequence):
        return picture_store(x, device, augment=augment)
    x = x.toarray() if hasattr(x, "toarray") else np.asarray(x)  # networks read sparse rows as dense ones
    if x.ndim == 4 and x.dtype == np.uint8:
        return stage_pictures(x, device, augment=augment)
    rows = x.astype(np.float32)
    centre, spread = row_statistics(rows)
    return VectorStore((rows - centre) / spread, device)


def row_statistics(rows: FloatArray, *, texts: bool = False) -> tuple[FloatArray, FloatArray]:
    """Each column's mean, and its spread to divide by: 1 where all rows have the same number.

    The directions of `texts` have one spread: they are of one kind, and those that hardly vary are mostly chance.
    Arrays of more axes have one mean and one spread: which axis is the channels', time or a place, nobody says.
    """
    if rows.ndim > 2:
        spread = rows.std(dtype=np.float64)
        return rows.mean(dtype=np.float64).astype(rows.dtype), np.asarray(spread if spread > 0 else 1, dtype=rows.dtype)
    spread = rows.std(axis=0)
    if texts:
        spread = np.full_like(spread, np.sqrt(np.mean(spread**2)))
    return rows.mean(axis=0), np.where(spread > 0, spread, 1).astype(rows.dtype)


class EngineTrainer(Trainer):
    """Answers jobs with networks from `factory` (called without arguments; with n=... where it can stack).

    The factory is tried once, so that what it cannot do is said before a training, of the network's `name`."""

    def __init__(
        self,
        x: Any,
        factory: Factory,
        *,
        classes: int,
        epochs: int = 50,
        device: str | torch.device = "auto",
        schedule: Schedule | None = None,
        method: Method | None = None,
        batch_size: int = 128,
        checkpoint: Path | None = None,
        name: str = "the network",
        **options: Any,
    ) -> None:
        from labelsieve.methods.standard import Standard

        self.store: Store = x if isinstance(x, Store) else stage(x, choose_device(str(device)))
        check_factory(factory, self.store.shape, classes, name=name)
        self.factory, self.classes = factory, classes
        self.schedule = schedule or Schedule.incv_50(epochs)
        self.method = method or Standard()
        self.epochs = self.method.epochs(self.schedule.epochs)
        self.on_gpu = self.store.device.type != "cpu"
        self.batch_size, self.checkpoint, self.options = batch_size, checkpoint, options

    def disable_harmful_mirroring(self, pictures: Any, labels: IntArray) -> bool:
        harms = mirror_test(pictures, labels, np.arange(len(labels))).harms
        if harms:
            self.disable_mirroring()
        return harms

    def disable_mirroring(self) -> None:
        self.store.disable_mirroring()

    def checkpoint_every_epoch(self) -> None:
        self.options["checkpoint_seconds"] = 0.0

    def train_and_score(self, jobs: Sequence[Job]) -> list[Scores]:
        plans = [
            Plan(job.name, job.labels, job.train, job.seed, score=job.score, keep_best=job.keep_best) for job in jobs
        ]
        folder = self.checkpoint and self.checkpoint / "+".join(plan.name.replace("/", "-") for plan in plans)[:100]
        results = train(
            self.store, self.factory, self.method, plans,
            schedule=self.schedule, batch_size=self.batch_size, checkpoint=folder, classes=self.classes,
            progress=self.on_epoch, **self.options,
        )  # fmt: skip
        if self.on_history is not None:
            self.on_history([line for result in results for line in result.history])
        found = [result.scores for result in results]
        assert all(scores is not None for scores in found)
        return [scores for scores in found if scores is not None]
