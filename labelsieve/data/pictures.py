"""Sequences of pictures: encoded ones that are decoded on demand, and the loops that decode many of them."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.decode import (
    GREY,
    SIDE,
    ExactSize,
    Pixels,
    Resize,
    ShorterSide,
    UnreadablePictureError,
    decode,
    grey,
    is_whole_jpeg,
    reason,
)
from labelsieve.data.resources import usable_cores, worker_processes
from labelsieve.errors import InputError
from labelsieve.files import open_file
from labelsieve.types import IntArray, Samples

EXTENSIONS = frozenset((".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm"))
CROP = 227  # side of the window that the paper cuts out of pictures with a shorter side of 256
MEAN_ASPECT = 1.4  # area of a photo over the area of its middle square, on average: sizes the WebVision pictures
CHUNK = 64  # pictures per job of a thread or process
PAPER_SIZE = ShorterSide(SIDE)
FEW_PICTURES = 4096  # threads decode this many before processes would have started
JOBS_AHEAD = 4  # jobs per worker whose results wait in memory


Size = int | tuple[int, int] | None  # of a square, (height, width), or None: chosen by the pictures


class PictureSequence(Samples):
    """Pictures that look like an array: `x[3]` is one picture, `x[2:9]` and `x[indices]` are [n, height, width, 3].

    If the pictures differ in size, a block holds their middle squares.
    """

    resize: Resize
    unreadable: dict[int, str]  # index and reason of the pictures that cannot be read; they are grey

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def picture(self, i: int) -> Pixels:
        """Return picture i, [height, width, 3]."""

    @property
    def size(self) -> tuple[int, int] | None:
        """(height, width) of all pictures, None if they differ."""
        return (self.resize.height, self.resize.width) if isinstance(self.resize, ExactSize) else None

    @property
    def side(self) -> int:
        """The shorter side in pixels."""
        return min(self.resize)

    @property
    def nbytes(self) -> int:
        """Bytes of all pictures once they are decoded; estimated if they differ in size."""
        height, width = self.size or (self.side, self.side * MEAN_ASPECT)
        return int(len(self) * height * width * 3)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self), *(self.size or (self.side, self.side)), 3

    @property
    def ndim(self) -> int:
        return 4

    @property
    def dtype(self) -> np.dtype[np.uint8]:
        return np.dtype(np.uint8)

    def describe(self, i: int) -> str:
        """Return a name of picture i for messages."""
        return f"picture {i}"

    def path(self, i: int) -> str | None:
        """Return the file of picture i, None if it has none of its own."""
        return None

    def warn_unreadable(self, new: Iterable[int]) -> None:
        """Warn of pictures that turned out to be unreadable when they were already part of a run."""
        found = sorted(new)
        if len(self.unreadable) == len(self) > 0:
            raise InputError(f"none of the {len(self):,} pictures can be read (the first: {self.unreadable[0]})")
        if found:
            named = ", ".join(f"{self.describe(i)}: {self.unreadable[i]}" for i in found[:3])
            count = f"{len(found):,} of {len(self):,} pictures cannot be read"
            warnings.warn(f"{count} and are replaced by grey ones; remove them ({named})", stacklevel=3)

    def _subset_unreadable(self, index: IntArray) -> dict[int, str]:
        if not self.unreadable:
            return {}
        return {row: self.unreadable[i] for row, i in enumerate(index.tolist()) if i in self.unreadable}

    def __getitem__(self, i: int | slice | NDArray[Any] | list[int]) -> Pixels:
        if isinstance(i, int | np.integer):
            place = int(i) + (len(self) if i < 0 else 0)
            if not 0 <= place < len(self):
                raise IndexError(f"picture {i} of {len(self)}")
            return self.picture(place)
        chosen = range(len(self))[i] if isinstance(i, slice) else np.arange(len(self))[i].tolist()
        block = np.empty((len(chosen), *self.shape[1:]), dtype=np.uint8)
        for row, j in enumerate(chosen):
            block[row] = middle(self.picture(j), block.shape[1], block.shape[2])
        return block

    def __iter__(self) -> Iterator[Pixels]:
        return (self.picture(i) for i in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(dtype or np.uint8, copy=False)


def middle(picture: Pixels, height: int, width: int) -> Pixels:
    """Return the middle of a picture, as the paper's supplement C shows them."""
    top, left = (picture.shape[0] - height) // 2, (picture.shape[1] - width) // 2
    return picture[top : top + height, left : left + width]


