# mypy: ignore-errors
# Triton's device language is not Python to a type checker.
"""The end of a scaled residual block, forward and back; tiles are [pixels, channels] of channels-last tensors."""

import triton
import triton.language as tl

from labelsieve.models.kernels.tile_device import own_tile


@triton.jit(do_not_specialize=["pixels"])
def add_relu(
    x, p, bias, y, bias_scale, pixels, channels, BP: tl.constexpr, BC: tl.constexpr, RELU: tl.constexpr
):  # fmt: skip
    """y = relu(x + p + bias_scale * bias): reads x and p once, writes y once."""
    pixel, channel = own_tile(channels, BP, BC)
    pixel = pixel.to(tl.int64)
    there = channel < channels
    ok = (pixel < pixels)[:, None] & there[None, :]
    at = pixel[:, None] * channels + channel[None, :]
    value = tl.load(x + at, mask=ok, other=0.0).to(tl.float32) + tl.load(p + at, mask=ok, other=0.0).to(tl.float32)
    value += bias_scale * tl.load(bias + channel, mask=there, other=0.0).to(tl.float32)[None, :]
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(y + at, value.to(y.dtype.element_ty), mask=ok)


@triton.jit(do_not_specialize=["pixels", "blocks_each"])
def add_relu_gradient(
    g,
    more,
    y,
    out,
    part,
    pixels,
    channels,
    blocks_each,
    BP: tl.constexpr,
    BC: tl.constexpr,
    TWO: tl.constexpr,
    RELU: tl.constexpr,
):
    """out = (g + more) where y > 0, the gradient of x and of p; part[program] = its sums, the bias'."""
    channel = tl.program_id(0) * BC + tl.arange(0, BC)
    there = channel < channels
    total = tl.zeros([BP, BC], dtype=tl.float32)
    begin = tl.program_id(1) * blocks_each
    for block in range(begin, begin + blocks_each):
        pixel = (block * BP + tl.arange(0, BP)).to(tl.int64)
        ok = (pixel < pixels)[:, None] & there[None, :]
        at = pixel[:, None] * channels + channel[None, :]
        grad = tl.load(g + at, mask=ok, other=0.0).to(tl.float32)
        if TWO:
            grad += tl.load(more + at, mask=ok, other=0.0).to(tl.float32)
        if RELU:
            grad = tl.where(tl.load(y + at, mask=ok, other=0.0).to(tl.float32) > 0, grad, 0.0)
        total += grad
        tl.store(out + at, grad.to(out.dtype.element_ty), mask=ok)
    tl.store(part + tl.program_id(1) * channels + channel, tl.sum(total, axis=0), mask=there)
