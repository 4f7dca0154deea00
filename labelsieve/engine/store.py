"""Stores that hold a whole data set on the device and augment its batches there."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelsieve.data.pictures import CENTRE, CODES, CROP, SPAN, EncodedPictures, PictureSequence, cut, decoded
from labelsieve.errors import InputError
from labelsieve.models import kernels
from labelsieve.progress import SILENT, Progress
from labelsieve.types import FloatArray, IntArray, Store

FAST_SHIFT = 2  # pixels: a short training gains nothing from larger shifts
PADDED_AT_ONCE = 1024  # pictures that are copied to the device in one piece
STATISTICS_SAMPLE, STATISTICS_AT_ONCE = 10_000, 256  # pictures in the statistics of channels, and in memory for them
# The channels of ImageNet: no pass over the data is needed before the first epoch, and validation sets agree.
MEAN = np.array([0.485, 0.456, 0.406])
STD = np.array([0.229, 0.224, 0.225])
COPIED_AT_ONCE = 4096  # pictures that the host holds while it fills a device, about a gigabyte at 256 pixels


class VectorStore(Store):
    """Rows of numbers, [N, d], or arrays of more axes, [N, d, ...]; standardised by the caller."""

    def __init__(self, x: NDArray[np.floating] | NDArray[np.integer], device: torch.device) -> None:
        self.device = device
        self.x = torch.as_tensor(np.ascontiguousarray(x, dtype=np.float32), device=device)
        self.shape = tuple(self.x.shape[1:])
        self.centre = self.x.mean(0) if self.x.ndim == 2 else None

    def __len__(self) -> int:
        return len(self.x)

    @property
    def nbytes(self) -> int:
        return self.x.nbytes

    def batch(self, index: Tensor, code: Tensor) -> Tensor:
        n, b = index.shape
        return self.x[index.T].reshape(b, n * self.shape[0], *self.shape[1:])


class ShiftedPictures(Store):
    """Pictures of one size, shifted by up to `shift` pixels (the edge repeats) and mirrored on the device.

    A step reads each pixel of its batch once and normalises it on the way.
    """

    scale: Tensor
    offset: Tensor
    score_shifts: tuple[int, ...] = (0,)  # scoring averages over pictures shifted along the diagonal by these

    def __init__(
        self,
        x: NDArray[np.uint8] | PictureSequence,
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
        self.rows = torch.arange(self.height, device=device)
        self.columns = torch.arange(self.width, device=device)
        self._length = len(x)

    def __len__(self) -> int:
        return self._length

    @property
    def views(self) -> tuple[int, ...]:
        if self.averages_views and self.mirrors and self.shift:  # two are enough: benchmarks/prediction-views.md
            return self.shifted(1, 1), self.shifted(-1, -1) + self.span**2
        return tuple(self.shifted(by, by) for by in self.score_shifts)

    def shifted(self, down: int, right: int) -> int:
        """Return the code that shifts pictures by this number of pixels."""
        return (self.shift + down) * self.span + self.shift + right

    def gather(self, pixels: Tensor, index: Tensor, code: Tensor) -> Tensor:
        """Return the batch of padded pictures, `pixels` [pictures * padded height * padded width, channels]."""
        if pixels.is_cuda and kernels.available():
            from labelsieve.models.kernels import step

            return step.gather_pictures(
                pixels, index, code, self.scale, self.offset, self.height, self.width, self.shift, self.dtype
            )
        _n, b = index.shape
        index, code = index.T[:, None, None, :], code.T[:, None, None, :]  # [B,1,1,n]
        flipped = code >= self.span * self.span
        place = code % (self.span * self.span)
        columns = self.columns[None, None, :, None]
        columns = place % self.span + torch.where(flipped, self.width - 1 - columns, columns)
        rows = place // self.span + self.rows[None, :, None, None]
        pixel = (index * (self.height + 2 * self.shift) + rows) * self.padded_width + columns  # [B,H,W,n]
        x = pixels[pixel].float() * self.scale + self.offset
        return x.to(self.dtype).reshape(b, self.height, self.width, -1).permute(0, 3, 1, 2)

    def padded(self, pictures: Tensor) -> Tensor:
        """Repeat the edges of uint8 pictures [n, height, width, channels] by `shift` pixels, for `gather`."""
        rows = torch.arange(-self.shift, self.height + self.shift, device=pictures.device).clamp_(0, self.height - 1)
        columns = torch.arange(-self.shift, self.width + self.shift, device=pictures.device).clamp_(0, self.width - 1)
        return pictures[:, rows][:, :, columns].view(-1, pictures.shape[-1])


class PictureStore(ShiftedPictures):
    """`ShiftedPictures` that are all on the device, as uint8, padded once."""

    def __init__(self, x: NDArray[np.uint8] | PictureSequence, device: torch.device, **options: Any) -> None:
        super().__init__(x, device, **options)
        area = (self.height + 2 * self.shift) * self.padded_width
        self.pixels = torch.empty((len(x) * area, self.shape[0]), dtype=torch.uint8, device=device)
        for start in range(0, len(x), PADDED_AT_ONCE):  # the host never holds a second copy of all
            piece = torch.from_numpy(np.array(x[start : start + PADDED_AT_ONCE])).to(device)
            self.pixels[start * area : (start + len(piece)) * area] = self.padded(piece)

    @property
    def nbytes(self) -> int:
        return self.pixels.nbytes

    def batch(self, index: Tensor, code: Tensor) -> Tensor:
        return self.gather(self.pixels, index, code)


def check_crop(crop: int, side: int) -> None:
    if not 1 <= crop <= side:
        raise InputError(f"crop {crop}: the shorter side of the pictures is {side} pixels; use 1 to {side}")


class CroppedPictures(Store):
    """Windows of pictures of different sizes."""

    scale: Tensor
    offset: Tensor

    def __init__(self, pictures: PictureSequence, device: torch.device | str, crop: int, augment: bool) -> None:
        check_crop(crop, pictures.side)
        self.pictures, self.crop, self.augment = pictures, crop, augment
        self.device = torch.device(device)
        self.dtype = picture_dtype(self.device)
        self.codes, self.plain, self.mirrors = (CODES, CENTRE, True) if augment else (1, 0, False)
        self.shape = (3, crop, crop)
        self.scale = torch.as_tensor(1 / (255 * STD), dtype=torch.float32, device=self.device)
        self.offset = torch.as_tensor(-MEAN / STD, dtype=torch.float32, device=self.device)

    def __len__(self) -> int:
        return len(self.pictures)

    def spots(self, code: IntArray) -> IntArray:
        """Return the position of each window, without its mirroring."""
        return code % (SPAN * SPAN) if self.augment else np.full_like(code, CENTRE)

    def finish(self, windows: Tensor, which: Tensor, code: Tensor) -> Tensor:
        """Return uint8 windows [u, h, w, 3] of the networks' samples, which [n, B], normalised as [B, n*3, h, w]."""
        n, b = which.shape
        _, h, w, c = windows.shape
        mirrored = (code >= SPAN * SPAN).T.reshape(-1) if self.augment else torch.zeros(b * n, dtype=torch.bool)
        x = windows[which.T.reshape(-1)]
        if x.is_cuda:
            x = torch.where(mirrored.to(x.device)[:, None, None, None], x.flip(2), x)
        elif mirrored.any():  # a GPU would have to wait for the answer; a CPU saves half the work
            x[mirrored] = x[mirrored].flip(2)
        # whole rows of pixels at a time: three channels alone are too short for vector instructions
        x = x.view(b * n, h, w * c).float().mul_(self.scale.repeat(w)).add_(self.offset.repeat(w)).to(self.dtype)
        return x.view(b, n, h, w, c).permute(0, 2, 3, 1, 4).reshape(b, h, w, n * c).permute(0, 3, 1, 2)


