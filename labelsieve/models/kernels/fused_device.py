# mypy: ignore-errors
# Triton's device language is not Python to a type checker.
"""The kernels of a fused ResNet, for activations [networks, pixels, channels].

Tables (int64, one row per convolution) let one launch pack the weights, or add up the gradients, of all layers.

The 3x3 convolution is at the end. A picture row of a network is contiguous, so that every load reads whole cache lines,
and all strides are constants. The operations after a convolution run while its output is in registers. Forward: the
shortcut (pre-activation) and the sums of the next batch normalisation. Backward: the gradient of the shortcut (original
form), the relu and the sums of the previous batch normalisation.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from labelsieve.models.kernels.conv_device import _load_weights, _product
from labelsieve.models.kernels.norm_device import backward_table, forward_table


@triton.jit
def pack_weights(origin, packed, table, BLOCK: tl.constexpr, PDL: tl.constexpr):
    """packed[layer] = [n * out, 3, 3, in] of weights [n * out, in, 3, 3]; their places are relative to `origin`."""
    if PDL:
        gdc_wait()
    row = table + tl.program_id(1) * 8
    source = tl.load(row)
    target = tl.load(row + 1)
    cin = tl.load(row + 2).to(tl.int32)
    size = tl.load(row + 4).to(tl.int32)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = at < size
    channel = at % cin
    tap = (at // cin) % 9
    out = at // (9 * cin)
    value = tl.load(origin + source + (out * cin + channel) * 9 + tap, mask=ok, other=0.0)
    tl.store(packed + target + at, value.to(packed.dtype.element_ty), mask=ok)


@triton.jit
def sum_weight_grads(part, gradient, table, SPLITS: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr):
    """gradient[layer] [n * out, in, 3, 3] = sum over splits of part[layer][split, net, kx, in, ky, out]."""
    if PDL:
        gdc_wait()
    row = table + tl.program_id(1) * 8
    cin = tl.load(row + 2).to(tl.int32)
    cout = tl.load(row + 3).to(tl.int32)
    size = tl.load(row + 4).to(tl.int32)
    target = tl.load(row + 5)
    source = tl.load(row + 6)
    splits = tl.load(row + 7).to(tl.int32)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = at < size
    if tl.program_id(0) * BLOCK < size:
        total = tl.zeros([SPLITS, BLOCK], dtype=tl.float32)
        for begin in range(0, splits, SPLITS):
            split = begin + tl.arange(0, SPLITS)
            where = split.to(tl.int64)[:, None] * size + at[None, :]
            total += tl.load(part + source + where, mask=(split < splits)[:, None] & ok[None, :], other=0.0)
        out = at % cout
        ky = (at // cout) % 3
        channel = (at // (3 * cout)) % cin
        kx = (at // (3 * cout * cin)) % 3
        net = at // (9 * cin * cout)
        to = ((net * cout + out) * cin + channel) * 9 + ky * 3 + kx
        tl.store(gradient + target + to, tl.sum(total, axis=0), mask=ok)


@triton.jit(do_not_specialize=["images", "nets", "blocks_each"])
def weight_grad_network(
    x, g, part, images, nets, x_net, x_layer, blocks_each, H: tl.constexpr, W: tl.constexpr, CIN: tl.constexpr,
    COUT: tl.constexpr, CP: tl.constexpr, NP: tl.constexpr, XP: tl.constexpr, BA: tl.constexpr, BB: tl.constexpr,
    M: tl.constexpr, S: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """part[split, net, (kx, in), (ky, out)] = sum over the split's pixels of x[q + kx - 1] * g[q - (ky - 1) rows].

    Several layers of one shape: their x, g and part are consecutive; x_layer: elements from one x to the next.
    """
    tiles_b: tl.constexpr = (3 * NP + BB - 1) // BB
    tiles_a: tl.constexpr = (3 * CP + BA - 1) // BA
    net = tl.program_id(0) // (tiles_a * tiles_b)
    tile = tl.program_id(0) % (tiles_a * tiles_b)
    if PDL:
        gdc_wait()
    a = (tile // tiles_b) * BA + tl.arange(0, BA)
    b = (tile % tiles_b) * BB + tl.arange(0, BB)
    kx = a // CP
    a_channel = a % CP
    a_ok = kx < 3
    if CP > CIN:
        a_ok = a_ok & (a_channel < CIN)
    ky = b // NP
    b_channel = b % NP
    b_ok = ky < 3
    if NP > COUT:
        b_ok = b_ok & (b_channel < COUT)
    a_at = (kx - 1) * XP + a_channel
    HG: tl.constexpr = H // S
    WG: tl.constexpr = W // S
    layer = tl.program_id(2).to(tl.int64)
    x_base = x + layer * x_layer + net.to(tl.int64) * x_net
    g_base = g + (layer * nets + net) * images * (HG * WG * COUT)

    acc = tl.zeros([BA, BB], dtype=tl.float32)
    begin = tl.program_id(1) * blocks_each
    for block in range(begin, begin + blocks_each):
        q = block * M + tl.arange(0, M)
        image = q // (H * W)
        row = (q // W) % H
        column = q % W
        in_x = column[:, None] + kx[None, :] - 1
        x_ok = (in_x >= 0) & (in_x < W) & (image < images)[:, None] & a_ok[None, :]
        left = tl.load(x_base + q[:, None] * XP + a_at[None, :], mask=x_ok, other=0.0)
        in_g = row[:, None] - (ky[None, :] - 1)
        g_ok = (in_g >= 0) & (in_g < H) & (image < images)[:, None] & b_ok[None, :]
        if S > 1:
            g_ok = g_ok & (in_g % S == 0) & (column % S == 0)[:, None]
        line = (image * (HG * WG) + column // S)[:, None] * COUT
        right = tl.load(g_base + line + (in_g // S) * (WG * COUT) + b_channel[None, :], mask=g_ok, other=0.0)
        acc = tl.dot(tl.trans(left), right, acc, input_precision="ieee")
    where = ((layer * tl.num_programs(1) + tl.program_id(1)) * nets + net) * (9 * CIN * COUT)
    at = where + (kx * CIN + a_channel)[:, None] * (3 * COUT) + (ky * COUT + b_channel)[None, :]
    tl.store(part + at, acc, mask=a_ok[:, None] & b_ok[None, :])


@triton.jit(do_not_specialize=["parts", "images"])
def forward_coefficients(
    part, gamma, beta, running_mean, running_var, out, valid, parts, images, channels, momentum, eps,
    HW: tl.constexpr, C: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr, VALID: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_wait()
    forward_table(
        part, gamma, beta, running_mean, running_var, out, valid, parts, images * HW, HW, channels, C, momentum, eps,
        BR, BC, VALID * 2, True,
    )  # fmt: skip


@triton.jit(do_not_specialize=["parts", "images"])
def backward_coefficients(
    part, coefficients, out, dgamma, dbeta, valid, parts, images, channels,
    HW: tl.constexpr, C: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr, VALID: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_wait()
    backward_table(
        part, coefficients, out, dgamma, dbeta, valid, parts, images * HW, HW, channels, C, BR, BC, VALID * 2, True
    )


@triton.jit(do_not_specialize=["pixels", "nets"])
def normalise_network(
    x, skip, y, coefficients, valid, pixels, nets, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr,
    SC: tl.constexpr, SKIP: tl.constexpr, BP: tl.constexpr, VALID: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """y = relu(x * scale + shift + shortcut). SKIP 2: every second pixel of `skip`, its SC channels in the middle.

    Samples that do not count become 0: their own statistics were never taken, so else they could grow without bound.
    """
    net = tl.program_id(1)
    channel = tl.arange(0, C)
    pixel = tl.program_id(0) * BP + tl.arange(0, BP)
    if PDL:
        gdc_wait()
    at = coefficients + net * C + channel
    scale = tl.load(at + 2 * nets * C)[None, :]
    shift = tl.load(at + 3 * nets * C)[None, :]
    exists = (pixel < pixels)[:, None] & (channel >= 0)[None, :]
    ok = exists
    if VALID:
        ok = ok & (pixel // (H * W) < tl.load(valid + net))[:, None]
    begin = net.to(tl.int64) * pixels
    here = begin * C + pixel[:, None] * C + channel[None, :]
    value = tl.load(x + here, mask=ok, other=0.0).to(tl.float32) * scale + shift
    if SKIP == 1:
        value += tl.load(skip + here, mask=ok, other=0.0).to(tl.float32)
    if SKIP == 2:
        from_channel = channel - (C - SC) // 2
        line = (pixel // W) * 2  # images and rows together: both sides have twice as many rows there
        from_pixel = line * (2 * W) + (pixel % W) * 2
        some = ok & ((from_channel >= 0) & (from_channel < SC))[None, :]
        there = begin * (4 * SC) + from_pixel[:, None] * SC + from_channel[None, :]
        value += tl.load(skip + there, mask=some, other=0.0).to(tl.float32)
    tl.store(y + here, tl.where(ok, tl.maximum(value, 0.0), 0.0).to(y.dtype.element_ty), mask=exists)


@triton.jit(do_not_specialize=["pixels", "nets"])
def input_gradient_network(
    g, x, skip, dx, coefficients, slopes, valid, pixels, nets, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr,
    SC: tl.constexpr, SKIP: tl.constexpr, BP: tl.constexpr, VALID: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """dx of the normalisation, g being the gradient behind its relu; 0 for samples that do not count.

    SKIP: with the gradient of a shortcut around it; 1 from `skip`, 2 from its coarser pixels, where these channels are
    the middle of SC.
    """
    net = tl.program_id(1)
    channel = tl.arange(0, C)
    pixel = tl.program_id(0) * BP + tl.arange(0, BP)
    if PDL:
        gdc_wait()
    at = coefficients + net * C + channel
    mean = tl.load(at)[None, :]
    scale = tl.load(at + 2 * nets * C)[None, :]
    slope = tl.load(slopes + net * C + channel)[None, :]
    constant = tl.load(slopes + (nets + net) * C + channel)[None, :]
    exists = (pixel < pixels)[:, None] & (channel >= 0)[None, :]
    ok = exists
    if VALID:
        ok = ok & (pixel // (H * W) < tl.load(valid + net))[:, None]
    begin = net.to(tl.int64) * pixels
    here = begin * C + pixel[:, None] * C + channel[None, :]
    grad = tl.load(g + here, mask=ok, other=0.0).to(tl.float32)
    value = tl.load(x + here, mask=ok, other=0.0).to(tl.float32)
    result = tl.where(ok, scale * grad + slope * (value - mean) + constant, 0.0)
    if SKIP == 1:
        result += tl.load(skip + here, mask=ok, other=0.0).to(tl.float32)
    if SKIP == 2:
        line = pixel // W  # images and rows together: both sides have an even number of rows
        some = ok & ((line % 2 == 0) & (pixel % 2 == 0))[:, None]
        coarse = (line // 2) * (W // 2) + (pixel % W) // 2
        there = begin // 4 * SC + coarse[:, None] * SC + (channel + (SC - C) // 2)[None, :]
        result += tl.load(skip + there, mask=some, other=0.0).to(tl.float32)
    tl.store(dx + here, result.to(dx.dtype.element_ty), mask=exists)


@triton.jit(do_not_specialize=["pixels", "parts", "nets"])
def pool_gradient(
    gradient, gate, before, g, part, coefficients, valid, pixels, parts, nets, HW: tl.constexpr, C: tl.constexpr,
    BP: tl.constexpr, VALID: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The pooled features' gradient [images, n * C] back to the last relu, with the sums of conv_network's MODE 3."""
    net = tl.program_id(1)
    channel = tl.arange(0, C)
    pixel = tl.program_id(0) * BP + tl.arange(0, BP)
    if PDL:
        gdc_wait()
    mean = tl.load(coefficients + net * C + channel)[None, :]
    ok = (pixel < pixels)[:, None] & (channel >= 0)[None, :]
    image = pixel // HW
    counted = ok
    if VALID:
        counted = ok & (image < tl.load(valid + net))[:, None]
    here = net.to(tl.int64) * pixels * C + pixel[:, None] * C + channel[None, :]
    value = tl.load(gradient + image[:, None] * (nets * C) + net * C + channel[None, :], mask=counted, other=0.0) / HW
    value = value.to(g.dtype.element_ty).to(tl.float32)
    sign = tl.load(gate + here, mask=counted, other=0.0)
    value = tl.where(sign > 0, value, 0.0)
    old = tl.load(before + here, mask=counted, other=0.0).to(tl.float32)
    tl.store(g + here, value.to(g.dtype.element_ty), mask=ok)
    at = part + (tl.program_id(0) * nets + net) * C + channel
    tl.store(at, tl.sum(value, axis=0))
    tl.store(at + parts * nets * C, tl.sum(value * (old - mean), axis=0))


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
