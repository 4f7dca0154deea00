"""A chain of Inception's residual blocks as one function with its own gradient: few passes over wide tensors.

    forward    first 1 x 1 of all branches, one convolution  ->  sums, coefficients
               each branch's channels of it normalised on their own, the last layers' into their place beside the others
               projection (its weights times the block's scale)  ->  + x + bias, relu
    backward   gradient from above + gradient of the branches, relu, the bias' sums: one kernel between two blocks
               each branch's norm reads its channels of the gradient and writes its channels of the first layer's

Of the tensors as wide as the block's input a step touches 13 a block: the convolutions' 6, and 7 here (3 forward, 4
backward). Written with torch's layers it is 32: each branch reads the input and adds to its gradient, and sum, scale,
relu and bias are passes of their own. Nothing is concatenated or split. Convolutions are the libraries' (pointwise.py).
Weight gradients are made beside the way back (aside.py), what is small is done for all blocks at once (groups.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from labelsieve.models import kernels
from labelsieve.models.kernels import branches_device, groups
from labelsieve.models.kernels.pointwise import convolve, input_gradient, weight_gradient
from labelsieve.models.kernels.side_stream import Aside, Job
from labelsieve.models.kernels.single_network_norm import Tiles, gradient, normalise, pooled_and_table, room

LAST = torch.channels_last


@dataclass
class Layer:
    """A convolution and the norm behind it, as the way back needs them."""

    x: Tensor
    weight: Tensor
    padding: tuple[int, int]
    stride: int
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


def layer_of(unit: Any, x: Tensor, weight: Tensor) -> Layer:
    """The convolution of a unit, and from its sums what normalises it; running statistics move."""
    conv, norm = unit.conv, unit.norm
    valid = norm.valid if norm.training else None
    y, table = pooled_and_table(
        convolve(x, weight, conv.padding, conv.stride), norm.weight, norm.bias, norm.running_mean, norm.running_var,
        training=norm.training, momentum=norm.momentum, eps=norm.eps, valid=valid,
    )  # fmt: skip
    return Layer(x, weight, conv.padding, conv.stride, y, table, valid)


def forward(block: Any, weights: Iterator[Tensor], x: Tensor) -> Block:
    """The weights come in the order of `parameters_of`."""
    branches = block.branches
    first = layer_of(branches.first, x, next(weights))
    joined = room(x, block.project.weight.shape[1])
    rest: list[list[Layer]] = []
    start = place = 0
    for width, units in zip(branches.widths, branches.rest, strict=True):
        layers: list[Layer] = []
        last, at, size = first, start, width
        for unit in units:
            inside = normalise(last.y, last.table, room(x, size), at)
            last, at, size = layer_of(unit, inside, next(weights)), 0, len(unit.conv.weight)
            layers.append(last)
        normalise(last.y, last.table, joined[:, place : place + size], at)
        rest.append(layers)
        start, place = start + width, place + size
    weight = next(weights)
    added = convolve(joined, weight)
    out = torch.empty_like(x, memory_format=LAST)
    tiles = Tiles(x)
    branches_device.add_relu[tiles.grid](
        x, added, block.project.bias, out, float(block.scale), tiles.pixels, tiles.channels,
        RELU=bool(block.relu), **tiles.tile,
    )  # fmt: skip
    return Block(first, branches.widths, rest, joined, weight, out)


def norm_gradient(layer: Layer, pieces: Sequence[Tensor]) -> tuple[Tensor, tuple[Job, Tensor, Tensor]]:
    """Of the convolution's output; and the job that makes the weight's, gamma's and beta's."""
    dy, dgamma, dbeta = gradient(layer.y, layer.table, pieces, valid=layer.valid)
    return dy, (partial(weight_gradient, dy, layer.x, layer.weight, layer.padding, layer.stride), dgamma, dbeta)


def through_relu(g: Tensor, more: Tensor | None, y: Tensor, relu: bool, part: Tensor) -> Tensor:
    """(g + more) where y > 0, everywhere without relu; `part` gets its partial sums [parts, channels]."""
    tiles = Tiles(y)
    through = torch.empty_like(y, memory_format=LAST)
    branches_device.add_relu_gradient[tiles.sum_grid](
        g, g if more is None else more, y, through, part, tiles.pixels, tiles.channels, tiles.each,
        TWO=more is not None, RELU=relu, **tiles.tile,
    )  # fmt: skip
    return through


def backward(block: Block, through: Tensor, aside: Aside) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Of the gradient behind the block's relu: what its branches add to the input's, the weights' (there after a join;
    the projection's yet to be scaled), gamma's and beta's."""
    djoined = input_gradient(through, block.joined, block.weight)
    pieces: list[Tensor] = []
    inner: list[tuple[Job, Tensor, Tensor]] = []
    place = 0
    for width, layers in zip(block.widths, block.rest, strict=True):
        size = layers[-1].y.shape[1] if layers else width
        own = djoined[:, place : place + size]
        place += size
        found: list[tuple[Job, Tensor, Tensor]] = []
        for layer in reversed(layers):
            dy, made = norm_gradient(layer, [own])
            own = input_gradient(dy, layer.x, layer.weight, layer.padding)
            found.insert(0, made)
        pieces.append(own)
        inner += found
    dy, made = norm_gradient(block.first, pieces)
    jobs, dgammas, dbetas = zip(made, *inner, strict=True)
    dweights = aside.run([*jobs, partial(weight_gradient, through, block.joined, block.weight)])
    more = input_gradient(dy, block.first.x, block.first.weight)
    return more, dweights, [t for pair in zip(dgammas, dbetas, strict=True) for t in pair]


