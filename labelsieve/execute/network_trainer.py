"""Trainings of a selection with networks: all jobs that may run at once train in lockstep on one device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from labelsieve.data.pictures import PictureSequence
from labelsieve.engine import Method, Plan, Schedule, train
from labelsieve.engine.augment import mirror_test
from labelsieve.engine.bundle import Factory, check_factory
from labelsieve.engine.device import choose_device
from labelsieve.engine.picture_stores import picture_store
from labelsieve.engine.schedule import FAST_BATCH_SIZE, fast_schedule
from labelsieve.engine.store import VectorStore, fast_store, row_statistics, stage_pictures
from labelsieve.methods.standard import GeneralisedCE, Standard
from labelsieve.models.choose import FAST_EPOCHS
from labelsieve.models.fast_cnn import WIDTHS, fast_cnn_factory
from labelsieve.types import IntArray, Job, Scores, Store, Trainer

LABEL_SMOOTHING = 0.2  # of the fast network, as published
FEWEST_STEPS = 50  # per epoch of half of the samples, about as many as CIFAR-10 has


def stage(x: Any, device: torch.device) -> Store:
    """Put samples on the device: pictures, or standardised rows of numbers and arrays of more axes."""
    from scipy.sparse import issparse  # here, because the experiments run on machines without scipy

    if isinstance(x, PictureSequence):
        return picture_store(x, device)
    x = x.toarray() if issparse(x) else np.asarray(x)
    if x.ndim == 4 and x.dtype == np.uint8:
        return stage_pictures(x, device)
    rows = x.astype(np.float32)
    centre, spread = row_statistics(rows)
    return VectorStore((rows - centre) / spread, device)


class EngineTrainer(Trainer):
    """Trains networks from `factory` on the samples `x`, an array or a store.

    The factory is called without arguments, or with n=... if it can stack networks. It is called once at the start, so
    that mistakes are reported before a training; `name` is the name of the network in the message. `options` are those
    of `engine.train`.
    """

    def __init__(
        self,
        x: Any,
        factory: Factory,
        *,
        classes: int,
        epochs: int = 50,
        schedule: Schedule | None = None,
        method: Method | None = None,
        device: str | torch.device = "auto",
        name: str = "the network",
        **options: Any,
    ) -> None:
        self.store: Store = x if isinstance(x, Store) else stage(x, choose_device(str(device)))
        check_factory(factory, self.store.shape, classes, name=name)
        self.factory, self.classes = factory, classes
        self.schedule = schedule or Schedule.incv_50(epochs)
        self.method = method or Standard()
        self.epochs = self.schedule.epochs
        self.on_gpu = self.store.device.type != "cpu"
        self.options = options

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
            Plan(
                job.name,
                job.labels,
                job.train,
                job.seed,
                score=job.score,
                keep_best=job.keep_best,
                epoch_samples=job.epoch_samples,
            )
            for job in jobs
        ]
        options = {"progress": self.on_epoch, **self.options}
        if options.get("checkpoint") is not None:
            options["checkpoint"] /= "+".join(plan.name.replace("/", "-") for plan in plans)[:100]
        results = train(
            self.store, self.factory, self.method, plans, schedule=self.schedule, classes=self.classes, **options
        )
        if self.on_history is not None:
            self.on_history([line for result in results for line in result.history])
        found = [result.scores for result in results if result.scores is not None]
        assert len(found) == len(jobs)
        return found


def batch_size_for(samples: int) -> int:
    """A power of two from 32 to 512 with about `FEWEST_STEPS` steps per epoch of half of the samples."""
    return int(2 ** np.clip(np.round(np.log2(max(1, samples) / (2 * FEWEST_STEPS))), 5, np.log2(FAST_BATCH_SIZE)))


class FastTrainer(EngineTrainer):
    """Trains fast networks on pictures, uint8 [n, height, width, channels] or a store.

    It is made for a GPU; a CPU gives the same results much more slowly.
    """

    def __init__(
        self,
        x: Any,
        *,
        classes: int,
        epochs: int = FAST_EPOCHS,
        batch_size: int | None = None,
        widths: Sequence[int] = WIDTHS,
        method: Method | None = None,
        device: str | torch.device = "auto",
        **options: Any,
    ) -> None:
        store = x if isinstance(x, Store) else fast_store(x, choose_device(str(device)))
        batch_size = batch_size or batch_size_for(len(store))
        super().__init__(
            store,
            fast_cnn_factory(store, classes, widths=tuple(widths)),
            classes=classes,
            schedule=fast_schedule(epochs, batch_size),
            method=method or GeneralisedCE(q=0.0, label_smoothing=LABEL_SMOOTHING),
            batch_size=batch_size,
            **options,
        )

    def disable_mirroring(self) -> None:
        """Stop mirroring in training and in scoring."""
        super().disable_mirroring()
        self.factory = partial(self.factory, mirror=False)
