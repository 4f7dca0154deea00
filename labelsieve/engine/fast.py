"""How the fast network (models/fast_cnn.py) is trained: few epochs, large batches, Nesterov SGD, a triangle of rates.

The numbers are those of Jordan (2024), whose losses are summed over a batch, turned into those for a mean: at 1,024
pictures a rate of 11.5 / (1 + 1 / (1 - 0.85)) = 1.5, less for smaller batches in proportion, and a weight decay of
0.0153 / 11.5 = 1.33e-3 on every parameter. The rate rises from a fifth to all of it over the first 23 % of the
training and falls to 7 % at its end; an epoch takes the triangle's mean over its length.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from labelsieve.data.pictures import PictureSequence
from labelsieve.engine.schedule import Schedule
from labelsieve.engine.store import PictureStore

EPOCHS, BATCH_SIZE = 10, 512  # after more epochs it has learnt more of the wrong labels
MOMENTUM, WEIGHT_DECAY = 0.85, 0.0153 / 11.5
RATE_AT_1024 = 11.5 / (1 + 1 / (1 - MOMENTUM))
START, PEAK_AT, END = 0.2, 0.23, 0.07
SHIFT = 2  # pixels: a short training has no use for more


def triangle(place: NDArray[np.floating] | float) -> NDArray[np.float64]:
    """Share of the highest rate at `place` in 0..1 of the training."""
    return np.asarray(np.interp(place, (0.0, PEAK_AT, 1.0), (START, 1.0, END)))


def fast_schedule(epochs: int = EPOCHS, batch_size: int = BATCH_SIZE) -> Schedule:
    """Nesterov SGD; each epoch's rate is the mean of the triangle over it."""
    rate = RATE_AT_1024 * batch_size / 1024
    within = (np.arange(100) + 0.5) / 100
    steps = tuple((epoch, float(rate * triangle((epoch + within) / epochs).mean())) for epoch in range(epochs))
    return Schedule(
        epochs,
        steps,
        optimizer="sgd",
        momentum=MOMENTUM,
        nesterov=True,
        weight_decay=WEIGHT_DECAY,
        decay_everything=True,
    )


def fast_store(
    x: NDArray[np.uint8] | PictureSequence, device: torch.device | str = "cpu", *, augment: bool = True
) -> PictureStore:
    """Pictures onto the device, shifted by at most two pixels and flipped in training; scored as three views, a pixel
    apart along the diagonal."""
    device = torch.device(device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    store = PictureStore(x, device, shift=min(SHIFT, x.shape[1] // 8) if augment else 0, flip=augment, dtype=dtype)
    if store.shift:
        store.score_shifts = (0, 1, -1)
    return store
