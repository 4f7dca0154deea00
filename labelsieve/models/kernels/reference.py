"""What the kernels compute, in plain torch: on any device, dtype and shape. The CPU's path, the kernels' yardstick."""

from __future__ import annotations

from collections.abc import Callable

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


def statistics(x: Tensor, mask: Tensor, samples: Tensor, across: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
    """Mean, variance and number of samples of each channel over all processes, whose own three `across` gathers."""
    count = samples.clamp_min(1)
    mean = torch.where(mask, x, 0).sum((0, 2, 3)) / count
    centred = torch.where(mask, x - mean[None, :, None, None], 0)
    counts, means, squares = across(torch.stack([samples, mean, (centred * centred).sum((0, 2, 3))])).unbind(1)
    samples = counts.sum(0)
    count = samples.clamp_min(1)
    mean = (counts * means).sum(0) / count
    return mean, (squares + counts * (means - mean) ** 2).sum(0) / count, samples


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
    across: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """relu(batch_norm(x) + residual), statistics over the samples b < valid[i] of network i.

    With `across` they are over the samples of all processes: it gathers what each found, [size, ...].

    Running statistics are updated in place (a network without samples keeps its own); padding gets no gradient.
    """
    if across is not None and valid is None:
        valid = torch.full((n,), len(x), device=x.device)
    mask = None if valid is None else valid_mask(valid, len(x), x.shape[1])
    if mask is None or valid is None or not training:
        y = F.batch_norm(x, running_mean, running_var, gamma, beta, training, momentum, eps)
    else:
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        samples = valid.to(wide).repeat_interleave(x.shape[1] // n) * (x.shape[2] * x.shape[3])
        if across is None:
            count = samples.clamp_min(1)
            mean = torch.where(mask, x.to(wide), 0).sum((0, 2, 3)) / count
            centred = torch.where(mask, x.to(wide) - mean[None, :, None, None], 0)
            var = (centred * centred).sum((0, 2, 3)) / count
        else:
            mean, var, samples = statistics(x.to(wide), mask, samples, across)
            count = samples.clamp_min(1)
            centred = torch.where(mask, x.to(wide) - mean[None, :, None, None], 0)
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
