"""Which device trains."""

from __future__ import annotations

import torch

from labelsieve.errors import InputError


def choose_device(wanted: str = "auto") -> torch.device:
    """`auto`: a CUDA card, else Apple's, else the CPU. What was asked for and is not there is said, never replaced."""
    if wanted == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    kind = wanted.split(":")[0]
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if kind not in there:
        raise InputError(f"device {wanted!r} is not known; choose auto, cpu, cuda or mps")
    if not there[kind]:
        raise InputError(f"device {wanted!r} was asked for, but torch sees none here; choose --device cpu")
    return torch.device(wanted)
