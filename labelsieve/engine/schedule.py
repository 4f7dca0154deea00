"""Optimizer and learning rate by epoch: the schedules of the paper's supplement A, and those of other trainings.

Robust trainings use `auto_batch_size`, `auto_epochs` and `one_drop` unless the user sets these numbers. On a GPU the
command line trains pictures as in the paper: 200 epochs with its learning rates.

The fast network (models/fast_cnn.py) trains for few epochs with large batches. Its numbers are those of Jordan (2024),
whose losses are summed over a batch, converted for a mean: a rate of 11.5 / (1 + 1 / (1 - 0.85)) = 1.5 with 1,024
pictures per batch, in proportion for other sizes, and a weight decay of 0.0153 / 11.5 = 1.33e-3 on every parameter. The
rate rises from a fifth to its maximum over the first 23 % of the training and falls to 7 % at the end.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labelsieve.errors import InputError
from labelsieve.models.choose import FAST_EPOCHS

DEFAULT_RATE = 5e-3  # for few epochs; the paper's 1e-3 is for 200
# The schedule of Jordan (2024, arXiv:2404.00498), with smaller batches for fewer samples: benchmarks/fast-selector.md.
FAST_BATCH_SIZE = 512
FAST_MOMENTUM, FAST_WEIGHT_DECAY = 0.85, 0.0153 / 11.5
FAST_RATE_AT_1024 = 11.5 / (1 + 1 / (1 - FAST_MOMENTUM))
FAST_START, FAST_PEAK_AT, FAST_END = 0.2, 0.23, 0.07


@dataclass(frozen=True)
class Schedule:
    """`steps` are pairs (epoch, learning rate): the rate from that epoch on, counted from 0."""

    epochs: int
    steps: tuple[tuple[int, float], ...]
    optimizer: Literal["adam", "sgd"] = "adam"
    weight_decay: float = 2e-4  # added to the gradient of weights (not of biases or batch norm): Keras' l2(1e-4)
    momentum: float = 0.9  # sgd
    nesterov: bool = False
    fresh_state: bool = False  # the optimizer forgets its state at each drop, as the authors' 200-epoch training does
    decay_everything: bool = False  # weight decay on biases and batch norm too, as the ResNet paper trains

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise InputError(f"epochs is {self.epochs}: train for at least 1")
        if not self.steps or self.steps[0][0] != 0 or [e for e, _ in self.steps] != sorted({e for e, _ in self.steps}):
            raise InputError("a schedule's steps must begin at epoch 0 and rise")

    def learning_rate(self, epoch: int) -> float:
        return next(rate for start, rate in reversed(self.steps) if start <= epoch)

    def drops_at(self, epoch: int) -> bool:
        return epoch > 0 and any(start == epoch for start, _ in self.steps)

    def scaled(self, epochs: int) -> Schedule:
        """The same shape over another number of epochs.

        If two rates would start in one epoch, the later one starts in the next. If there are too few epochs, the last
        rates are dropped.
        """
        if epochs == self.epochs:
            return self
        steps = [self.steps[0]]
        for start, rate in self.steps[1:]:
            steps.append((max(steps[-1][0] + 1, round(start * epochs / self.epochs)), rate))
        return replace(self, epochs=epochs, steps=tuple(step for step in steps if step[0] < max(1, epochs)))

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def incv_50(cls, epochs: int = 50) -> Schedule:
        """Section 5.2: Adam at 1e-3, halved after 20 and 30 epochs, 1e-4 after 40."""
        return cls(50, ((0, 1e-3), (20, 5e-4), (30, 2.5e-4), (40, 1e-4))).scaled(epochs)

    @classmethod
    def paper_200(cls, epochs: int = 200) -> Schedule:
        """Sections 5.1 and 5.3: Adam at 1e-3, a tenth after 80, 120 and 160 epochs, half of that after 180."""
        steps = ((0, 1e-3), (80, 1e-4), (120, 1e-5), (160, 1e-6), (180, 5e-7))
        return cls(200, steps, fresh_state=True).scaled(epochs)

    @classmethod
    def cosine(cls, epochs: int, rate: float) -> Schedule:
        """Nesterov SGD whose rate falls along half a cosine; an epoch has the rate of its middle."""
        rates = rate * (1 + np.cos(np.pi * (np.arange(epochs) + 0.5) / epochs)) / 2
        steps = tuple(enumerate(rates.tolist()))
        return cls(epochs, steps, optimizer="sgd", nesterov=True, weight_decay=5e-4, decay_everything=True)

    @classmethod
    def webvision_120(cls, epochs: int = 120) -> Schedule:
        """Supplement A.2: SGD at 0.1, a tenth after 40 and 80 epochs."""
        return cls(120, ((0, 0.1), (40, 0.01), (80, 0.001)), optimizer="sgd", weight_decay=1e-4).scaled(epochs)

    @classmethod
    def webvision_incv_50(cls, epochs: int = 50) -> Schedule:
        """Supplement A.2, INCV: SGD at 0.1, halved after 20 and 30 epochs, 0.01 after 40."""
        steps = ((0, 0.1), (20, 0.05), (30, 0.025), (40, 0.01))
        return cls(50, steps, optimizer="sgd", weight_decay=1e-4).scaled(epochs)


def triangle(place: NDArray[np.floating] | float) -> NDArray[np.float64]:
    """The share of the highest rate at a place in 0..1 of the training."""
    return np.asarray(np.interp(place, (0.0, FAST_PEAK_AT, 1.0), (FAST_START, 1.0, FAST_END)))


def fast_schedule(epochs: int = FAST_EPOCHS, batch_size: int = FAST_BATCH_SIZE) -> Schedule:
    """Nesterov SGD for the fast network; the rate of an epoch is the mean of the triangle over the epoch."""
    rate = FAST_RATE_AT_1024 * batch_size / 1024
    within = (np.arange(100) + 0.5) / 100
    steps = tuple((epoch, float(rate * triangle((epoch + within) / epochs).mean())) for epoch in range(epochs))
    return Schedule(
        epochs, steps, optimizer="sgd", momentum=FAST_MOMENTUM, nesterov=True, weight_decay=FAST_WEIGHT_DECAY,
        decay_everything=True,
    )  # fmt: skip


def auto_batch_size(samples: int) -> int:
    """Return 128 as in the paper, or less for small data so that an epoch has several steps."""
    return int(np.clip(samples // 16, 32, 128))


def auto_epochs(samples: int, batch_size: int, *, pictures: bool = False) -> int:
    """Return 20 epochs, or up to 60 if epochs have few steps. Pictures need more steps than rows of numbers."""
    return int(np.clip((640 if pictures else 160) // -(-samples // batch_size), 20, 60))


def one_drop(epochs: int, rate: float = DEFAULT_RATE) -> Schedule:
    """Return a schedule for Adam with a tenth of the rate in the last quarter."""
    last = epochs * 3 // 4
    return Schedule(epochs, ((0, rate), (last, rate / 10)) if last else ((0, rate),))
