"""SGD with momentum: the host side of sgd_device.py."""

from __future__ import annotations

import triton
from torch import Tensor

from labelsieve.models.kernels import sgd_device


def sgd(
    flat: Tensor, gradient: Tensor, first: Tensor, decay: Tensor, owner: Tensor, rate: Tensor, *, momentum: float,
    nesterov: bool,
) -> None:  # fmt: skip
    """engine.bundle.Bundle's step for SGD, in place; `gradient` without the weight decay."""
    size = flat.numel()
    sgd_device.sgd[(triton.cdiv(size, 1024),)](
        flat, gradient, first, decay, owner, rate, size, momentum, NESTEROV=nesterov, BLOCK=1024, num_warps=4
    )
