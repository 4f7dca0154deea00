# mypy: ignore-errors
# Triton's device language is not Python to a type checker.
"""The 3x3 convolution of n stacked networks as three device kernels.

Memory: activations [images, height, width, n * channels]; weights bf16 [n * out, 3, 3, in] (a channels-last weight).
The main operation is a row product: for one image row, the columns (kx, channel) of its neighbourhood times the weights
of one kernel row. A program slides down the image and multiplies each input row, read once, with all three kernel rows.
"""

import triton
import triton.language as tl


@triton.jit
def _load_row(
    base, at, column, ok, i, last, xc, H: tl.constexpr, W: tl.constexpr, STEP: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """Input row i as PIECES of [pixels, (kx, channel)]; zeros outside the picture (STEP 2: and between rows)."""
    there = (i >= 0) & (i < H) & (i <= last) & (i % STEP == 0)
    pieces = ()
    for piece in tl.static_range(PIECES):
        from_column = column + piece
        inside = ok & there & (from_column >= 0) & (from_column < W)
        if STEP > 1:
            inside = inside & (from_column % STEP == 0)
        offset = at + (from_column // STEP + (i // STEP) * (W // STEP)) * xc
        pieces = pieces + (tl.load(base + offset, mask=inside, other=0.0),)  # noqa: RUF005
    return pieces


@triton.jit
def _load_weights(at, ok, DTYPE: tl.constexpr, STEP: tl.constexpr, PIECES: tl.constexpr):
    """One kernel row of weights, as PIECES of [(kx, in), out]."""
    pieces = ()
    for piece in tl.static_range(PIECES):
        pieces = pieces + (tl.load(at + piece * STEP, mask=ok, other=0.0).to(DTYPE),)  # noqa: RUF005
    return pieces


@triton.jit
def _product(row, weights, acc, PIECES: tl.constexpr):
    for piece in tl.static_range(PIECES):
        acc = tl.dot(row[piece], weights[piece], acc, input_precision="ieee")
    return acc


@triton.jit(do_not_specialize=["images", "nets", "parts"])
def conv_rows(
    x, w, y, part, valid, images, nets, parts, xc, yc, H: tl.constexpr, W: tl.constexpr, CIN: tl.constexpr,
    COUT: tl.constexpr, CP: tl.constexpr, NP: tl.constexpr, BN: tl.constexpr, M: tl.constexpr, ROWS: tl.constexpr,
    PIECES: tl.constexpr, WK: tl.constexpr, WN: tl.constexpr, WT: tl.constexpr, FLIP: tl.constexpr,
    S_IN: tl.constexpr, S_OUT: tl.constexpr, STATS: tl.constexpr, VALID: tl.constexpr,
):  # fmt: skip
    """y = conv(x, w): reads x once from memory (three times from L1), writes y once.

    Program: one network, M / W images, ROWS rows, BN channels. H, W: the finer of the two resolutions.
    S_OUT 2 keeps every second row and column (stride 2); S_IN 2 spreads the input with zeros (its gradient).
    STATS: part[0] = sum of y, part[1] = sum of y^2 by program and channel, over valid samples.
    """
    splits: tl.constexpr = NP // BN
    net = tl.program_id(0) // splits
    channel = (tl.program_id(0) % splits) * BN + tl.arange(0, BN)
    first_image = tl.program_id(1) * (M // W)
    r0 = tl.program_id(2) * ROWS

    k = tl.arange(0, (4 if PIECES == 1 else 1) * CP)
    kx = k // CP
    k_channel = k % CP
    k_ok = kx < 3
    if CP > CIN:
        k_ok = k_ok & (k_channel < CIN)
    n_ok = channel < COUT

    tap = 8 - kx if FLIP else kx
    w_at = w + net * (9 * CIN * COUT) + (channel * WN)[None, :] + (k_channel * WK + tap * WT)[:, None]
    w_ok = k_ok[:, None] & n_ok[None, :]
    DTYPE: tl.constexpr = x.dtype.element_ty
    next_tap: tl.constexpr = -WT if FLIP else WT
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
    x_at = (image * (HI * WI))[:, None] * xc + (net * CIN + k_channel)[None, :]
    base = x + first_image.to(tl.int64) * (HI * WI) * xc

    WO: tl.constexpr = W // S_OUT
    HO: tl.constexpr = H // S_OUT
    y_ok = (image_ok & (column_out % S_OUT == 0))[:, None] & n_ok[None, :]
    to = net * COUT + channel
    y_at = (image * (HO * WO) + column_out // S_OUT)[:, None] * yc + to[None, :]
    y_base = y + first_image.to(tl.int64) * (HO * WO) * yc
    if STATS:
        counted = y_ok
        if VALID:
            counted = y_ok & (first_image + image < tl.load(valid + net))[:, None]
        total = tl.zeros([M, BN], dtype=tl.float32)
        square = tl.zeros([M, BN], dtype=tl.float32)

    # Three rows of output are under way at any time; three steps bring each accumulator back to its place.
    a = tl.zeros([M, BN], dtype=tl.float32)
    b = tl.zeros([M, BN], dtype=tl.float32)
    c = tl.zeros([M, BN], dtype=tl.float32)
    begin = tl.maximum(r0 - 1, 0)
    last = r0 + ROWS
    row = _load_row(base, x_at, column_in, ok, begin, last, xc, H, W, S_IN, PIECES)
    for i in range(begin, last + 1, 3):
        for step in tl.static_range(3):
            coming = _load_row(base, x_at, column_in, ok, i + step + 1, last, xc, H, W, S_IN, PIECES)
            a = _product(row, w2, a, PIECES)
            b = _product(row, w1, b, PIECES)
            c = _product(row, w0, c, PIECES)
            done = i + step - 1
            keep = (done >= r0) & (done < last) & (done < H) & (done % S_OUT == 0)
            result = a.to(y.dtype.element_ty)
            tl.store(y_base + y_at + (done // S_OUT) * WO * yc, result, mask=y_ok & keep)
            if STATS:
                value = tl.where(counted & keep, result.to(tl.float32), 0.0)
                total += value
                square += value * value
            a = b
            b = c
            c = tl.zeros([M, BN], dtype=tl.float32)
            row = coming
    if STATS:
        index = tl.program_id(1) * tl.num_programs(2) + tl.program_id(2)
        at = part + index * yc + to
        tl.store(at, tl.sum(total, axis=0), mask=n_ok)
        tl.store(at + parts * yc, tl.sum(square, axis=0), mask=n_ok)


@triton.jit(do_not_specialize=["images", "nets", "blocks_each"])
def conv_weight_grad(
    x, g, part, images, nets, xc, gc, blocks_each, H: tl.constexpr, W: tl.constexpr, CIN: tl.constexpr,
    COUT: tl.constexpr, CP: tl.constexpr, NP: tl.constexpr, BA: tl.constexpr, BB: tl.constexpr, M: tl.constexpr,
    S: tl.constexpr,
):  # fmt: skip
    """part[split, net, (kx, in), (ky, out)] = sum over the split's pixels of x[q + kx - 1] * g[q - (ky - 1) rows].

    One product a block of M pixels gives all taps of the tile: x and g are read once from memory for each tile
    (tiles along the other side read them again, from L2), the partial sums are written once in fp32.
    """
    tiles_b: tl.constexpr = (3 * NP + BB - 1) // BB
    tiles_a: tl.constexpr = (3 * CP + BA - 1) // BA
    net = tl.program_id(0) // (tiles_a * tiles_b)
    tile = tl.program_id(0) % (tiles_a * tiles_b)
    a = (tile // tiles_b) * BA + tl.arange(0, BA)
    b = (tile % tiles_b) * BB + tl.arange(0, BB)
    kx = a // CP
    a_channel = a % CP
    a_ok = (kx < 3) & (a_channel < CIN)
    ky = b // NP
    b_channel = b % NP
    b_ok = (ky < 3) & (b_channel < COUT)
    a_at = (kx - 1) * xc + net * CIN + a_channel
    b_at = net * COUT + b_channel
    HG: tl.constexpr = H // S
    WG: tl.constexpr = W // S

    acc = tl.zeros([BA, BB], dtype=tl.float32)
    begin = tl.program_id(1) * blocks_each
    for block in range(begin, begin + blocks_each):
        q = block * M + tl.arange(0, M)
        image = q // (H * W)
        row = (q // W) % H
        column = q % W
        in_x = column[:, None] + kx[None, :] - 1
        x_ok = (in_x >= 0) & (in_x < W) & (image < images)[:, None] & a_ok[None, :]
        left = tl.load(x + q.to(tl.int64)[:, None] * xc + a_at[None, :], mask=x_ok, other=0.0)
        in_g = row[:, None] - (ky[None, :] - 1)
        g_ok = (in_g >= 0) & (in_g < H) & (in_g % S == 0)
        g_ok = g_ok & ((column % S == 0) & (image < images))[:, None] & b_ok[None, :]
        line = (image * (HG * WG) + column // S).to(tl.int64)[:, None] * gc
        right = tl.load(g + line + (in_g // S) * WG * gc + b_at[None, :], mask=g_ok, other=0.0)
        acc = tl.dot(tl.trans(left), right, acc, input_precision="ieee")
    where = (tl.program_id(1) * nets + net) * (9 * CIN * COUT)
    at = where + (kx * CIN + a_channel)[:, None] * (3 * COUT) + (ky * COUT + b_channel)[None, :]
    tl.store(part + at, acc, mask=a_ok[:, None] & b_ok[None, :])


@triton.jit(do_not_specialize=["size", "splits"])
def sum_weight_grad(part, dw, size, splits, CIN: tl.constexpr, COUT: tl.constexpr, BLOCK: tl.constexpr):
    """dw[net * out, in, ky, kx] = sum over splits of part[split, net, kx, in, ky, out]: reads the partial sums once."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for split in range(splits):
        total += tl.load(part + split * size + at, mask=at < size, other=0.0)
    out = at % COUT
    ky = (at // COUT) % 3
    cin = (at // (3 * COUT)) % CIN
    kx = (at // (3 * COUT * CIN)) % 3
    net = at // (9 * CIN * COUT)
    to = ((net * COUT + out) * CIN + cin) * 9 + ky * 3 + kx
    tl.store(dw + to, total.to(dw.dtype.element_ty), mask=at < size)
