# mypy: ignore-errors
# Triton's device language is not Python to a type checker.
"""The 3x3 convolution for activations [networks, images, height, width, channels].

A picture row of a network is contiguous, so that every load reads whole cache lines, and all strides are constants. The
operations after a convolution run while its output is in registers. Forward: the shortcut (pre-activation) and the
sums of the next batch normalisation. Backward: the gradient of the shortcut (original form), the relu and the sums of
the previous batch normalisation.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from labelsieve.models.kernels.conv_device import _load_weights, _product


@triton.jit
def _load_row(
    base, at, column, ok, i, last, XP: tl.constexpr, H: tl.constexpr, W: tl.constexpr, STEP: tl.constexpr,
    PIECES: tl.constexpr,
):  # fmt: skip
    """Input row i as PIECES of [pixels, (kx, channel)]; zeros outside the picture (STEP 2: and between rows)."""
    there = (i >= 0) & (i < H) & (i <= last)
    if STEP > 1:
        there = there & (i % STEP == 0)
    pieces = ()
    for piece in tl.static_range(PIECES):
        from_column = column + piece
        inside = ok & there & (from_column >= 0) & (from_column < W)
        if STEP > 1:
            inside = inside & (from_column % STEP == 0)
        offset = at + (from_column // STEP) * XP + (i // STEP) * (W // STEP * XP)
        pieces = pieces + (tl.load(base + offset, mask=inside, other=0.0),)  # noqa: RUF005
    return pieces


@triton.jit(do_not_specialize=["images", "parts", "nets"])
def conv_network(
    x, w, y, part, valid, skip, gate, before, coefficients, images, parts, nets, x_net, H: tl.constexpr,
    W: tl.constexpr, CIN: tl.constexpr, COUT: tl.constexpr, CP: tl.constexpr, NP: tl.constexpr, XP: tl.constexpr,
    BN: tl.constexpr, M: tl.constexpr, ROWS: tl.constexpr, PIECES: tl.constexpr, FLIP: tl.constexpr,
    S_IN: tl.constexpr, S_OUT: tl.constexpr, MODE: tl.constexpr, SKIP: tl.constexpr, SC: tl.constexpr,
    VALID: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """y = conv(x, w); a program: one network, M / W images, ROWS rows, BN channels. FLIP: the input's gradient.

    H, W: the finer of the two resolutions; S_OUT 2: stride 2; S_IN 2: its gradient. XP: elements between x's pixels.
    MODE 1: part = sums of y and y^2 over the samples that count. SKIP 1: y = conv(x, w) + skip; 2: + every second pixel
    of `skip`, its SC channels in the middle.
    MODE 2: y is the gradient behind relu(norm(before)): part = sums of it and of it * (before - mean).
    MODE 3: the same, the relu's sign taken from its output `gate`, with a shortcut's gradient added first:
    SKIP 1 from `skip`, 2 from every second pixel of `skip`, whose SC channels hold these in their middle.
    """
    splits: tl.constexpr = NP // BN
    net = tl.program_id(0) // splits
    channel = (tl.program_id(0) % splits) * BN + tl.arange(0, BN)
    first_image = tl.program_id(1) * (M // W)
    r0 = tl.program_id(2) * ROWS
    if PDL:
        gdc_wait()

    k = tl.arange(0, (4 if PIECES == 1 else 1) * CP)
    kx = k // CP
    k_channel = k % CP
    k_ok = kx < 3
    if CP > CIN:
        k_ok = k_ok & (k_channel < CIN)
    n_ok = channel < COUT
    WK: tl.constexpr = 9 * COUT if FLIP else 1
    WN: tl.constexpr = 1 if FLIP else 9 * CIN
    WT: tl.constexpr = COUT if FLIP else CIN
    tap = 8 - kx if FLIP else kx
    w_at = w + net * (9 * CIN * COUT) + (channel * WN)[None, :] + (k_channel * WK + tap * WT)[:, None]
    w_ok = k_ok[:, None] & n_ok[None, :]
    next_tap: tl.constexpr = -WT if FLIP else WT
    DTYPE: tl.constexpr = x.dtype.element_ty
    w0 = _load_weights(w_at, w_ok, DTYPE, next_tap, PIECES)
    w1 = _load_weights(w_at + 3 * next_tap, w_ok, DTYPE, next_tap, PIECES)
    w2 = _load_weights(w_at + 6 * next_tap, w_ok, DTYPE, next_tap, PIECES)

    pixel = tl.arange(0, M)
    image = pixel // W
    column_out = pixel % W
    image_ok = first_image + image < images
    column_in = column_out[:, None] + kx[None, :] - 1
    ok = image_ok[:, None] & k_ok[None, :]
    HI: tl.constexpr = H // S_IN
    WI: tl.constexpr = W // S_IN
    x_at = (image * (HI * WI * XP))[:, None] + k_channel[None, :]
    base = x + net.to(tl.int64) * x_net + first_image.to(tl.int64) * (HI * WI * XP)

    WO: tl.constexpr = W // S_OUT
    HO: tl.constexpr = H // S_OUT
    y_ok = (image_ok & (column_out % S_OUT == 0))[:, None] & n_ok[None, :]
    y_at = (image * (HO * WO) + column_out // S_OUT)[:, None] * COUT + channel[None, :]
    y_from = (net.to(tl.int64) * images + first_image) * (HO * WO * COUT)
    if SKIP == 2 and MODE == 1:  # the shortcut has the finer resolution and is added to the middle channels
        s_channel = channel - (COUT - SC) // 2
        s_ok = image_ok[:, None] & ((s_channel >= 0) & (s_channel < SC))[None, :]
        s_at = (image * (4 * HO * WO) + column_out * 2)[:, None] * SC + s_channel[None, :]
        s_from = (net.to(tl.int64) * images + first_image) * (4 * HO * WO * SC)
    if SKIP == 2 and MODE == 3:  # the shortcut's gradient has the coarser resolution; its middle channels are used
        s_ok = (image_ok & (column_out % 2 == 0))[:, None] & n_ok[None, :]
        s_at = (image * (HO * WO // 4) + column_out // 2)[:, None] * SC + (channel + (SC - COUT) // 2)[None, :]
        s_from = (net.to(tl.int64) * images + first_image) * (HO * WO // 4 * SC)
    total = tl.zeros([M, BN], dtype=tl.float32)
    second = tl.zeros([M, BN], dtype=tl.float32)
    if MODE == 1:
        counted = y_ok
        if VALID:
            limit = tl.load(valid + net)
            counted = y_ok & (first_image + image < limit)[:, None]
    if MODE > 1:
        at = coefficients + net * COUT + channel
        mean = tl.load(at, mask=n_ok, other=0.0)[None, :]
        scale = tl.load(at + 2 * nets * COUT, mask=n_ok, other=0.0)[None, :]
        shift = tl.load(at + 3 * nets * COUT, mask=n_ok, other=0.0)[None, :]

    # Three rows of output are under way at any time; the compiler loads the rows to come into shared memory.
    a = tl.zeros([M, BN], dtype=tl.float32)
    b = tl.zeros([M, BN], dtype=tl.float32)
    c = tl.zeros([M, BN], dtype=tl.float32)
    begin = tl.maximum(r0 - 1, 0)
    last = r0 + ROWS
    for i in range(begin, last + 1):
        done = i - 1
        keep = (done >= r0) & (done < last) & (done < H) & (done % S_OUT == 0)
        to = y_at + (done // S_OUT) * (WO * COUT)
        row = _load_row(base, x_at, column_in, ok, i, last, XP, H, W, S_IN, PIECES)
        if MODE > 1:
            old = tl.load(before + y_from + to, mask=y_ok & keep, other=0.0).to(tl.float32)
        if MODE == 3:
            sign = tl.load(gate + y_from + to, mask=y_ok & keep, other=0.0)
        if SKIP == 1:
            added = tl.load(skip + y_from + to, mask=y_ok & keep, other=0.0)
        if SKIP == 2 and MODE == 1:
            added = tl.load(skip + s_from + s_at + done * (4 * WO * SC), mask=s_ok & keep, other=0.0)
        if SKIP == 2 and MODE == 3:
            s_to = s_at + (done // 2) * (WO // 2 * SC)
            added = tl.load(skip + s_from + s_to, mask=s_ok & keep & (done % 2 == 0), other=0.0)
        a = _product(row, w2, a, PIECES)
        b = _product(row, w1, b, PIECES)
        c = _product(row, w0, c, PIECES)
        if MODE == 1 and SKIP > 0:
            result = (a + added.to(tl.float32)).to(y.dtype.element_ty)
        else:
            result = a.to(y.dtype.element_ty)
        if MODE == 2:
            result = tl.where(old * scale + shift > 0, result, 0.0).to(y.dtype.element_ty)
        if MODE == 3:
            if SKIP > 0:
                result = (result.to(tl.float32) + added.to(tl.float32)).to(y.dtype.element_ty)
            result = tl.where(sign > 0, result, 0.0).to(y.dtype.element_ty)
        tl.store(y + y_from + to, result, mask=y_ok & keep)
        if MODE == 1:
            value = tl.where(counted & keep, result.to(tl.float32), 0.0)
            total += value
            second += value * value
        if MODE > 1:
            value = tl.where(y_ok & keep, result.to(tl.float32), 0.0)
            total += value
            second += value * (old - mean)
        a = b
        b = c
        c = tl.zeros([M, BN], dtype=tl.float32)
    index = tl.program_id(1) * tl.num_programs(2) + tl.program_id(2)
    at = part + (index * nets + net) * COUT + channel
    tl.store(at, tl.sum(total, axis=0), mask=n_ok)
    tl.store(at + parts * nets * COUT, tl.sum(second, axis=0), mask=n_ok)
