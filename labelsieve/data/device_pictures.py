"""Pictures of different sizes, all of them on the device: what fits there needs no stream.

WebVision's 65,944 training pictures with a shorter side of 256 are some 16 GB of 8-bit pixels, a tenth of one large
GPU. `picture_store` decides; both answers give the same batches, pixel for pixel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelsieve.data import memory
from labelsieve.data.decode import CENTRE, CODES, SPAN, Pictures, PictureSequence, Pixels, cut, decode_many, grey
from labelsieve.data.stage import Staged
from labelsieve.data.stream import MEAN, STD, PictureStream, check_crop, finish, window_keys
from labelsieve.data.workers import processes, usable_cores
from labelsieve.errors import InputError
from labelsieve.progress import Progress
from labelsieve.types import Store

SHARE = 0.3  # of the device's free memory that pictures may take: the networks come afterwards
ASPECT = 1.4  # pixels of a photograph over those of its square, on average
CHUNK = 64  # pictures a process decodes at a time


def decoded(pictures: Pictures, workers: int) -> Iterator[Pixels]:
    """All pictures in order, decoded by `workers` processes (0: here)."""
    if workers <= 1 or len(pictures) <= CHUNK:
        yield from pictures
        return
    starts = range(0, len(pictures), CHUNK)
    pool: Executor | None = processes(workers)
    try:
        for begin in range(0, len(starts), 4 * workers):  # a few chunks at a time: results wait in memory
            some = starts[begin : begin + 4 * workers]
            jobs = [
                ([pictures.path(i) for i in range(s, min(s + CHUNK, len(pictures)))], pictures.side, pictures.decoder)
                for s in some
            ]
            try:
                under_way = [pool.submit(decode_many, *job) for job in jobs] if pool is not None else []
            except BrokenProcessPool:  # a worker was killed between two rounds
                pool = None
            for number, (start, job) in enumerate(zip(some, jobs, strict=True)):
                try:
                    chunk = under_way[number].result() if pool is not None else decode_many(*job)
                except BrokenProcessPool:  # a worker was killed: go on without
                    pool, chunk = None, decode_many(*job)
                for i, found in enumerate(chunk, start):
                    if isinstance(found, str):
                        pictures.unreadable[i] = found
                        found = grey(pictures.side)
                    yield found
    finally:
        if pool is not None:
            pool.shutdown(wait=True)


class DevicePictures(Store):
    """The store: uint8 pixels one picture after the other, cut and mirrored by index arithmetic on the device."""

    def __init__(
        self,
        pictures: PictureSequence,
        device: torch.device | str = "cpu",
        *,
        crop: int = 227,
        augment: bool = True,
        workers: int | None = None,
        progress: Progress | None = None,
        mean: NDArray[np.floating] = MEAN,
        std: NDArray[np.floating] = STD,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_crop(crop, pictures.side)
        self.pictures, self.crop, self.augment = pictures, crop, augment
        self.device = torch.device(device)
        self.dtype = dtype or (torch.bfloat16 if self.device.type == "cuda" else torch.float32)
        self.codes, self.plain, self.mirrors = (CODES, CENTRE, True) if augment else (1, 0, False)
        self.shape: tuple[int, ...] = (3, crop, crop)
        self.mean, self.std = mean, std
        self.scale = torch.as_tensor(1 / (255 * std), dtype=torch.float32, device=self.device)
        self.offset = torch.as_tensor(-mean / std, dtype=torch.float32, device=self.device)
        cores = usable_cores() if workers is None else workers
        source: Iterable[Pixels] = decoded(pictures, cores) if isinstance(pictures, Pictures) else pictures
        chunks: list[Tensor] = [torch.empty((0, 3), dtype=torch.uint8, device=self.device)]
        pieces: list[Tensor] = []
        sizes: list[tuple[int, int]] = []
        told = (progress or Progress(silent=True)).stage("decoding pictures", len(pictures), unit="pictures")
        with told as stage:
            for picture in source:
                sizes.append((picture.shape[0], picture.shape[1]))
                pieces.append(torch.from_numpy(np.array(picture)).view(-1, 3))
                if len(pieces) == 4096:  # about a gigabyte: the host never holds more
                    chunks.append(torch.cat(pieces).to(self.device))
                    pieces = []
                stage.advance()
        pictures.tell_unreadable(pictures.unreadable)
        self.pixels = torch.cat(chunks + [piece.to(self.device) for piece in pieces])
        del chunks, pieces
        size = torch.tensor(sizes, dtype=torch.int64).view(-1, 2)
        area = size.prod(1)
        self.start = (area.cumsum(0) - area).to(self.device)
        self.height, self.width = size[:, 0].to(self.device), size[:, 1].to(self.device)
        self.steps = torch.arange(crop, device=self.device)

    def __len__(self) -> int:
        return len(self.start)

    @property
    def nbytes(self) -> int:
        return self.pixels.nbytes

    @property
    def unreadable(self) -> dict[int, str]:
        return self.pictures.unreadable

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
        """The same on a CPU, where copying rows beats gathering pixels several times over."""
        keys, mirrored = window_keys(index.clamp_min(0).numpy(), code.numpy(), augment=self.augment)
        unique, which = np.unique(keys, return_inverse=True)
        windows = torch.empty((len(unique), self.crop, self.crop, 3), dtype=torch.uint8)
        for window, key in zip(windows.numpy(), unique.tolist(), strict=True):
            sample, spot = divmod(key, SPAN * SPAN)
            start, height, width = int(self.start[sample]), int(self.height[sample]), int(self.width[sample])
            picture = self.pixels[start : start + height * width].view(height, width, 3).numpy()
            window[:] = cut(picture, spot, self.crop)
        places = torch.from_numpy(which.reshape(keys.shape))
        return finish(windows, places, torch.from_numpy(mirrored), self.scale, self.offset, self.dtype)


def free_memory(device: torch.device) -> int:
    """Bytes that can still be had there."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return memory.available()


def pixel_bytes(pictures: Pictures | Staged) -> int:
    """What all of them take, decoded: known of staged ones, estimated of files."""
    if isinstance(pictures, Staged):
        return pictures.nbytes
    return int(len(pictures) * pictures.side**2 * 3 * ASPECT)


def picture_store(
    pictures: Pictures | Staged,
    device: torch.device | str = "cpu",
    *,
    crop: int = 227,
    augment: bool = True,
    workers: int | None = None,
    share: float = SHARE,
    progress: Progress | None = None,
) -> DevicePictures | PictureStream:
    """On the device where they take at most `share` of its free memory (twice that for a moment), else a stream."""
    if not 0 <= share <= 1:
        raise InputError(f"share {share}: a part of the free memory lies between 0 and 1")
    device = torch.device(device)
    need = pixel_bytes(pictures)
    fits = need <= share * free_memory(device)
    if not fits:
        return PictureStream(pictures, device, crop=crop, augment=augment, workers=workers)
    return DevicePictures(pictures, device, crop=crop, augment=augment, workers=workers, progress=progress)
