"""A small wide network that learns small pictures in about ten epochs.

It follows Page (2018, "How to train your ResNet"), hlb-CIFAR10 and Jordan (2024, "94 % on CIFAR-10 in 3.29 seconds",
arXiv:2404.00498, which has the ablations): a fixed first layer that whitens 2x2 patches (21 epochs instead of 35),
convolutions that start as the identity (18), batch norm without scale whose biases learn 64 times as fast (13), GELU,
max pooling, small logits.

One network fills a GPU, so n networks are computed one after the other (layers.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labelsieve.errors import InputError
from labelsieve.models import kernels
from labelsieve.models.layers import BatchNorm, Linear, SequentialStack
from labelsieve.types import Store

WIDTHS = (64, 256, 256)  # channels per block, from the ablations cited above
PATCH = 2  # pixels per side
WHITENING_FLOOR = 5e-4  # added to each variance, so that directions in which patches hardly vary are not amplified
WHITENING_PIXELS = 5_000 * 32 * 32  # enough for a covariance of twelve numbers
# A parameter that is multiplied by s learns s * s times as fast with SGD, without a change of the optimizer.
BIAS_GAIN = 8.0
LOGIT_SCALE = 1 / 9  # small logits, from the ablations cited above


def whitening_filters(pictures: Tensor) -> Tensor:
    """Filters [2 * d, C, 2, 2], d = 4 C, that make the patches of pictures [M, C, H, W] uncorrelated, and their
    negatives, as the activation after them needs both signs."""
    channels = pictures.shape[1]
    patches = pictures.double().unfold(2, PATCH, 1).unfold(3, PATCH, 1)  # [M, C, H-1, W-1, 2, 2]
    rows = patches.permute(0, 2, 3, 1, 4, 5).reshape(-1, channels * PATCH * PATCH)
    values, vectors = torch.linalg.eigh(rows.T @ rows / len(rows))
    filters = (vectors / torch.sqrt(values.clamp_min(0) + WHITENING_FLOOR)).T.flip(0)
    return torch.cat([filters, -filters]).reshape(-1, channels, PATCH, PATCH).float()


def sampled_pictures(store: Store) -> Tensor:
    """Evenly spaced pictures of a store without augmentation, [M, C, H, W]."""
    if len(store.shape) != 3:
        raise InputError(f"the fast network takes pictures, not samples of shape {list(store.shape)}: choose mlp")
    count = max(1, WHITENING_PIXELS // (store.shape[1] * store.shape[2]))
    index = torch.arange(0, len(store), max(1, len(store) // count), device=store.device)
    parts = torch.split(index[None], 1024, dim=1)
    pieces = [store.batch(part, torch.full_like(part, store.plain)) for part in parts]
    return torch.cat(pieces).float().cpu()


def identity_start(weight: Tensor) -> None:
    """Initialise the first filters as the identity and the others at random."""
    with torch.no_grad():
        bound = 1 / math.sqrt(weight[0].numel())
        nn.init.uniform_(weight, -bound, bound)
        nn.init.dirac_(weight[: weight.shape[1]])


class UnscaledNorm(BatchNorm):
    """Optional 2 x 2 max pooling, batch norm, GELU. The scale is 1 and the bias learns fast."""

    def __init__(self, channels: int, *, pool: bool, momentum: float) -> None:
        super().__init__(1, channels, relu=False, momentum=momentum)
        self.pool = pool
        del self.weight
        self.register_buffer("weight", torch.ones(channels))

    def forward(self, x: Tensor, residual: Tensor | None = None, sums: Tensor | None = None) -> Tensor:
        return kernels.batch_norm_act(
            x, self.spec(beta=self.bias * BIAS_GAIN, act=kernels.Activation.GELU, pool=self.pool)
        )


class FastCNN(SequentialStack):
    """n networks for pictures [B, n*channels, H, W] of at least 8 x 8 pixels.

    `filters` are those of the first layer (`whitening_filters`). With `mirror`, inference averages the features of a
    picture and of its mirror image, which is right if pictures are mirrored in training.
    """

    filters: Tensor

    def __init__(
        self,
        classes: int = 10,
        *,
        filters: Tensor,
        widths: Sequence[int] = WIDTHS,
        mirror: bool = False,
        norm_momentum: float = 0.2,
        n: int = 1,
    ) -> None:
        super().__init__(n)
        if len(widths) == 0 or any(after < before for before, after in zip((len(filters), *widths), widths)):  # noqa: B905
            raise InputError(f"widths {tuple(widths)}: they must be at least {len(filters)} and must not decrease")
        self.mirror = mirror
        self.register_buffer("filters", filters.clone())
        self.filter_bias = nn.Parameter(torch.zeros(len(filters)))
        self.weights, self.norms = nn.ParameterList(), nn.ModuleList()
        before = len(filters)
        for width in widths:
            for inputs, pool in ((before, True), (width, False)):
                weight = nn.Parameter(torch.empty(width, inputs, 3, 3))
                identity_start(weight)
                self.weights.append(weight)
                self.norms.append(UnscaledNorm(width, pool=pool, momentum=norm_momentum))
            before = width
        self.head = Linear(n, before, classes)
        self.repeat_parameters()

    def features_of_one(self, x: Tensor) -> Tensor:
        if min(x.shape[2:]) < 2 ** (len(self.weights) // 2):
            size = f"{x.shape[2]} x {x.shape[3]} pixels"
            raise InputError(f"pictures of {size} are too small for this network; use larger ones (--size)")
        seen = self._seen(x)
        return (seen + self._seen(x.flip(3))) / 2 if self.mirror and not self.training else seen

    def _seen(self, x: Tensor) -> Tensor:
        layout = torch.channels_last if x.is_cuda else torch.preserve_format
        x = F.pad(x, (0, 1, 0, 1))  # keeps the sides, 32 pixels stay 32
        if x.is_cuda:
            x = x.contiguous(memory_format=torch.channels_last)
        filters = self.filters.to(x.dtype, memory_format=layout)
        if x.is_cuda:
            x, filters = (kernels.aligned(t) for t in (x, filters))
        y = kernels.bias_gelu(F.conv2d(x, filters), self.filter_bias)
        for weight, norm in zip(self.weights, self.norms, strict=True):
            y = norm(F.conv2d(y, weight.to(x.dtype, memory_format=layout), padding=1))
        return y.amax((2, 3)).float() * LOGIT_SCALE


def fast_cnn_factory(store: Store, classes: int, **settings: Any) -> Callable[..., FastCNN]:
    """A factory of networks whose first layer whitens the pictures of a store."""
    filters = whitening_filters(sampled_pictures(store))
    settings = {"mirror": store.mirrors, **settings}
    return partial(FastCNN, classes, filters=filters, **settings)
