"""PreAct-ResNet-18 for small pictures: He et al. 2016b, "Identity Mappings in Deep Residual Networks".

Four stages of two blocks, 64 to 512 channels, 11.17 M parameters with 10 classes. Many papers on noisy labels use it.
One network fills a GPU, so that n networks are computed one after the other (layers.SequentialStack).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from labelsieve.models.layers import BatchNorm, Conv2d, Linear, SequentialStack

WIDTHS = (64, 128, 256, 512)  # channels per stage (He et al. 2016b)


class Block(nn.Module):
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
        self.stem = Conv2d(1, channels, WIDTHS[0], 3)
        layers: list[nn.Module] = []
        width = WIDTHS[0]
        for stage, (outputs, count) in enumerate(zip(WIDTHS, blocks, strict=True)):
            for i in range(count):
                layers.append(Block(width, outputs, 2 if stage and i == 0 else 1))
                width = outputs
        self.blocks = nn.Sequential(*layers)
        self.last_norm = BatchNorm(1, width)
        self.head = Linear(n, width, classes)
        self.repeat_parameters()

    def features_of_one(self, x: Tensor) -> Tensor:
        return torch.mean(self.last_norm(self.blocks(self.stem(x))), dim=(2, 3), dtype=torch.float32)
