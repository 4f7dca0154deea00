# mypy: ignore-errors
# Triton's device language is not Python to a type checker.
"""The largest of 3 x 3 pixels, two apart, without a border; tiles are [pixels, channels] of channels-last tensors.

Which of the nine it was takes a byte (torch keeps eight). On the way back every input pixel looks at the windows it
lies in, so that nothing is added atomically.
"""

import triton
import triton.language as tl

from labelsieve.models.kernels.tile_device import own_tile


@triton.jit(do_not_specialize=["pixels", "height", "width", "out_height", "out_width"])
def largest(
    x, y, choice, pixels, height, width, out_height, out_width, channels, BP: tl.constexpr, BC: tl.constexpr
):  # fmt: skip
    """y and its choices, from x [B, height, width, channels]: reads x about once."""
    pixel, channel = own_tile(channels, BP, BC)
    ok = (pixel < pixels)[:, None] & (channel < channels)[None, :]
    line = pixel // out_width  # of all pictures
    picture = line // out_height
    top = picture * height + 2 * (line - picture * out_height)
    corner = top.to(tl.int64) * width + 2 * (pixel - line * out_width)
    best = tl.load(x + corner[:, None] * channels + channel[None, :], mask=ok, other=0.0).to(tl.float32)
    which = tl.zeros([BP, BC], dtype=tl.int32)
    for tap in tl.static_range(1, 9):
        place = corner + (tap // 3) * width + tap % 3
        value = tl.load(x + place[:, None] * channels + channel[None, :], mask=ok, other=0.0).to(tl.float32)
        larger = (value > best) | (value != value)  # what is not a number is not hidden
        best = tl.where(larger, value, best)
        which = tl.where(larger, tap, which)
    at = pixel.to(tl.int64)[:, None] * channels + channel[None, :]
    tl.store(y + at, best.to(y.dtype.element_ty), mask=ok)
    tl.store(choice + at, which.to(tl.uint8), mask=ok)


@triton.jit(do_not_specialize=["pixels", "height", "width", "out_height", "out_width"])
def gradient(
    g, choice, dx, pixels, height, width, out_height, out_width, channels, BP: tl.constexpr, BC: tl.constexpr
):  # fmt: skip
    """dx [B, height, width, channels]: the gradients of up to four windows that chose this pixel."""
    pixel, channel = own_tile(channels, BP, BC)
    exists = (pixel < pixels)[:, None] & (channel < channels)[None, :]
    line = pixel // width
    picture = line // height
    row = line - picture * height
    column = pixel - line * width
    total = tl.zeros([BP, BC], dtype=tl.float32)
    for window in tl.static_range(4):
        out_row = row // 2 - window // 2
        out_column = column // 2 - window % 2
        down = row - 2 * out_row
        right = column - 2 * out_column
        inside = (out_row >= 0) & (out_row < out_height) & (down < 3)
        inside = inside & (out_column >= 0) & (out_column < out_width) & (right < 3)
        ok = exists & inside[:, None]
        place = (picture * out_height + out_row).to(tl.int64) * out_width + out_column
        at = place[:, None] * channels + channel[None, :]
        chosen = tl.load(choice + at, mask=ok, other=255).to(tl.int32) == (3 * down + right)[:, None]
        total += tl.where(chosen, tl.load(g + at, mask=ok, other=0.0).to(tl.float32), 0.0)
    at = pixel.to(tl.int64)[:, None] * channels + channel[None, :]
    tl.store(dx + at, total.to(dx.dtype.element_ty), mask=exists)
