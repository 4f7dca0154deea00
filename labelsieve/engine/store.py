"""Stores that hold a whole data set on the device and augment its batches there."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelsieve.errors import InputError
from labelsieve.models import kernels
from labelsieve.types import Store


class VectorStore(Store):
    """Rows of numbers, [N, d], or arrays of more axes, [N, d, ...]; standardised by the caller."""

    def __init__(self, x: NDArray[np.floating] | NDArray[np.integer], device: torch.device) -> None:
        self.device = device
        self.x = torch.as_tensor(np.ascontiguousarray(x, dtype=np.float32), device=device)
        self.shape = tuple(self.x.shape[1:])

    def __len__(self) -> int:
        return len(self.x)

    @property
    def nbytes(self) -> int:
        return self.x.nbytes

    def batch(self, index: Tensor, code: Tensor) -> Tensor:
        n, b = index.shape
        return self.x[index.T].reshape(b, n * self.shape[0], *self.shape[1:])


class PictureStore(Store):
    """Pictures [N, H, W, C] of 8 bits, shifted by up to `shift` pixels (the edge repeats) and flipped, on the device.

    They stay uint8, padded once; a step reads each pixel of its batch once and normalises it on the way.
    """

    score_shifts: tuple[int, ...] = (0,)  # scoring averages over pictures shifted along the diagonal by these

    def __init__(
        self,
        x: NDArray[np.uint8],
        device: torch.device,
        *,
        shift: int = 4,
        flip: bool = True,
        mean: NDArray[np.floating] | None = None,
        std: NDArray[np.floating] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if x.ndim != 4 or x.dtype != np.uint8:
            raise InputError(f"pictures must be uint8 [n, height, width, channels], not {x.dtype} {list(x.shape)}")
        self.device, self.dtype, self.shift, self.mirrors = device, dtype, shift, flip
        self.height, self.width, channels = x.shape[1:]
        self.shape = (channels, self.height, self.width)
        self.mean: NDArray[np.floating[Any]]
        self.std: NDArray[np.floating[Any]]
        self.mean, self.std = channel_statistics(x) if mean is None or std is None else (mean, std)
        self.scale = torch.as_tensor(1 / (255 * self.std), dtype=torch.float32, device=device)
        self.offset = torch.as_tensor(-self.mean / self.std, dtype=torch.float32, device=device)
        self.span = 2 * shift + 1
        self.codes = self.span * self.span * (2 if flip else 1)
        self.plain = self.shifted(0, 0)
        self.padded_width = self.width + 2 * shift
        padded = np.empty((len(x), self.height + 2 * shift, self.padded_width, channels), dtype=np.uint8)
        for start in range(0, len(x), 8192):
            piece = x[start : start + 8192]
            padded[start : start + 8192] = np.pad(piece, ((0, 0), (shift, shift), (shift, shift), (0, 0)), mode="edge")
        self.pixels = torch.as_tensor(padded, device=device).view(-1, channels)
        self.rows = torch.arange(self.height, device=device)
        self.columns = torch.arange(self.width, device=device)
        self._length = len(x)

    def __len__(self) -> int:
        return self._length

    @property
    def nbytes(self) -> int:
        return self.pixels.nbytes

    @property
    def views(self) -> tuple[int, ...]:
        return tuple(self.shifted(by, by) for by in self.score_shifts)

    def shifted(self, down: int, right: int) -> int:
        """The code of pictures looked at so many pixels further down and right."""
        return (self.shift + down) * self.span + self.shift + right

    def batch(self, index: Tensor, code: Tensor) -> Tensor:
        if self.pixels.is_cuda and kernels.available():
            from labelsieve.models.kernels import step

            return step.gather_pictures(
                self.pixels, index, code, self.scale, self.offset, self.height, self.width, self.shift, self.dtype
            )
        _n, b = index.shape
        index, code = index.T[:, None, None, :], code.T[:, None, None, :]  # [B,1,1,n]
        flipped = code >= self.span * self.span
        place = code % (self.span * self.span)
        columns = self.columns[None, None, :, None]
        columns = place % self.span + torch.where(flipped, self.width - 1 - columns, columns)
        rows = place // self.span + self.rows[None, :, None, None]
        pixel = (index * (self.height + 2 * self.shift) + rows) * self.padded_width + columns  # [B,H,W,n]
        x = self.pixels[pixel].float() * self.scale + self.offset
        return x.to(self.dtype).reshape(b, self.height, self.width, -1).permute(0, 3, 1, 2)


def channel_statistics(x: NDArray[np.uint8]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of each channel in 0..1, over at most 10,000 pictures."""
    sample = x[:: max(1, len(x) // 10_000)].reshape(-1, x.shape[-1]).astype(np.float64) / 255
    return sample.mean(0), np.maximum(sample.std(0), 1e-3)


def stage_pictures(
    x: NDArray[np.uint8], device: torch.device | str = "cpu", *, augment: bool = True, like: PictureStore | None = None
) -> PictureStore:
    """Pictures onto the device. `like`: take its normalisation (a test set takes the training set's)."""
    device = torch.device(device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    shift = min(4, x.shape[1] // 8) if augment else 0
    mean, std = (like.mean, like.std) if like is not None else (None, None)
    return PictureStore(x, device, shift=shift, flip=augment, mean=mean, std=std, dtype=dtype)


__all__ = ["PictureStore", "Store", "VectorStore", "channel_statistics", "stage_pictures"]
