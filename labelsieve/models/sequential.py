"""A stack whose networks are computed one after the other in a step.

Narrow networks share grouped convolutions (layers.py). If the layers of one network fill a device, a grouped
convolution is slower than the library's dense one, and a captured step has no launches to save. Parameters and buffers
are stored as in other stacks: those of the single networks, concatenated along axis 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from labelsieve.models.layers import BatchNorm, Stackable

HEAD = "head."


class SequentialStack(Stackable):
    """Base class. `__init__` builds the layers of a single network and a head of n, then calls `repeat_parameters`."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n

    def features_of_one(self, x: Tensor) -> Tensor:
        """The features [B, d] of a single network."""
        raise NotImplementedError

    def repeat_parameters(self) -> None:
        """Repeat every parameter and buffer n times along axis 0."""
        if self.n == 1:
            return
        for layer in (part for name, part in self.named_modules() if not f"{name}.".startswith(HEAD)):
            for name, parameter in layer.named_parameters(recurse=False):
                repeated = parameter.detach().repeat(self.n, *[1] * (parameter.ndim - 1))
                layer.register_parameter(name, nn.Parameter(repeated, requires_grad=parameter.requires_grad))
            for name, buffer in layer.named_buffers(recurse=False):
                layer.register_buffer(name, buffer.repeat(self.n, *[1] * (buffer.ndim - 1)))

    def features(self, x: Tensor) -> Tensor:
        if self.n == 1:
            return self.features_of_one(x)
        own = {name: p for name, p in self.named_parameters() if not name.startswith(HEAD)}
        parts: tuple[Tensor, ...] = _Split.apply(self.n, *own.values())  # type: ignore[no-untyped-call]
        every = {name: parts[at * self.n : (at + 1) * self.n] for at, name in enumerate(own)}
        every |= {name: tuple(buffer.chunk(self.n)) for name, buffer in self.named_buffers()}
        turn, found = _SingleNetwork(self), []
        norms = [layer for layer in self.modules() if isinstance(layer, BatchNorm)]
        for i, seen in enumerate(x.chunk(self.n, 1)):
            if seen.is_cuda and seen.ndim == 4:
                seen = seen.contiguous(memory_format=torch.channels_last)
            with _valid_of(norms, i):
                found.append(functional_call(turn, {f"network.{name}": t[i] for name, t in every.items()}, (seen,)))
        return torch.cat(found, 1)


class _Split(torch.autograd.Function):
    """The n parts of each parameter; all gradients are concatenated in one operation."""

    @staticmethod
    def forward(ctx: Any, n: int, *parameters: Tensor) -> tuple[Tensor, ...]:
        ctx.shapes = [p.shape for p in parameters]
        return tuple(part for p in parameters for part in p.chunk(n))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        flat = torch.cat([g.reshape(-1) for g in gradients])
        whole = torch.split(flat, [shape.numel() for shape in ctx.shapes])
        return None, *(g.view(shape) for g, shape in zip(whole, ctx.shapes, strict=True))


class _SingleNetwork(nn.Module):
    """The module that functional_call calls."""

    def __init__(self, network: SequentialStack) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network.features_of_one(x)


@contextmanager
def _valid_of(norms: list[BatchNorm], i: int) -> Iterator[None]:
    """Give batch norms the number of real samples of network i."""
    before = [norm.valid for norm in norms]
    for norm, valid in zip(norms, before, strict=True):
        norm.valid = None if valid is None else valid[i : i + 1]
    try:
        yield
    finally:
        for norm, valid in zip(norms, before, strict=True):
            norm.valid = valid
