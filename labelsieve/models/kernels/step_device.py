# mypy: ignore-errors
# Triton's device language is not Python to a type checker.
"""A batch of augmented pictures, Adam and SGD, as one kernel each."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["pictures"])
def gather_pictures(
    pixels, index, code, scale, offset, out, pictures, N: tl.constexpr, C: tl.constexpr, H: tl.constexpr,
    W: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out [B, H, W, N, C] = normalised pixels [.., H + 2 PAD, W + 2 PAD, C], cut and flipped by index, code [N, B]."""
    SPAN: tl.constexpr = 2 * PAD + 1
    b = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = at < H * W * N * C
    c = at % C
    net = (at // C) % N
    column = (at // (C * N)) % W
    row = at // (C * N * W)
    picture = tl.load(index + net * pictures + b, mask=ok, other=0)
    how = tl.load(code + net * pictures + b, mask=ok, other=0).to(tl.int32)
    place = how % (SPAN * SPAN)
    column = place % SPAN + tl.where(how >= SPAN * SPAN, W - 1 - column, column)
    row = place // SPAN + row
    begin = picture * ((H + 2 * PAD) * (W + 2 * PAD) * C)
    value = tl.load(pixels + begin + (row * (W + 2 * PAD) + column) * C + c, mask=ok, other=0).to(tl.float32)
    value = value * tl.load(scale + c, mask=ok, other=0.0) + tl.load(offset + c, mask=ok, other=0.0)
    tl.store(out + b.to(tl.int64) * (H * W * N * C) + at, value.to(out.dtype.element_ty), mask=ok)


@triton.jit
def adam(
    flat, gradient, first, second, decay, owner, rate, count, size, keep2, new1, new2, log1, log2, eps,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Adam with one rate and count per network (`owner`); weight decay is added to the gradient; log1, log2: of the
    betas."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = at < size
    net = tl.load(owner + at, mask=ok, other=0)
    t = tl.load(count + net, mask=ok, other=1.0)
    root = tl.sqrt(1.0 - tl.exp2(t * log2))
    step = tl.load(rate + net, mask=ok, other=0.0) * root / (1.0 - tl.exp2(t * log1))
    p = tl.load(flat + at, mask=ok, other=0.0)
    g = tl.load(gradient + at, mask=ok, other=0.0) + p * tl.load(decay + at, mask=ok, other=0.0)
    old = tl.load(first + at, mask=ok, other=0.0)
    m = old + new1 * (g - old)
    v = tl.load(second + at, mask=ok, other=0.0) * keep2 + new2 * (g * g)
    tl.store(first + at, m, mask=ok)
    tl.store(second + at, v, mask=ok)
    tl.store(flat + at, p - step * (m / (tl.sqrt(v) + eps * root)), mask=ok)


@triton.jit
def sgd(flat, gradient, first, decay, owner, rate, size, momentum, NESTEROV: tl.constexpr, BLOCK: tl.constexpr):
    """SGD with momentum, with one rate per network (`owner`); weight decay is added to the gradient."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = at < size
    speed = tl.load(rate + tl.load(owner + at, mask=ok, other=0), mask=ok, other=0.0)
    p = tl.load(flat + at, mask=ok, other=0.0)
    g = tl.load(gradient + at, mask=ok, other=0.0) + p * tl.load(decay + at, mask=ok, other=0.0)
    m = tl.load(first + at, mask=ok, other=0.0) * momentum + g
    tl.store(first + at, m, mask=ok)
    if NESTEROV:
        m = g + momentum * m
    tl.store(flat + at, p - speed * m, mask=ok)
