"""Selection's trainings with the fast network: INCV on small pictures in seconds instead of minutes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from labelsieve.engine.device import choose_device
from labelsieve.engine.fast import BATCH_SIZE, EPOCHS, fast_schedule, fast_store
from labelsieve.engine.method import Method
from labelsieve.execute.lockstep import EngineTrainer
from labelsieve.methods.generalised_ce import GeneralisedCE
from labelsieve.models.fast_cnn import WIDTHS, fast_cnn_factory
from labelsieve.types import Job, Scores

LABEL_SMOOTHING = 0.2


class FastTrainer(EngineTrainer):
    """Answers jobs with fast networks. `x`: pictures, uint8 [n, height, width, channels], or a store of them."""

    def __init__(
        self,
        x: Any,
        *,
        classes: int,
        epochs: int = EPOCHS,
        batch_size: int = BATCH_SIZE,
        widths: Sequence[int] = WIDTHS,
        method: Method | None = None,
        device: str | torch.device = "auto",
        **options: Any,
    ) -> None:
        store: Any = x if hasattr(x, "batch") else fast_store(x, choose_device(str(device)))
        super().__init__(
            store,
            fast_cnn_factory(store, classes, widths=tuple(widths)),
            classes=classes,
            schedule=fast_schedule(epochs, batch_size),
            method=method or GeneralisedCE(q=0.0, label_smoothing=LABEL_SMOOTHING),
            batch_size=batch_size,
            **options,
        )

    def train_and_score(self, jobs: Sequence[Job]) -> list[Scores]:
        # A few dozen shapes for thousands of steps: looking for each one's fastest convolution pays.
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=True):
            return super().train_and_score(jobs)
