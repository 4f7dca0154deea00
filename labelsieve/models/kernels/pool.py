"""3 x 3 max pooling with stride 2: the host side of pool_device.py."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from labelsieve.models.kernels import pool_device
from labelsieve.models.kernels.blocks import power_of_two

LAST = torch.channels_last


def grid_and_tile(x: Tensor) -> tuple[tuple[int], dict[str, int]]:
    columns = min(64, power_of_two(x.shape[1]))
    pixels = len(x) * x.shape[2] * x.shape[3]
    grid = (triton.cdiv(x.shape[1], columns) * triton.cdiv(pixels, 32),)
    return grid, {"BP": 32, "BC": columns, "num_warps": 4}


class _Largest(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.contiguous(memory_format=LAST)
        images, channels, height, width = x.shape
        shape = (images, channels, (height - 1) // 2, (width - 1) // 2)
        y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=LAST)
        choice = torch.empty(shape, dtype=torch.uint8, device=x.device, memory_format=LAST)
        grid, tile = grid_and_tile(y)
        pixels = images * shape[2] * shape[3]
        pool_device.largest[grid](x, y, choice, pixels, height, width, shape[2], shape[3], channels, **tile)
        ctx.save_for_backward(choice)
        ctx.shape = x.shape
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Tensor:
        (choice,) = ctx.saved_tensors
        g = grads[0].contiguous(memory_format=LAST)
        dx = torch.empty(ctx.shape, dtype=g.dtype, device=g.device, memory_format=LAST)
        images, channels, height, width = ctx.shape
        grid, tile = grid_and_tile(dx)
        pool_device.gradient[grid](
            g, choice, dx, images * height * width, height, width, choice.shape[2], choice.shape[3], channels, **tile
        )
        return dx


def max_pool3(x: Tensor) -> Tensor:
    """F.max_pool2d(x, 3, 2)."""
    return _Largest.apply(x)  # type: ignore[no-untyped-call,no-any-return]
