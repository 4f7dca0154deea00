# mypy: ignore-errors
# Triton's device language is not Python to a type checker.
"""Which tile of a channels-last tensor [pixels, channels] a program of an elementwise kernel works on."""

import triton
import triton.language as tl


@triton.jit
def own_tile(channels, BP: tl.constexpr, BC: tl.constexpr):
    """Its pixels and channels; tiles lie side by side, then below. One axis: CUDA's second ends at 65,535."""
    across = tl.cdiv(channels, BC)
    down = tl.program_id(0) // across
    column = tl.program_id(0) - down * across
    return down * BP + tl.arange(0, BP), column * BC + tl.arange(0, BC)
