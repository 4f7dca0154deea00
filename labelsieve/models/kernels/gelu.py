"""What of a network with GELUs lies between its convolutions: two passes forward and two back, by one.py on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from labelsieve.models import kernels


def pool_norm_gelu(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    *,
    pool: bool = False,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    valid: Tensor | None = None,
    across: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """gelu(batch_norm(max_pool(x))) of one network, the pooling of 2 x 2 if asked for; see reference.py."""
    if kernels.usable(x) and across is None:
        from labelsieve.models.kernels import single_network_norm as one

        if one.supported(x, pool=pool):
            return one.norm_act(
                x, gamma, beta, running_mean, running_var,
                act=one.GELU, pool=pool, training=training, momentum=momentum, eps=eps, valid=valid,
            )  # fmt: skip
    return F.gelu(
        kernels.reference.batch_norm_act(
            F.max_pool2d(x, 2) if pool else x, gamma, beta, running_mean, running_var, 1,
            relu=False, training=training, momentum=momentum, eps=eps, valid=valid, across=across,
        )
    )  # fmt: skip


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """gelu(x + bias): the same with mean 0 and deviation 1."""
    if kernels.usable(x):
        from labelsieve.models.kernels import single_network_norm as one

        zeros, ones = torch.zeros_like(bias), torch.ones_like(bias)
        return one.norm_act(x, ones, bias, zeros, ones, act=one.GELU, training=False, eps=0.0)
    return F.gelu(x + bias.to(x.dtype)[:, None, None])
