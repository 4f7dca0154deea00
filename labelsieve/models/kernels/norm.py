"""Batch normalisation + residual + relu of n stacked networks: the host side of norm_device.py, with its gradients."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from labelsieve.models.kernels import norm_device
from labelsieve.models.kernels.blocks import norm_block

LAST = torch.channels_last
SUM_ROWS, SUM_COLUMNS = 64, 16  # the tile of the small kernels that add up partial sums


class _Shape:
    """Sizes and block of one call: tiles are [rows, columns] of [pixels, channels]."""

    def __init__(self, x: Tensor, n: int) -> None:
        self.images, self.channels = x.shape[0], x.shape[1]
        self.area = x.shape[2] * x.shape[3]
        self.pixels = self.images * self.area
        block = norm_block(self.channels)
        self.columns, self.warps = block.columns, block.warps
        self.rows = max(1, block.elements // block.columns)
        self.column_blocks = triton.cdiv(self.channels, self.columns)
        blocks = triton.cdiv(self.pixels, self.rows)
        self.each = triton.cdiv(blocks, max(1, block.programs // self.column_blocks))
        self.parts = triton.cdiv(blocks, self.each)
        self.sum_grid = (self.column_blocks, self.parts)
        self.grid = (self.column_blocks * blocks,)
        self.small_grid = (triton.cdiv(self.channels, SUM_COLUMNS),)
        self.tile = {"BP": self.rows, "BC": self.columns, "num_warps": self.warps}
        self.network = {"HW": self.area, "C": self.channels // n}
        self.small = {"BR": SUM_ROWS, "BC": SUM_COLUMNS, "num_warps": 4}


class _BatchNormAct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gamma: Tensor,
        beta: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        residual: Tensor | None,
        valid: Tensor | None,
        sums: Tensor | None,
        n: int,
        relu: bool,
        training: bool,
        momentum: float,
        eps: float,
    ) -> Tensor:
        x = x.contiguous(memory_format=LAST)
        shape = _Shape(x, n)
        masked = valid is not None
        limit = x if valid is None else valid
        if training and sums is None:
            sums = torch.empty((2, shape.parts, shape.channels), dtype=torch.float32, device=x.device)
            norm_device.moments[shape.sum_grid](
                x, sums, limit, shape.pixels, shape.channels, shape.each, VALID=masked, **shape.network, **shape.tile
            )
        coefficients = torch.empty((4, shape.channels), dtype=torch.float32, device=x.device)
        norm_device.forward_coefficients[shape.small_grid](
            x if sums is None else sums,
            gamma,
            beta,
            running_mean,
            running_var,
            coefficients,
            limit,
            0 if sums is None else sums.shape[1],
            shape.images,
            shape.channels,
            momentum,
            eps,
            VALID=masked,
            TRAINING=training,
            **shape.network,
            **shape.small,
        )
        residual = None if residual is None else residual.contiguous(memory_format=LAST)
        y = torch.empty_like(x, memory_format=LAST)
        norm_device.normalise[shape.grid](
            x,
            x if residual is None else residual,
            y,
            coefficients,
            shape.pixels,
            shape.channels,
            RESIDUAL=residual is not None,
            RELU=relu,
            **shape.tile,
        )
        # Without a residual the relu's sign follows from x alone: one tensor less to read on the way back.
        ctx.relu = 0 if not relu else 1 if residual is None else 2
        ctx.save_for_backward(x, coefficients, y if ctx.relu == 2 else None, valid)
        ctx.n, ctx.training, ctx.residual = n, training, residual is not None
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        x, coefficients, y, valid = ctx.saved_tensors
        g = grads[0].contiguous(memory_format=LAST)
        shape = _Shape(x, ctx.n)
        masked = valid is not None
        limit = x if valid is None else valid
        part = torch.empty((2, shape.parts, shape.channels), dtype=torch.float32, device=x.device)
        norm_device.gradient_moments[shape.sum_grid](
            g,
            x,
            x if y is None else y,
            part,
            coefficients,
            limit,
            shape.pixels,
            shape.channels,
            shape.each,
            RELU=ctx.relu,
            VALID=masked,
            **shape.network,
            **shape.tile,
        )
        slopes = torch.empty((2, shape.channels), dtype=torch.float32, device=x.device)
        dgamma, dbeta = torch.empty_like(slopes).unbind()
        norm_device.backward_coefficients[shape.small_grid](
            part,
            coefficients,
            slopes,
            dgamma,
            dbeta,
            limit,
            shape.parts,
            shape.images,
            shape.channels,
            VALID=masked,
            TRAINING=ctx.training,
            **shape.network,
            **shape.small,
        )
        dx = torch.empty_like(x, memory_format=LAST)
        dresidual = torch.empty_like(x, memory_format=LAST) if ctx.residual else None
        norm_device.input_gradient[shape.grid](
            g,
            x,
            x if y is None else y,
            dx,
            dx if dresidual is None else dresidual,
            coefficients,
            slopes,
            limit,
            shape.pixels,
            shape.channels,
            RESIDUAL=dresidual is not None,
            RELU=ctx.relu,
            VALID=masked,
            **shape.network,
            **shape.tile,
        )
        return dx, dgamma, dbeta, None, None, dresidual, None, None, None, None, None, None, None


def batch_norm_act(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    n: int,
    *,
    residual: Tensor | None = None,
    relu: bool = True,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    valid: Tensor | None = None,
    sums: Tensor | None = None,
) -> Tensor:
    """relu(batch_norm(x) + residual); see reference.py. `sums`: partial sums of x, where its convolution made them."""
    return _BatchNormAct.apply(  # type: ignore[no-untyped-call,no-any-return]
        x, gamma, beta, running_mean, running_var, residual, valid, sums, n, relu, training, momentum, eps
    )
