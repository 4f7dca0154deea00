"""Inception-ResNet-v2: Szegedy, Ioffe, Vanhoucke, Alemi 2017, section 3.2, with the released model's widths.

    picture 299 (227)   stem        3 -> 192     35 x 35  (26 x 26)
                        mixed_5b  192 -> 320
                        10 x A    320            scale 0.17
                        reduce_a  320 -> 1088    17 x 17  (12 x 12)
                        20 x B   1088            scale 0.10
                        reduce_b 1088 -> 2080     8 x 8   (5 x 5)
                        10 x C   2080            scale 0.20, the last one 1.0 and without relu
                        last     2080 -> 1536    averaged: the features

Convolutions are followed by batch norm (eps 1e-3) and relu, but for the projection that closes a residual block, which
has a bias. 55.84 M parameters at 1000 classes (55.81 M without batch norm's scale, as first released).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labelsieve.errors import InputError
from labelsieve.models.layers import BatchNorm, Linear, Stackable

Size = int | tuple[int, int]
SMALLEST = 75  # pixels: below it the last stage has nothing left to look at


def concatenate(branches: Sequence[Tensor], n: int) -> Tensor:
    """Channels of all branches, each network's own together: [B, n*sum(C), H, W]."""
    if n == 1:
        return torch.cat(list(branches), dim=1)
    b, _, h, w = branches[0].shape
    apart = [branch.permute(0, 2, 3, 1).reshape(b, h, w, n, -1) for branch in branches]
    return torch.cat(apart, dim=4).reshape(b, h, w, -1).permute(0, 3, 1, 2)  # channels last in memory


