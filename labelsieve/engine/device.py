"""The device that trains, and how its library chooses convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from labelsieve.errors import InputError


def choose_device(wanted: str = "auto") -> torch.device:
    """Return a device. `auto` prefers CUDA to MPS to the CPU. Raise InputError if the device does not exist."""
    if wanted == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    kind, colon, number = wanted.partition(":")
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if kind not in there or (colon and not (number.isascii() and number.isdigit())):
        raise InputError(f"unknown device {wanted!r}; choose auto, cpu, cuda, cuda:NUMBER or mps")
    if not there[kind]:
        raise InputError(f"device {wanted!r} is not available to torch on this machine; choose cpu")
    if kind == "cuda" and colon and int(number) >= (cards := torch.cuda.device_count()):
        raise InputError(
            f"device {wanted!r} does not exist: this machine has {cards} CUDA devices, numbered from cuda:0"
        )
    return torch.device(wanted)


@contextmanager
def fastest_convolutions(device: torch.device) -> Iterator[None]:
    """Let cuDNN try all algorithms once per shape, which pays for work with few shapes, such as captured steps.

    The choice may differ from run to run and round differently, so it is off if torch is set to be deterministic.
    """
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark
    exact = cudnn.deterministic or torch.are_deterministic_algorithms_enabled()
    cudnn.benchmark = before or (device.type == "cuda" and not exact)
    try:
        yield
    finally:
        cudnn.benchmark = before


SMALL_STEP = 3e7  # multiply-adds of a forward pass: a few milliseconds on one core


@contextmanager
def threads_for(multiply_adds: float) -> Iterator[None]:
    """Use one thread for small steps on a CPU. More threads gain nothing, and on a busy machine they wait for each
    other a hundred times longer than a step takes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if multiply_adds < SMALL_STEP else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
