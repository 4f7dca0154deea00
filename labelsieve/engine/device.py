"""Which device trains, and how its library chooses convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from labelsieve.errors import InputError


def choose_device(wanted: str = "auto") -> torch.device:
    """`auto`: a CUDA card, else Apple's, else the CPU. What was asked for and is not there is said, never replaced."""
    if wanted == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    kind, colon, number = wanted.partition(":")
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if kind not in there or (colon and not (number.isascii() and number.isdigit())):
        raise InputError(f"device {wanted!r} is not known; choose auto, cpu, cuda, cuda:1 (a card by number) or mps")
    if not there[kind]:
        raise InputError(f"device {wanted!r} was asked for, but torch sees none here; choose cpu")
    if kind == "cuda" and colon and int(number) >= (cards := torch.cuda.device_count()):
        raise InputError(f"device {wanted!r} was asked for, but there are {cards} cards here, counted from cuda:0")
    return torch.device(wanted)


@contextmanager
def fastest_convolutions(device: torch.device) -> Iterator[None]:
    """cuDNN chooses by trial, once a shape: for work of few shapes, as captured steps and scoring are.

    The fastest may be another one from run to run, and round otherwise: not where torch was told to be deterministic.
    """
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark
    exact = cudnn.deterministic or torch.are_deterministic_algorithms_enabled()
    cudnn.benchmark = before or (device.type == "cuda" and not exact)
    try:
        yield
    finally:
        cudnn.benchmark = before


SMALL_STEP = 3e7  # multiply-adds of a forward pass: some milliseconds of one core


@contextmanager
def threads_for(multiply_adds: float) -> Iterator[None]:
    """One thread for small steps on a CPU. Sharing them out brings nothing, and where the machine is busy otherwise the
    threads wait for each other, for a hundred times what the step itself takes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if multiply_adds < SMALL_STEP else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