class Conv(nn.Module):
    """n convolutions of any window side by side, `same` or `valid` at the border."""

    def __init__(
        self, n: int, inputs: int, outputs: int, size: Size, *, stride: int = 1, same: bool = True, bias: bool = False
    ) -> None:
        super().__init__()
        height, width = (size, size) if isinstance(size, int) else size
        self.n, self.stride = n, stride
        self.padding = (height // 2, width // 2) if same else (0, 0)
        self.weight = nn.Parameter(torch.empty(n * outputs, inputs, height, width))
        self.bias = nn.Parameter(torch.zeros(n * outputs)) if bias else None
        nn.init.kaiming_normal_(self.weight, mode="fan_in", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(x.dtype)
        weight = self.weight.to(x.dtype)
        if x.is_cuda:
            weight = weight.contiguous(memory_format=torch.channels_last)
        return F.conv2d(x, weight, bias, self.stride, self.padding, groups=self.n)


class Unit(nn.Module):
    """Convolution, batch norm, relu."""

    def __init__(self, n: int, inputs: int, outputs: int, size: Size, *, stride: int = 1, same: bool = True) -> None:
        super().__init__()
        self.conv = Conv(n, inputs, outputs, size, stride=stride, same=same)
        self.norm = BatchNorm(n, outputs, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.norm(self.conv(x)))


def chain(n: int, inputs: int, *steps: tuple[int, Size]) -> nn.Sequential:
    """Units one after the other, given as (outputs, window)."""
    units = []
    for outputs, size in steps:
        units.append(Unit(n, inputs, outputs, size))
        inputs = outputs
    return nn.Sequential(*units)


def halving(n: int, inputs: int, *steps: tuple[int, Size]) -> nn.Sequential:
    """A chain whose last unit has stride 2 and no border."""
    *first, (outputs, size) = steps
    units = list(chain(n, inputs, *first))
    return nn.Sequential(*units, Unit(n, first[-1][0] if first else inputs, outputs, size, stride=2, same=False))


class Branches(nn.Module):
    """The same input through several branches, concatenated; `pool` adds the max-pooled input (a reduction)."""

    def __init__(self, n: int, *branches: nn.Module, pool: bool = False) -> None:
        super().__init__()
        self.n, self.pool = n, pool
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        parts = [branch(x) for branch in self.branches]
        return concatenate([*parts, F.max_pool2d(x, 3, 2)] if self.pool else parts, self.n)


class Averaged(nn.Module):
    """3 x 3 mean that leaves the border out, then a unit."""

    def __init__(self, n: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.unit = Unit(n, inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.unit(F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)))


class Residual(nn.Module):
    """x + scale * projection(branches(x)), then relu. The scale keeps wide residual networks from dying early."""

    def __init__(
        self, n: int, channels: int, inside: int, *branches: nn.Module, scale: float, relu: bool = True
    ) -> None:
        super().__init__()
        self.scale, self.relu = scale, relu
        self.branches = Branches(n, *branches)
        self.project = Conv(n, inside, channels, 1, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.add(x, self.project(self.branches(x)), alpha=self.scale)
        return F.relu(y) if self.relu else y


def block_a(n: int) -> Residual:
    """35 x 35."""
    c = 320
    return Residual(
        n, c, 128, chain(n, c, (32, 1)), chain(n, c, (32, 1), (32, 3)), chain(n, c, (32, 1), (48, 3), (64, 3)),
        scale=0.17,
    )  # fmt: skip


def block_b(n: int) -> Residual:
    """17 x 17."""
    c = 1088
    return Residual(
        n, c, 384, chain(n, c, (192, 1)), chain(n, c, (128, 1), (160, (1, 7)), (192, (7, 1))), scale=0.10
    )  # fmt: skip


def block_c(n: int, *, last: bool = False) -> Residual:
    """8 x 8."""
    c = 2080
    return Residual(
        n, c, 448, chain(n, c, (192, 1)), chain(n, c, (192, 1), (224, (1, 3)), (256, (3, 1))),
        scale=1.0 if last else 0.20, relu=not last,
    )  # fmt: skip


class InceptionResNetV2(Stackable):
    """n networks; pictures come as [B, n*3, H, W] with sides of at least 75 pixels, 299 or the paper's 227.

    `dropout` acts on the features before the head, in training only (the released model's 0.2; the paper names none).
    """

    def __init__(self, classes: int = 1000, *, channels: int = 3, n: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.n, self.dropout = n, dropout
        self.stem1 = nn.Sequential(
            Unit(n, channels, 32, 3, stride=2, same=False), Unit(n, 32, 32, 3, same=False), Unit(n, 32, 64, 3)
        )
        self.stem2 = nn.Sequential(Unit(n, 64, 80, 1), Unit(n, 80, 192, 3, same=False))
        self.mixed_5b = Branches(
            n,
            chain(n, 192, (96, 1)),
            chain(n, 192, (48, 1), (64, 5)),
            chain(n, 192, (64, 1), (96, 3), (96, 3)),
            Averaged(n, 192, 64),
        )
        self.blocks_a = nn.Sequential(*(block_a(n) for _ in range(10)))
        self.reduce_a = Branches(n, halving(n, 320, (384, 3)), halving(n, 320, (256, 1), (256, 3), (384, 3)), pool=True)
        self.blocks_b = nn.Sequential(*(block_b(n) for _ in range(20)))
        self.reduce_b = Branches(
            n,
            halving(n, 1088, (256, 1), (384, 3)),
            halving(n, 1088, (256, 1), (288, 3)),
            halving(n, 1088, (256, 1), (288, 3), (320, 3)),
            pool=True,
        )
        self.blocks_c = nn.Sequential(*(block_c(n) for _ in range(9)), block_c(n, last=True))
        self.last = Unit(n, 2080, 1536, 1)
        self.head = Linear(n, 1536, classes)

    def features(self, x: Tensor) -> Tensor:
        if min(x.shape[-2:]) < SMALLEST:
            raise InputError(
                f"pictures of {x.shape[-1]} x {x.shape[-2]} pixels: Inception-ResNet-v2 needs at least "
                f"{SMALLEST} a side; choose a smaller model or load the pictures larger"
            )
        y = F.max_pool2d(self.stem1(x), 3, 2)
        y = F.max_pool2d(self.stem2(y), 3, 2)
        y = self.blocks_a(self.mixed_5b(y))
        y = self.blocks_b(self.reduce_a(y))
        y = self.last(self.blocks_c(self.reduce_b(y)))
        features = torch.mean(y, dim=(2, 3), dtype=torch.float32)
        return F.dropout(features, self.dropout, self.training) if self.dropout else features
