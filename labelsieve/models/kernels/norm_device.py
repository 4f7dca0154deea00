# mypy: ignore-errors
# Triton's device language is not Python to a type checker.
"""Batch normalisation of n stacked networks + residual + relu: a tile is [pixels, channels] of a channels-last tensor.

Sums are made in two stages (a row of partial sums a program, then one small kernel), so that a run repeats bit by bit.
"""

import triton
import triton.language as tl

from labelsieve.models.kernels.tile_device import own_tile


@triton.jit
def _counted(pixel, channel, channels, pixels, valid, HW: tl.constexpr, C: tl.constexpr, VALID: tl.constexpr):
    """Which elements of a tile exist, and belong to samples that are not padding."""
    ok = (pixel < pixels)[:, None] & (channel < channels)[None, :]
    if VALID:
        limit = tl.load(valid + channel // C, mask=channel < channels, other=0)
        ok = ok & ((pixel // HW)[:, None] < limit[None, :])
    return ok


@triton.jit(do_not_specialize=["pixels", "blocks_each"])
def moments(
    x,
    part,
    valid,
    pixels,
    channels,
    blocks_each,
    HW: tl.constexpr,
    C: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
    VALID: tl.constexpr,
):
    """part[0, program] = sum of x, part[1, program] = sum of x^2, by channel: reads x once."""
    channel = tl.program_id(0) * BC + tl.arange(0, BC)
    total = tl.zeros([BP, BC], dtype=tl.float32)
    square = tl.zeros([BP, BC], dtype=tl.float32)
    begin = tl.program_id(1) * blocks_each
    for block in range(begin, begin + blocks_each):
        pixel = block * BP + tl.arange(0, BP)
        ok = _counted(pixel, channel, channels, pixels, valid, HW, C, VALID)
        at = pixel.to(tl.int64)[:, None] * channels + channel[None, :]
        value = tl.load(x + at, mask=ok, other=0.0).to(tl.float32)
        total += value
        square += value * value
    at = part + tl.program_id(1) * channels + channel
    tl.store(at, tl.sum(total, axis=0), mask=channel < channels)
    tl.store(at + tl.num_programs(1) * channels, tl.sum(square, axis=0), mask=channel < channels)


@triton.jit
def _sum_parts(part, parts, channels, channel, BR: tl.constexpr, BC: tl.constexpr):
    """Two sums over the rows of part[2, parts, channels]."""
    first = tl.zeros([BR, BC], dtype=tl.float32)
    second = tl.zeros([BR, BC], dtype=tl.float32)
    for begin in range(0, parts, BR):
        row = begin + tl.arange(0, BR)
        at = part + row[:, None] * channels + channel[None, :]
        ok = (row < parts)[:, None] & (channel < channels)[None, :]
        first += tl.load(at, mask=ok, other=0.0)
        second += tl.load(at + parts * channels, mask=ok, other=0.0)
    return tl.sum(first, axis=0), tl.sum(second, axis=0)


@triton.jit(do_not_specialize=["parts", "images"])
def forward_coefficients(
    part,
    gamma,
    beta,
    running_mean,
    running_var,
    out,
    valid,
    parts,
    images,
    channels,
    momentum,
    eps,
    HW: tl.constexpr,
    C: tl.constexpr,
    BR: tl.constexpr,
    BC: tl.constexpr,
    VALID: tl.constexpr,
    TRAINING: tl.constexpr,
):
    """out = [mean, 1 / deviation, scale, shift] by channel, and the running statistics: reads the partial sums."""
    channel = tl.program_id(0) * BC + tl.arange(0, BC)
    ok = channel < channels
    old_mean = tl.load(running_mean + channel, mask=ok, other=0.0)
    old_var = tl.load(running_var + channel, mask=ok, other=1.0)
    if TRAINING:
        total, square = _sum_parts(part, parts, channels, channel, BR, BC)
        samples = tl.zeros([BC], dtype=tl.int32) + images
        if VALID:
            samples = tl.load(valid + channel // C, mask=ok, other=0)
        count = tl.maximum(samples * HW, 1).to(tl.float32)
        mean = total / count
        var = tl.maximum(square / count - mean * mean, 0.0)
        unbiased = var * (count / tl.maximum(count - 1.0, 1.0))
        some = ok & (samples > 0)
        tl.store(running_mean + channel, old_mean + momentum * (mean - old_mean), mask=some)
        tl.store(running_var + channel, old_var + momentum * (unbiased - old_var), mask=some)
    else:
        mean = old_mean
        var = old_var
    inverse = 1.0 / tl.sqrt(var + eps)
    scale = tl.load(gamma + channel, mask=ok, other=0.0) * inverse
    shift = tl.load(beta + channel, mask=ok, other=0.0) - mean * scale
    tl.store(out + channel, mean, mask=ok)
    tl.store(out + channels + channel, inverse, mask=ok)
    tl.store(out + 2 * channels + channel, scale, mask=ok)
    tl.store(out + 3 * channels + channel, shift, mask=ok)


@triton.jit(do_not_specialize=["pixels"])
def normalise(
    x,
    residual,
    y,
    coefficients,
    pixels,
    channels,
    BP: tl.constexpr,
    BC: tl.constexpr,
    RESIDUAL: tl.constexpr,
    RELU: tl.constexpr,
):
    """y = relu(x * scale + shift + residual): reads x (and the residual) once, writes y once."""
    pixel, channel = own_tile(channels, BP, BC)
    column_ok = channel < channels
    scale = tl.load(coefficients + 2 * channels + channel, mask=column_ok, other=0.0)[None, :]
    shift = tl.load(coefficients + 3 * channels + channel, mask=column_ok, other=0.0)[None, :]
    ok = (pixel < pixels)[:, None] & column_ok[None, :]
    at = pixel.to(tl.int64)[:, None] * channels + channel[None, :]
    value = tl.load(x + at, mask=ok, other=0.0).to(tl.float32) * scale + shift
    if RESIDUAL:
        value += tl.load(residual + at, mask=ok, other=0.0).to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(y + at, value.to(y.dtype.element_ty), mask=ok)


@triton.jit
def _through_relu(g, x, y, at, ok, scale, shift, RELU: tl.constexpr):
    """Gradient behind the relu. RELU 1: its sign from x again (no residual was added); 2: from the saved output."""
    grad = tl.load(g + at, mask=ok, other=0.0).to(tl.float32)
    value = tl.load(x + at, mask=ok, other=0.0).to(tl.float32)
    if RELU == 1:
        grad = tl.where(value * scale + shift > 0, grad, 0.0)
    if RELU == 2:
        grad = tl.where(tl.load(y + at, mask=ok, other=0.0).to(tl.float32) > 0, grad, 0.0)
    return grad, value


@triton.jit(do_not_specialize=["pixels", "blocks_each"])
def gradient_moments(
    g,
    x,
    y,
    part,
    coefficients,
    valid,
    pixels,
    channels,
    blocks_each,
    HW: tl.constexpr,
    C: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
    RELU: tl.constexpr,
    VALID: tl.constexpr,
):
    """part[0] = sum of g, part[1] = sum of g * (x - mean), behind the relu: reads g and x (RELU 2: and y) once."""
    channel = tl.program_id(0) * BC + tl.arange(0, BC)
    column_ok = channel < channels
    mean = tl.load(coefficients + channel, mask=column_ok, other=0.0)[None, :]
    scale = tl.load(coefficients + 2 * channels + channel, mask=column_ok, other=0.0)[None, :]
    shift = tl.load(coefficients + 3 * channels + channel, mask=column_ok, other=0.0)[None, :]
    total = tl.zeros([BP, BC], dtype=tl.float32)
    product = tl.zeros([BP, BC], dtype=tl.float32)
    begin = tl.program_id(1) * blocks_each
    for block in range(begin, begin + blocks_each):
        pixel = block * BP + tl.arange(0, BP)
        ok = _counted(pixel, channel, channels, pixels, valid, HW, C, VALID)
        at = pixel.to(tl.int64)[:, None] * channels + channel[None, :]
        grad, value = _through_relu(g, x, y, at, ok, scale, shift, RELU)
        total += grad
        product += grad * (value - mean)
    at = part + tl.program_id(1) * channels + channel
    tl.store(at, tl.sum(total, axis=0), mask=column_ok)
    tl.store(at + tl.num_programs(1) * channels, tl.sum(product, axis=0), mask=column_ok)


@triton.jit(do_not_specialize=["parts", "images"])
def backward_coefficients(
    part,
    coefficients,
    out,
    dgamma,
    dbeta,
    valid,
    parts,
    images,
    channels,
    HW: tl.constexpr,
    C: tl.constexpr,
    BR: tl.constexpr,
    BC: tl.constexpr,
    VALID: tl.constexpr,
    TRAINING: tl.constexpr,
):
    """dx = scale * g + out[0] * (x - mean) + out[1]; and the gradients of gamma and beta: reads the partial sums."""
    channel = tl.program_id(0) * BC + tl.arange(0, BC)
    ok = channel < channels
    total, product = _sum_parts(part, parts, channels, channel, BR, BC)
    inverse = tl.load(coefficients + channels + channel, mask=ok, other=0.0)
    scale = tl.load(coefficients + 2 * channels + channel, mask=ok, other=0.0)
    samples = tl.zeros([BC], dtype=tl.int32) + images
    if VALID:
        samples = tl.load(valid + channel // C, mask=ok, other=0)
    count = tl.maximum(samples * HW, 1).to(tl.float32)
    tl.store(dbeta + channel, total, mask=ok)
    tl.store(dgamma + channel, product * inverse, mask=ok)
    slope = -scale * inverse * inverse * product / count
    constant = -scale * total / count
    if not TRAINING:
        slope = tl.zeros([BC], dtype=tl.float32)
        constant = tl.zeros([BC], dtype=tl.float32)
    tl.store(out + channel, slope, mask=ok)
    tl.store(out + channels + channel, constant, mask=ok)


@triton.jit(do_not_specialize=["pixels"])
def input_gradient(
    g,
    x,
    y,
    dx,
    dresidual,
    coefficients,
    slopes,
    valid,
    pixels,
    channels,
    HW: tl.constexpr,
    C: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
    RESIDUAL: tl.constexpr,
    RELU: tl.constexpr,
    VALID: tl.constexpr,
):
    """dx (and the residual's gradient) of `normalise`: reads g and x (RELU 2: and y) once, writes dx (and it) once."""
    pixel, channel = own_tile(channels, BP, BC)
    column_ok = channel < channels
    mean = tl.load(coefficients + channel, mask=column_ok, other=0.0)[None, :]
    scale = tl.load(coefficients + 2 * channels + channel, mask=column_ok, other=0.0)[None, :]
    shift = tl.load(coefficients + 3 * channels + channel, mask=column_ok, other=0.0)[None, :]
    slope = tl.load(slopes + channel, mask=column_ok, other=0.0)[None, :]
    constant = tl.load(slopes + channels + channel, mask=column_ok, other=0.0)[None, :]
    exists = (pixel < pixels)[:, None] & column_ok[None, :]
    ok = _counted(pixel, channel, channels, pixels, valid, HW, C, VALID)
    at = pixel.to(tl.int64)[:, None] * channels + channel[None, :]
    grad, value = _through_relu(g, x, y, at, ok, scale, shift, RELU)
    result = tl.where(ok, scale * grad + slope * (value - mean) + constant, 0.0)
    tl.store(dx + at, result.to(dx.dtype.element_ty), mask=exists)
    if RESIDUAL:
        tl.store(dresidual + at, grad.to(dresidual.dtype.element_ty), mask=exists)
