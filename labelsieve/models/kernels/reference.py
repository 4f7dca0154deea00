"""The operations of the kernels in plain torch, for any device, dtype and shape. The CPU and the tests use them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor
from torch.nn import functional as F

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # of Adam, as Kingma and Ba (2015) recommend


class Activation(IntEnum):
    """The function after a batch norm. The kernels use the same numbers."""

    NONE = 0
    RELU = 1
    GELU = 2


@dataclass(frozen=True)
class Norm:
    """The parameters of a batch norm of n stacked networks, and how it is applied."""

    gamma: Tensor
    beta: Tensor
    running_mean: Tensor  # updated in place in training
    running_var: Tensor
    n: int = 1
    act: Activation = Activation.RELU
    pool: bool = False  # 2 x 2 max pooling first
    training: bool = True
    momentum: float = 0.1
    eps: float = 1e-5
    valid: Tensor | None = None  # int32 [n]: number of real samples of each network; the others are padding
    across: Callable[[Tensor], Tensor] | None = None  # gathers a tensor of all processes, [size, ...]


def grouped_conv3x3(x: Tensor, w: Tensor, n: int, *, stride: int = 1) -> Tensor:
    """Apply the 3x3 weights of each of n networks to its channels, with padding 1."""
    # cuDNN reads channels-last weights: both conversions in one operation.
    weight = w.to(x.dtype, memory_format=torch.channels_last) if x.is_cuda else w.to(x.dtype)
    return F.conv2d(x, weight, stride=stride, padding=1, groups=n)


def valid_mask(valid: Tensor, batch: int, channels: int) -> Tensor:
    """[batch, channels, 1, 1]: False for samples that are padding for the network of the channel."""
    per_network = torch.arange(batch, device=valid.device)[:, None] < valid[None, :]
    return per_network.repeat_interleave(channels // len(valid), dim=1)[:, :, None, None]


def statistics(x: Tensor, mask: Tensor, samples: Tensor, across: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
    """Mean, variance and number of values of each channel over all processes."""
    count = samples.clamp_min(1)
    mean = torch.where(mask, x, 0).sum((0, 2, 3)) / count
    centred = torch.where(mask, x - mean[None, :, None, None], 0)
    counts, means, squares = across(torch.stack([samples, mean, (centred * centred).sum((0, 2, 3))])).unbind(1)
    samples = counts.sum(0)
    count = samples.clamp_min(1)
    mean = (counts * means).sum(0) / count
    return mean, (squares + counts * (means - mean) ** 2).sum(0) / count, samples


def batch_norm_act(x: Tensor, norm: Norm, *, residual: Tensor | None = None, sums: Tensor | None = None) -> Tensor:
    """Return act(batch_norm(max_pool(x)) + residual).

    Statistics are taken over the samples that are not padding, of all processes if `across` is given. A network without
    samples keeps its running statistics. Padding gets no gradient. `sums` is for the kernels and is not used here.
    """
    if norm.pool:
        x = F.max_pool2d(x, 2)
    valid = norm.valid
    if norm.across is not None and valid is None:
        valid = torch.full((norm.n,), len(x), device=x.device)
    mask = None if valid is None else valid_mask(valid, len(x), x.shape[1])
    if mask is None or valid is None or not norm.training:
        y = F.batch_norm(
            x, norm.running_mean, norm.running_var, norm.gamma, norm.beta, norm.training, norm.momentum, norm.eps
        )
    else:
        y = _masked_norm(x, norm, valid, mask)
    if residual is not None:
        y = y + residual
    if mask is not None:
        y = torch.where(mask, y, y.detach())
    if norm.act == Activation.RELU:
        return F.relu(y)
    return F.gelu(y) if norm.act == Activation.GELU else y


def _masked_norm(x: Tensor, norm: Norm, valid: Tensor, mask: Tensor) -> Tensor:
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    samples = valid.to(wide).repeat_interleave(x.shape[1] // norm.n) * (x.shape[2] * x.shape[3])
    if norm.across is None:
        count = samples.clamp_min(1)
        mean = torch.where(mask, x.to(wide), 0).sum((0, 2, 3)) / count
        centred = torch.where(mask, x.to(wide) - mean[None, :, None, None], 0)
        var = (centred * centred).sum((0, 2, 3)) / count
    else:
        mean, var, samples = statistics(x.to(wide), mask, samples, norm.across)
        count = samples.clamp_min(1)
        centred = torch.where(mask, x.to(wide) - mean[None, :, None, None], 0)
    scale = norm.gamma * torch.rsqrt(var + norm.eps)
    y = (centred * scale[None, :, None, None] + norm.beta[None, :, None, None]).to(x.dtype)
    with torch.no_grad():
        weight = norm.momentum * (samples > 0)
        unbiased = var * (count / (count - 1).clamp_min(1))
        for running, new in ((norm.running_mean, mean), (norm.running_var, unbiased)):
            running.add_((weight * (new - running)).to(running.dtype))
    return y
