"""Batch norm + activation of one network, 2 x 2 max pooling in front if wanted: the host side of one_device.py.

    forward    pooling and sums (reads x)  ->  table  ->  norm, activation (reads the pooled, writes y)
    backward   sums (reads g and the pooled)  ->  slopes  ->  gradient (reads g, the pooled and x, writes dx)

The activation's argument and the pooling's choice are made again on the way back, not kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from labelsieve.models.kernels import single_network_norm_device as one_device
from labelsieve.models.kernels.blocks import power_of_two

LAST = torch.channels_last
NONE, RELU, GELU = 0, 1, 2
ROWS, COLUMNS = 64, 64  # a tile: pixels, channels
PROGRAMS = 512  # of the kernels that sum, at most: nearly four a multiprocessor of an H200
SUM_TILE = {"BR": PROGRAMS, "BC": 16, "num_warps": 8}  # all partial sums in one round of loads


class Tiles:
    """The grids for some channels of a tensor that has `whole` of them: all pieces are summed in as many parts."""

    def __init__(self, x: Tensor, whole: int | None = None) -> None:
        images, self.channels, height, width = x.shape
        self.area = height * width
        self.pixels = images * self.area
        columns = min(COLUMNS, power_of_two(self.channels))
        across = triton.cdiv(self.channels, columns)
        blocks = triton.cdiv(self.pixels, ROWS)
        self.each = triton.cdiv(blocks, max(1, PROGRAMS // triton.cdiv(whole or self.channels, COLUMNS)))
        self.parts = triton.cdiv(blocks, self.each)
        self.grid, self.sum_grid = (across * blocks,), (across, self.parts)
        self.small_grid = (triton.cdiv(self.channels, SUM_TILE["BC"]),)
        self.tile = {"BP": ROWS, "BC": columns, "num_warps": 8 if columns > 32 else 4}


def room(like: Tensor, channels: int) -> Tensor:
    """An empty tensor of so many channels."""
    shape = (len(like), channels, *like.shape[2:])
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=LAST)


def row(x: Tensor) -> int:
    """Channels of the tensor x is a piece of."""
    return x.stride(3) if x.shape[3] > 1 else x.stride(2) if x.shape[2] > 1 else x.stride(0)


def pooled_and_table(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    *,
    pool: bool = False,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    valid: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """x, or the largest of each 2 x 2 of it, and the table that normalises it; running statistics move."""
    pooled = x
    if pool:
        shape = (*x.shape[:2], x.shape[2] // 2, x.shape[3] // 2)
        pooled = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=LAST)
    tiles = Tiles(pooled)
    limit = x if valid is None else valid
    sums = torch.empty((2, tiles.parts, tiles.channels), dtype=torch.float32, device=x.device)
    if training or pool:
        one_device.moments[tiles.sum_grid](
            x, pooled, sums, limit, tiles.pixels, tiles.area, pooled.shape[3], tiles.channels, tiles.each,
            VALID=valid is not None, POOL=pool, SUMS=training, **tiles.tile,
        )  # fmt: skip
    table = torch.empty((4, tiles.channels), dtype=torch.float32, device=x.device)
    one_device.forward_table[tiles.small_grid](
        sums, gamma, beta, running_mean, running_var, table, limit, tiles.parts, tiles.pixels, tiles.area,
        tiles.channels, momentum, eps, VALID=valid is not None, TRAINING=training, **SUM_TILE,
    )  # fmt: skip
    return pooled, table


def normalise(x: Tensor, table: Tensor, out: Tensor, start: int = 0, *, act: int = RELU) -> Tensor:
    """Channels `start` and on of x, normalised and activated, into a piece that has as many."""
    tiles = Tiles(out)
    own = slice(start, start + out.shape[1])
    one_device.normalise[tiles.grid](
        x[:, own], out, table[:, own], tiles.pixels, x.shape[1], row(out), tiles.channels, ACT=act, **tiles.tile
    )
    return out


def gradient(
    x: Tensor,
    table: Tensor,
    pieces: Sequence[Tensor],
    *,
    act: int = RELU,
    before: Tensor | None = None,
    training: bool = True,
    valid: Tensor | None = None,
    wanted: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Of x (of `before`, which was pooled to x) if wanted, gamma and beta; the pieces are y's gradients, in order."""
    whole = Tiles(x)
    limit, masked = x if valid is None else valid, valid is not None
    part = torch.empty((2, whole.parts, whole.channels), dtype=torch.float32, device=x.device)
    slopes, (dgamma, dbeta) = part.new_empty((2, whole.channels)), part.new_empty((2, whole.channels)).unbind()
    cuts, start = [], 0
    for piece in pieces:
        cuts.append((piece, slice(start, start + piece.shape[1]), Tiles(piece, whole.channels)))
        start += piece.shape[1]
    for g, own, tiles in cuts:
        one_device.gradient_moments[tiles.sum_grid](
            g, x[:, own], part[:, :, own], table[:, own], limit, tiles.pixels, tiles.area, row(g), whole.channels,
            tiles.channels, tiles.each, ACT=act, VALID=masked, **tiles.tile,
        )  # fmt: skip
    one_device.backward_table[whole.small_grid](
        part, table, slopes, dgamma, dbeta, limit, whole.parts, whole.pixels, whole.area, whole.channels,
        VALID=masked, TRAINING=training, **SUM_TILE,
    )  # fmt: skip
    dx = torch.empty_like(x if before is None else before, memory_format=LAST)
    for g, own, tiles in cuts if wanted else ():
        one_device.input_gradient[tiles.grid](
            g, x[:, own], x if before is None else before[:, own], dx[:, own], table[:, own], slopes[:, own], limit,
            tiles.pixels, tiles.area, x.shape[3], row(g), whole.channels, tiles.channels,
            ACT=act, VALID=masked, POOL=before is not None, **tiles.tile,
        )  # fmt: skip
    return dx, dgamma, dbeta


class _NormAct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, var: Tensor, act: int, settings: dict[str, Any]
    ) -> Tensor:
        x = x.contiguous(memory_format=LAST)
        pooled, table = pooled_and_table(x, gamma, beta, mean, var, **settings)
        ctx.save_for_backward(pooled, table, x if settings["pool"] else None, settings["valid"])
        ctx.act, ctx.training = act, settings["training"]
        return normalise(pooled, table, room(pooled, pooled.shape[1]), act=act)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        pooled, table, before, valid = ctx.saved_tensors
        g = grads[0].contiguous(memory_format=LAST)
        wanted = ctx.needs_input_grad[0]
        dx, dgamma, dbeta = gradient(
            pooled, table, [g], act=ctx.act, before=before, training=ctx.training, valid=valid, wanted=wanted
        )
        return dx if wanted else None, dgamma, dbeta, None, None, None, None


def supported(x: Tensor, *, pool: bool = False) -> bool:
    """Pooling takes pictures of even sides."""
    return not pool or (x.shape[2] % 2 == 0 and x.shape[3] % 2 == 0)


def norm_act(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    *,
    act: int = RELU,
    pool: bool = False,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    valid: Tensor | None = None,
) -> Tensor:
    """act(batch_norm(max_pool(x))) of one network; statistics over the first valid[0] samples."""
    settings = {"pool": pool, "training": training, "momentum": momentum, "eps": eps, "valid": valid}
    return _NormAct.apply(  # type: ignore[no-untyped-call,no-any-return]
        x, gamma, beta, running_mean, running_var, act, settings
    )
