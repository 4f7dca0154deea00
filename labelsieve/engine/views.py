"""Strong views and mixtures of a batch, computed on the device from numbers that are drawn once per epoch.

The numbers of an epoch are a function of the training's seed and the epoch, as the order of its samples is. So a step
draws nothing: it can be captured, it resumes with the same views, and stacked networks see the views that each would
see alone.

A strong view is, in this order: an affine map, colour (brightness, contrast, saturation), solarise, posterise, cutout.
It starts from the shifted and mirrored picture that the store returns.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from labelsieve.types import IntArray, Store

DRAWS = 13  # numbers per picture
# Magnitudes are those of RandAugment (Cubuk et al. 2020), which chooses among the same operations.
OFTEN, SELDOM = 0.5, 0.2  # probability of the affine and colour operations, and of solarise and posterise
ROTATION, SHEAR, SHIFT, ZOOM = math.radians(30), 0.3, 0.25, 0.2  # largest values; a shift of 2 is a whole picture
COLOUR = 0.6  # largest change of brightness, contrast and saturation
LEAST_BITS, MOST_BITS = 3, 7  # that posterise keeps
CUTOUT = 0.5  # side of the square that is covered, as a share of the picture's: 16 of 32 pixels


def draw(
    order: IntArray, mixup: float, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.int16], NDArray[np.float32]]:
    """Draw the views of batches [steps, B]: numbers [steps, B, DRAWS], partners [steps, B] and weights [steps].

    The partner of a real sample is a real one. Without mixup every sample is its own partner.
    """
    numbers = rng.random((*order.shape, DRAWS), dtype=np.float32)
    if not mixup:
        places = np.tile(np.arange(order.shape[1], dtype=np.int16), (len(order), 1))
        return numbers, places, np.ones(len(order), dtype=np.float32)
    weight = rng.beta(mixup, mixup, len(order)).astype(np.float32)
    partner = np.argsort(np.where(order >= 0, rng.random(order.shape), 2.0), axis=1)  # padding stays at the end
    return numbers, partner.astype(np.int16), np.maximum(weight, 1 - weight)


def strong_view(x: Tensor, numbers: Tensor, store: Store) -> Tensor:
    """Return strong views of pictures x [B, n*channels, H, W] by numbers [n, B, DRAWS] in 0..1, as float32."""
    assert store.scale is not None and store.offset is not None
    n, b = numbers.shape[:2]
    h, w = x.shape[2:]
    apart = x.permute(0, 2, 3, 1).reshape(b, h, w, n, -1).permute(0, 3, 4, 1, 2)
    pictures = apart.reshape(b * n, -1, h, w).float()
    u = numbers.transpose(0, 1).reshape(b * n, DRAWS, 1, 1, 1).unbind(1)
    rows = torch.linspace(-1 + 1 / h, 1 - 1 / h, h, device=x.device)[:, None]
    columns = torch.linspace(-1 + 1 / w, 1 - 1 / w, w, device=x.device)
    grid = _affine_grid([_signed(value)[:, 0] for value in u[:6]], rows, columns)
    pictures = F.grid_sample(pictures, grid, align_corners=False)  # outside is 0, the mean colour
    std, mean = (
        1 / (255 * store.scale[:, None, None]),
        -store.offset[:, None, None] / (255 * store.scale[:, None, None]),
    )
    pixels = _colours(pictures * std + mean, u[6:11])
    covered = ((rows + 1 - 2 * u[11]).abs() < CUTOUT) & ((columns + 1 - 2 * u[12]).abs() < CUTOUT)
    pictures = ((pixels - mean) / std).masked_fill(covered, 0.0)
    return pictures.view(b, n, -1, h, w).permute(0, 3, 4, 1, 2).reshape(b, h, w, -1).permute(0, 3, 1, 2)


def _signed(u: Tensor) -> Tensor:
    """A magnitude from -1 to 1; 0 for most of the cases in which the operation is not applied."""
    return torch.where(u < OFTEN, 2 * u / OFTEN - 1, 0.0)


def _affine_grid(magnitudes: list[Tensor], rows: Tensor, columns: Tensor) -> Tensor:
    """The places [N, H, W, 2] that an affine map reads; the magnitudes are [N, 1, 1]."""
    turn, shear_x, shear_y, shift_x, shift_y, zoom = magnitudes
    cos, sin = torch.cos(turn * ROTATION), torch.sin(turn * ROTATION)
    scale = 1 + ZOOM * zoom
    x = columns + SHEAR * shear_x * rows
    y = rows + SHEAR * shear_y * columns
    return torch.stack(
        [(cos * x - sin * y) * scale + SHIFT * shift_x, (sin * x + cos * y) * scale + SHIFT * shift_y], 3
    )


def _colours(pixels: Tensor, u: tuple[Tensor, ...]) -> Tensor:
    """Change brightness, contrast and saturation, solarise and posterise pixels of 0..1, [N, channels, H, W]."""
    brightness, contrast, saturation = (1 + COLOUR * _signed(value) for value in u[:3])
    pixels = pixels * brightness
    mean = pixels.mean((1, 2, 3), keepdim=True)
    pixels = mean + (pixels - mean) * contrast
    grey = pixels.mean(1, keepdim=True)
    pixels = (grey + (pixels - grey) * saturation).clamp(0, 1)
    pixels = torch.where((u[3] < SELDOM) & (pixels > u[3] / SELDOM), 1 - pixels, pixels)
    levels = torch.exp2(torch.floor(LEAST_BITS + (MOST_BITS + 1 - LEAST_BITS) * (u[4] / SELDOM)))
    return torch.where(u[4] < SELDOM, torch.floor(pixels * levels) / levels, pixels)


def mix(x: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
    """Mix samples x [B, n*d, ...] with those at the places partner [n, B]; weight [n] is that of the sample itself."""
    n = len(partner)
    apart = x.view(len(x), n, -1, *x.shape[2:])
    other = apart[partner.T, torch.arange(n, device=x.device)]
    share = weight.view(1, n, *[1] * (x.ndim - 1))
    both = (share * apart + (1 - share) * other).flatten(1, 2)
    return both.contiguous(memory_format=torch.channels_last) if both.ndim == 4 else both
