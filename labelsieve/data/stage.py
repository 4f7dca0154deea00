"""Pictures decoded once and kept as memory-mapped shards: what an epoch then costs is a copy, not a decoding.

    DIR/shard-00000.bin     pictures one after the other, uint8 rows of RGB pixels, shorter side `side`
    DIR/shard-00000.json    height and width of each, what could not be read, and checksums of the files' names, lengths
                            and times
    DIR/stage.json          samples, side, shard size, decoder

A shard is written under another name and renamed when it is complete, so a staging that was stopped goes on where it
was, and any number of processes makes the same files, those of two runs at once among them.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.decode import (
    Decoder,
    Pictures,
    PictureSequence,
    Pixels,
    UnreadablePictureError,
    best_decoder,
    decode_file,
    grey,
)
from labelsieve.data.decode_cache import stamp
from labelsieve.data.workers import processes, usable_cores
from labelsieve.errors import InputError
from labelsieve.files import atomic_path, check_free, sweep, write_text
from labelsieve.progress import Progress
from labelsieve.types import IntArray

VERSION = 2  # 1: as the file has the pixels, whatever EXIF says, and any colour where it was transparent


def default_shard_size(samples: int) -> int:
    """Small sets still spread over processes; large ones stay under a gigabyte a shard."""
    return int(np.clip(-(-samples // 64), 64, 4096))


def stage(
    pictures: Pictures,
    to: str | Path,
    *,
    workers: int | None = None,
    shard_size: int | None = None,
    progress: Progress | None = None,
) -> Staged:
    """Decode all pictures into shards under `to`; shards that are there already are kept."""
    folder, progress = Path(to), progress or Progress(silent=True)
    if not (folder / "stage.json").exists():
        check_free(folder, "stage=", missing="staged pictures")
    folder.mkdir(parents=True, exist_ok=True)
    sweep(folder, ".shard-*.partial")  # a killed writer's, up to a gigabyte each
    size = shard_size or default_shard_size(len(pictures))
    decoder: Decoder = best_decoder() if pictures.decoder == "auto" else pictures.decoder
    settings: dict[str, object] = {
        "version": VERSION,
        "samples": len(pictures),
        "side": pictures.side,
        "shard_size": size,
        "decoder": decoder,
    }
    _same_or_new(folder / "stage.json", settings)
    jobs = []
    for number, first in enumerate(range(0, len(pictures), size)):
        names = list(pictures.names[first : first + size])
        if not _complete(folder, number, names, pictures.root):
            jobs.append((str(folder), number, str(pictures.root), names, pictures.side, decoder))
    workers = usable_cores() if workers is None else workers
    if not jobs:
        progress.note(f"using the pictures staged in {folder}", passing=True)
        return Staged.open(folder)
    with progress.stage("staging pictures", len(pictures), unit="pictures") as told:
        told.resume(len(pictures) - sum(len(job[3]) for job in jobs))
        for count in _run(jobs, workers):
            told.advance(count)
    return Staged.open(folder)


def _run(jobs: Sequence[tuple[str, int, str, list[str], int, Decoder]], workers: int) -> Iterator[int]:
    if workers <= 1 or len(jobs) <= 1:
        yield from (write_shard(*job) for job in jobs)
        return
    done: set[int] = set()
    futures: dict[Future[int], int] = {}
    pool = processes(min(workers, len(jobs)))
    try:
        futures = {pool.submit(write_shard, *job): number for number, job in enumerate(jobs)}
        for future in as_completed(futures):
            yield future.result()
            done.add(futures[future])
    except BrokenProcessPool:  # a worker was killed: what is left is done here
        yield from (write_shard(*job) for number, job in enumerate(jobs) if number not in done)
    finally:
        for future in futures:
            future.cancel()
        pool.shutdown(wait=True)


def write_shard(folder: str, number: int, root: str, names: list[str], side: int, decoder: Decoder) -> int:
    """One shard; returns how many pictures it holds."""
    shapes, unreadable = [], {}
    stamps = _stamps(Path(root), names)  # before they are read: a file that changes meanwhile is read again
    data, about = _files(Path(folder), number)
    try:
        with atomic_path(data) as part, part.open("wb") as out:
            for i, name in enumerate(names):
                try:
                    picture = decode_file(Path(root, name), side=side, decoder=decoder)
                except UnreadablePictureError as problem:
                    unreadable[i], picture = str(problem), grey(side)
                shapes.append(picture.shape[:2])
                out.write(picture.tobytes())
    except OSError as problem:
        need = f"about {3 * 1.4 * side * side * len(names) / 1e6:.0f} MB a shard"
        free = shutil.disk_usage(folder).free / 1e6
        raise InputError(f"{data}: {problem.strerror}; staging needs {need}, {free:.0f} MB are free there") from problem
    note = {
        "names": _checksum(names), "files": stamps, "shapes": shapes, "unreadable": unreadable,
        "bytes": data.stat().st_size,
    }  # fmt: skip
    write_text(about, json.dumps(note))
    return len(names)


def _files(folder: Path, number: int) -> tuple[Path, Path]:
    return folder / f"shard-{number:05d}.bin", folder / f"shard-{number:05d}.json"


def _checksum(names: Sequence[str]) -> int:
    return zlib.crc32("\n".join(names).encode())


def _stamps(root: Path, names: Sequence[str]) -> int:
    """Changes when the length of a file does, or when it was written."""
    return _checksum([str(stamp(root / name)) for name in names])


def _complete(folder: Path, number: int, names: Sequence[str], root: Path) -> bool:
    """Whether a shard is there whole, and made of these files as they are now."""
    data, about = _files(folder, number)
    try:
        note = json.loads(about.read_text())
        whole = note["names"] == _checksum(names) and note["bytes"] == data.stat().st_size
        return bool(whole and note.get("files") in (None, _stamps(Path(root), names)))
    except (OSError, ValueError, KeyError):
        return False


def _same_or_new(path: Path, settings: dict[str, object]) -> None:
    if path.exists():
        found = _settings(path)
        different = [key for key, value in settings.items() if found.get(key) != value]
        if different:
            key = different[0]
            raise InputError(
                f"{path.parent}: staged with {key} {found.get(key)}, now {settings[key]} is wanted; "
                "give another folder or delete this one"
            )
    else:
        write_text(path, json.dumps(settings))


def _settings(path: Path) -> dict[str, object]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError) as problem:
        raise InputError(f"{path}: not a folder of staged pictures ({problem}); stage them again") from problem


@dataclass(frozen=True)
class Staged(PictureSequence):
    """Pictures out of shards: a view into the mapped file, no copy until someone needs one."""

    folder: Path
    side: int
    sizes: NDArray[np.int32]  # [N,2] height, width
    shard: NDArray[np.int32]  # [N]
    offset: IntArray  # [N] bytes into the shard
    unreadable: dict[int, str]

    @classmethod
    def open(cls, folder: str | Path) -> Staged:
        folder = Path(folder)
        settings = _settings(folder / "stage.json")
        samples, size = int(str(settings["samples"])), int(str(settings["shard_size"]))
        sizes: list[tuple[int, int]] = []
        unreadable: dict[int, str] = {}
        for number, first in enumerate(range(0, samples, size)):
            data, about = _files(folder, number)
            try:
                note = json.loads(about.read_text())
                whole = data.stat().st_size == note["bytes"]
            except (OSError, ValueError, KeyError):
                whole = False
            if not whole or len(note["shapes"]) != min(size, samples - first):
                raise InputError(f"{data}: staged shard missing or damaged; stage again, the others are kept")
            sizes += note["shapes"]
            unreadable |= {first + int(i): reason for i, reason in note["unreadable"].items()}
        shape = np.array(sizes, dtype=np.int32).reshape(-1, 2)
        ends = np.cumsum(shape.prod(1, dtype=np.int64) * 3)
        starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)[:samples]
        shard = (np.arange(samples) // size).astype(np.int32)
        return cls(folder, int(str(settings["side"])), shape, shard, starts - starts[shard * size], unreadable)

    def __len__(self) -> int:
        return len(self.sizes)

    def subset(self, index: IntArray) -> Staged:
        """Some of the pictures, out of the same shards."""
        places = index.tolist()
        bad = {row: self.unreadable[i] for row, i in enumerate(places) if i in self.unreadable}
        return Staged(self.folder, self.side, self.sizes[index], self.shard[index], self.offset[index], bad)

    def __getstate__(self) -> dict[str, Any]:
        """What travels to another process: where the shards lie, not what is in them."""
        kept = {name: value for name, value in self.__dict__.items() if name != "maps"}
        return kept | {"folder": self.folder.absolute()}

    @property
    def nbytes(self) -> int:
        return int(self.sizes.prod(1, dtype=np.int64).sum()) * 3

    @cached_property
    def maps(self) -> list[Pixels]:
        count = int(self.shard.max()) + 1 if len(self) else 0
        return [np.memmap(_files(self.folder, number)[0], dtype=np.uint8, mode="r") for number in range(count)]

    def picture(self, i: int) -> Pixels:
        height, width = (int(length) for length in self.sizes[i])
        start = int(self.offset[i])
        pixels = self.maps[int(self.shard[i])][start : start + height * width * 3]
        return pixels.reshape(height, width, 3)