class EncodedPictures(PictureSequence):
    """Encoded pictures, decoded each time they are read."""

    in_processes: bool = False  # whether a subset is small enough to be sent to another process

    @abstractmethod
    def open(self, i: int) -> BinaryIO:
        """Open the encoded picture i."""

    @abstractmethod
    def resized(self, resize: Resize) -> Self:
        """Return the same pictures with another size, none of them known to be unreadable."""

    @abstractmethod
    def version(self) -> str:
        """Return a text that changes if a picture may have changed, without reading any."""

    def decode(self, i: int) -> Pixels:
        """Decode picture i or raise UnreadablePictureError."""
        try:
            with self.open(i) as file:
                data = file.read()
        except (OSError, InputError) as problem:
            raise UnreadablePictureError(reason(problem)) from problem
        return decode(data, self.resize)

    def picture(self, i: int) -> Pixels:
        try:
            return self.decode(i)
        except UnreadablePictureError as problem:
            self.unreadable[i] = str(problem)
            return grey(self.resize)

    def problem(self, i: int) -> str | None:
        """Return why picture i cannot be read, None if it can; a whole JPEG is not decoded to find that out."""
        try:
            with self.open(i) as file:
                if is_whole_jpeg(file):
                    return None
            self.decode(i)
        except (OSError, InputError, UnreadablePictureError) as problem:
            return reason(problem)
        return None


Stamps = NDArray[np.int64]  # [n, 2] bytes and time of the last change in nanoseconds; -1 if there is no such file


@dataclass(frozen=True)
class PictureFiles(EncodedPictures):
    """Picture files. `names` are relative to `root`, or absolute."""

    root: Path
    names: Sequence[str]
    resize: Resize = PAPER_SIZE
    unreadable: dict[int, str] = field(default_factory=dict, compare=False)
    in_processes = True

    def __len__(self) -> int:
        return len(self.names)

    def subset(self, index: IntArray) -> PictureFiles:
        names = [self.names[i] for i in index.tolist()]
        return replace(self, names=names, unreadable=self._subset_unreadable(index))

    def resized(self, resize: Resize) -> PictureFiles:
        return replace(self, resize=resize, unreadable={})

    def path(self, i: int) -> str:
        return os.path.join(self.root, self.names[i])  # noqa: PTH118 - a Path per picture takes several times as long

    def describe(self, i: int) -> str:
        return self.names[i]

    def open(self, i: int) -> BinaryIO:
        return open_file(self.path(i))

    def stamps(self) -> Stamps:
        """Return size and time of each file, which show a change without reading the file."""
        return np.array([stamp(self.path(i)) for i in range(len(self))], dtype=np.int64).reshape(-1, 2)

    def version(self) -> str:
        return ""


