# mypy: ignore-errors
# Triton's device language is not Python to a type checker.
"""Batch norm of n stacked networks, with 2 x 2 max pooling before it and a residual sum and an activation after it.

A tile is [pixels, channels] of a channels-last tensor. A table has four rows: mean, 1 / deviation, scale, shift. Sizes
are not compile-time constants, so that one program serves all layers. Sums are made in two stages (every program writes
a row of partial sums, a small kernel adds them up), so that results do not depend on the order of programs.
"""

import triton
import triton.language as tl

RELU = tl.constexpr(1)
GELU = tl.constexpr(2)
RELU_OF_SUM = tl.constexpr(3)  # backward only: the sign comes from the output, as a residual was added
ONE = tl.constexpr(1)  # VALID: one network
MANY = tl.constexpr(2)  # VALID: several networks


@triton.jit
def _own_tile(channels, BP: tl.constexpr, BC: tl.constexpr):
    """The pixels and channels of this program. The grid has one axis, as CUDA limits the second one to 65,535."""
    across = tl.cdiv(channels, BC)
    down = tl.program_id(0) // across
    column = tl.program_id(0) - down * across
    return down * BP + tl.arange(0, BP), column * BC + tl.arange(0, BC)


@triton.jit
def _real(pixels, valid, area, channel, there, each, VALID: tl.constexpr):
    """The number of pixels of samples that are not padding: one number, or one per channel of several networks."""
    if VALID == ONE:
        pixels = tl.minimum(pixels, tl.load(valid) * area)
    if VALID == MANY:
        pixels = tl.minimum(pixels, tl.load(valid + channel // each, mask=there, other=0) * area)
    return pixels


@triton.jit
def _counted(pixel, real, there, VALID: tl.constexpr):
    """The elements of a tile that exist and are not padding."""
    if VALID == MANY:
        inside = pixel[:, None] < real[None, :]
    else:
        inside = (pixel < real)[:, None]
    return inside & there[None, :]


@triton.jit
def _normal(z):
    """The normal distribution function at z, by Abramowitz and Stegun's 7.1.26 (to 1e-7), and its density."""
    t = 1.0 / (1.0 + 0.3275911 * 0.7071067811865476 * tl.abs(z))
    e = tl.exp(-0.5 * z * z)
    series = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
    tail = 0.5 * series * e
    return tl.where(z < 0, tail, 1.0 - tail), e * 0.3989422804014327


@triton.jit
def _activated(z, ACT: tl.constexpr):
    if ACT == RELU:
        z = tl.maximum(z, 0.0)
    if ACT == GELU:
        below, _density = _normal(z)
        z = z * below
    return z


@triton.jit
def _through(g, z, y, at, ok, ACT: tl.constexpr):
    """The gradient before the activation, whose argument z is computed again."""
    if ACT == RELU:
        g = tl.where(z > 0, g, 0.0)
    if ACT == GELU:
        below, density = _normal(z)
        g = g * (below + z * density)
    if ACT == RELU_OF_SUM:
        g = tl.where(tl.load(y + at, mask=ok, other=0.0).to(tl.float32) > 0, g, 0.0)
    return g


@triton.jit
def _corner(pixel, width):
    """Place of the first of the four pixels that make pooled pixel number `pixel`; `width` is the pooled one."""
    line = pixel // width  # over all pictures: their heights are even
    return line.to(tl.int64) * (4 * width) + 2 * (pixel - line * width)


@triton.jit
def _four(x, corner, channel, channels, width, ok):
    at = x + corner[:, None] * channels + channel[None, :]
    below = 2 * width * channels
    a = tl.load(at, mask=ok, other=0.0).to(tl.float32)
    b = tl.load(at + channels, mask=ok, other=0.0).to(tl.float32)
    c = tl.load(at + below, mask=ok, other=0.0).to(tl.float32)
    d = tl.load(at + below + channels, mask=ok, other=0.0).to(tl.float32)
    return a, b, c, d


@triton.jit(do_not_specialize=["pixels", "area", "pooled_width", "blocks_each", "each"])
def moments(
    x, pooled, part, valid, pixels, area, pooled_width, channels, blocks_each, each, BP: tl.constexpr,
    BC: tl.constexpr, VALID: tl.constexpr, POOL: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    """part[0, program] = sum of x, part[1, program] = sum of x^2; with POOL of the largest of 2 x 2, and writes it."""
    channel = tl.program_id(0) * BC + tl.arange(0, BC)
    there = channel < channels
    total = tl.zeros([BP, BC], dtype=tl.float32)
    square = tl.zeros([BP, BC], dtype=tl.float32)
    real = _real(pixels, valid, area, channel, there, each, VALID)
    begin = tl.program_id(1) * blocks_each
    for block in range(begin, begin + blocks_each):
        pixel = block * BP + tl.arange(0, BP)
        ok = _counted(pixel, real, there, VALID)
        at = pixel.to(tl.int64)[:, None] * channels + channel[None, :]
        if POOL:
            exists = (pixel < pixels)[:, None] & there[None, :]
            a, b, c, d = _four(x, _corner(pixel, pooled_width), channel, channels, pooled_width, exists)
            value = tl.maximum(tl.maximum(a, b), tl.maximum(c, d))
            tl.store(pooled + at, value.to(pooled.dtype.element_ty), mask=exists)
            value = tl.where(ok, value, 0.0)
        else:
            value = tl.load(x + at, mask=ok, other=0.0).to(tl.float32)
        total += value
        square += value * value
    if SUMS:
        at = part + tl.program_id(1) * channels + channel
        tl.store(at, tl.sum(total, axis=0), mask=there)
        tl.store(at + tl.num_programs(1) * channels, tl.sum(square, axis=0), mask=there)


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


@triton.jit(do_not_specialize=["parts", "pixels", "area", "each"])
def forward_table(
    part, gamma, beta, running_mean, running_var, table, valid, parts, pixels, area, channels, each, momentum, eps,
    BR: tl.constexpr, BC: tl.constexpr, VALID: tl.constexpr, TRAINING: tl.constexpr,
):  # fmt: skip
    """The table, and the running statistics: reads the partial sums."""
    channel = tl.program_id(0) * BC + tl.arange(0, BC)
    there = channel < channels
    mean = tl.load(running_mean + channel, mask=there, other=0.0)
    var = tl.load(running_var + channel, mask=there, other=1.0)
    if TRAINING:
        total, square = _sum_parts(part, parts, channels, channel, BR, BC)
        real = _real(pixels, valid, area, channel, there, each, VALID)
        count = tl.maximum(real, 1).to(tl.float32)
        old_mean, old_var = mean, var
        mean = total / count
        var = tl.maximum(square / count - mean * mean, 0.0)
        unbiased = var * (count / tl.maximum(count - 1.0, 1.0))
        some = there & (real > 0)
        tl.store(running_mean + channel, old_mean + momentum * (mean - old_mean), mask=some)
        tl.store(running_var + channel, old_var + momentum * (unbiased - old_var), mask=some)
    inverse = 1.0 / tl.sqrt(var + eps)
    scale = tl.load(gamma + channel, mask=there, other=0.0) * inverse
    tl.store(table + channel, mean, mask=there)
    tl.store(table + channels + channel, inverse, mask=there)
    tl.store(table + 2 * channels + channel, scale, mask=there)
    tl.store(table + 3 * channels + channel, tl.load(beta + channel, mask=there, other=0.0) - mean * scale, mask=there)


@triton.jit(do_not_specialize=["pixels"])
def normalise(
    x, residual, y, table, pixels, channels, BP: tl.constexpr, BC: tl.constexpr, RESIDUAL: tl.constexpr,
    ACT: tl.constexpr,
):  # fmt: skip
    """y = act(x * scale + shift + residual): reads x and the residual once, writes y once."""
    pixel, channel = _own_tile(channels, BP, BC)
    there = channel < channels
    scale = tl.load(table + 2 * channels + channel, mask=there, other=0.0)[None, :]
    shift = tl.load(table + 3 * channels + channel, mask=there, other=0.0)[None, :]
    ok = (pixel < pixels)[:, None] & there[None, :]
    at = pixel.to(tl.int64)[:, None] * channels + channel[None, :]
    value = tl.load(x + at, mask=ok, other=0.0).to(tl.float32) * scale + shift
    if RESIDUAL:
        value += tl.load(residual + at, mask=ok, other=0.0).to(tl.float32)
    tl.store(y + at, _activated(value, ACT).to(y.dtype.element_ty), mask=ok)


@triton.jit(do_not_specialize=["pixels", "area", "blocks_each", "each"])
def gradient_moments(
    g, x, y, part, table, valid, pixels, area, channels, blocks_each, each, BP: tl.constexpr, BC: tl.constexpr,
    ACT: tl.constexpr, VALID: tl.constexpr,
):  # fmt: skip
    """part[0, program] = sum of g, part[1, program] = sum of g * (x - mean), with g taken before the activation."""
    channel = tl.program_id(0) * BC + tl.arange(0, BC)
    there = channel < channels
    mean = tl.load(table + channel, mask=there, other=0.0)[None, :]
    scale = tl.load(table + 2 * channels + channel, mask=there, other=0.0)[None, :]
    shift = tl.load(table + 3 * channels + channel, mask=there, other=0.0)[None, :]
    real = _real(pixels, valid, area, channel, there, each, VALID)
    total = tl.zeros([BP, BC], dtype=tl.float32)
    product = tl.zeros([BP, BC], dtype=tl.float32)
    begin = tl.program_id(1) * blocks_each
    for block in range(begin, begin + blocks_each):
        pixel = block * BP + tl.arange(0, BP)
        ok = _counted(pixel, real, there, VALID)
        at = pixel.to(tl.int64)[:, None] * channels + channel[None, :]
        grad = tl.load(g + at, mask=ok, other=0.0).to(tl.float32)
        value = tl.load(x + at, mask=ok, other=0.0).to(tl.float32)
        grad = _through(grad, value * scale + shift, y, at, ok, ACT)
        total += grad
        product += grad * (value - mean)
    at = part + tl.program_id(1) * channels + channel
    tl.store(at, tl.sum(total, axis=0), mask=there)
    tl.store(at + tl.num_programs(1) * channels, tl.sum(product, axis=0), mask=there)


@triton.jit(do_not_specialize=["parts", "pixels", "area", "each"])
def backward_table(
    part, table, slopes, dgamma, dbeta, valid, parts, pixels, area, channels, each, BR: tl.constexpr,
    BC: tl.constexpr, VALID: tl.constexpr, TRAINING: tl.constexpr,
):  # fmt: skip
    """dx = scale * g + slopes[0] * (x - mean) + slopes[1]; and the gradients of gamma and beta: reads the sums."""
    channel = tl.program_id(0) * BC + tl.arange(0, BC)
    there = channel < channels
    total, product = _sum_parts(part, parts, channels, channel, BR, BC)
    inverse = tl.load(table + channels + channel, mask=there, other=0.0)
    scale = tl.load(table + 2 * channels + channel, mask=there, other=0.0)
    count = tl.maximum(_real(pixels, valid, area, channel, there, each, VALID), 1).to(tl.float32)
    tl.store(dbeta + channel, total, mask=there)
    tl.store(dgamma + channel, product * inverse, mask=there)
    slope = -scale * inverse * inverse * product / count
    constant = -scale * total / count
    if not TRAINING:
        slope = tl.zeros([BC], dtype=tl.float32)
        constant = tl.zeros([BC], dtype=tl.float32)
    tl.store(slopes + channel, slope, mask=there)
    tl.store(slopes + channels + channel, constant, mask=there)


@triton.jit(do_not_specialize=["pixels", "area", "pooled_width", "each"])
def input_gradient(
    g, x, y, before, dx, dresidual, table, slopes, valid, pixels, area, pooled_width, channels, each,
    BP: tl.constexpr, BC: tl.constexpr, ACT: tl.constexpr, VALID: tl.constexpr, POOL: tl.constexpr,
    RESIDUAL: tl.constexpr,
):  # fmt: skip
    """dx (and the residual's gradient); with POOL it goes to the first largest of each 2 x 2 pixels of `before`."""
    pixel, channel = _own_tile(channels, BP, BC)
    there = channel < channels
    mean = tl.load(table + channel, mask=there, other=0.0)[None, :]
    scale = tl.load(table + 2 * channels + channel, mask=there, other=0.0)[None, :]
    shift = tl.load(table + 3 * channels + channel, mask=there, other=0.0)[None, :]
    slope = tl.load(slopes + channel, mask=there, other=0.0)[None, :]
    constant = tl.load(slopes + channels + channel, mask=there, other=0.0)[None, :]
    ok = _counted(pixel, _real(pixels, valid, area, channel, there, each, VALID), there, VALID)
    exists = (pixel < pixels)[:, None] & there[None, :]
    at = pixel.to(tl.int64)[:, None] * channels + channel[None, :]
    grad = tl.load(g + at, mask=ok, other=0.0).to(tl.float32)
    value = tl.load(x + at, mask=ok, other=0.0).to(tl.float32)
    grad = _through(grad, value * scale + shift, y, at, ok, ACT)
    result = tl.where(ok, scale * grad + slope * (value - mean) + constant, 0.0)
    if RESIDUAL:
        tl.store(dresidual + at, grad.to(dresidual.dtype.element_ty), mask=exists)
    if POOL:
        corner = _corner(pixel, pooled_width)
        a, b, c, _d = _four(before, corner, channel, channels, pooled_width, ok)
        second = (a != value) & (b == value)
        third = (a != value) & (b != value) & (c == value)
        fourth = (a != value) & (b != value) & (c != value)
        to = dx + corner[:, None] * channels + channel[None, :]
        below = 2 * pooled_width * channels
        tl.store(to, tl.where(a == value, result, 0.0).to(dx.dtype.element_ty), mask=exists)
        tl.store(to + channels, tl.where(second, result, 0.0).to(dx.dtype.element_ty), mask=exists)
        tl.store(to + below, tl.where(third, result, 0.0).to(dx.dtype.element_ty), mask=exists)
        tl.store(to + below + channels, tl.where(fourth, result, 0.0).to(dx.dtype.element_ty), mask=exists)
    else:
        tl.store(dx + at, result.to(dx.dtype.element_ty), mask=exists)
