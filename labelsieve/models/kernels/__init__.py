"""Layers of n stacked networks: Triton kernels on CUDA, plain torch elsewhere.

    y = grouped_conv3x3(x, w, n)                       x [B, n*Cin, H, W], w [n*Cout, Cin, 3, 3]
    y, sums = grouped_conv3x3_sums(x, w, n)            the same, with sums for the batch norm that follows
    z = batch_norm_act(y, Norm(gamma, beta, running_mean, running_var, n), residual=r, sums=sums)

A file NAME_device.py contains Triton kernels, NAME.py calls them: conv.py convolutions, norm.py batch norm, resnet.py
the features of whole ResNets (device code in fused_device.py), step.py the optimizer and
augmented batches. reference.py is the same in plain torch.

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
from labelsieve.models.kernels.reference import Activation, Norm


@cache
def available() -> bool:
    """Whether the kernels can run: CUDA with compute capability 8 or more, and triton."""
    if os.environ.get("LABELSIEVE_KERNELS") == "0" or find_spec("triton") is None:
        return False
    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 8


def fused() -> bool:
    """Whether resnet.py computes the features of a ResNet as one function."""
    return os.environ.get("LABELSIEVE_FUSED") != "0"


def usable(x: Tensor) -> bool:
    """Whether the kernels support this tensor: it must have half precision."""
    return x.is_cuda and x.dtype in (torch.bfloat16, torch.float16) and available()


def aligned(x: Tensor) -> Tensor:
    """Pad the channels of an input or a weight with zeros up to eight: cuDNN is slow with fewer."""
    return F.pad(x, (0, 0, 0, 0, 0, 8 - x.shape[1])) if x.shape[1] < 8 else x


def _dense(w: Tensor, n: int) -> bool:
    """Whether cuDNN is faster: it computes a wide convolution of one network two to three times as fast as conv.py."""
    return n == 1 and min(w.shape[:2]) >= 64


def grouped_conv3x3(x: Tensor, w: Tensor, n: int, *, stride: int = 1) -> Tensor:
    """Apply the 3x3 weights of each of n networks to its channels, with padding 1."""
    if usable(x) and not _dense(w, n):
        from labelsieve.models.kernels import conv

        if conv.supported(x, w, n, stride):
            return conv.grouped_conv3x3(x, w, n, stride=stride)
    return reference.grouped_conv3x3(x, w, n, stride=stride)


def grouped_conv3x3_sums(
    x: Tensor, w: Tensor, n: int, *, stride: int = 1, valid: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """Do the same, and return partial sums of y and y^2 for `batch_norm_act` (None without kernels)."""
    if usable(x) and not _dense(w, n):
        from labelsieve.models.kernels import conv

        if conv.supported(x, w, n, stride):
            return conv.grouped_conv3x3_sums(x, w, n, stride=stride, valid=valid)
    return reference.grouped_conv3x3(x, w, n, stride=stride), None


def batch_norm_act(x: Tensor, norm: Norm, *, residual: Tensor | None = None, sums: Tensor | None = None) -> Tensor:
    """Return act(batch_norm(max_pool(x)) + residual); see reference.py."""
    if usable(x):
        from labelsieve.models.kernels import norm as kernel

        if kernel.supported(x, norm, residual):
            return kernel.batch_norm_act(x, norm, residual=residual, sums=sums)
    return reference.batch_norm_act(x, norm, residual=residual)


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """Return gelu(x + bias), on a GPU by the batch-norm kernel with mean 0 and deviation 1."""
    if not usable(x):
        return F.gelu(x + bias.to(x.dtype)[:, None, None])
    zeros, ones = torch.zeros_like(bias), torch.ones_like(bias)
    return batch_norm_act(x, Norm(ones, bias, zeros, ones, act=Activation.GELU, training=False, eps=0.0))


__all__ = [
    "Activation",
    "Norm",
    "aligned",
    "available",
    "batch_norm_act",
    "bias_gelu",
    "fused",
    "grouped_conv3x3",
    "grouped_conv3x3_sums",
    "reference",
    "usable",
]
