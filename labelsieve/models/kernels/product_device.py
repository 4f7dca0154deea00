# mypy: ignore-errors
# Triton's device language is not Python to a type checker.
"""The 1 x 1 convolutions at a residual block's ends with what follows them: the wide product never goes to memory.

A program makes one tile [pixels, channels]; all tensors are channels last, matrices by rows.
"""

import triton
import triton.language as tl

from labelsieve.models.kernels.tile_device import own_tile


@triton.jit
def _product(
    a, w, pixel, channel, pixels, inner, channels, w_inner, w_channel, BP: tl.constexpr, BC: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    """A tile of a [pixels, inner] times w, whose strides are given."""
    total = tl.zeros([BP, BC], dtype=tl.float32)
    at_a = a + pixel.to(tl.int64)[:, None] * inner
    at_w = w + channel[None, :] * w_channel
    for begin in range(0, inner, BK):
        k = begin + tl.arange(0, BK)
        left = tl.load(at_a + k[None, :], mask=(pixel < pixels)[:, None] & (k < inner)[None, :], other=0.0)
        right = tl.load(
            at_w + k[:, None] * w_inner, mask=(k < inner)[:, None] & (channel < channels)[None, :], other=0.0
        )
        total = tl.dot(left, right, total, input_precision="ieee")
    return total


@triton.jit(do_not_specialize=["pixels"])
def project_add_relu(
    a, w, x, bias, y, bias_scale, pixels, inner, channels, w_inner, w_channel,
    BP: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """y = relu(a w + x + bias_scale * bias)."""
    pixel, channel = own_tile(channels, BP, BC)
    value = _product(a, w, pixel, channel, pixels, inner, channels, w_inner, w_channel, BP, BC, BK)
    there = channel < channels
    ok = (pixel < pixels)[:, None] & there[None, :]
    at = pixel.to(tl.int64)[:, None] * channels + channel[None, :]
    value += tl.load(x + at, mask=ok, other=0.0).to(tl.float32)
    value += bias_scale * tl.load(bias + channel, mask=there, other=0.0).to(tl.float32)[None, :]
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(y + at, value.to(y.dtype.element_ty), mask=ok)


@triton.jit(do_not_specialize=["pixels"])
def gradient_add_relu(
    a, w, g, y, out, part, pixels, inner, channels, w_inner, w_channel,
    BP: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """out = (a w + g) where y > 0; part[row of tiles] = its sums."""
    pixel, channel = own_tile(channels, BP, BC)
    value = _product(a, w, pixel, channel, pixels, inner, channels, w_inner, w_channel, BP, BC, BK)
    there = channel < channels
    ok = (pixel < pixels)[:, None] & there[None, :]
    at = pixel.to(tl.int64)[:, None] * channels + channel[None, :]
    value += tl.load(g + at, mask=ok, other=0.0).to(tl.float32)
    if RELU:
        value = tl.where(tl.load(y + at, mask=ok, other=0.0).to(tl.float32) > 0, value, 0.0)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=ok)
    row = tl.program_id(0) // tl.cdiv(channels, BC)
    tl.store(part + row * channels + channel, tl.sum(value, axis=0), mask=there)
