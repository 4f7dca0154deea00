"""Block sizes of the GPU kernels by channels and height: a table, so that training does not search.

`python3 benchmarks/fused.py --parts sweep` measures the entries.
"""

from __future__ import annotations

from typing import NamedTuple


class ConvBlock(NamedTuple):
    """A program of the forward or input-gradient kernel."""

    pixels: int  # a row of several images: a multiple of the width
    rows: int  # output rows it slides down
    columns: int  # output channels it computes
    warps: int
    stages: int


class WeightBlock(NamedTuple):
    """A program of the weight-gradient kernel."""

    pixels: int  # a step of its loop
    left: int  # columns (kx, in) of its tile
    right: int  # columns (ky, out) of its tile
    programs: int  # target number: more programs mean more partial sums
    warps: int
    stages: int


class FusedConvBlock(NamedTuple):
    """A program of fused_device.conv_network."""

    pixels: int  # a row of several images: a multiple of the width
    rows: int  # output rows it slides down; fewer if there were too few programs
    columns: int  # output channels it computes
    warps: int
    stages: int  # rows that are prefetched
    programs: int  # target number


PROGRAMS = 264  # two per multiprocessor of an H200

# Keys: channels of the kernel's input, height of the finer side. The fastest of about 30 for 8 networks on an H200.
CONV: dict[tuple[int, int], ConvBlock] = {
    (16, 32): ConvBlock(64, 32, 16, 2, 1),
    (32, 16): ConvBlock(64, 16, 32, 4, 1),
    (64, 8): ConvBlock(32, 8, 64, 4, 1),
}
WEIGHT: dict[tuple[int, int], WeightBlock] = {
    (16, 32): WeightBlock(128, 64, 64, 264, 4, 3),
    (32, 16): WeightBlock(64, 128, 128, 264, 4, 3),
    (64, 8): WeightBlock(64, 64, 64, 528, 4, 3),
}
# Chosen by the number of instructions per row and of registers, not by measurement.
FUSED_CONV: dict[tuple[int, int], FusedConvBlock] = {
    (16, 32): FusedConvBlock(32, 32, 16, 1, 3, 1056),
    (32, 16): FusedConvBlock(32, 16, 32, 2, 3, 512),
    (64, 8): FusedConvBlock(32, 8, 64, 4, 2, 256),
}


def power_of_two(x: int) -> int:
    """The smallest power of two that is at least x."""
    return 1 << max(x - 1, 0).bit_length()


def conv_block(cin: int, cout: int, height: int, width: int) -> ConvBlock:
    """The block of the table, adapted to the shape."""
    found = CONV.get((cin, height))
    if found is None:
        found = ConvBlock(64, min(height, 8), min(64, power_of_two(cout)), 4, 1)
    columns = max(16, min(found.columns, power_of_two(cout)))
    if cin != cout:  # the table is for equal channels: keep the three accumulators within the registers
        found = found._replace(pixels=min(found.pixels, max(64, 2048 // columns)))
    return found._replace(pixels=max(found.pixels, width, 16), columns=columns, rows=min(found.rows, height))


def weight_block(cin: int, cout: int, height: int) -> WeightBlock:
    """The block of the table, adapted to the shape."""
    found = WEIGHT.get((cin, height))
    a, b = 4 * max(4, power_of_two(cin)), 4 * max(16, power_of_two(cout))
    if found is None:
        found = WeightBlock(64, min(64, a), min(64, b), 264, 4, 3)
    return found._replace(left=min(found.left, a), right=min(found.right, b))


def fused_conv_block(cin: int, cout: int, height: int, width: int, n: int, batch: int) -> FusedConvBlock:
    """The block of the table, adapted to the shape, with few enough rows for the programs to fill the device."""
    found = FUSED_CONV.get((cin, height))
    outs = max(16, power_of_two(cout))
    if found is None:
        found = FusedConvBlock(64, height, min(64, outs), 4, 2, 264)
    if cin != cout:  # the table is for equal channels
        found = found._replace(columns=min(32, outs))
    pixels, columns = max(found.pixels, width, 16), min(found.columns, outs)
    rows = min(found.rows, height)
    while rows > 4 and n * (outs // columns) * -(-batch // (pixels // width)) * -(-height // rows) < found.programs:
        rows = -(-rows // 2)
    return found._replace(pixels=pixels, columns=columns, rows=rows)
