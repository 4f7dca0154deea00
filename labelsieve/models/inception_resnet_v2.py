"""Inception-ResNet-v2: Szegedy, Ioffe, Vanhoucke, Alemi 2017, section 3.2, with the widths of the released model.

    picture 299 (227)   stem        3 -> 192     35 x 35  (26 x 26)
                        mixed_5b  192 -> 320
                        10 x A    320            scale 0.17
                        reduce_a  320 -> 1088    17 x 17  (12 x 12)
                        20 x B   1088            scale 0.10
                        reduce_b 1088 -> 2080     8 x 8   (5 x 5)
                        10 x C   2080            scale 0.20, the last one 1.0 and without relu
                        last     2080 -> 1536    averaged: the features

Every convolution is followed by batch norm (eps 1e-3) and relu, except the projection that closes a residual block,
which has a bias. 55.84 M parameters with 1000 classes (55.81 M without the scale of batch norm, as first released).

Branches whose first layers are all 1 x 1 share one convolution: the input is read once instead of three times. On a GPU
the layers run in bfloat16 and channels-last, and the engine captures the whole step (benchmarks/inception.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labelsieve.models import kernels
from labelsieve.models.layers import BatchNorm, Linear, SequentialStack, init_convolution

Size = int | tuple[int, int]
Steps = Sequence[tuple[int, Size]]  # consecutive layers, as (outputs, window)


class Conv(nn.Module):
    """A convolution with any window, and `same` or `valid` padding."""

    def __init__(
        self, inputs: int, outputs: int, size: Size, *, stride: int = 1, same: bool = True, bias: bool = False
    ) -> None:
        super().__init__()
        height, width = (size, size) if isinstance(size, int) else size
        self.stride = stride
        self.padding = (height // 2, width // 2) if same else (0, 0)
        self.weight = nn.Parameter(torch.empty(outputs, inputs, height, width))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        init_convolution(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(x.dtype)
        weight = self.weight.to(x.dtype, memory_format=torch.channels_last if x.is_cuda else torch.preserve_format)
        if x.is_cuda:
            x, weight = (kernels.aligned(t) for t in (x, weight))
        return F.conv2d(x, weight, bias, self.stride, self.padding)


class Unit(nn.Module):
    """Convolution, batch norm, relu."""

    def __init__(self, inputs: int, outputs: int, size: Size, *, stride: int = 1, same: bool = True) -> None:
        super().__init__()
        self.conv = Conv(inputs, outputs, size, stride=stride, same=same)
        self.norm = BatchNorm(1, outputs, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.norm(self.conv(x)))


def chain(inputs: int, steps: Steps, *, halve: bool = False) -> nn.Sequential:
    """Consecutive units; with `halve` the last one has stride 2 and no padding."""
    units = []
    for i, (outputs, size) in enumerate(steps):
        last = halve and i == len(steps) - 1
        units.append(Unit(inputs, outputs, size, stride=2 if last else 1, same=not last))
        inputs = outputs
    return nn.Sequential(*units)


class Branches(nn.Module):
    """Chains on the same input whose 1 x 1 first layers are one unit, `first`. Returns a list of outputs."""

    def __init__(self, inputs: int, *chains: Steps, halve: bool = False) -> None:
        super().__init__()
        self.widths = [steps[0][0] for steps in chains]
        self.first = Unit(inputs, sum(self.widths), 1)
        self.rest = nn.ModuleList(
            chain(width, steps[1:], halve=halve) for width, steps in zip(self.widths, chains, strict=True)
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        parts = self.first(x).split(self.widths, 1)
        return [rest(part) for rest, part in zip(self.rest, parts, strict=True)]


class Entrance(nn.Module):
    """mixed_5b: 192 -> 320. Its last branch is a 3 x 3 mean, without padding in the mean, and a unit."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = Branches(192, [(96, 1)], [(48, 1), (64, 5)], [(64, 1), (96, 3), (96, 3)])
        self.averaged = Unit(192, 64, 1)

    def forward(self, x: Tensor) -> Tensor:
        mean = F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
        return torch.cat([*self.branches(x), self.averaged(mean)], 1)


