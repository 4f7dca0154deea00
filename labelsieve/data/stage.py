"""Pictures decoded once and kept on disk as shards, so that an epoch costs a copy per picture, not a decoding.

    DIR/shard-00000.bin     decoded pictures one after the other, uint8 rows of RGB pixels
    DIR/shard-00000.json    height and width of each, and which could not be read
    DIR/stage.json          number of pictures, their size, pictures per shard

A shard is written under another name and renamed when it is complete. So a stopped staging continues where it stopped,
and several processes or runs may stage at once. Pictures are read with `pread`, not mapped: memory stays bounded.

A run folder holds one staged set per key (`DecodeCache`):

    RUN/staged/pictures-KEY/          the shards
    RUN/staged/pictures-KEY.csv       id, bytes, modified (ns): the files that were read
    RUN/staged/pictures-KEY.json      what could not be read, which files are equal; written last
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelsieve.csv_files import write_csv
from labelsieve.data.decode import ExactSize, Pixels, Resize, ShorterSide, UnreadablePictureError, grey
from labelsieve.data.pictures import (
    JOBS_AHEAD,
    EncodedPictures,
    PictureFiles,
    PictureSequence,
    Stamps,
    decoding_pool,
    in_order,
)
from labelsieve.data.resources import usable_cores
from labelsieve.errors import InputError
from labelsieve.files import atomic_file, free_disk, open_file, read_text, sweep, write_json, write_text
from labelsieve.progress import SILENT, Progress
from labelsieve.types import IntArray

CACHE_FORMAT = 3  # 2: all pictures in one file, pictures-KEY.npy
CACHE_NAMES = "pictures*"


def rows_without(count: int, left_out: Mapping[int, str]) -> IntArray:
    """Return 0..count-1 without the keys of `left_out`."""
    return np.setdiff1d(np.arange(count), np.fromiter(left_out, np.int64, len(left_out)))


class ShardJob(NamedTuple):
    """One shard to write."""

    folder: Path
    number: int
    pictures: EncodedPictures


def default_shard_size(samples: int) -> int:
    """Return pictures per shard: small sets are spread over processes, large shards stay under a gigabyte."""
    return int(np.clip(-(-samples // 64), 64, 4096))


def stage(
    pictures: EncodedPictures,
    to: str | Path,
    *,
    workers: int | None = None,
    shard_size: int | None = None,
    key: str = "",
    progress: Progress = SILENT,
) -> StagedPictures:
    """Decode all pictures into shards in the folder `to`. Shards that were staged with another key or size are removed.

    The key names the pictures and their order.
    """
    folder = Path(to)
    folder.mkdir(parents=True, exist_ok=True)
    sweep(folder, ".shard-*.partial")  # left by a killed writer, up to a gigabyte each
    size = shard_size or default_shard_size(len(pictures))
    side = {"size": list(pictures.resize)} if isinstance(pictures.resize, ExactSize) else {"side": pictures.side}
    settings = json.dumps({"samples": len(pictures), "shard_size": size, **side, "key": key})
    about = folder / "stage.json"
    if not (about.is_file() and read_text(about) == settings):
        _remove(folder.glob("shard-*"))
        write_text(about, settings)
    jobs = []
    for number, first in enumerate(range(0, len(pictures), size)):
        part = pictures.subset(np.arange(first, min(first + size, len(pictures))))
        if _read_shard(folder, number, len(part)) is None:
            jobs.append(ShardJob(folder, number, part))
    workers = min(usable_cores() if workers is None else workers, len(jobs))
    pool = decoding_pool(pictures, workers)
    with pool or nullcontext(), progress.stage("decoding pictures", len(pictures), unit="pictures") as bar:
        bar.resume(len(pictures) - sum(len(job.pictures) for job in jobs))
        for count in in_order(write_shard, jobs, pool, JOBS_AHEAD * workers):
            bar.advance(count)
    return StagedPictures.open(folder)


def write_shard(job: ShardJob) -> int:
    """Write one shard and return its number of pictures."""
    folder, number, pictures = job
    shapes, unreadable = [], {}
    data, about = _shard_files(folder, number)
    try:
        with atomic_file(data) as out:
            for i in range(len(pictures)):
                try:
                    picture = pictures.decode(i)
                except UnreadablePictureError as problem:
                    unreadable[i], picture = str(problem), grey(pictures.resize)
                shapes.append(picture.shape[:2])
                out.write(picture.tobytes())
    except OSError as problem:
        free = free_disk(folder) / 1e6
        needed = f"{pictures.nbytes / 1e6:.0f} MB per shard"
        raise InputError(
            f"{data}: {problem.strerror}; decoded pictures need about {needed}, {free:.0f} MB are free; make room there"
        ) from problem
    write_text(about, json.dumps({"shapes": shapes, "unreadable": unreadable, "bytes": data.stat().st_size}))
    return len(pictures)


def _shard_files(folder: Path, number: int) -> tuple[Path, Path]:
    return folder / f"shard-{number:05d}.bin", folder / f"shard-{number:05d}.json"


def _read_shard(folder: Path, number: int, count: int) -> dict[str, Any] | None:
    """Return the description of a shard of `count` pictures; None if the shard is missing or damaged."""
    data, about = _shard_files(folder, number)
    try:
        note = dict(json.loads(read_text(about)))
        return note if note["bytes"] == data.stat().st_size and len(note["shapes"]) == count else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True)
class StagedPictures(PictureSequence):
    """Decoded pictures in shards on disk."""

    folder: Path
    resize: Resize
    sizes: NDArray[np.int32]  # [n, 2] height, width
    shard: NDArray[np.int32]  # [n]
    offset: IntArray  # [n] bytes into the shard
    unreadable: dict[int, str]

    @classmethod
    def open(cls, folder: str | Path) -> StagedPictures:
        """Open a folder that `stage` wrote."""
        folder = Path(folder)
        try:
            settings = dict(json.loads(read_text(folder / "stage.json")))
        except (OSError, ValueError) as problem:
            raise InputError(
                f"{folder}: not a folder of decoded pictures ({problem}); delete it and run the command again"
            ) from problem
        samples, size = int(settings["samples"]), int(settings["shard_size"])
        resize: Resize = ExactSize(*settings["size"]) if "size" in settings else ShorterSide(int(settings["side"]))
        shapes: list[NDArray[np.int32]] = [np.zeros((0, 2), dtype=np.int32)]
        unreadable: dict[int, str] = {}
        for number, first in enumerate(range(0, samples, size)):
            note = _read_shard(folder, number, min(size, samples - first))
            if note is None:
                raise InputError(
                    f"{folder}: shard {number} is missing or damaged; run the command again to decode it again"
                )
            shapes.append(np.array(note["shapes"], dtype=np.int32))
            unreadable |= {first + int(i): text for i, text in note["unreadable"].items()}
        sizes = np.concatenate(shapes)
        lengths = sizes.prod(1, dtype=np.int64) * 3
        starts = np.cumsum(lengths) - lengths
        shard = (np.arange(samples) // size).astype(np.int32)
        return cls(folder.absolute(), resize, sizes, shard, starts - starts[shard * size], unreadable)

    def __len__(self) -> int:
        return len(self.sizes)

    def subset(self, index: IntArray) -> StagedPictures:
        return replace(
            self, sizes=self.sizes[index], shard=self.shard[index], offset=self.offset[index],
            unreadable=self._subset_unreadable(index),
        )  # fmt: skip

    def readable(self) -> StagedPictures:
        """Return the pictures that could be read."""
        return self.subset(rows_without(len(self), self.unreadable))

    @property
    def nbytes(self) -> int:
        return int(self.sizes.prod(1, dtype=np.int64).sum()) * 3

    def picture(self, i: int) -> Pixels:
        height, width = (int(length) for length in self.sizes[i])
        with open_file(_shard_files(self.folder, int(self.shard[i]))[0]) as file:
            data = os.pread(file.fileno(), height * width * 3, int(self.offset[i]))
        return np.frombuffer(data, dtype=np.uint8).reshape(height, width, 3)


# -- the staged sets of a run folder -------------------------------------------------------------------------------

_last_used: dict[Path, str] = {}  # key of the set that was read or written last, by folder


@dataclass(frozen=True)
class DecodeCache:
    """The staged set of some files. Its key changes if a file, its time, its size or the requested size does."""

    folder: Path
    key: str
    stamps: Stamps | None  # None if the pictures are not files

    @classmethod
    def of(cls, folder: Path, pictures: EncodedPictures, ids: NDArray[np.str_], how: str) -> DecodeCache:
        """Return the set of these pictures; `how` names everything else that decides the pixels."""
        digest = hashlib.sha256(f"{CACHE_FORMAT} {how} {pictures.version()} {len(pictures)}".encode())
        stamps = pictures.stamps() if isinstance(pictures, PictureFiles) else None
        for id in ids.tolist():
            digest.update(f"{id}\n".encode())
        digest.update(b"" if stamps is None else stamps.tobytes())
        return cls(folder, digest.hexdigest()[:16], stamps)

    @property
    def shards(self) -> Path:
        return self.folder / f"pictures-{self.key}"

    def path(self, suffix: str) -> Path:
        return self.folder / f"pictures-{self.key}.{suffix}"

    def index(self) -> dict[str, Any]:
        return dict(json.loads(read_text(self.path("json"))))

    def read(self) -> tuple[StagedPictures, dict[int, str]] | None:
        """Return the readable pictures, and index and reason of the others; None if the set is not complete."""
        try:
            failures = {int(i): str(text) for i, text in self.index()["failures"]}
            staged = StagedPictures.open(self.shards)
        except (OSError, ValueError, KeyError, TypeError):  # InputError is a ValueError
            return None
        _last_used[self.folder.absolute()] = self.key
        return staged.readable(), failures

    def write(
        self,
        pictures: EncodedPictures,
        rows: IntArray,
        ids: NDArray[np.str_],
        failures: dict[int, str],
        progress: Progress,
    ) -> None:
        """Stage `pictures`, the `rows` of the source that are not among the `failures`. The index is written last."""
        if self.shards.is_symlink():  # a run folder from somewhere else must not lead our writing to another folder
            self.shards.unlink()
        key = hashlib.sha256(rows.tobytes()).hexdigest()  # a file that could not be read earlier may be readable now
        staged = stage(pictures, self.shards, key=key, progress=progress)
        failures = failures | {int(rows[i]): text for i, text in staged.unreadable.items()}
        stamps = [("", "")] * len(ids) if self.stamps is None else self.stamps.tolist()
        read = ((ids[i], *stamps[i]) for i in rows_without(len(ids), failures).tolist())
        write_csv(self.path("csv"), ("id", "bytes", "modified"), read)
        write_json(self.path("json"), {"failures": sorted(failures.items())})

    def add(self, **entries: Any) -> None:
        """Add entries to the index."""
        write_json(self.path("json"), {**self.index(), **entries})


@contextmanager
def provisional_cache(folder: Path, *, begun: bool) -> Iterator[Callable[[], None]]:
    """Decode pictures into `folder` before it is known whether they belong to the run.

    Call the yielded function when they do: all other sets are removed, as far as it is known which one is used. If a
    run that was `begun` refuses them (InputError), the new sets are removed instead, and the next start finds the run's
    own.
    """
    before, accepted = set(folder.glob(CACHE_NAMES)), False
    _last_used.pop(folder.absolute(), None)

    def accept() -> None:
        nonlocal accepted
        accepted = True
        key = _last_used.get(folder.absolute())
        if key is not None or not begun:  # a refused start may have left the pictures of another source
            _remove(path for path in folder.glob(CACHE_NAMES) if path.name.partition(".")[0] != f"pictures-{key}")

    try:
        yield accept
    except InputError:
        if begun and not accepted:
            _remove(set(folder.glob(CACHE_NAMES)) - before)
        raise


def _remove(paths: Any) -> None:
    for path in list(paths):
        with suppress(OSError):  # a read-only folder, or a system that keeps open files
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
