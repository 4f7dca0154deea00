"""3x3 convolution of n stacked networks: the host side of conv_device.py, with its gradients."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from labelsieve.models.kernels import conv_device
from labelsieve.models.kernels.blocks import PROGRAMS, conv_block, power_of_two, weight_block

LAST = torch.channels_last


def supported(x: Tensor, w: Tensor, n: int, stride: int = 1) -> bool:
    """Whether the kernels support this shape: the width is a power of two, and a network has at most 64 channels."""
    height, width = x.shape[2:]
    cout, cin = w.shape[0] // n, w.shape[1]
    two = width == power_of_two(width) and width <= 128 and height % stride == 0 and width % stride == 0
    return two and w.shape[2:] == (3, 3) and stride in (1, 2) and max(cin, cout) <= 64 and x.shape[1] == n * cin


def pack(w: Tensor, dtype: torch.dtype) -> Tensor:
    """Weights as the kernels read them: [n * out, 3, 3, in] in the activations' dtype."""
    return w.detach().permute(0, 2, 3, 1).to(dtype, memory_format=torch.contiguous_format).contiguous()


def convolve(
    x: Tensor, packed: Tensor, n: int, *, stride: int = 1, transposed: bool = False, stats: bool = False,
    valid: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """y and, with `stats`, its partial sums [2, parts, channels]. `transposed`: the gradient of the input instead."""
    out, cin_w = packed.shape[0] // n, packed.shape[3]
    cin, cout = (out, cin_w) if transposed else (cin_w, out)
    s_in, s_out = (stride, 1) if transposed else (1, stride)
    batch, height, width = len(x), x.shape[2] * s_in, x.shape[3] * s_in
    y = torch.empty(
        (batch, n * cout, height // s_out, width // s_out), dtype=x.dtype, device=x.device, memory_format=LAST
    )
    block = conv_block(cin, cout, height, width)
    outs = max(16, power_of_two(cout))
    image_blocks = triton.cdiv(batch, block.pixels // width)
    programs, rows = n * (outs // block.columns), block.rows
    while rows > 4 and programs * image_blocks * triton.cdiv(height, rows) < PROGRAMS:
        rows = triton.cdiv(rows, 2)  # few networks: fewer rows, so that no multiprocessor is idle
    segments = triton.cdiv(height, rows)
    parts = image_blocks * segments
    part = torch.empty((2, parts, n * cout), dtype=torch.float32, device=x.device) if stats else None
    conv_device.conv_rows[(programs, image_blocks, segments)](
        x,
        packed,
        y,
        y if part is None else part,
        y if valid is None else valid,
        batch,
        n,
        parts,
        n * cin,
        n * cout,
        H=height,
        W=width,
        CIN=cin,
        COUT=cout,
        CP=max(4, power_of_two(cin)),
        NP=outs,
        BN=block.columns,
        M=block.pixels,
        ROWS=rows,
        PIECES=3 if cin >= 64 else 1,
        WK=9 * cin_w if transposed else 1,
        WN=1 if transposed else 9 * cin_w,
        WT=cin_w,
        FLIP=transposed,
        S_IN=s_in,
        S_OUT=s_out,
        STATS=stats,
        VALID=valid is not None,
        num_warps=block.warps,
        num_stages=block.stages,
    )
    return y, part


def weight_gradient(x: Tensor, g: Tensor, n: int, *, stride: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    """[n * out, in, 3, 3]: partial sums over pieces of the batch, then their sum in a fixed order."""
    batch, height, width = len(x), x.shape[2], x.shape[3]
    cin, cout = x.shape[1] // n, g.shape[1] // n
    cp, outs = max(4, power_of_two(cin)), max(16, power_of_two(cout))
    block = weight_block(cin, cout, height)
    tiles = triton.cdiv(3 * cp, block.left) * triton.cdiv(3 * outs, block.right)
    steps = triton.cdiv(batch * height * width, block.pixels)
    each = triton.cdiv(steps, max(1, min(steps, block.programs // (n * tiles))))
    splits = triton.cdiv(steps, each)
    size = 9 * n * cin * cout
    part = torch.empty((splits, size), dtype=torch.float32, device=x.device)
    conv_device.conv_weight_grad[(n * tiles, splits)](
        x, g, part, batch, n, n * cin, n * cout, each, H=height, W=width, CIN=cin, COUT=cout, CP=cp, NP=outs,
        BA=block.left, BB=block.right, M=block.pixels, S=stride, num_warps=block.warps, num_stages=block.stages,
    )  # fmt: skip
    dw = torch.empty((n * cout, cin, 3, 3), dtype=dtype, device=x.device)
    conv_device.sum_weight_grad[(triton.cdiv(size, 512),)](
        part, dw, size, splits, CIN=cin, COUT=cout, BLOCK=512, num_warps=4
    )
    return dw


class _Conv3x3(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, n: int, stride: int, stats: bool, valid: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        x = x.contiguous(memory_format=LAST)
        packed = pack(w, x.dtype)
        y, part = convolve(x, packed, n, stride=stride, stats=stats, valid=valid)
        ctx.save_for_backward(x, packed)
        ctx.n, ctx.stride, ctx.dtype = n, stride, w.dtype
        if part is not None:
            ctx.mark_non_differentiable(part)
        return y, part

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        x, packed = ctx.saved_tensors
        g = grads[0].contiguous(memory_format=LAST)
        dx = convolve(g, packed, ctx.n, stride=ctx.stride, transposed=True)[0] if ctx.needs_input_grad[0] else None
        dw = weight_gradient(x, g, ctx.n, stride=ctx.stride, dtype=ctx.dtype) if ctx.needs_input_grad[1] else None
        return dx, dw, None, None, None, None


def grouped_conv3x3(x: Tensor, w: Tensor, n: int, *, stride: int = 1) -> Tensor:
    """Apply the 3x3 weights of each of n networks to its channels, with padding 1."""
    return _Conv3x3.apply(x, w, n, stride, False, None)[0]  # type: ignore[no-untyped-call,no-any-return]


def grouped_conv3x3_sums(
    x: Tensor, w: Tensor, n: int, *, stride: int = 1, valid: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The same, with the partial sums of y and y^2 that the batch norm after it takes as `sums`."""
    return _Conv3x3.apply(x, w, n, stride, True, valid)  # type: ignore[no-untyped-call,no-any-return]
