"""Pictures that fit no memory, as the engine's batches: read ahead by other processes, finished on the device.

A stream answers like the stores that hold everything on the device (`engine/store.py`): codes, plain, shape, and
`batch(index [n,B], code [n,B])` -> [B, n*3, crop, crop]. `batches` does the same for a sequence of batches and works
ahead. The order is the caller's: a batch is a function of its indices and codes alone, so any number of workers gives
the same batches, and an epoch that was stopped in its middle goes on by asking for what is left of it.

    windows     a crop x crop piece of each picture, uint8, cut where it is decoded or out of the mapped shard:
                the copy that has to be made anyway, and less than half the bytes to send
    device      repeat for the networks that share a sample, mirror, normalise, channels last
"""

from __future__ import annotations

import tempfile
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelsieve.data.decode import CENTRE, CODES, SPAN, Decoder, Pictures
from labelsieve.data.slots import Slot, Task, fill, roomy
from labelsieve.data.stage import Staged
from labelsieve.data.workers import processes, usable_cores
from labelsieve.errors import InputError
from labelsieve.types import IntArray, Store

# ImageNet's channels: no pass over the data is needed before the first epoch, and validation sets agree with it
MEAN = np.array([0.485, 0.456, 0.406])
STD = np.array([0.229, 0.224, 0.225])

Indices = NDArray[np.integer] | Tensor


def finish(
    windows: Tensor, which: Tensor, mirrored: Tensor, scale: Tensor, offset: Tensor, dtype: torch.dtype
) -> Tensor:
    """uint8 windows [u,h,w,3]; which, mirrored [n,B] -> normalised [B, n*3, h, w], channels last in memory."""
    n, b = which.shape
    _, h, w, c = windows.shape
    which, mirrored = which.T.reshape(-1), mirrored.T.reshape(-1)
    x = windows[which]
    if x.is_cuda:
        x = torch.where(mirrored[:, None, None, None], x.flip(2), x)
    elif mirrored.any():  # a GPU would have to wait for the answer; a CPU saves half the work
        x[mirrored] = x[mirrored].flip(2)
    # whole rows of pixels at a time: three channels alone are too short for vector instructions
    x = x.view(b * n, h, w * c).float().mul_(scale.repeat(w)).add_(offset.repeat(w)).to(dtype)
    return x.view(b, n, h, w, c).permute(0, 2, 3, 1, 4).reshape(b, h, w, n * c).permute(0, 3, 1, 2)


def window_keys(index: IntArray, code: IntArray, *, augment: bool = True) -> tuple[IntArray, NDArray[np.bool_]]:
    """One number for a sample's window (-1: padding), and whether it is mirrored."""
    mirrored, spot = np.divmod(code, SPAN * SPAN) if augment else (np.zeros_like(code), np.full_like(code, CENTRE))
    return np.where(index >= 0, index * (SPAN * SPAN) + spot, -1), mirrored > 0


class Windows(NamedTuple):
    """Windows of one step on the device, sorted by key."""

    keys: IntArray
    pixels: Tensor

    def hold(self, keys: IntArray) -> bool:
        return bool(np.isin(keys, self.keys).all())


@dataclass
class _Ahead:
    """The windows of one step, under way."""

    slot: Slot
    keys: IntArray
    work: list[Future[dict[int, str]]]


