"""`labelsieve bench io`: a folder of pictures, listed, staged and started again, beside a plain pillow loop.

The pictures are JPEG of 240 x 160 pixels, drawn for the purpose in a scratch folder. The plain loop opens, converts and
resizes them one after another, which is what a person would write first. Memory is this process' own high-water mark.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

CLASSES = 10
DIFFERENT = 50  # pictures that are really drawn; the rest are copies under other names


def run(pictures: int = 3000, *, seed: int = 0) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="labelsieve-bench-") as scratch:
        root, staging = Path(scratch) / "data", Path(scratch) / "staged"
        files = make_folder(root, pictures, seed)
        from labelsieve.data.source import ReadOptions, load_source

        plain, seconds_plain = timed(lambda: plain_loop(files))
        before = high_water()
        first, seconds_first = timed(lambda: load_source(str(root), ReadOptions(cache_dir=staging)))
        second, seconds_second = timed(lambda: load_source(str(root), ReadOptions(cache_dir=staging)))
        assert len(first) == len(second) == pictures and first.x.shape[1:] == plain.shape
        return {
            "benchmark": "io",
            "pictures": pictures,
            "cpus": os.cpu_count(),
            "plain_pictures_per_second": pictures / seconds_plain,
            "staged_pictures_per_second": pictures / seconds_first,
            "second_start_seconds": seconds_second,
            "ratio": seconds_plain / seconds_first,
            "extra_megabytes": (high_water() - before) / 1e6,
        }


def describe(result: dict[str, Any]) -> list[str]:
    return [
        f"{result['pictures']:,} JPEG pictures of 240 x 160 pixels, {result['cpus']} cores",
        f"  plain pillow loop           {result['plain_pictures_per_second']:9,.0f} img/s",
        f"  listed, decoded and staged  {result['staged_pictures_per_second']:9,.0f} img/s  {result['ratio']:.2f} x",
        f"  started again, from stage   {result['second_start_seconds']:9.2f} s",
        f"  memory beyond the start     {result['extra_megabytes']:9,.0f} MB",
    ]


def make_folder(root: Path, count: int, seed: int) -> list[Path]:
    """Noise over a colour ramp: about as hard to decode as a photo."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    drawn = []
    for i in range(min(DIFFERENT, count)):
        ramp = np.linspace(0, 200, 240)[None, :, None] * rng.random(3)
        pixels = np.clip(ramp + rng.normal(30, 25, (160, 240, 3)), 0, 255).astype(np.uint8)
        path = root / "drawn" / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, quality=85)
        drawn.append(path.read_bytes())
        path.unlink()
    (root / "drawn").rmdir()
    files = []
    for i in range(count):
        path = root / f"class{i % CLASSES}" / f"{i:06d}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(drawn[i % len(drawn)])
        files.append(path)
    return files


def plain_loop(files: list[Path]) -> Any:
    from PIL import Image, ImageOps

    pixels = np.zeros(0)
    for file in files:
        with Image.open(file) as opened:
            pixels = np.asarray(ImageOps.fit(opened.convert("RGB"), (64, 64), method=Image.Resampling.BICUBIC))
    return pixels


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    found = work()
    return found, time.perf_counter() - began


def high_water() -> int:
    """Most bytes this process ever held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
