"""Selection's trainings with the fast network: INCV on small pictures in seconds instead of minutes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from labelsieve.engine.device import choose_device
from labelsieve.engine.fast import BATCH_SIZE, EPOCHS, fast_schedule, fast_store
from labelsieve.engine.method import Method
from labelsieve.errors import InputError
from labelsieve.execute.lockstep import EngineTrainer
from labelsieve.execute.losses import method_of
from labelsieve.models.fast_cnn import WIDTHS, fast_cnn_factory
from labelsieve.types import Store

LABEL_SMOOTHING = 0.2


def check_pictures(shape: Sequence[int], *, widths: Sequence[int] = WIDTHS) -> None:
    """Raise InputError where samples of this shape, channels first, are not for the fast network."""
    least = 2 ** len(widths)  # every block halves the picture
    if len(shape) != 3:
        raise InputError("model fast takes pictures, not rows of numbers: choose mlp, or a classifier")
    if min(shape[1:]) < least:
        raise InputError(
            f"model fast needs pictures of {least} pixels a side, these have {shape[1]} x {shape[2]}: enlarge them"
            f" (--size {least} does, where they are files), or choose small-cnn"
        )


def batch_size_for(samples: int) -> int:
    """A power of two, 32 to 512, that leaves a half of the samples some fifty steps an epoch, as CIFAR-10 has."""
    return int(2 ** np.clip(np.round(np.log2(max(1, samples) / 100)), 5, np.log2(BATCH_SIZE)))


class FastTrainer(EngineTrainer):
    """Answers jobs with fast networks. `x`: pictures, uint8 [n, height, width, channels], or a store of them.

    It is made for a GPU; a CPU gives the same answers, much slower. The batch size is chosen by the number
    of samples where none is given.
    """

    def __init__(
        self,
        x: Any,
        *,
        classes: int,
        epochs: int = EPOCHS,
        batch_size: int | None = None,
        widths: Sequence[int] = WIDTHS,
        method: Method | None = None,
        device: str | torch.device = "auto",
        **options: Any,
    ) -> None:
        store = x if isinstance(x, Store) else fast_store(x, choose_device(str(device)))
        check_pictures(store.shape, widths=widths)
        batch_size = batch_size or batch_size_for(len(store))
        super().__init__(
            store,
            fast_cnn_factory(store, classes, widths=tuple(widths)),
            classes=classes,
            schedule=fast_schedule(epochs, batch_size),
            method=method or method_of("ce", label_smoothing=LABEL_SMOOTHING),
            batch_size=batch_size,
            **options,
        )

    def disable_mirroring(self) -> None:
        """Stop mirroring in training and in scoring."""
        super().disable_mirroring()
        self.factory = partial(self.factory, mirror=False)