class DevicePictures(CroppedPictures):
    """Pictures of different sizes, all on the device: uint8 pixels one picture after the other."""

    def __init__(
        self,
        pictures: PictureSequence,
        device: torch.device | str = "cpu",
        *,
        crop: int = CROP,
        augment: bool = True,
        workers: int | None = None,
        progress: Progress = SILENT,
    ) -> None:
        super().__init__(pictures, device, crop, augment)
        source = decoded(pictures, workers) if isinstance(pictures, EncodedPictures) else pictures
        chunks: list[Tensor] = [torch.empty((0, 3), dtype=torch.uint8, device=self.device)]
        pieces: list[Tensor] = []
        sizes: list[tuple[int, int]] = []
        with progress.stage("decoding pictures", len(pictures), unit="pictures") as stage:
            for picture in source:
                sizes.append((picture.shape[0], picture.shape[1]))
                pieces.append(torch.from_numpy(np.array(picture)).view(-1, 3))
                if len(pieces) == COPIED_AT_ONCE:
                    chunks.append(torch.cat(pieces).to(self.device))
                    pieces = []
                stage.advance()
        pictures.warn_unreadable(pictures.unreadable)
        self.pixels = torch.cat(chunks + [piece.to(self.device) for piece in pieces])
        del chunks, pieces
        size = torch.tensor(sizes, dtype=torch.int64).view(-1, 2)
        area = size.prod(1)
        self.start = (area.cumsum(0) - area).to(self.device)
        self.height, self.width = size[:, 0].to(self.device), size[:, 1].to(self.device)
        self.steps = torch.arange(crop, device=self.device)

    @property
    def nbytes(self) -> int:
        return self.pixels.nbytes

    def batch(self, index: Tensor, code: Tensor) -> Tensor:
        if self.device.type == "cpu":
            return self._batch_by_copies(index, code)
        return self._batch_by_gather(index, code)

    def _batch_by_gather(self, index: Tensor, code: Tensor) -> Tensor:
        n, b = index.shape
        index = index.clamp_min(0).T[:, None, None, :]  # [B,1,1,n]
        code = code.T[:, None, None, :].long() if self.augment else torch.full_like(index, CENTRE)
        mirrored = code >= SPAN * SPAN
        spot = code % (SPAN * SPAN)
        width = self.width[index]
        top = torch.div(spot // SPAN * (self.height[index] - self.crop + 1), SPAN, rounding_mode="floor")
        left = torch.div(spot % SPAN * (width - self.crop + 1), SPAN, rounding_mode="floor")
        columns = self.steps[None, None, :, None]
        columns = left + torch.where(mirrored, self.crop - 1 - columns, columns)
        rows = top + self.steps[None, :, None, None]
        pixel = self.start[index] + rows * width + columns  # [B,crop,crop,n]
        x = self.pixels[pixel].float() * self.scale + self.offset
        return x.to(self.dtype).reshape(b, self.crop, self.crop, n * 3).permute(0, 3, 1, 2)

    def _batch_by_copies(self, index: Tensor, code: Tensor) -> Tensor:
        """Do the same on a CPU, where copying rows is several times as fast as gathering pixels."""
        keys = index.clamp_min(0).numpy() * (SPAN * SPAN) + self.spots(code.numpy())
        unique, which = np.unique(keys, return_inverse=True)
        windows = torch.empty((len(unique), self.crop, self.crop, 3), dtype=torch.uint8)
        for window, key in zip(windows.numpy(), unique.tolist(), strict=True):
            sample, spot = divmod(key, SPAN * SPAN)
            start, height, width = int(self.start[sample]), int(self.height[sample]), int(self.width[sample])
            picture = self.pixels[start : start + height * width].view(height, width, 3).numpy()
            window[:] = cut(picture, spot, self.crop)
        return self.finish(windows, torch.from_numpy(which.reshape(keys.shape)), code)


def channel_statistics(x: NDArray[np.uint8] | PictureSequence) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation of each channel in 0..1, over at most 10,000 pictures."""
    chosen = np.arange(0, len(x), max(1, len(x) // STATISTICS_SAMPLE))
    counts = np.zeros((x.shape[-1], 256))  # how often each value occurs: exact, and small for any number of pictures
    for start in range(0, len(chosen), STATISTICS_AT_ONCE):
        block = np.asarray(x[chosen[start : start + STATISTICS_AT_ONCE]])
        for channel, count in enumerate(counts):
            count += np.bincount(block[..., channel].ravel(), minlength=256)
    values, total = np.arange(256) / 255, counts.sum(axis=1)
    mean = counts @ values / total
    variance = (counts * (values - mean[:, None]) ** 2).sum(axis=1) / total
    return mean, np.maximum(np.sqrt(variance), 1e-3)


def default_shift(height: int, largest: int = 4) -> int:
    """Return the largest shift in pixels: 4, as usual for CIFAR-10, less for smaller pictures."""
    return min(largest, height // 8)


def picture_dtype(device: torch.device) -> torch.dtype:
    """Return the type of the pixels of a batch."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def stage_pictures(
    x: NDArray[np.uint8] | PictureSequence,
    device: torch.device | str = "cpu",
    *,
    augment: bool = True,
    statistics: tuple[NDArray[Any], NDArray[Any]] | None = None,
) -> PictureStore:
    """Copy pictures to the device. `statistics` are mean and standard deviation of each channel of other data."""
    device = torch.device(device)
    shift = default_shift(x.shape[1]) if augment else 0
    mean, std = statistics or (None, None)
    return PictureStore(x, device, shift=shift, flip=augment, mean=mean, std=std, dtype=picture_dtype(device))


