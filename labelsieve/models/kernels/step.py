"""The first and last parts of a training step, augmented batches and optimizers: the host side of step_device.py."""

from __future__ import annotations

import math

import torch
import triton
from torch import Tensor

from labelsieve.models.kernels import step_device
from labelsieve.models.kernels.reference import BETA_1, BETA_2, EPSILON


def gather_pictures(
    pixels: Tensor, index: Tensor, code: Tensor, scale: Tensor, offset: Tensor, height: int, width: int, pad: int,
    dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """The batch of engine.store.PictureStore: [B, n * channels, height, width], channels last in memory."""
    n, b = index.shape
    channels = pixels.shape[-1]
    out = torch.empty((b, height, width, n * channels), dtype=dtype, device=pixels.device)
    block = 1024
    step_device.gather_pictures[(triton.cdiv(out[0].numel(), block), b)](
        pixels, index.contiguous(), code.contiguous(), scale, offset, out, b, N=n, C=channels, H=height, W=width,
        PAD=pad, BLOCK=block, num_warps=4, enable_fp_fusion=False,
    )  # fmt: skip
    return out.permute(0, 3, 1, 2)


def adam(
    flat: Tensor, gradient: Tensor, first: Tensor, second: Tensor, decay: Tensor, owner: Tensor, rate: Tensor,
    count: Tensor,
) -> None:  # fmt: skip
    """The step of engine.bundle.Bundle for Adam, in place; `gradient` is without the weight decay, `count` with this
    step."""
    size = flat.numel()
    step_device.adam[(triton.cdiv(size, 1024),)](
        flat, gradient, first, second, decay, owner, rate, count, size, BETA_2, 1 - BETA_1, 1 - BETA_2,
        math.log2(BETA_1), math.log2(BETA_2), EPSILON, BLOCK=1024, num_warps=4,
    )  # fmt: skip


def sgd(
    flat: Tensor, gradient: Tensor, first: Tensor, decay: Tensor, owner: Tensor, rate: Tensor, *, momentum: float,
    nesterov: bool,
) -> None:  # fmt: skip
    """The step of engine.bundle.Bundle for SGD, in place; `gradient` is without the weight decay."""
    size = flat.numel()
    step_device.sgd[(triton.cdiv(size, 1024),)](
        flat, gradient, first, decay, owner, rate, size, momentum, NESTEROV=nesterov, BLOCK=1024, num_warps=4
    )
