"""Random numbers that networks and losses draw by themselves while they train: dropout, stochastic depth, noise.

They come from torch's own generators, which are the whole process': a training borrows these, sets them before every
step of every network by its seed, epoch and step, and gives them back as they were. So the same seed gives the same
draws, whatever was drawn before and by whom, a resumed training goes on with those it would have had, and networks that
are trained one by one draw what each would alone. Networks stacked in one module share one stream, another one than
each has alone. Not reached: other generators (numpy's, Python's), and trainings in several threads of one process,
which take numbers from each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

STEPS, BEFORE, AFTER = 2, 3, 4  # what of an epoch is drawn for; 1 are its order and augmentation
RANGE = 2**62  # of seeds; a process of several adds its rank


def generators(device: torch.device | None = None) -> list[torch.Generator]:
    """Those that a network on this device draws from without naming one; without a device the CPU's."""
    found = [torch.default_generator]
    if device is not None and device.type == "cuda":
        number = torch.cuda.current_device() if device.index is None else device.index
        found.append(torch.cuda.default_generators[number])
    elif device is not None and device.type == "mps":
        found.append(torch.mps._get_default_mps_generator())
    return found


@contextmanager
def borrowed(device: torch.device | None = None) -> Iterator[None]:
    """What is drawn inside leaves no trace."""
    before = [(generator, generator.get_state()) for generator in generators(device)]
    try:
        yield
    finally:
        for generator, state in before:
            generator.set_state(state)


def seeds(seed: int, epoch: int, what: int, *shape: int) -> NDArray[np.int64]:
    """Of a training's epoch: one a step and network, or whatever the shape is."""
    return np.random.default_rng([seed, epoch, what]).integers(RANGE, size=shape)


class Draws:
    """The generators of a device, to be set."""

    def __init__(self, device: torch.device) -> None:
        self.generators = generators(device)

    def begin(self, seed: int) -> None:
        for generator in self.generators:
            generator.manual_seed(seed)

    def states(self) -> list[torch.Tensor]:
        """To see whether anything was drawn."""
        return [generator.get_state() for generator in self.generators]