def in_order(
    dweights: Sequence[Sequence[Tensor]], norms: Sequence[Sequence[Tensor]], parts: Tensor, scales: Sequence[float]
) -> list[Tensor]:
    """All blocks' gradients as the optimizer wants them, in the order of `parameters_of`."""
    flat = iter(groups.as_parameters([dweight for own in dweights for dweight in own]))
    blocks = [[next(flat) for _ in own] for own in dweights]
    projects = groups.scaled([*(own[-1] for own in blocks), *parts.sum(1).unbind()], [*scales, *scales])
    found: list[Tensor] = []
    for i, (own, around) in enumerate(zip(blocks, norms, strict=True)):
        for at, dweight in enumerate(own[:-1]):
            found += [dweight, *around[2 * at : 2 * at + 2]]
        found += [projects[i], projects[len(blocks) + i]]
    return found


class _Chain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, blocks: Sequence[Any], *_: Tensor) -> Tensor:
        ctx.tape = []
        weights = weights_of(blocks, x.dtype)
        for block in blocks:
            ctx.tape.append(forward(block, weights, x))
            x = ctx.tape[-1].out
        ctx.settings = [(float(block.scale), bool(block.relu)) for block in blocks]
        ctx.save_for_backward(x)  # an output is not to be held by what makes it
        ctx.tape[-1].out = x.new_empty(0)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        (ctx.tape[-1].out,) = ctx.saved_tensors
        g, more = grads[0].contiguous(memory_format=LAST), None
        tiles, aside = Tiles(g), Aside(g.device)
        scales, relus = zip(*ctx.settings, strict=True)
        parts = torch.empty((len(scales), tiles.parts, tiles.channels), dtype=torch.float32, device=g.device)
        dweights: list[list[Tensor]] = []
        norms: list[list[Tensor]] = []
        for part, relu in zip(reversed(parts.unbind()), reversed(relus), strict=True):
            block = ctx.tape.pop()  # what it kept goes with it, once its weights' gradients are made
            g = through_relu(g, more, block.out, relu, part)
            more, own, norm = backward(block, g, aside)
            dweights.insert(0, own)
            norms.insert(0, norm)
        aside.join()
        return g if more is None else g + more, None, *in_order(dweights, norms, parts, scales)


def units_of(block: Any) -> list[Any]:
    return [block.branches.first, *(unit for rest in block.branches.rest for unit in rest)]


def parameters_of(block: Any) -> list[Tensor]:
    """In the order of the gradients."""
    own = [t for unit in units_of(block) for t in (unit.conv.weight, unit.norm.weight, unit.norm.bias)]
    return [*own, block.project.weight, block.project.bias]


def weights_of(blocks: Sequence[Any], dtype: torch.dtype) -> Iterator[Tensor]:
    """Every block's, in the order of `parameters_of`, as convolutions want them; the projections' times the scale."""
    scales = [float(block.scale) for block in blocks]
    projects = groups.scaled([block.project.weight for block in blocks], scales)
    every = [
        weight
        for block, project in zip(blocks, projects, strict=True)
        for weight in (*(unit.conv.weight for unit in units_of(block)), project)
    ]
    return iter(groups.ordered(every, dtype))


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
    weights = weights_of(list(blocks), x.dtype)
    for block in blocks:
        x = forward(block, weights, x).out
    return x
