"""Batch norm, with pooling before and a residual and an activation after it: the host side of norm_device.py.

    forward    pooling and sums (reads x)  ->  table  ->  norm, residual, activation (reads the pooled, writes y)
    backward   sums (reads g and the pooled)  ->  slopes  ->  gradient (reads g, the pooled and x, writes dx)

The backward pass computes the argument of the activation and the choice of the pooling again instead of storing them.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from labelsieve.models.kernels import norm_device
from labelsieve.models.kernels.blocks import power_of_two
from labelsieve.models.kernels.reference import Activation, Norm

LAST = torch.channels_last
ROWS, COLUMNS = 64, 64  # a tile: pixels, channels
PROGRAMS = 512  # of the kernels that sum, at most: nearly four per multiprocessor of an H200
SUM_TILE = {"BR": PROGRAMS, "BC": 16, "num_warps": 8}  # all partial sums in one round of loads
RELU_OF_SUM = 3  # as in norm_device.py


class _Tiles:
    """Sizes and launch grids for a tensor."""

    def __init__(self, x: Tensor, norm: Norm) -> None:
        images, self.channels, height, self.width = x.shape
        self.area = height * self.width
        self.pixels = images * self.area
        columns = min(COLUMNS, power_of_two(self.channels))
        across = triton.cdiv(self.channels, columns)
        blocks = triton.cdiv(self.pixels, ROWS)
        self.blocks_each = triton.cdiv(blocks, max(1, PROGRAMS // triton.cdiv(self.channels, COLUMNS)))
        self.parts = triton.cdiv(blocks, self.blocks_each)
        self.grid, self.sum_grid = (across * blocks,), (across, self.parts)
        self.small_grid = (triton.cdiv(self.channels, SUM_TILE["BC"]),)
        self.tile = {"BP": ROWS, "BC": columns, "num_warps": 8 if columns > 32 else 4}
        self.each = self.channels // norm.n  # channels per network
        self.limit = x if norm.valid is None else norm.valid
        self.valid = 0 if norm.valid is None else 1 if norm.n == 1 else 2


class _BatchNormAct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, gamma: Tensor, beta: Tensor, residual: Tensor | None, sums: Tensor | None, norm: Norm
    ) -> Tensor:
        x = pooled = x.contiguous(memory_format=LAST)
        if norm.pool:
            shape = (*x.shape[:2], x.shape[2] // 2, x.shape[3] // 2)
            pooled = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=LAST)
        t = _Tiles(pooled, norm)
        if sums is None:
            sums = torch.empty((2, t.parts, t.channels), dtype=torch.float32, device=x.device)
            if norm.training or norm.pool:
                norm_device.moments[t.sum_grid](
                    x, pooled, sums, t.limit, t.pixels, t.area, t.width, t.channels, t.blocks_each, t.each,
                    VALID=t.valid, POOL=norm.pool, SUMS=norm.training, **t.tile,
                )  # fmt: skip
        table = torch.empty((4, t.channels), dtype=torch.float32, device=x.device)
        norm_device.forward_table[t.small_grid](
            sums, gamma, beta, norm.running_mean, norm.running_var, table, t.limit, sums.shape[1], t.pixels, t.area,
            t.channels, t.each, norm.momentum, norm.eps, VALID=t.valid, TRAINING=norm.training, **SUM_TILE,
        )  # fmt: skip
        y = torch.empty_like(pooled, memory_format=LAST)
        added = residual is not None
        norm_device.normalise[t.grid](
            pooled, residual.contiguous(memory_format=LAST) if residual is not None else pooled, y, table, t.pixels,
            t.channels, RESIDUAL=added, ACT=int(norm.act), **t.tile,
        )  # fmt: skip
        # Without a residual the sign before the relu follows from x alone: backward reads one tensor less.
        ctx.act = RELU_OF_SUM if added and norm.act == Activation.RELU else int(norm.act)
        ctx.norm, ctx.added = norm, added
        ctx.save_for_backward(pooled, table, x if norm.pool else None, y if ctx.act == RELU_OF_SUM else None)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        x, table, before, y = ctx.saved_tensors
        norm: Norm = ctx.norm
        g = grads[0].contiguous(memory_format=LAST)
        y = x if y is None else y
        t = _Tiles(x, norm)
        part = torch.empty((2, t.parts, t.channels), dtype=torch.float32, device=x.device)
        slopes, (dgamma, dbeta) = part.new_empty((2, t.channels)), part.new_empty((2, t.channels)).unbind()
        norm_device.gradient_moments[t.sum_grid](
            g, x, y, part, table, t.limit, t.pixels, t.area, t.channels, t.blocks_each, t.each,
            ACT=ctx.act, VALID=t.valid, **t.tile,
        )  # fmt: skip
        norm_device.backward_table[t.small_grid](
            part, table, slopes, dgamma, dbeta, t.limit, t.parts, t.pixels, t.area, t.channels, t.each,
            VALID=t.valid, TRAINING=norm.training, **SUM_TILE,
        )  # fmt: skip
        if not (ctx.needs_input_grad[0] or ctx.added):
            return None, dgamma, dbeta, None, None, None
        dx = torch.empty_like(x if before is None else before, memory_format=LAST)
        dresidual = torch.empty_like(x, memory_format=LAST) if ctx.added else None
        norm_device.input_gradient[t.grid](
            g, x, y, x if before is None else before, dx, dx if dresidual is None else dresidual, table, slopes,
            t.limit, t.pixels, t.area, t.width, t.channels, t.each,
            ACT=ctx.act, VALID=t.valid, POOL=before is not None, RESIDUAL=ctx.added, **t.tile,
        )  # fmt: skip
        return dx, dgamma, dbeta, dresidual, None, None


def supported(x: Tensor, norm: Norm, residual: Tensor | None = None) -> bool:
    """Pooling needs even sides, and a residual can only be followed by a relu or nothing."""
    even = x.shape[2] % 2 == x.shape[3] % 2 == 0
    return norm.across is None and (even or not norm.pool) and (residual is None or norm.act != Activation.GELU)


def batch_norm_act(x: Tensor, norm: Norm, *, residual: Tensor | None = None, sums: Tensor | None = None) -> Tensor:
    """act(batch_norm(max_pool(x)) + residual), as reference.py; `sums`: partial sums of x made by its convolution."""
    return _BatchNormAct.apply(  # type: ignore[no-untyped-call,no-any-return]
        x, norm.gamma, norm.beta, residual, sums, norm
    )
