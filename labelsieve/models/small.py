"""Small networks for small data: a CNN for pictures of 8 to 64 pixels, an MLP for vectors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labelsieve.errors import InputError
from labelsieve.models.layers import BatchNorm, Conv2d, Linear, Stackable


class SmallCNN(Stackable):
    """n networks of 3x3 convolutions with batch norm, max pooling after each but the last, and a mean over the pixels.

    Pictures are [B, n*channels, H, W] with 1 or 3 channels and sides of at least 2 ** (len(widths) - 1) pixels.
    """

    def __init__(
        self, classes: int = 10, *, widths: Sequence[int] = (32, 64, 128), channels: int = 3, n: int = 1
    ) -> None:
        super().__init__()
        self.n = n
        self.convs = nn.ModuleList(
            Conv2d(n, inputs, outputs, 3) for inputs, outputs in zip((channels, *widths), widths, strict=False)
        )
        self.norms = nn.ModuleList(BatchNorm(n, width) for width in widths)
        self.head = Linear(n, widths[-1], classes)

    def features(self, x: Tensor) -> Tensor:
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = norm(conv(x if i == 0 else F.max_pool2d(x, 2)))
        return torch.mean(x, dim=(2, 3), dtype=torch.float32)


class MLP(Stackable):
    """n networks of linear layers with batch norm and relu for rows [B, n*inputs]."""

    def __init__(self, classes: int = 2, *, inputs: int, widths: Sequence[int] = (128, 128), n: int = 1) -> None:
        super().__init__()
        if inputs < 1:
            raise InputError(f"inputs {inputs}: an MLP needs at least one feature")
        self.n = n
        self.layers = nn.ModuleList(
            Linear(n, before, after) for before, after in zip((inputs, *widths), widths, strict=False)
        )
        self.norms = nn.ModuleList(BatchNorm(n, width) for width in widths)
        self.head = Linear(n, (inputs, *widths)[-1], classes)

    def features(self, x: Tensor) -> Tensor:
        x = x.float()
        for layer, norm in zip(self.layers, self.norms, strict=True):
            # batch norm reads pictures: a row is one of 1 x 1 pixels
            x = norm(layer(x)[:, :, None, None])[:, :, 0, 0]
        return x
