# mypy: ignore-errors
# Triton's device language is not Python to a type checker.
"""SGD with momentum as one kernel."""

import triton
import triton.language as tl


@triton.jit
def sgd(flat, gradient, first, decay, owner, rate, size, momentum, NESTEROV: tl.constexpr, BLOCK: tl.constexpr):
    """The rate by network (`owner`), weight decay added to the gradient: reads each tensor once."""
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