def fast_store(x: NDArray[np.uint8] | PictureSequence, device: torch.device | str = "cpu") -> PictureStore:
    """Put pictures on the device for the fast network: small shifts in training, three shifted views in scoring."""
    device = torch.device(device)
    shift = default_shift(x.shape[1], FAST_SHIFT)
    store = PictureStore(x, device, shift=shift, flip=True, dtype=picture_dtype(device))
    if shift:
        store.score_shifts = (0, 1, -1)
    return store


def row_statistics(rows: FloatArray, *, texts: bool = False) -> tuple[FloatArray, FloatArray]:
    """The mean of each column, and the spread to divide it by: 1 if all rows have the same value.

    The columns of `texts` share one spread: they have the same unit, and those that hardly vary are mostly noise.
    Arrays of more axes have one mean and one spread, as the meaning of the axes is not known.
    """
    if rows.ndim > 2:
        spread = rows.std(dtype=np.float64)
        return rows.mean(dtype=np.float64).astype(rows.dtype), np.asarray(spread if spread > 0 else 1, dtype=rows.dtype)
    spread = rows.std(axis=0)
    if texts:
        spread = np.full_like(spread, np.sqrt(np.mean(spread**2)))
    return rows.mean(axis=0), np.where(spread > 0, spread, 1).astype(rows.dtype)
