"""ResNets for small pictures: He et al. 2016a (original) and 2016b (pre-activation), depth 6k+2.

ResNet-32 (sections 5.2 and 5.3 of the INCV paper) has 0.46 M parameters, ResNet-110 (section 5.1) 1.73 M.
PreAct-ResNet-18 has four stages of two blocks, 64 to 512 channels and 11.17 M parameters with 10 classes; many papers
on noisy labels use it. One fills a GPU, so that n of them are computed one after the other (layers.SequentialStack).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from labelsieve.errors import InputError
from labelsieve.models import kernels
from labelsieve.models.layers import BatchNorm, Conv2d, Linear, SequentialStack, Stackable, widen

WIDTHS = (16, 32, 64)  # channels per stage (He et al. 2016a, section 4.2)


class Block(nn.Module):
    """conv-bn-relu-conv-bn, plus the shortcut, relu."""

    def __init__(self, n: int, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.n, self.outputs, self.stride = n, outputs, stride
        self.conv1 = Conv2d(n, inputs, outputs, 3, stride=stride)
        self.norm1 = BatchNorm(n, outputs)
        self.conv2 = Conv2d(n, outputs, outputs, 3)
        self.norm2 = BatchNorm(n, outputs)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1.then(self.norm1, x)
        shortcut = x if self.stride == 1 else widen(x[:, :, ::2, ::2], self.n, self.outputs)
        return self.conv2.then(self.norm2, y, shortcut)


class PreActivationBlock(nn.Module):
    """bn-relu-conv-bn-relu-conv, plus the input."""

    def __init__(self, n: int, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.n, self.outputs, self.stride = n, outputs, stride
        self.norm1 = BatchNorm(n, inputs)
        self.conv1 = Conv2d(n, inputs, outputs, 3, stride=stride)
        self.norm2 = BatchNorm(n, outputs)
        self.conv2 = Conv2d(n, outputs, outputs, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(self.conv1.then(self.norm2, self.norm1(x)))
        shortcut = x if self.stride == 1 else widen(x[:, :, ::2, ::2], self.n, self.outputs)
        out: Tensor = y + shortcut
        return out


class ResNetCifar(Stackable):
    """n ResNets of `depth` layers for pictures [B, n*channels, H, W]."""

    def __init__(
        self, classes: int = 10, *, depth: int = 32, preactivation: bool = False, channels: int = 3, n: int = 1
    ) -> None:
        super().__init__()
        if depth < 8 or (depth - 2) % 6:
            raise InputError(f"depth {depth}: a ResNet for small pictures has 6k+2 layers, e.g. 20, 32, 44, 56, 110")
        self.n = n
        block = PreActivationBlock if preactivation else Block
        self.stem = Conv2d(n, channels, WIDTHS[0], 3)
        self.stem_norm = None if preactivation else BatchNorm(n, WIDTHS[0])
        blocks: list[nn.Module] = []
        width = WIDTHS[0]
        for stage, outputs in enumerate(WIDTHS):
            for i in range((depth - 2) // 6):
                blocks.append(block(n, width, outputs, 2 if stage and i == 0 else 1))
                width = outputs
        self.blocks = nn.Sequential(*blocks)
        self.last_norm = BatchNorm(n, width) if preactivation else None
        self.head = Linear(n, width, classes)

    def features(self, x: Tensor) -> Tensor:
        if kernels.fused() and kernels.usable(x):
            from labelsieve.models.kernels import resnet

            if resnet.supported(self, x):
                return resnet.features(self, x)
        y = self.stem(x) if self.stem_norm is None else self.stem.then(self.stem_norm, x)
        y = self.blocks(y)
        y = self.last_norm(y) if self.last_norm is not None else y
        return torch.mean(y, dim=(2, 3), dtype=torch.float32)


PREACT_WIDTHS = (64, 128, 256, 512)  # channels per stage (He et al. 2016b)


class ProjectedBlock(nn.Module):
    """bn-relu-conv-bn-relu-conv, plus the shortcut: the input, or a 1x1 convolution if the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1 = BatchNorm(1, inputs)
        self.conv1 = Conv2d(1, inputs, outputs, 3, stride=stride)
        self.norm2 = BatchNorm(1, outputs)
        self.conv2 = Conv2d(1, outputs, outputs, 3)
        changes = stride != 1 or inputs != outputs
        self.shortcut = Conv2d(1, inputs, outputs, 1, stride=stride) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        active = self.norm1(x)
        shortcut = x if self.shortcut is None else self.shortcut(active)
        out: Tensor = self.conv2(self.norm2(self.conv1(active))) + shortcut
        return out


class PreActResNet(SequentialStack):
    """n networks with `blocks` blocks per stage for pictures [B, n*channels, H, W]."""

    def __init__(
        self, classes: int = 10, *, blocks: Sequence[int] = (2, 2, 2, 2), channels: int = 3, n: int = 1
    ) -> None:
        super().__init__(n)
        self.stem = Conv2d(1, channels, PREACT_WIDTHS[0], 3)
        layers: list[nn.Module] = []
        width = PREACT_WIDTHS[0]
        for stage, (outputs, count) in enumerate(zip(PREACT_WIDTHS, blocks, strict=True)):
            for i in range(count):
                layers.append(ProjectedBlock(width, outputs, 2 if stage and i == 0 else 1))
                width = outputs
        self.blocks = nn.Sequential(*layers)
        self.last_norm = BatchNorm(1, width)
        self.head = Linear(n, width, classes)
        self.repeat_parameters()

    def features_of_one(self, x: Tensor) -> Tensor:
        return torch.mean(self.last_norm(self.blocks(self.stem(x))), dim=(2, 3), dtype=torch.float32)
