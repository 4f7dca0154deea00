"""Random numbers that networks and losses draw while they train: dropout, stochastic depth, noise.

They come from torch's global generators. A training seeds these before every step of every network from its own seed,
epoch and step, and restores them at the end. So the same seed gives the same numbers, independent of earlier draws; a
resumed training continues with the numbers it would have drawn; and networks trained one by one draw what each would
draw alone. Networks stacked in one module share one stream. Not covered: other generators (numpy, Python), and
trainings in several threads of one process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

ORDER, STEPS, BEFORE, AFTER, VIEWS = 1, 2, 3, 4, 5  # the uses of random numbers in an epoch, each with its own stream
RANGE = 2**62  # of seeds; a process adds its rank


class Generators:
    """The generators that a network on a device uses by default; without a device that of the CPU."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.generators = [torch.default_generator]
        if device is not None and device.type == "cuda":
            number = torch.cuda.current_device() if device.index is None else device.index
            self.generators.append(torch.cuda.default_generators[number])
        elif device is not None and device.type == "mps":
            self.generators.append(torch.mps._get_default_mps_generator())

    def seed(self, seed: int) -> None:
        for generator in self.generators:
            generator.manual_seed(seed)

    def states(self) -> list[torch.Tensor]:
        return [generator.get_state() for generator in self.generators]


@contextmanager
def preserve_rng(device: torch.device | None = None) -> Iterator[None]:
    """Restore the state of torch's generators afterwards."""
    used = Generators(device)
    before = used.states()
    try:
        yield
    finally:
        for generator, state in zip(used.generators, before, strict=True):
            generator.set_state(state)


def seeds(seed: int, epoch: int, use: int, *shape: int) -> NDArray[np.int64]:
    """Seeds of the given shape for one use of random numbers in one epoch of a training."""
    return np.random.default_rng([seed, epoch, use]).integers(RANGE, size=shape)
