"""What the kernels compute, in plain torch: on any device, dtype and shape. The CPU's path, the kernels' yardstick."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def grouped_conv3x3(x: Tensor, w: Tensor, n: int, *, stride: int = 1) -> Tensor:
    """Each of n networks' channels with its own 3x3 weights, padding 1."""
    return F.conv2d(x, w.to(x.dtype), stride=stride, padding=1, groups=n)


def valid_mask(valid: Tensor, batch: int, channels: int) -> Tensor:
    """[batch, channels, 1, 1]: True where the sample is not padding for the channel's network."""
    per_network = torch.arange(batch, device=valid.device)[:, None] < valid[None, :]
    return per_network.repeat_interleave(channels // len(valid), dim=1)[:, :, None, None]


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
) -> Tensor:
    """relu(batch_norm(x) + residual), statistics over the samples b < valid[i] of network i.

    Running statistics are updated in place (a network without samples keeps its own); padding gets no gradient.
    """
    mask = None if valid is None else valid_mask(valid, len(x), x.shape[1])
    if mask is None or valid is None or not training:
        y = F.batch_norm(x, running_mean, running_var, gamma, beta, training, momentum, eps)
    else:
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        samples = valid.to(wide).repeat_interleave(x.shape[1] // n) * (x.shape[2] * x.shape[3])
        count = samples.clamp_min(1)
        mean = torch.where(mask, x.to(wide), 0).sum((0, 2, 3)) / count
        centred = torch.where(mask, x.to(wide) - mean[None, :, None, None], 0)
        var = (centred * centred).sum((0, 2, 3)) / count
        y = (centred * (gamma * torch.rsqrt(var + eps))[None, :, None, None] + beta[None, :, None, None]).to(x.dtype)
        with torch.no_grad():
            weight = momentum * (samples > 0)
            unbiased = var * (count / (count - 1).clamp_min(1))
            running_mean.add_((weight * (mean - running_mean)).to(running_mean.dtype))
            running_var.add_((weight * (unbiased - running_var)).to(running_var.dtype))
    if residual is not None:
        y = y + residual
    if mask is not None:
        y = torch.where(mask, y, y.detach())
    return F.relu(y) if relu else y
