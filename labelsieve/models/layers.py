"""Layers that hold n networks at once.

n networks of one architecture share the channel axis: activations are [B, n*C, H, W] (channels-last in memory), every
parameter of the stack is the concatenation along axis 0 of the parameters of the single networks, and the channels of
different networks are never combined. With n = 1 they are ordinary layers. So a stack is made by concatenating state
dicts, and its networks learn the same weights as single networks.

The networks of a `SequentialStack` are computed one after the other in a step: if the layers of one network fill a
device, a grouped convolution is slower than the library's dense one, and a captured step has no launches to save.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from labelsieve.models import kernels


def init_convolution(weight: Tensor) -> None:
    """Draw the initial weights of a convolution. Those of the meta device have no values; torch would import sympy."""
    if not weight.is_meta:
        nn.init.kaiming_normal_(weight, mode="fan_in", nonlinearity="relu")


class Conv2d(nn.Module):
    """n convolutions as a grouped convolution, with a kernel of kernels/conv.py if possible."""

    def __init__(self, n: int, inputs: int, outputs: int, size: int, *, stride: int = 1) -> None:
        super().__init__()
        self.n, self.stride, self.size = n, stride, size
        self.weight = nn.Parameter(torch.empty(n * outputs, inputs, size, size))
        init_convolution(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        if self.size == 3:
            return kernels.grouped_conv3x3(x, self.weight, self.n, stride=self.stride)
        weight, stride = self.weight.to(x.dtype), self.stride
        if x.is_cuda:
            weight = weight.contiguous(memory_format=torch.channels_last)
            if self.size == 1 and stride > 1:  # cuDNN would compute it without tensor cores, on a reordered copy of x
                x, stride = x[:, :, ::stride, ::stride].contiguous(memory_format=torch.channels_last), 1
        return F.conv2d(x, weight, None, stride, self.size // 2, groups=self.n)

    def then(self, norm: BatchNorm, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """norm(self(x)); the convolution kernel sums the statistics while it writes its output."""
        if not norm.training or norm.across is not None or self.size != 3:
            return cast("Tensor", norm(self(x), residual))
        y, sums = kernels.grouped_conv3x3_sums(x, self.weight, self.n, stride=self.stride, valid=norm.valid)
        return cast("Tensor", norm(y, residual, sums))


class BatchNorm(nn.Module):
    """Batch norm of n networks, with the residual sum and the relu that follow it.

    The engine sets `valid` (int32 [n]), the number of real samples of each network, and `across`, which gathers the
    statistics of all processes. Padding is not part of the statistics and gets no gradient.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, n: int, channels: int, *, relu: bool = True, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.n, self.relu, self.momentum, self.eps = n, relu, momentum, eps
        self.weight = nn.Parameter(torch.ones(n * channels))
        self.bias = nn.Parameter(torch.zeros(n * channels))
        self.register_buffer("running_mean", torch.zeros(n * channels))
        self.register_buffer("running_var", torch.ones(n * channels))
        self.valid: Tensor | None = None
        self.across: Callable[[Tensor], Tensor] | None = None

    def forward(self, x: Tensor, residual: Tensor | None = None, sums: Tensor | None = None) -> Tensor:
        return kernels.batch_norm_act(x, self.spec(), residual=residual, sums=sums)

    def spec(self, **changes: Any) -> kernels.Norm:
        """The parameters of `kernels.batch_norm_act`. Padding and other processes matter in training only."""
        options: dict[str, Any] = {
            "gamma": self.weight, "beta": self.bias, "running_mean": self.running_mean, "running_var": self.running_var,
            "n": self.n, "act": kernels.Activation.RELU if self.relu else kernels.Activation.NONE,
            "training": self.training, "momentum": self.momentum, "eps": self.eps,
            "valid": self.valid if self.training else None, "across": self.across if self.training else None,
        }  # fmt: skip
        return kernels.Norm(**options | changes)


class Linear(nn.Module):
    """n linear layers: [B, n*inputs] -> [B, n*outputs], in float32."""

    def __init__(self, n: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.n, self.inputs, self.outputs = n, inputs, outputs
        self.weight = nn.Parameter(torch.empty(n * outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(n * outputs))
        bound = 1 / math.sqrt(inputs)
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        if self.n == 1:
            return F.linear(x, self.weight, self.bias)
        stacked = x.view(len(x), self.n, self.inputs).transpose(0, 1)
        weight = self.weight.view(self.n, self.outputs, self.inputs)
        y = torch.baddbmm(self.bias.view(self.n, 1, self.outputs), stacked, weight.transpose(1, 2))
        return y.transpose(0, 1).reshape(len(x), self.n * self.outputs)


def widen(x: Tensor, n: int, channels: int) -> Tensor:
    """Pad the channels of each network with zeros: the parameter-free shortcut (option A) of the ResNet paper."""
    b, stacked, h, w = x.shape
    missing = channels - stacked // n
    padded = F.pad(x.permute(0, 2, 3, 1).reshape(b, h, w, n, stacked // n), (missing // 2, missing - missing // 2))
    return padded.reshape(b, h, w, n * channels).permute(0, 3, 1, 2)


class Stackable(nn.Module):
    """A network that can hold n copies of itself. `features` gives [B, n*d], `forward` [B, n*classes]."""

    n: int
    head: Linear

    def features(self, x: Tensor) -> Tensor:
        """The last hidden layer."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.head(self.features(x)))


def stack_states(states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Concatenate the states of single networks along axis 0."""
    return {name: torch.cat([state[name] for state in states]) for name in states[0]}


def unstack_state(state: dict[str, Tensor], n: int) -> list[dict[str, Tensor]]:
    """Split the state of a stack into copies for single networks."""
    pieces = {name: tensor.chunk(n) for name, tensor in state.items()}
    return [{name: piece[i].clone() for name, piece in pieces.items()} for i in range(n)]


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
