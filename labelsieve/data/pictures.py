"""Picture files to bytes of one size. Whatever cannot be read is listed with its reason and never stops the rest.

Pictures come in every size, grey, with transparency, with a palette, turned by EXIF: all become RGB, upright, white
where they were transparent. With a staging folder the decoded pictures are kept there, and the next start uses them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.decode_cache import Kept
from labelsieve.data.duplicates import Groups, Same, same_files
from labelsieve.data.open_image import MOST_PIXELS, quiet, upright, upright_size
from labelsieve.data.open_image import open_checked as open_checked
from labelsieve.data.skipped import NO_FILE
from labelsieve.errors import InputError
from labelsieve.files import atomic_path
from labelsieve.progress import Progress
from labelsieve.types import IntArray, LabelledData, Skipped

LARGEST_SIDE = 64  # larger pictures are shrunk to this unless a size is asked for
EXTENSIONS = frozenset((".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm"))
AT_ONCE = 256

Pixels = NDArray[np.uint8]
Size = int | tuple[int, int] | None  # a square, (height, width), or by what is there


def safe_path(root: Path, name: str) -> Path | None:
    """`root / name` where it stays inside `root`, links followed; else None."""
    try:
        resolved = (root / name).resolve()
        return resolved if resolved.is_relative_to(root.resolve()) else None
    except (ValueError, OSError, RuntimeError):
        return None


def decode(opened: Any, height: int, width: int) -> Pixels:
    """An opened PIL picture to [height, width, 3]: upright, RGB, shorter side fitted, middle cut out."""
    from PIL import Image, ImageOps

    # JPEG can be decoded at a fraction of its size, several times faster.
    opened.draft("RGB", (max(height, width), max(height, width)))
    picture = upright(opened)
    if picture.size != (width, height):
        picture = ImageOps.fit(picture, (width, height), method=Image.Resampling.BICUBIC)
    return np.asarray(picture, dtype=np.uint8)


def common_size(sizes: Sequence[tuple[int, int]], size: Size) -> tuple[int, int]:
    """Small pictures of one size keep it; others become squares of at most `LARGEST_SIDE`."""
    if size is not None:
        return (size, size) if isinstance(size, int) else size
    if len(set(sizes)) == 1 and max(sizes[0]) <= LARGEST_SIDE:
        return sizes[0]
    side = min(LARGEST_SIDE, max(min(one) for one in sizes))
    return side, side


def read_pictures(
    files: Sequence[Any],
    y: IntArray,
    classes: tuple[Any, ...],
    ids: NDArray[np.str_],
    *,
    name: str,
    size: Size = None,
    staging: Path | None = None,
    skipped: Sequence[Skipped] = (),
    progress: Progress | None = None,
    opener: Callable[[Any], Any] = open_checked,
    version: str = "",
    same: Same | None = None,
) -> LabelledData:
    """Decode `files` (what `opener` opens). Those that fail go to `skipped`; the rest keep their order.

    `version` changes when pictures do that are no files; `same` gathers which files have the same bytes.
    """
    if isinstance(size, int) and not 8 <= size <= 1024:
        raise InputError(f"--size {size} is outside 8..1024 pixels")
    progress = progress or Progress(silent=True)
    kept = Kept.of(staging, files, ids, f"{size} {LARGEST_SIDE} {version}") if staging is not None else None
    staged = kept.read() if kept is not None else None
    if staged is not None:
        progress.note(f"using the pictures staged in {staging}", passing=True)
        x, failures = staged
    else:
        with quiet:  # what PIL warns of is what `open_checked` refuses
            x, failures = _decode_all(files, ids, size, kept, progress, opener)
    readable = np.setdiff1d(np.arange(len(files)), np.array(sorted(failures), dtype=np.int64))
    lost = [Skipped(str(ids[i]), reason) for i, reason in sorted(failures.items())]
    if not len(readable):
        first = f" ({lost[0].id}: {lost[0].reason})" if lost else ""
        raise InputError(f"no readable picture in {name}{first}")
    if same is not None and isinstance(files[0], Path):
        place = {i: at for at, i in enumerate(readable.tolist())}
        same.groups = [[place[i] for i in group if i in place] for group in _same(files, kept)]
    everything = (*skipped, *lost)
    if everything:
        one = (lost or skipped)[0]
        such = ", such as" if len(everything) > 1 else ":"
        total = len(files) + len(skipped)
        progress.note(f"{len(everything):,} of {total:,} files cannot be read{such} {one.id} ({one.reason})")
    return LabelledData(x, y[readable], classes, ids[readable], "pictures", name=name, skipped=everything)


def _same(files: Sequence[Any], kept: Kept | None) -> Groups:
    """Which files have the same bytes: looked at once, and kept beside the decoded pictures."""
    if kept is None:
        return same_files(files)
    try:
        return [[int(i) for i in group] for group in kept.index()["same"]]
    except (KeyError, TypeError, ValueError):
        found = same_files(files)
        with suppress(OSError):  # staged by somebody else, in a folder that is only read
            kept.add(same=found)
        return found


def _decode_all(
    files: Sequence[Any],
    ids: NDArray[np.str_],
    size: Size,
    kept: Kept | None,
    progress: Progress,
    opener: Callable[[Any], Any],
) -> tuple[Pixels, dict[int, str]]:
    failures: dict[int, str] = {}
    sizes: dict[int, tuple[int, int]] = {}

    def measure(i: int) -> None:
        try:
            with opener(files[i]) as opened:
                sizes[i] = upright_size(opened)
        except Exception as error:
            failures[i] = _reason(error)

    for _ in _in_threads(measure, range(len(files)), progress, "looking at pictures"):
        pass
    if not sizes:
        return np.zeros((0, 1, 1, 3), dtype=np.uint8), failures
    height, width = common_size(list(sizes.values()), size)

    def read(i: int) -> Pixels | None:
        if i in failures:
            return None
        try:
            with opener(files[i]) as opened:
                return decode(opened, height, width)
        except Exception as error:
            failures[i] = _reason(error)
            return None

    shape = (len(sizes), height, width, 3)
    everything = range(len(files))  # counted as they were when they were looked at
    if kept is None:
        x = np.empty(shape, dtype=np.uint8)
        count = _fill(x, _in_threads(read, everything, progress, "decoding pictures"))
        return x[:count], failures
    kept.folder.mkdir(parents=True, exist_ok=True)
    needed = int(np.prod(shape))
    free = shutil.disk_usage(kept.folder).free
    if needed > free:
        raise InputError(f"{kept.folder} needs {needed / 1e9:.1f} GB for the pictures, {free / 1e9:.1f} GB are free")
    with atomic_path(kept.path("npy")) as partial:
        out = np.lib.format.open_memmap(partial, mode="w+", dtype=np.uint8, shape=shape)
        count = _fill(out, _in_threads(read, everything, progress, "decoding pictures"))
        out.flush()
        del out
    kept.write_index(ids, failures)
    return np.load(kept.path("npy"), mmap_mode="r")[:count], failures


def _in_threads(work: Callable[[int], Any], items: Sequence[int], progress: Progress, what: str) -> Iterator[list[Any]]:
    """Answers in order, a bounded number at once; decoders let go of Python's lock."""
    with progress.stage(what, len(items), unit="pictures") as stage, ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for start in range(0, len(items), AT_ONCE):
            part = items[start : start + AT_ONCE]
            yield list(pool.map(work, part))
            stage.advance(len(part))


def _fill(out: Pixels, parts: Iterator[list[Pixels | None]]) -> int:
    count = 0
    for part in parts:
        for pixels in part:
            if pixels is not None:
                out[count] = pixels
                count += 1
    return count


def _reason(error: Exception) -> str:
    from PIL import Image, UnidentifiedImageError

    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, UnidentifiedImageError):
        return "not a picture, whatever its name says"
    if isinstance(error, Image.DecompressionBombError):
        return f"too large: at most {MOST_PIXELS / 1e6:.0f} megapixels are read"
    if isinstance(error, FileNotFoundError):
        return NO_FILE
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return f"damaged: {text[:200]}"
