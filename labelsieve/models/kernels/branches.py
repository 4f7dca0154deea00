"""A chain of Inception's residual blocks as one function with its own gradient: few passes over wide tensors.

    forward    first 1 x 1 of all branches, one convolution  ->  sums, coefficients
               each branch's channels of it normalised on their own, the last layers' into their place beside the others
               projection (its weights times the block's scale)  ->  + x + bias, relu
    backward   gradient from above + gradient of the branches, relu, the bias' sums: one kernel between two blocks
               each branch's norm reads its channels of the gradient and writes its channels of the first layer's

Of the tensors as wide as the block's input a step touches 13 a block: the convolutions' 6, and 7 here (3 forward, 4
backward). Written with torch's layers it is 32: each branch reads the input and adds to its gradient, and sum, scale,
relu and bias are passes of their own. Nothing is concatenated or split. Convolutions are the library's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labelsieve.models import kernels
from labelsieve.models.kernels import branches_device
from labelsieve.models.kernels.one import Tiles, gradient, normalise, pooled_and_table, room

LAST = torch.channels_last


@dataclass
class Layer:
    """A convolution and the norm behind it, as the way back needs them."""

    x: Tensor
    weight: Tensor
    padding: tuple[int, int]
    y: Tensor
    table: Tensor
    valid: Tensor | None


@dataclass
class Block:
    first: Layer
    widths: list[int]  # of each branch's part of the first layer
    rest: list[list[Layer]]
    joined: Tensor
    weight: Tensor  # the projection's, times the scale
    out: Tensor


def convolve(unit: Any, x: Tensor) -> Layer:
    """The convolution of a unit, and from its sums what normalises it; running statistics move."""
    conv, norm = unit.conv, unit.norm
    weight = conv.weight.to(x.dtype, memory_format=LAST)
    y = F.conv2d(x, weight, None, 1, conv.padding).contiguous(memory_format=LAST)
    valid = norm.valid if norm.training else None
    y, table = pooled_and_table(
        y, norm.weight, norm.bias, norm.running_mean, norm.running_var,
        training=norm.training, momentum=norm.momentum, eps=norm.eps, valid=valid,
    )  # fmt: skip
    return Layer(x, weight, conv.padding, y, table, valid)


def forward(block: Any, x: Tensor) -> Block:
    branches = block.branches
    first = convolve(branches.first, x)
    joined = room(x, block.project.weight.shape[1])
    rest: list[list[Layer]] = []
    start = place = 0
    for width, units in zip(branches.widths, branches.rest, strict=True):
        layers: list[Layer] = []
        last, at, size = first, start, width
        for unit in units:
            inside = normalise(last.y, last.table, room(x, size), at)
            last, at, size = convolve(unit, inside), 0, len(unit.conv.weight)
            layers.append(last)
        normalise(last.y, last.table, joined[:, place : place + size], at)
        rest.append(layers)
        start, place = start + width, place + size
    weight = (block.project.weight * block.scale).to(x.dtype, memory_format=LAST)
    added = F.conv2d(joined, weight).contiguous(memory_format=LAST)
    out = torch.empty_like(x, memory_format=LAST)
    tiles = Tiles(x)
    branches_device.add_relu[tiles.grid](
        x, added, block.project.bias, out, float(block.scale), tiles.pixels, tiles.channels,
        RELU=block.relu, **tiles.tile,
    )  # fmt: skip
    return Block(first, branches.widths, rest, joined, weight, out)


def conv_gradient(dy: Tensor, x: Tensor, weight: Tensor, padding: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Of its input and its weights."""
    dx, dweight, _ = torch.ops.aten.convolution_backward(
        dy, x, weight, None, [1, 1], list(padding), [1, 1], False, [0, 0], 1, [True, True, False]
    )
    # one pass instead of two: the optimizer wants them in single precision and in the order of the parameters
    return dx.contiguous(memory_format=LAST), dweight.to(torch.float32, memory_format=torch.contiguous_format)


