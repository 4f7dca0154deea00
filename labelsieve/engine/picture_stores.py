"""Stores that read pictures from files or shards batch by batch, and the choice of a store.

`picture_store` chooses. For pictures of one size (`ShiftedPictures`) an augmentation shifts the picture; for pictures
of different sizes it cuts a window of crop x crop pixels at one of SPAN x SPAN places. Both can mirror. A batch is a
function of its indices and codes alone, so every store gives the same batches, with any number of workers, and an epoch
that was stopped continues by asking for the rest of its batches.

    worker processes or threads     read the pictures, or cut their windows, uint8
    the device                      repeats them for the networks that share a sample, shifts, mirrors, normalises
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import tee
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelsieve.data.pictures import CROP, SPAN, EncodedPictures, PictureSequence, WindowTask, in_order, read_windows
from labelsieve.data.read_pictures import Placement, place_pictures
from labelsieve.data.resources import available_memory, usable_cores, worker_processes
from labelsieve.engine.store import (
    CroppedPictures,
    DevicePictures,
    PictureStore,
    ShiftedPictures,
    default_shift,
    picture_dtype,
)
from labelsieve.progress import SILENT, Progress
from labelsieve.types import IntArray, Store

MAX_WORKERS = 16  # of a stream; more did not read faster (benchmarks/decode.md)
STEPS_AHEAD = 3  # read before they are needed, besides one per worker

Indices = NDArray[np.integer] | Tensor


def free_memory(device: torch.device) -> int:
    """Return the free bytes of a CUDA device, for others those of the host."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else available_memory()


def picture_store(
    pictures: PictureSequence,
    device: torch.device | str = "cpu",
    *,
    crop: int | None = None,
    augment: bool = True,
    statistics: tuple[NDArray[Any], NDArray[Any]] | None = None,
    workers: int | None = None,
    hold: bool | None = None,
    progress: Progress = SILENT,
) -> Store:
    """Return a store of pictures: on the device if they fit, else a stream.

    `crop` is for pictures of different sizes (default: the paper's, or their side if that is less). `statistics`, for
    pictures of one size, are mean and standard deviation of each channel if they were learned from other data.
    `hold` decides instead of the size of the pictures.
    """
    device = torch.device(device)
    if hold is None:
        place = place_pictures(pictures, None, device_memory=free_memory(device) if device.type == "cuda" else None)
        hold = place in (Placement.DEVICE, Placement.MEMORY)
    if pictures.size is None:
        crop = crop or min(CROP, pictures.side)
        if hold:
            return DevicePictures(pictures, device, crop=crop, augment=augment, workers=workers, progress=progress)
        return CropStream(pictures, device, crop=crop, augment=augment, workers=workers)
    options: dict[str, Any] = {
        "shift": default_shift(pictures.size[0]) if augment else 0, "flip": augment,
        "dtype": picture_dtype(device),
    }  # fmt: skip
    if statistics is not None:
        options |= {"mean": statistics[0], "std": statistics[1]}
    return PictureStore(pictures, device, **options) if hold else ShiftStream(pictures, device, workers, **options)


# -- streams --------------------------------------------------------------------------------------------------------


class Windows(NamedTuple):
    """The windows of one step on the device, sorted by key."""

    keys: IntArray
    pixels: Tensor

    def hold(self, keys: IntArray) -> bool:
        return bool(np.isin(keys, self.keys).all())


