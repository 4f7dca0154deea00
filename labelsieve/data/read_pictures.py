"""Read the pictures of any source: check them, choose their size, and keep them where they fit.

    folder, CSV, Hugging Face, WebVision  ->  EncodedPictures  ->  array | StagedPictures | EncodedPictures

Every way gives the same pixels and the same batches (`engine/picture_stores.py`); only speed and memory differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from labelsieve.data.decode import (
    FORMATS,
    ExactSize,
    Pixels,
    ShorterSide,
    open_checked,
    reason,
    silenced_warnings,
    upright_size,
)
from labelsieve.data.duplicates import Groups, group_codes, same_files
from labelsieve.data.labels import leave_out
from labelsieve.data.pictures import EncodedPictures, PictureFiles, PictureSequence, Size, decoded, in_chunks
from labelsieve.data.read_options import ReadOptions
from labelsieve.data.resources import available_memory, usable_cores
from labelsieve.data.stage import DecodeCache, StagedPictures, rows_without
from labelsieve.errors import InputError
from labelsieve.files import free_disk
from labelsieve.progress import SILENT, Progress
from labelsieve.types import IntArray, LabelledData, some_of

LARGEST_SIDE = 64  # larger pictures are shrunk to this unless a size is given
SIZES = range(8, 1025)  # pixels that --size accepts
# Pictures of one size are held in memory up to this size; larger sets are read from disk. With it, a selection from
# 200,000 photos takes 1.71 GB: benchmarks/large-folder.md.
MEMORY_LIMIT = 2**30  # bytes
MEMORY_SHARE = 0.1  # of the available memory: training holds a second, padded copy
DEVICE_SHARE = 0.3  # of a device's free memory that pictures may take: the networks come afterwards
THREADS_PER_CORE, MAX_THREADS = 4, 32  # threads that check files mostly wait for the disk

Result = TypeVar("Result")


class Placement(StrEnum):
    """Where training reads pictures from."""

    MEMORY = "memory"
    DEVICE = "device"
    STAGED = "staged"  # decoded once, read from disk
    STREAMED = "streamed"  # decoded again in every epoch


def place_pictures(
    pictures: Pixels | PictureSequence,
    folder: Path | None,
    *,
    samples: int | None = None,
    device_memory: int | None = None,
) -> Placement:
    """Choose the place of pictures by their size.

    `folder` is where they may be staged, None if nowhere. `samples` is their number if there will be more of them.
    `device_memory` is the free memory of a GPU, None if there is none.
    """
    need = int(pictures.nbytes * (len(pictures) if samples is None else samples) / max(1, len(pictures)))
    one_size = picture_shape(pictures) is not None
    if device_memory is not None and need <= DEVICE_SHARE * device_memory:
        return Placement.DEVICE
    limit = min(MEMORY_LIMIT, MEMORY_SHARE * available_memory()) if one_size else DEVICE_SHARE * available_memory()
    if need <= limit:
        return Placement.MEMORY
    return Placement.STAGED if folder is not None and free_disk(folder) > need else Placement.STREAMED


def picture_shape(x: Any) -> tuple[int, int, int] | None:
    """Return (height, width, channels) of pictures, None if they differ in size."""
    if isinstance(x, PictureSequence):
        return (*x.size, 3) if x.size else None
    height, width, channels = x.shape[1:]
    return height, width, channels


def read_pictures(
    data: LabelledData,
    *,
    size: Size | ShorterSide = None,
    staging: Path | None = None,
    progress: Progress = SILENT,
    compare: bool = False,
) -> LabelledData:
    """Read data whose `x` are encoded pictures and leave out those that cannot be read.

    `size` is a side or (height, width) that all pictures get, None for `common_size`, or a `ShorterSide`, which keeps
    their aspect ratio. `staging` is a folder that keeps the decoded pictures for the next start. With `compare`, files
    with equal bytes are found.
    """
    if isinstance(size, int) and size not in SIZES:
        raise InputError(f"--size {size} is outside {SIZES[0]}..{SIZES[-1]} pixels")
    pictures: EncodedPictures = data.x
    cache = None
    if staging is not None:
        cache = DecodeCache.of(staging, pictures, data.ids, f"{size} {LARGEST_SIDE}")
    with silenced_warnings:
        x, failures = _decode(data, size, cache, progress)
    if compare and isinstance(pictures, PictureFiles):
        data = replace(data, equal_files=group_codes(_same_files(pictures, cache), len(pictures)))
    return leave_out_unreadable(data, x, failures, progress)


def read_with_options(data: LabelledData, options: ReadOptions, progress: Progress) -> LabelledData:
    """Read data whose `x` are encoded pictures with the options of the user."""
    options = options.for_pictures()
    return read_pictures(
        data, size=options.size, staging=options.cache_dir, progress=progress, compare=options.labelled
    )


def _decode(
    data: LabelledData, size: Size | ShorterSide, cache: DecodeCache | None, progress: Progress
) -> tuple[Pixels | PictureSequence, dict[int, str]]:
    """Return the readable pictures, and index and reason of the others."""
    pictures: EncodedPictures = data.x
    staged = cache.read() if cache is not None else None
    if staged is not None and cache is not None:
        progress.note(f"using the decoded pictures in {cache.folder}", passing=True)
        return _load(*staged)
    rows = np.arange(len(pictures))
    failures: dict[int, str] = {}
    if isinstance(size, ShorterSide):
        encoded = pictures.resized(size)
    else:
        sizes, failures = measure(pictures, progress)
        rows = rows_without(len(pictures), failures)
        if not len(rows):
            return np.zeros((0, 1, 1, 3), dtype=np.uint8), failures
        encoded = pictures.subset(rows).resized(ExactSize(*common_size(sizes[rows], size)))
    placement = place_pictures(encoded, None if cache is None else cache.folder)
    in_memory = placement is Placement.MEMORY and encoded.size is None
    stay_encoded = placement is Placement.STREAMED or in_memory
    if cache is not None and not stay_encoded:
        cache.write(encoded, rows, data.ids, failures, progress)
        written = cache.read()
        assert written is not None
        return _load(*written)
    x: Pixels | EncodedPictures = encoded
    unreadable = find_unreadable(encoded, progress) if stay_encoded else {}
    if not stay_encoded:
        x = np.empty(encoded.shape, dtype=np.uint8)
        with progress.stage("decoding pictures", len(encoded), unit="pictures") as stage:
            for i, pixels in enumerate(decoded(encoded)):
                x[i] = pixels
                stage.advance()
        unreadable = encoded.unreadable
    if unreadable:
        x = some_of(x, rows_without(len(encoded), unreadable))
    return x, failures | {int(rows[i]): text for i, text in unreadable.items()}


def _load(staged: StagedPictures, failures: dict[int, str]) -> tuple[Pixels | PictureSequence, dict[int, str]]:
    """Load staged pictures into memory if they fit."""
    fits = staged.size is not None and place_pictures(staged, None) is Placement.MEMORY
    return (np.asarray(staged) if fits else staged), failures


def measure(pictures: EncodedPictures, progress: Progress) -> tuple[IntArray, dict[int, str]]:
    """Return (height, width) of each picture from its header, and index and reason of those that have none."""
    sizes, failures = np.zeros((len(pictures), 2), dtype=np.int64), {}
    for i, found in enumerate(_look_at(pictures, _measure_chunk, progress)):
        if isinstance(found, str):
            failures[i] = found
        else:
            sizes[i] = found
    return sizes, failures


def _look_at(
    pictures: EncodedPictures, function: Callable[[EncodedPictures], list[Result]], progress: Progress
) -> Iterator[Result]:
    """Apply a function to chunks of the pictures in threads and yield its results per picture."""
    workers = min(MAX_THREADS, THREADS_PER_CORE * usable_cores())
    with progress.stage("checking pictures", len(pictures), unit="pictures") as stage:
        for found in in_chunks(function, pictures, ThreadPoolExecutor(workers), workers):
            yield found
            stage.advance()


def _measure_chunk(pictures: EncodedPictures) -> list[tuple[int, int] | str]:
    found: list[tuple[int, int] | str] = []
    for i in range(len(pictures)):
        try:
            with pictures.open(i) as file, open_checked(file) as opened:
                found.append(upright_size(opened))
        except Exception as problem:  # pillow's parsers raise errors of many types
            found.append(reason(problem))
    return found


def common_size(sizes: IntArray, size: Size) -> tuple[int, int]:
    """Return the size of all pictures: small ones of one size keep it, others become squares of `LARGEST_SIDE`."""
    if size is not None:
        return (size, size) if isinstance(size, int) else size
    if (sizes == sizes[0]).all() and sizes[0].max() <= LARGEST_SIDE:
        return int(sizes[0, 0]), int(sizes[0, 1])
    side = min(LARGEST_SIDE, int(sizes.min(axis=1).max()))
    return side, side


def find_unreadable(pictures: EncodedPictures, progress: Progress = SILENT) -> dict[int, str]:
    """Return index and reason of the pictures that cannot be read.

    A JPEG with a header and an end mark counts as readable; an error in the middle of it shows when it is decoded for
    training, as a warning.
    """
    problems = enumerate(_look_at(pictures, _problems_chunk, progress))
    return {i: problem for i, problem in problems if problem is not None}


def _problems_chunk(pictures: EncodedPictures) -> list[str | None]:
    return [pictures.problem(i) for i in range(len(pictures))]


def leave_out_unreadable(
    data: LabelledData, readable: Any, failures: Mapping[int, str], progress: Progress
) -> LabelledData:
    """Leave the pictures that cannot be read out of labels and ids; `readable` are the other pictures."""
    if len(failures) == len(data):
        first = f" ({data.ids[0]}: {failures[0]})" if failures else ""
        raise InputError(f"no readable pictures in {data.name}{first}; supported formats: {', '.join(FORMATS)}")
    found = leave_out(data, failures)
    if found.skipped:
        first_skipped = found.skipped[len(data.skipped) if failures else 0]
        such = ", such as" if len(found.skipped) > 1 else ":"
        total = len(data) + len(data.skipped)
        count = f"{len(found.skipped):,} of {total:,} files cannot be read"
        progress.note(f"{count}{such} {first_skipped.id} ({first_skipped.reason})")
    return replace(found, x=readable)


def _same_files(pictures: PictureFiles, cache: DecodeCache | None) -> Groups:
    """Find files with equal bytes, once per staged set."""
    if cache is None:
        return same_files([pictures.path(i) for i in range(len(pictures))])
    try:
        return [[int(i) for i in group] for group in cache.index()["same"]]
    except (OSError, KeyError, TypeError, ValueError):
        found = same_files([pictures.path(i) for i in range(len(pictures))])
        with suppress(OSError):  # streamed, or staged in a folder that is read-only
            cache.add(same=found)
        return found
