"""n networks that take their turns inside a step, each with its own dense layers.

Narrow networks share grouped convolutions (layers.py). Where the layers of one network fill a device, a grouped
convolution only costs: each network then gets the library's fastest dense one, and a captured step has no launches to
save. Outside nothing differs: parameters and buffers are the single networks', one after the other along axis 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call

from labelsieve.models.layers import BatchNorm, Stackable

HEAD = "head."


class InTurn(Stackable):
    """The base of such a network. `__init__` builds the layers of a single one and a head of n, then calls `multiply`;
    `one` gives the features [B, d] of a single network's input, whose number of channels is `channels`."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n

    def one(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def multiply(self) -> None:
        """Every parameter and buffer n times, one after the other."""
        if self.n == 1:
            return
        for layer in (part for name, part in self.named_modules() if not f"{name}.".startswith(HEAD)):
            for name, parameter in layer.named_parameters(recurse=False):
                repeated = parameter.detach().repeat(self.n, *[1] * (parameter.ndim - 1))
                layer.register_parameter(name, nn.Parameter(repeated))
            for name, buffer in layer.named_buffers(recurse=False):
                layer.register_buffer(name, buffer.repeat(self.n, *[1] * (buffer.ndim - 1)))

    def features(self, x: Tensor) -> Tensor:
        if self.n == 1:
            return self.one(x)
        # unbind's gradient is one stack, where that of n slices would be n sums of the whole
        every = {
            name: tensor.view(self.n, -1, *tensor.shape[1:]).unbind(0)
            for name, tensor in (*self.named_parameters(), *self.named_buffers())
            if not name.startswith(HEAD)
        }
        turn, found = _Turn(self), []
        norms = [layer for layer in self.modules() if isinstance(layer, BatchNorm)]
        for i, own in enumerate(x.chunk(self.n, 1)):
            if own.is_cuda and own.ndim == 4:
                own = own.contiguous(memory_format=torch.channels_last)
            with _valid_of(norms, i):
                found.append(functional_call(turn, {f"network.{name}": t[i] for name, t in every.items()}, (own,)))
        return torch.cat(found, 1)


class _Turn(nn.Module):
    """What functional_call calls."""

    def __init__(self, network: InTurn) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network.one(x)


@contextmanager
def _valid_of(norms: list[BatchNorm], i: int) -> Iterator[None]:
    """Batch norms know how many samples of network i are real."""
    before = [norm.valid for norm in norms]
    for norm, valid in zip(norms, before, strict=True):
        norm.valid = None if valid is None else valid[i : i + 1]
    try:
        yield
    finally:
        for norm, valid in zip(norms, before, strict=True):
            norm.valid = valid