class PictureStream(Store):
    """Reads batches ahead with `workers`: processes for encoded files, else threads; 0: in the calling thread.

    A window has a key, sample * positions + position. Networks that share a sample share its window.
    """

    streams = True  # asks the host for every batch: a step that uses it cannot be captured
    pictures: PictureSequence
    positions: int  # of a window in its picture
    window: int | None = None  # its side in pixels, None for the whole picture

    @abstractmethod
    def spots(self, code: IntArray) -> IntArray:
        """Return the position of the window of each code."""

    @abstractmethod
    def finish(self, windows: Tensor, which: Tensor, code: Tensor) -> Tensor:
        """Return the batch [B, n * channels, height, width] of windows `which` [n, B]."""

    def start_workers(self, workers: int | None) -> None:
        """Set the number of workers; they start with the first batch."""
        self.workers = min(usable_cores(), MAX_WORKERS) if workers is None else workers
        self._executor: Executor | None = None
        self._expected: Iterator[Windows] | None = None
        self._now: Windows | None = None
        self._next: Windows | None = None
        self._unexpected: Windows | None = None

    def expect(self, index_batches: Iterable[Indices], code_batches: Iterable[Indices]) -> None:
        """Read these batches ahead. `batch` is then called for them in order, for all networks or a few at a time."""
        pairs = zip(index_batches, code_batches, strict=True)
        self._expected = self._read(self._keys(_host(index), _host(code)) for index, code in pairs)
        self._now = self._next = self._unexpected = None

    def batch(self, index: Indices, code: Indices) -> Tensor:
        """Return one batch: an expected one if it was read ahead, else it is read now by all workers.

        The last one that was not expected is kept, because scoring asks for other views of the same pictures.
        """
        codes = _host(code)
        keys = self._keys(_host(index), codes)
        for _ in range(2):
            if self._now is not None:
                known = self._with_padding(keys, self._now)
                if self._now.hold(known):
                    return self._compose(self._now, known, codes)
            if self._next is None and self._expected is not None:
                self._next = next(self._expected, None)
            if self._next is None or not self._next.hold(self._with_padding(keys, self._next)):
                break
            self._now, self._next = self._next, None
        if self._unexpected is None or not self._unexpected.hold(keys):
            self._unexpected = self._read_now(keys)
        return self._compose(self._unexpected, keys, codes)

    def _read_now(self, keys: IntArray) -> Windows:
        """Read windows that were not announced, with all workers."""
        pieces = np.array_split(np.unique(keys), max(1, self.workers))
        found = list(self._read(piece for piece in pieces if len(piece)))
        return Windows(np.concatenate([part.keys for part in found]), torch.cat([part.pixels for part in found]))

    def _keys(self, index: IntArray, code: IntArray) -> IntArray:
        """Return the key of each window, -1 for padding."""
        return np.where(index >= 0, index * self.positions + self.spots(code), -1)

    def _with_padding(self, keys: IntArray, windows: Windows) -> IntArray:
        """The engine replaces padding by sample 0: if that is not in the step, turn it back into padding."""
        if len(windows.keys) == 0 or windows.keys[0] != -1:
            return keys
        first = (keys >= 0) & (keys < self.positions)
        return np.where(first & ~np.isin(keys, windows.keys), -1, keys)

    def _compose(self, windows: Windows, keys: IntArray, code: IntArray) -> Tensor:
        which = torch.from_numpy(np.searchsorted(windows.keys, keys).astype(np.int64)).to(self.device)
        return self.finish(windows.pixels, which, torch.from_numpy(code).to(self.device))

    def _read(self, steps: Iterable[IntArray]) -> Iterator[Windows]:
        """Yield the windows of each step; while one is used, the workers read those of the next steps."""
        keys, same_keys = tee(map(np.unique, steps))
        found = in_order(read_windows, map(self._task, same_keys), self._workers(), self.workers + STEPS_AHEAD)
        on_gpu = self.device.type == "cuda"
        for known, (windows, bad) in zip(keys, found, strict=True):
            new = bad.keys() - self.pictures.unreadable.keys()
            self.pictures.unreadable.update(bad)
            if new:
                self.pictures.warn_unreadable(new)
            pixels = torch.from_numpy(windows)
            yield Windows(known, (pixels.pin_memory() if on_gpu else pixels).to(self.device, non_blocking=on_gpu))

    def _task(self, keys: IntArray) -> WindowTask:
        pictures = self.pictures
        samples = np.where(keys >= 0, keys // self.positions, -1)
        if isinstance(pictures, EncodedPictures):
            pictures = pictures.subset(samples[samples >= 0])
        return WindowTask(pictures, samples.tolist(), (keys % self.positions).tolist(), self.window)

    def _workers(self) -> Executor | None:
        if self._executor is None and self.workers:
            processes = isinstance(self.pictures, EncodedPictures) and self.pictures.in_processes
            self._executor = worker_processes(self.workers) if processes else ThreadPoolExecutor(self.workers)
        return self._executor

    def close(self) -> None:
        """Stop the workers; they start again when they are needed."""
        if self._executor is not None:
            self._executor.shutdown(wait=True)
            self._executor = None

    def __enter__(self) -> PictureStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._expected = self._now = self._next = self._unexpected = None
        self.close()


class CropStream(PictureStream, CroppedPictures):
    """Pictures of different sizes: workers cut the windows, less than half the bytes of whole pictures."""

    positions = SPAN * SPAN

    def __init__(
        self,
        pictures: PictureSequence,
        device: torch.device | str = "cpu",
        *,
        crop: int = CROP,
        augment: bool = True,
        workers: int | None = None,
    ) -> None:
        CroppedPictures.__init__(self, pictures, device, crop, augment)
        self.window = crop
        self.start_workers(workers)

    spots = CroppedPictures.spots
    finish = CroppedPictures.finish


class ShiftStream(PictureStream, ShiftedPictures):
    """Pictures of one size: workers read them, the device shifts them."""

    positions = 1

    def __init__(
        self, pictures: PictureSequence, device: torch.device, workers: int | None = None, **options: Any
    ) -> None:
        ShiftedPictures.__init__(self, pictures, device, **options)
        self.pictures = pictures
        self.start_workers(workers)

    def spots(self, code: IntArray) -> IntArray:
        return np.zeros_like(code)

    def finish(self, windows: Tensor, which: Tensor, code: Tensor) -> Tensor:
        return self.gather(self.padded(windows), which, code)


def _host(indices: Indices) -> IntArray:
    array = indices.cpu().numpy() if isinstance(indices, Tensor) else np.asarray(indices)
    return array.astype(np.int64)
