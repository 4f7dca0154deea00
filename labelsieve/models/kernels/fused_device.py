# mypy: ignore-errors
# Triton's device language is not Python to a type checker.
"""The operations between the convolutions of a fused ResNet, for activations [networks, pixels, channels].

Tables (int64, one row per convolution) let one launch pack the weights, or add up the gradients, of all layers.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

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
