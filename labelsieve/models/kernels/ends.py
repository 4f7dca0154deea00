"""The two ends of a residual block, each in one kernel or in two, whichever is faster.

    last      y = relu(x + joined w^T + scale * bias)       the projection and what follows it
    between   g = (through + dy w) where y > 0, its sums    the first layer's gradient and the end of the block before

In two kernels the wide product is written and read once more, but a library makes it. Without a trial (pointwise.py),
and unless switched on (switches.py), there are two.
"""

from __future__ import annotations

from functools import partial

import torch
import triton
from torch import Tensor

from labelsieve.models.kernels import branches_device, pointwise, product_device
from labelsieve.models.kernels.one import LAST, Tiles
from labelsieve.models.kernels.pointwise import convolve, input_gradient
from labelsieve.models.kernels.switches import switch

TILES = (
    {"BP": 128, "BC": 64, "BK": 64, "num_warps": 4, "num_stages": 4},
    {"BP": 128, "BC": 128, "BK": 64, "num_warps": 8, "num_stages": 3},
)


def switched_on() -> bool:
    return switch("ENDS") > 0


def grid_of(like: Tensor, tile: dict[str, int]) -> tuple[int, tuple[int]]:
    """Rows of tiles, and all of them."""
    down = triton.cdiv(like.numel() // like.shape[1], tile["BP"])
    return down, (down * triton.cdiv(like.shape[1], tile["BC"]),)


# -- forward


def last_in_two(x: Tensor, joined: Tensor, weight: Tensor, bias: Tensor, scale: float, relu: bool) -> Tensor:
    added = convolve(joined, weight)
    y = torch.empty_like(x, memory_format=LAST)
    tiles = Tiles(x)
    branches_device.add_relu[tiles.grid](
        x, added, bias, y, scale, tiles.pixels, tiles.channels, RELU=relu, **tiles.tile
    )  # fmt: skip
    return y


def last_in_one(
    x: Tensor, joined: Tensor, weight: Tensor, bias: Tensor, scale: float, relu: bool, tile: dict[str, int]
) -> Tensor:
    y = torch.empty_like(x, memory_format=LAST)
    channels, inner = weight.shape[:2]
    product_device.project_add_relu[grid_of(x, tile)[1]](
        joined, weight, x, bias, y, scale, x.numel() // channels, inner, channels, 1, inner, RELU=relu, **tile
    )
    return y


def last(x: Tensor, joined: Tensor, weight: Tensor, bias: Tensor, scale: float, relu: bool) -> Tensor:
    """relu(x + joined w^T + scale * bias), the relu if asked for; the weight has the scale in it."""
    given = x, joined, weight, bias, scale, relu
    ways = [partial(last_in_two, *given)]
    if switched_on():
        ways += [partial(last_in_one, *given, tile) for tile in TILES]
    return pointwise.fastest(("last", relu, x.shape, weight.shape, x.dtype, x.device), ways, on=x.device)


# -- backward


def through_relu(g: Tensor, more: Tensor | None, y: Tensor, relu: bool) -> tuple[Tensor, Tensor]:
    """(g + more) where y > 0, and its partial sums [parts, channels]."""
    tiles = Tiles(y)
    part = torch.empty((tiles.parts, tiles.channels), dtype=torch.float32, device=g.device)
    through = torch.empty_like(y, memory_format=LAST)
    branches_device.add_relu_gradient[tiles.sum_grid](
        g, g if more is None else more, y, through, part, tiles.pixels, tiles.channels, tiles.each,
        TWO=more is not None, RELU=relu, **tiles.tile,
    )  # fmt: skip
    return through, part


def between_in_two(g: Tensor, dy: Tensor, weight: Tensor, y: Tensor, relu: bool) -> tuple[Tensor, Tensor]:
    return through_relu(g, input_gradient(dy, y, weight), y, relu)


def between_in_one(
    g: Tensor, dy: Tensor, weight: Tensor, y: Tensor, relu: bool, tile: dict[str, int]
) -> tuple[Tensor, Tensor]:
    inner, channels = weight.shape[:2]
    down, grid = grid_of(y, tile)
    part = torch.empty((down, channels), dtype=torch.float32, device=y.device)
    through = torch.empty_like(y, memory_format=LAST)
    product_device.gradient_add_relu[grid](
        dy, weight, g, y, through, part, y.numel() // channels, inner, channels, channels, 1, RELU=relu, **tile
    )
    return through, part


def between(g: Tensor, dy: Tensor, weight: Tensor, y: Tensor, relu: bool) -> tuple[Tensor, Tensor]:
    """(g + dy w) where y > 0 (everywhere without relu), and its partial sums [parts, channels]."""
    given = g, dy, weight, y, relu
    ways = [partial(between_in_two, *given)]
    if switched_on():
        ways += [partial(between_in_one, *given, tile) for tile in TILES]
    return pointwise.fastest(("between", relu, y.shape, weight.shape, y.dtype, y.device), ways, on=y.device)