class Reduction(nn.Module):
    """Halves the side: branches that end with stride 2 (`straight`: one of a single unit), and max pooling."""

    def __init__(self, inputs: int, *chains: Steps, straight: int = 0) -> None:
        super().__init__()
        self.straight = chain(inputs, [(straight, 3)], halve=True) if straight else None
        self.branches = Branches(inputs, *chains, halve=True)

    def forward(self, x: Tensor) -> Tensor:
        straight = [] if self.straight is None else [self.straight(x)]
        return torch.cat([*straight, *self.branches(x), F.max_pool2d(x, 3, 2)], 1)


class Residual(nn.Module):
    """relu(x + scale * projection(branches(x))). The small scale keeps wide residual networks stable."""

    def __init__(self, channels: int, *chains: Steps, scale: float, relu: bool = True) -> None:
        super().__init__()
        self.scale, self.relu = scale, relu
        self.branches = Branches(channels, *chains)
        self.project = Conv(sum(steps[-1][0] for steps in chains), channels, 1, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.add(x, self.project(torch.cat(self.branches(x), 1)), alpha=self.scale)
        return F.relu(y) if self.relu else y


def block_a() -> Residual:
    """35 x 35."""
    return Residual(320, [(32, 1)], [(32, 1), (32, 3)], [(32, 1), (48, 3), (64, 3)], scale=0.17)


def block_b() -> Residual:
    """17 x 17."""
    return Residual(1088, [(192, 1)], [(128, 1), (160, (1, 7)), (192, (7, 1))], scale=0.10)


def block_c(*, last: bool = False) -> Residual:
    """8 x 8."""
    scale = 1.0 if last else 0.20
    return Residual(2080, [(192, 1)], [(192, 1), (224, (1, 3)), (256, (3, 1))], scale=scale, relu=not last)


class InceptionResNetV2(SequentialStack):
    """n networks for pictures [B, n*3, H, W] of at least 75 x 75 pixels; published with 299, the INCV paper uses 227.

    The released model has dropout before the last layer; the INCV paper does not mention it, and there is none here.
    """

    def __init__(self, classes: int = 1000, *, channels: int = 3, n: int = 1) -> None:
        super().__init__(n)
        self.stem1 = nn.Sequential(
            Unit(channels, 32, 3, stride=2, same=False), Unit(32, 32, 3, same=False), Unit(32, 64, 3)
        )
        self.stem2 = nn.Sequential(Unit(64, 80, 1), Unit(80, 192, 3, same=False))
        self.mixed_5b = Entrance()
        self.blocks_a = nn.Sequential(*(block_a() for _ in range(10)))
        self.reduce_a = Reduction(320, [(256, 1), (256, 3), (384, 3)], straight=384)
        self.blocks_b = nn.Sequential(*(block_b() for _ in range(20)))
        self.reduce_b = Reduction(1088, [(256, 1), (384, 3)], [(256, 1), (288, 3)], [(256, 1), (288, 3), (320, 3)])
        self.blocks_c = nn.Sequential(*(block_c() for _ in range(9)), block_c(last=True))
        self.last = Unit(2080, 1536, 1)
        self.head = Linear(n, 1536, classes)
        self.repeat_parameters()

    def features_of_one(self, x: Tensor) -> Tensor:
        y = F.max_pool2d(self.stem1(x), 3, 2)
        y = F.max_pool2d(self.stem2(y), 3, 2)
        y = self.blocks_a(self.mixed_5b(y))
        y = self.blocks_b(self.reduce_a(y))
        y = self.last(self.blocks_c(self.reduce_b(y)))
        return torch.mean(y, dim=(2, 3), dtype=torch.float32)