def stamp(path: str | Path) -> tuple[int, int]:
    """Return size and time of the last change of a file, -1 for both if it cannot be found."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return -1, -1
    return status.st_size, status.st_mtime_ns


Job = TypeVar("Job")
Result = TypeVar("Result")


def decoded(pictures: EncodedPictures, workers: int | None = None) -> Iterator[Pixels]:
    """Yield all pictures in order, grey for those that cannot be read (`pictures.unreadable` has the reasons)."""
    workers = usable_cores() if workers is None else workers
    pool = decoding_pool(pictures, workers)
    for i, found in enumerate(in_chunks(_decode_chunk, pictures, pool, workers)):
        if isinstance(found, str):
            pictures.unreadable[i] = found
            yield grey(pictures.resize)
        else:
            yield found


def _decode_chunk(pictures: EncodedPictures) -> list[Pixels | str]:
    """Decode pictures; a text is the reason why one cannot be read."""
    found: list[Pixels | str] = []
    for i in range(len(pictures)):
        try:
            found.append(pictures.decode(i))
        except UnreadablePictureError as problem:
            found.append(str(problem))
    return found


def in_chunks(
    function: Callable[[EncodedPictures], list[Result]], pictures: EncodedPictures, pool: Executor | None, workers: int
) -> Iterator[Result]:
    """Apply a function to chunks of the pictures in a pool and yield its results per picture, in order."""
    starts = range(0, len(pictures), CHUNK)
    chunks = (pictures.subset(np.arange(start, min(start + CHUNK, len(pictures)))) for start in starts)
    with pool or nullcontext():
        for results in in_order(function, chunks, pool, JOBS_AHEAD * workers):
            yield from results


def decoding_pool(pictures: EncodedPictures, workers: int) -> Executor | None:
    """Return processes for many files, threads for few (decoders release Python's lock), None for one worker."""
    if workers <= 1 or len(pictures) <= CHUNK:
        return None
    if pictures.in_processes and len(pictures) > FEW_PICTURES:
        return worker_processes(workers)
    return ThreadPoolExecutor(workers)


def in_order(
    function: Callable[[Job], Result], jobs: Iterable[Job], pool: Executor | None, ahead: int
) -> Iterator[Result]:
    """Apply a function to jobs in a pool and yield its results in order; `ahead` of them are computed before.

    Without a pool, or after one of its processes was killed, the jobs run in this process.
    """
    waiting: deque[tuple[Job, Future[Result] | None]] = deque()
    usable = pool

    def finish(job: Job, future: Future[Result] | None) -> Result:
        nonlocal usable
        try:
            return function(job) if future is None else future.result()
        except BrokenProcessPool:
            usable = None
            return function(job)

    try:
        for job in jobs:
            future = None
            try:
                future = usable.submit(function, job) if usable is not None else None
            except BrokenProcessPool:  # noticed between two jobs
                usable = None
            waiting.append((job, future))
            if pool is None or len(waiting) >= ahead:
                yield finish(*waiting.popleft())
        while waiting:
            yield finish(*waiting.popleft())
    finally:
        for _, future in waiting:
            if future is not None:
                future.cancel()


# -- windows: what worker processes read of pictures. This module does not import torch, so that they start quickly ----

SPAN = 127  # positions of a window per axis; odd, so that one is the middle, and codes fit 16 bits
CODES = 2 * SPAN * SPAN  # the upper half is mirrored
CENTRE = (SPAN // 2) * SPAN + SPAN // 2  # code of the middle window, not mirrored


def place(code: int, height: int, width: int, crop: int) -> tuple[int, int, bool]:
    """Return top and left of the window of a code, and whether it is mirrored; all positions are equally likely."""
    mirrored, spot = divmod(code, SPAN * SPAN)
    row, column = divmod(spot, SPAN)
    return row * (height - crop + 1) // SPAN, column * (width - crop + 1) // SPAN, bool(mirrored)


def cut(picture: Pixels, code: int, crop: int) -> Pixels:
    """Return the window of a code as a view, not mirrored."""
    top, left, _ = place(code, picture.shape[0], picture.shape[1], crop)
    return picture[top : top + crop, left : left + crop]


class WindowTask(NamedTuple):
    """Windows to read; it is sent to a process in every step."""

    pictures: PictureSequence  # encoded ones: those of `samples` only, as a list of millions of names would be sent
    samples: list[int]  # -1: padding
    spots: list[int]
    crop: int | None  # None: the window is the whole picture


def read_windows(task: WindowTask) -> tuple[Pixels, dict[int, str]]:
    """Return the windows [n, height, width, 3], and sample and reason of the pictures that could not be read."""
    pictures, crop = task.pictures, task.crop
    height, width = pictures.shape[1:3] if crop is None else (crop, crop)
    windows = np.full((len(task.samples), height, width, 3), GREY, dtype=np.uint8)
    encoded = isinstance(pictures, EncodedPictures)
    real = [sample for sample in task.samples if sample >= 0]
    rows = iter(range(len(real)) if encoded else real)
    for window, sample, spot in zip(windows, task.samples, task.spots, strict=True):
        if sample >= 0:
            picture = pictures.picture(next(rows))
            window[:] = picture if crop is None else cut(picture, spot, crop)
    return windows, {real[row]: text for row, text in pictures.unreadable.items()} if encoded else {}
