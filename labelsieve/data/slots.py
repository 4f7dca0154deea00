"""Room for one batch of windows that another process fills: a mapped file, reserved before anyone writes.

A file rather than shared memory: containers give that little room, and overrunning it kills the process. It is put
where memory is (/dev/shm) when there is plenty.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from labelsieve.data.decode import GREY, Decoder, Pixels, UnreadablePictureError, cut, decode_file
from labelsieve.errors import InputError

if TYPE_CHECKING:
    from labelsieve.data.stage import Staged


def roomy() -> str | None:
    """A folder in memory with plenty of room; None: wherever temporary files go."""
    memory = "/dev/shm"
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= 2**31:
        return memory
    return None


class Slot:
    """A file of windows."""

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, 0

    def reserve(self, count: int, crop: int) -> None:
        size = count * crop * crop * 3
        if size <= self.size:
            return
        with self.path.open("ab") as file:
            try:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)
                else:
                    file.truncate(size)
            except OSError as problem:
                raise InputError(
                    f"{self.path.parent}: no room for a batch of {size / 1e6:.0f} MB; set TMPDIR"
                ) from problem
        self.size = size

    def windows(self, first: int, count: int, crop: int) -> Pixels:
        return mapped(self.path, first, count, crop)


def mapped(path: Path, first: int, count: int, crop: int) -> Pixels:
    size = crop * crop * 3
    return np.memmap(path, dtype=np.uint8, mode="r+", offset=first * size, shape=(count, crop, crop, 3))


class Task(NamedTuple):
    """Windows that go into a slot: small enough to be sent to a process with every step."""

    path: Path
    first: int  # row of the slot where they begin
    samples: list[int]  # -1: padding
    cuts: list[int]
    side: int
    crop: int
    decoder: Decoder
    paths: list[str] | None  # of the samples that are no padding
    staged: Staged | None


def fill(task: Task) -> dict[int, str]:
    """Make the windows; says which samples could not be read, and why."""
    windows = mapped(task.path, task.first, len(task.samples), task.crop)
    paths = iter(task.paths or ())
    bad: dict[int, str] = {}
    for window, sample, code in zip(windows, task.samples, task.cuts, strict=True):
        if sample < 0:
            window[:] = GREY
        elif task.staged is not None:
            window[:] = cut(task.staged[sample], code, task.crop)
        else:
            try:
                window[:] = cut(decode_file(next(paths), side=task.side, decoder=task.decoder), code, task.crop)
            except UnreadablePictureError as problem:
                bad[sample] = str(problem)
                window[:] = GREY
    return bad
