"""`labelsieve bench io`: read a folder of pictures for the first and the second time, compared with a pillow loop.

The pictures are generated JPEG files of 240 x 160 pixels in a temporary folder. The pillow loop opens, converts and
resizes one picture after another. Memory is the peak of this process.
"""

from __future__ import annotations

import io
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from labelsieve.bench.selection_speed import peak_memory, reset_peak_memory

CLASSES = 10  # folders; the number does not change the speed
DISTINCT_PICTURES = 50  # the other files are copies of them


def run(pictures: int = 3000, *, seed: int = 0) -> dict[str, Any]:
    """Measure and return rates, times and memory."""
    with tempfile.TemporaryDirectory(prefix="labelsieve-bench-") as scratch:
        root, staging = Path(scratch) / "data", Path(scratch) / "staged"
        files = make_folder(root, pictures, seed)
        from labelsieve.data.source import ReadOptions, load_source

        plain, seconds_plain = timed(lambda: plain_loop(files))
        before = reset_peak_memory()
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
            "extra_megabytes": (peak_memory() - before) / 1e6,
        }


def describe(result: dict[str, Any]) -> list[str]:
    return [
        f"{result['pictures']:,} JPEG pictures of 240 x 160 pixels, {result['cpus']} cores",
        f"  pillow loop                 {result['plain_pictures_per_second']:9,.0f} img/s",
        f"  first read, decode and cache{result['staged_pictures_per_second']:9,.0f} img/s  {result['ratio']:.2f} x",
        f"  second read, from the cache {result['second_start_seconds']:9.2f} s",
        f"  additional memory           {result['extra_megabytes']:9,.0f} MB",
    ]


def make_folder(root: Path, count: int, seed: int) -> list[Path]:
    """Write pictures of noise over a colour ramp, which take about as long to decode as photos."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    generated = []
    for _ in range(min(DISTINCT_PICTURES, count)):
        ramp = np.linspace(0, 200, 240)[None, :, None] * rng.random(3)
        pixels = np.clip(ramp + rng.normal(30, 25, (160, 240, 3)), 0, 255).astype(np.uint8)
        encoded = io.BytesIO()
        Image.fromarray(pixels).save(encoded, "JPEG", quality=85)
        generated.append(encoded.getvalue())
    files = []
    for i in range(count):
        path = root / f"class{i % CLASSES}" / f"{i:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(generated[i % len(generated)])
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
    result = work()
    return result, time.perf_counter() - began
