"""The layers of n stacked networks, each as fast as the device allows: Triton kernels on CUDA, plain torch elsewhere.

    y = grouped_conv3x3(x, w, n)                       x [B, n*Cin, H, W], w [n*Cout, Cin, 3, 3]
    y, sums = grouped_conv3x3_sums(x, w, n)            the same; sums for the batch normalisation behind it
    z = batch_norm_act(y, gamma, beta, running_mean, running_var, n, residual=r, sums=sums)

`LABELSIEVE_KERNELS=0` switches all kernels off, `LABELSIEVE_FUSED=0` the one that computes a whole ResNet (resnet.py).
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import functional as F

from labelsieve.models.kernels import reference


@cache
def available() -> bool:
    """True on CUDA with triton and compute capability 8 or more, unless switched off."""
    if os.environ.get("LABELSIEVE_KERNELS") == "0" or find_spec("triton") is None:
        return False
    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 8


def fused() -> bool:
    """Whether a ResNet's features go through resnet.py, as one function: unless switched off."""
    return os.environ.get("LABELSIEVE_FUSED") != "0"


def usable(x: Tensor) -> bool:
    """Whether the kernels take this tensor: half precision, on such a device."""
    return x.is_cuda and x.dtype in (torch.bfloat16, torch.float16) and available()


def aligned(x: Tensor) -> Tensor:
    """Zero channels added up to eight, of inputs and weights alike: dense kernels load eight at a time, or slowly."""
    return F.pad(x, (0, 0, 0, 0, 0, 8 - x.shape[1])) if x.shape[1] < 8 else x


def grouped_conv3x3(x: Tensor, w: Tensor, n: int, *, stride: int = 1) -> Tensor:
    """Each of n networks' channels with its own 3x3 weights, padding 1."""
    if usable(x):
        from labelsieve.models.kernels import conv

        if conv.supported(x, w, n, stride):
            return conv.grouped_conv3x3(x, w, n, stride=stride)
    return reference.grouped_conv3x3(x, w, n, stride=stride)


def grouped_conv3x3_sums(
    x: Tensor, w: Tensor, n: int, *, stride: int = 1, valid: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """The same, with partial sums of y and y^2 for `batch_norm_act` (None where the kernels do not run)."""
    if usable(x):
        from labelsieve.models.kernels import conv

        if conv.supported(x, w, n, stride):
            return conv.grouped_conv3x3_sums(x, w, n, stride=stride, valid=valid)
    return reference.grouped_conv3x3(x, w, n, stride=stride), None


def batch_norm_act(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    n: int,
    *,
    residual: Tensor | None = None,
    relu: bool = True,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    valid: Tensor | None = None,
    sums: Tensor | None = None,
) -> Tensor:
    """relu(batch_norm(x) + residual), statistics over the samples b < valid[i] of network i; see reference.py."""
    if usable(x) and n == 1 and residual is None and sums is None:
        from labelsieve.models.kernels import single_network_norm as one

        return one.norm_act(
            x, gamma, beta, running_mean, running_var,
            act=one.RELU if relu else one.NONE, training=training, momentum=momentum, eps=eps, valid=valid,
        )  # fmt: skip
    if usable(x):
        from labelsieve.models.kernels import norm

        return norm.batch_norm_act(
            x,
            gamma,
            beta,
            running_mean,
            running_var,
            n,
            residual=residual,
            relu=relu,
            training=training,
            momentum=momentum,
            eps=eps,
            valid=valid,
            sums=sums,
        )
    return reference.batch_norm_act(
        x,
        gamma,
        beta,
        running_mean,
        running_var,
        n,
        residual=residual,
        relu=relu,
        training=training,
        momentum=momentum,
        eps=eps,
        valid=valid,
    )


__all__ = [
    "aligned",
    "available",
    "batch_norm_act",
    "fused",
    "grouped_conv3x3",
    "grouped_conv3x3_sums",
    "reference",
    "usable",
]