class PictureStream(Store):
    """`workers` processes decode `Pictures`; out of `Staged` shards the same number of threads copies. 0: no help."""

    streams = True  # asks the host for every batch: a step that uses it cannot be captured

    def __init__(
        self,
        pictures: Pictures | Staged,
        device: torch.device | str = "cpu",
        *,
        crop: int = 227,
        augment: bool = True,
        workers: int | None = None,
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
        self.workers = min(usable_cores(), 16) if workers is None else workers
        self._executor: Executor | None = None
        self._closer: weakref.finalize[..., PictureStream] | None = None
        self._expected: Iterator[Windows] | None = None
        self._now: Windows | None = None
        self._next: Windows | None = None

    def __len__(self) -> int:
        return len(self.pictures)

    @property
    def unreadable(self) -> dict[int, str]:
        """What could not be decoded so far, and why: such a picture is a grey one."""
        return self.pictures.unreadable

    # -- batches ---------------------------------------------------------------------------------------------------

    def batches(self, index_batches: Iterable[Indices], code_batches: Iterable[Indices]) -> Iterator[Tensor]:
        """The batches in the given order. Index -1 is padding; what stands there does not matter (it is grey)."""
        asked: deque[tuple[IntArray, NDArray[np.bool_]]] = deque()

        def steps() -> Iterator[IntArray]:
            for index, code in zip(index_batches, code_batches, strict=True):
                asked.append(window_keys(_host(index), _host(code), augment=self.augment))
                yield asked[-1][0]

        for windows in self._ahead(steps()):
            yield self._compose(windows, *asked.popleft())

    def expect(self, index_batches: Iterable[Indices], code_batches: Iterable[Indices]) -> None:
        """The steps that `batch` will be asked for next, in order, each for all networks or a few at a time."""
        pairs = zip(index_batches, code_batches, strict=True)
        self._expected = self._ahead(window_keys(_host(i), _host(c), augment=self.augment)[0] for i, c in pairs)
        self._now = self._next = None

    def batch(self, index: Indices, code: Indices) -> Tensor:
        """One batch: out of the expected steps if it is there, otherwise made on the spot by all workers."""
        keys, mirrored = window_keys(_host(index), _host(code), augment=self.augment)
        for _ in range(2):
            if self._now is not None:
                known = self._padded(keys, self._now)
                if self._now.hold(known):
                    return self._compose(self._now, known, mirrored)
            if self._next is None and self._expected is not None:
                self._next = next(self._expected, None)
            if self._next is None or not self._next.hold(self._padded(keys, self._next)):
                break
            self._now, self._next = self._next, None
        with tempfile.TemporaryDirectory(prefix="labelsieve-", dir=roomy()) as folder:
            step = self._begin(Slot(Path(folder) / "batch"), keys, pieces=max(1, self.workers))
            return self._compose(self._end(step), keys, mirrored)

    @staticmethod
    def _padded(keys: IntArray, windows: Windows) -> IntArray:
        """The engine turns padding into sample 0: where that is not in the step, padding is what it was."""
        if len(windows.keys) == 0 or windows.keys[0] != -1:
            return keys
        first = (keys >= 0) & (keys < SPAN * SPAN)
        return np.where(first & ~np.isin(keys, windows.keys), -1, keys)

    def _compose(self, windows: Windows, keys: IntArray, mirrored: NDArray[np.bool_]) -> Tensor:
        which = torch.from_numpy(np.searchsorted(windows.keys, keys).astype(np.int64)).to(self.device)
        turned = torch.from_numpy(mirrored).to(self.device)
        return finish(windows.pixels, which, turned, self.scale, self.offset, self.dtype)

    def _ahead(self, steps: Iterable[IntArray]) -> Iterator[Windows]:
        """Windows in the order of the steps; while one is used, the workers make the following ones."""
        following = iter(steps)
        under_way: deque[_Ahead] = deque()
        with tempfile.TemporaryDirectory(prefix="labelsieve-", dir=roomy()) as folder:
            free = deque(Slot(Path(folder) / f"slot-{i}") for i in range(self.workers + 2 if self.workers else 1))
            try:
                while True:
                    while free and (keys := next(following, None)) is not None:
                        under_way.append(self._begin(free.popleft(), keys, pieces=1))
                    if not under_way:
                        return
                    first = under_way.popleft()
                    windows = self._end(first)
                    free.append(first.slot)
                    yield windows
            finally:
                for step in under_way:  # nobody may write into a slot that is about to vanish
                    for work in step.work:
                        if not work.cancel():
                            work.exception()

    def _begin(self, slot: Slot, keys: IntArray, *, pieces: int) -> _Ahead:
        step = _Ahead(slot, np.unique(keys), [])  # networks of one training share windows: each is made once
        slot.reserve(len(step.keys), self.crop)
        if self.workers:
            executor = self._workers()
            bounds = np.linspace(0, len(step.keys), pieces + 1).astype(int).tolist()
            rows = [(a, b) for a, b in pairwise(bounds) if a < b]
            try:
                step.work = [executor.submit(fill, self._task(step, a, b)) for a, b in rows]
            except BrokenProcessPool:  # noticed only now; `_end` does what nobody else does
                self._do_without()
        return step

    def _task(self, step: _Ahead, first: int, last: int) -> Task:
        keys = step.keys[first:last]
        samples = np.where(keys >= 0, keys // (SPAN * SPAN), -1).tolist()
        staged = self.pictures if isinstance(self.pictures, Staged) else None
        # a batch's paths go with it: a list of millions would have to be sent to each process
        paths = None if isinstance(self.pictures, Staged) else [self.pictures.path(i) for i in samples if i >= 0]
        decoder: Decoder = "auto" if isinstance(self.pictures, Staged) else self.pictures.decoder
        cuts = (keys % (SPAN * SPAN)).tolist()
        return Task(step.slot.path, first, samples, cuts, self.pictures.side, self.crop, decoder, paths, staged)

    def _end(self, step: _Ahead) -> Windows:
        try:
            found = [work.result() for work in step.work] if step.work else [fill(self._task(step, 0, len(step.keys)))]
        except BrokenProcessPool:
            self._do_without()
            found = [fill(self._task(step, 0, len(step.keys)))]
        bad = {i: reason for some in found for i, reason in some.items()}
        new = bad.keys() - self.pictures.unreadable.keys()
        self.pictures.unreadable.update(bad)
        if new:
            self.pictures.tell_unreadable(new)
        pixels = torch.from_numpy(np.array(step.slot.windows(0, len(step.keys), self.crop)))
        if self.device.type == "cuda":
            return Windows(step.keys, pixels.pin_memory().to(self.device, non_blocking=True))
        return Windows(step.keys, pixels.to(self.device))

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _workers(self) -> Executor:
        if self._executor is None:
            if isinstance(self.pictures, Staged):
                self._executor = ThreadPoolExecutor(self.workers)
            else:
                self._executor = processes(self.workers)
            self._closer = weakref.finalize(self, self._executor.shutdown, wait=False)
        return self._executor

    def _do_without(self) -> None:
        """A worker was killed, or none can be started here: the rest is decoded in this process."""
        self.close()
        self.workers = 0

    def close(self) -> None:
        """Ends the workers; they start again when they are needed."""
        if self._executor is not None and self._closer is not None:
            self._closer.detach()
            self._executor.shutdown(wait=True)
            self._executor = None

    def __enter__(self) -> PictureStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._expected = self._now = self._next = None
        self.close()


def check_crop(crop: int, side: int) -> None:
    if not 1 <= crop <= side:
        raise InputError(f"crop {crop}: pictures have a shorter side of {side} pixels; give 1 to {side}")


def _host(indices: Indices) -> IntArray:
    array = indices.cpu().numpy() if isinstance(indices, Tensor) else np.asarray(indices)
    return array.astype(np.int64)


__all__ = ["MEAN", "STD", "PictureStream", "check_crop", "finish", "window_keys"]
