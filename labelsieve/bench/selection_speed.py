"""`labelsieve bench select`: selection on stored predictions, compared with cleanlab's find_label_issues.

Each measurement runs in a new process. It reads the inputs and imports the libraries before it measures time and peak
memory, so that only the call itself counts. `large` adds 10 M x 100 predictions from a memory-mapped file.

`labelsieve bench io` reads a folder of pictures for the first and the second time, compared with a pillow loop, which
opens, converts and resizes one picture after another. The pictures are generated JPEG files of 240 x 160 pixels in a
temporary folder. Memory is the peak of this process.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from json import dumps, loads
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.resources import peak_memory, read_bytes_of
from labelsieve.errors import InputError
from labelsieve.files import free_disk

OURS, THEIRS = "select_clean", "cleanlab find_label_issues"
WRITE_ROWS = 50_000  # rows of the large file that are written at once


@dataclass(frozen=True)
class Case:
    samples: int
    classes: int
    dtype: str
    mapped: bool = False

    @property
    def name(self) -> str:
        return f"{self.samples:,} x {self.classes:,} {self.dtype}" + (", memory-mapped" if self.mapped else "")

    @property
    def bytes(self) -> int:
        return self.samples * self.classes * np.dtype(self.dtype).itemsize


CASES = (Case(1_000_000, 10, "float64"), Case(200_000, 1_000, "float64"))
LARGE = Case(10_000_000, 100, "float32", mapped=True)


def run(
    json: bool = False, *, large: bool = False, cases: tuple[Case, ...] = CASES, repeats: int = 3
) -> dict[str, Any]:
    """Measure, print a table or JSON, and return the results. Times are the best of `repeats`."""
    results: list[dict[str, Any]] = []
    for case in (*cases, *((LARGE,) if large else ())):
        tools = [OURS, "label_suspicion"] + ([] if case.mapped else [THEIRS])
        with tempfile.TemporaryDirectory(prefix="labelsieve-bench-") as folder:
            _require_disk(Path(folder), case.bytes + case.samples * 8)
            write_case(case, Path(folder))
            rows = [_measure(case, tool, Path(folder), 1 if case.mapped else repeats) for tool in tools]
        results += [row | {"compared": _compared(row, rows[-1])} for row in rows]
    report = {"benchmark": "select", "cpus": os.cpu_count(), "results": results}
    print(dumps(report) if json else _table(results))
    return report


def write_case(case: Case, folder: Path) -> None:
    """Write softmax outputs that favour the true class, and labels of which a fifth are wrong."""
    rng = np.random.default_rng(0)
    with (folder / "probs.bin").open("wb") as probs, (folder / "labels.bin").open("wb") as labels:
        for start in range(0, case.samples, WRITE_ROWS):
            n = min(WRITE_ROWS, case.samples - start)
            true = rng.integers(0, case.classes, n)
            block = rng.random((n, case.classes), dtype=np.float32)
            block[np.arange(n), true] += 0.2 * case.classes * rng.random(n, dtype=np.float32)
            rows = block.astype(case.dtype, copy=False)
            rows /= rows.sum(axis=1, keepdims=True)
            rows.tofile(probs)
            np.where(rng.random(n) < 0.2, rng.integers(0, case.classes, n), true).tofile(labels)


# ---------------------------------------------------------------- one measurement, in a new process


def measure(case: Case, tool: str, folder: Path) -> dict[str, float]:
    """Return seconds and additional peak memory of one call. `_measure` calls it in a new process."""
    call = _tool(tool)
    shape = (case.samples, case.classes)
    labels: NDArray[np.int64] = np.fromfile(folder / "labels.bin", dtype=np.int64)
    probs: NDArray[Any]
    if case.mapped:
        probs = np.memmap(folder / "probs.bin", dtype=case.dtype, mode="r", shape=shape)
    else:
        probs = np.fromfile(folder / "probs.bin", dtype=case.dtype).reshape(shape)
    before = reset_peak_memory()
    started = perf_counter()
    result = call(labels, probs)
    seconds = perf_counter() - started
    extra = peak_memory() - before
    return {"seconds": seconds, "extra_mb": max(extra, 0) / 1e6, "samples": len(result)}


def _tool(name: str) -> Callable[[Any, Any], Any]:
    if name == THEIRS:
        from cleanlab.filter import find_label_issues

        return find_label_issues  # type: ignore[no-any-return]
    from labelsieve import scoring

    return {OURS: scoring.select_clean, "label_suspicion": scoring.label_suspicion}[name]


def _measure(case: Case, tool: str, folder: Path, repeats: int) -> dict[str, Any]:
    request = dumps({"case": asdict(case), "tool": tool, "folder": str(folder)})
    runs = []
    for _ in range(repeats):
        done = subprocess.run(
            [sys.executable, "-m", "labelsieve.bench.selection_speed", request],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}"
            hint = "; install the extra `bench`" if "ModuleNotFoundError" in reason else ""
            raise InputError(f"{tool} cannot be measured: {reason}{hint}")
        runs.append(loads(done.stdout.strip().splitlines()[-1]))
    seconds, extra = min(run["seconds"] for run in runs), max(run["extra_mb"] for run in runs)
    return {"case": case.name, "tool": tool, "seconds": round(seconds, 4), "extra_mb": round(extra, 2)}


def reset_peak_memory() -> int:
    """Reset the peak if the system can (Linux), and return the resident memory in bytes."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return peak_memory()
    return read_bytes_of("VmRSS") or peak_memory()


# ---------------------------------------------------------------- the table


def _compared(row: dict[str, Any], last: dict[str, Any]) -> str:
    if last["tool"] != THEIRS or row is last:
        return ""
    time, memory = row["seconds"] / last["seconds"], row["extra_mb"] / max(last["extra_mb"], 1e-9)
    return f"{time:.1%} of the time, {memory:.1%} of the memory"


def _table(results: list[dict[str, Any]]) -> str:
    lines = [f"{'predictions':38} {'tool':28} {'seconds':>9} {'extra MB':>9}  compared with cleanlab"]
    lines += [
        f"{r['case']:38} {r['tool']:28} {r['seconds']:9.3f} {r['extra_mb']:9.1f}  {r['compared']}" for r in results
    ]
    return "\n".join(lines)


def _require_disk(folder: Path, needed: int) -> None:
    free = free_disk(folder)
    if free < needed * 1.1:
        raise InputError(
            f"{folder.parent}: {needed / 1e9:.1f} GB needed, {free / 1e9:.1f} GB free; set TMPDIR to a larger disk"
        )


# ---------------------------------------------------------------- reading pictures


CLASSES = 10  # folders; the number does not change the speed
DISTINCT_PICTURES = 50  # the other files are copies of them


def run_io(pictures: int = 3000, *, seed: int = 0) -> dict[str, Any]:
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


def describe_io(result: dict[str, Any]) -> list[str]:
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


if __name__ == "__main__":
    request = loads(sys.argv[1])
    print(dumps(measure(Case(**request["case"]), request["tool"], Path(request["folder"]))))