def backward(
    block: Block, scale: float, relu: bool, g: Tensor, more: Tensor | None
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Of the output's two gradients: of the input's the two, and the parameters'."""
    tiles = Tiles(block.out)
    part = torch.empty((tiles.parts, tiles.channels), dtype=torch.float32, device=g.device)
    through = torch.empty_like(block.out, memory_format=LAST)
    branches_device.add_relu_gradient[tiles.sum_grid](
        g, g if more is None else more, block.out, through, part, tiles.pixels, tiles.channels, tiles.each,
        TWO=more is not None, RELU=relu, **tiles.tile,
    )  # fmt: skip
    djoined, dweight = conv_gradient(through, block.joined, block.weight, (0, 0))
    project = [dweight * scale, part.sum(0) * scale]
    pieces: list[Tensor] = []
    inner: list[Tensor] = []
    place = 0
    for width, layers in zip(block.widths, block.rest, strict=True):
        size = layers[-1].y.shape[1] if layers else width
        own = djoined[:, place : place + size]
        place += size
        found: list[Tensor] = []
        for layer in reversed(layers):
            dy, dgamma, dbeta = gradient(layer.y, layer.table, [own], valid=layer.valid)
            own, dweight = conv_gradient(dy, layer.x, layer.weight, layer.padding)
            found = [dweight, dgamma, dbeta, *found]
        pieces.append(own)
        inner += found
    dy, dgamma, dbeta = gradient(block.first.y, block.first.table, pieces, valid=block.first.valid)
    dx, dweight = conv_gradient(dy, block.first.x, block.first.weight, (0, 0))
    return through, dx, [dweight, dgamma, dbeta, *inner, *project]


class _Chain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, blocks: Sequence[Any], *_: Tensor) -> Tensor:
        ctx.tape = []
        for block in blocks:
            ctx.tape.append(forward(block, x))
            x = ctx.tape[-1].out
        ctx.settings = [(float(block.scale), bool(block.relu)) for block in blocks]
        ctx.save_for_backward(x)  # an output is not to be held by what makes it
        ctx.tape[-1].out = x.new_empty(0)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        (ctx.tape[-1].out,) = ctx.saved_tensors
        g, more = grads[0].contiguous(memory_format=LAST), None
        found: list[Tensor] = []
        for scale, relu in reversed(ctx.settings):
            g, more, own = backward(ctx.tape.pop(), scale, relu, g, more)  # what a block kept goes with it
            found = own + found
        return g if more is None else g + more, None, *found


def units_of(block: Any) -> list[Any]:
    return [block.branches.first, *(unit for rest in block.branches.rest for unit in rest)]


def parameters_of(block: Any) -> list[Tensor]:
    """In the order of the gradients."""
    own = [t for unit in units_of(block) for t in (unit.conv.weight, unit.norm.weight, unit.norm.bias)]
    return [*own, block.project.weight, block.project.bias]


def supported(blocks: nn.Sequential, x: Tensor) -> bool:
    """Statistics of this process alone; with gradients in training mode only. `LABELSIEVE_FUSED=0` switches it off."""
    norms = [unit.norm for block in blocks for unit in units_of(block)]
    shared = any(norm.across is not None for norm in norms)
    return kernels.fused() and not (shared and blocks.training) and (blocks.training or not torch.is_grad_enabled())


def residual_blocks(blocks: nn.Sequential, x: Tensor) -> Tensor:
    """blocks(x), of inception_resnet_v2.Residual."""
    x = x.contiguous(memory_format=LAST)
    if torch.is_grad_enabled():
        parameters = [p for block in blocks for p in parameters_of(block)]
        result: Tensor = _Chain.apply(x, list(blocks), *parameters)  # type: ignore[no-untyped-call]
        return result
    for block in blocks:
        x = forward(block, x).out
    return x
