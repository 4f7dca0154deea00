"""Time and memory of selection for 10^4 to 10^7 samples, and the fitted exponents.

    python benchmarks/growth.py [--largest 1e7] [--write benchmarks/growth.md]

    decisions    INCV with up to four iterations. Predictions are generated, and their generation is not timed.
    end to end   INCV with a linear classifier (ridge, closed form) on 16 features from a memory-mapped file, with up to
                 ten trainings and their scoring.

Every measurement is a new process with one thread, best of three runs up to a million samples and of two above. Memory
is the peak above the resident memory before the call. The exponent is the least-squares slope of log10(value) over
log10(samples). Takes about ten minutes on one core, 1 GB of disk and 7 GB of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.bench.selection_speed import reset_peak_memory
from labelsieve.data.resources import peak_memory
from labelsieve.types import Job, Scores

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
CLASSES, FEATURES, WRONG, MISTAKES = 10, 16, 0.3, 0.1
KINDS = ("decisions", "end to end")
AFRESH = 300_000  # samples written at a time


def exponent(samples: Sequence[float], values: Sequence[float]) -> float:
    """Return k of values = constant x samples^k."""
    return float(np.polyfit(np.log10(samples), np.log10(values), 1)[0])


class CheapAnswers:
    """Trainer whose predictions are right except for a proportion `MISTAKES`, and confident if right."""

    def __init__(self, true: NDArray[np.int8], seed: int = 0) -> None:
        self.true, self.rng = true, np.random.default_rng(seed)

    def train_and_score(self, jobs: Sequence[Job]) -> list[Scores]:
        return [self.scores(job) for job in jobs]

    def scores(self, job: Job) -> Scores:
        n = len(job.score)
        predicted = self.true[job.score].astype(np.int64)
        off = np.flatnonzero(self.rng.random(n) < MISTAKES)
        predicted[off] = (predicted[off] + self.rng.integers(1, CLASSES, len(off))) % CLASSES
        confidence = self.rng.uniform(0.5, 1.0, n)
        other = (1 - confidence) / (CLASSES - 1)
        probability = np.where(predicted == job.labels[job.score], confidence, other)
        return Scores(predicted, probability, confidence, -np.log(probability))


def write_case(n: int, folder: Path) -> None:
    """Features around one corner a class, float32, and labels of which `WRONG` are replaced; seeded, in pieces."""
    rng = np.random.default_rng(0)
    corners = rng.normal(0, 1.5, (CLASSES, FEATURES)).astype(np.float32)
    with (folder / "x.bin").open("wb") as x, (folder / "y.bin").open("wb") as y, (folder / "true.bin").open("wb") as t:
        for start in range(0, n, AFRESH):
            size = min(AFRESH, n - start)
            true = rng.integers(0, CLASSES, size)
            (corners[true] + rng.standard_normal((size, FEATURES), dtype=np.float32)).tofile(x)
            np.where(rng.random(size) < WRONG, rng.integers(0, CLASSES, size), true).tofile(y)
            true.astype(np.int8).tofile(t)


def measure(kind: str, n: int, folder: Path) -> dict[str, Any]:
    """Seconds and extra peak bytes of one selection; meant for a fresh process."""
    from labelsieve.execute.sklearn_trainer import SklearnTrainer
    from labelsieve.selection.incv import drive, incv_steps

    labels: NDArray[np.int64] = np.fromfile(folder / "y.bin", dtype=np.int64)
    true: NDArray[np.int8] = np.fromfile(folder / "true.bin", dtype=np.int8)
    trainer: Any
    if kind == "decisions":
        trainer = CheapAnswers(true)
    else:
        from sklearn.linear_model import RidgeClassifier

        x = np.memmap(folder / "x.bin", dtype=np.float32, mode="r", shape=(n, FEATURES))
        trainer = SklearnTrainer(x, RidgeClassifier(solver="cholesky"), CLASSES)
    drive(incv_steps(labels[:1000], CLASSES, seed=0), trainer)  # what is imported or set up once
    before = reset_peak_memory()
    began, away = now(), np.zeros(2)
    steps = incv_steps(labels, CLASSES, seed=0)
    jobs = next(steps)
    while True:
        left = now()
        answers = trainer.train_and_score(jobs)
        away += now() - left
        try:
            jobs = steps.send(answers)
        except StopIteration as end:
            found = end.value
            break
    wall, cpu = now() - began - (away if kind == "decisions" else 0)
    extra = max(1, peak_memory() - before)
    chosen = found.selected
    right = labels[chosen] == true[chosen]
    return {
        "seconds": float(cpu),
        "wall": float(wall),
        "bytes": extra,
        "selected": int(chosen.sum()),
        "label_precision": float(right.mean()),
        "label_recall": float(right.sum() / (labels == true).sum()),
        "iterations": len(found.history),
    }


def now() -> NDArray[np.float64]:
    """Return the wall time and the CPU time."""
    return np.array([perf_counter(), process_time()])


def measured(kind: str, n: int, folder: Path, repeats: int) -> dict[str, Any]:
    runs = []
    for _ in range(repeats):
        request = [sys.executable, __file__, "--measure", kind, str(n), str(folder)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(request, capture_output=True, text=True, check=True, env=environment)
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    best: dict[str, Any] = min(runs, key=lambda run: float(run["seconds"]))
    return {**best, "kind": kind, "samples": n, "bytes": max(run["bytes"] for run in runs)}


def fits(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the exponents of time and memory per kind, over all sizes and from 10^5 samples."""
    found: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        own = [row for row in rows if row["kind"] == kind]
        late = [row for row in own if row["samples"] >= 100_000]
        found[kind] = {}
        for name, some in (("all sizes", own), ("from 10^5 on", late)):
            if len(some) >= 2:
                n = [row["samples"] for row in some]
                found[kind][f"time, {name}"] = exponent(n, [row["seconds"] for row in some])
                found[kind][f"memory, {name}"] = exponent(n, [row["bytes"] for row in some])
    return found


def page(rows: Sequence[dict[str, Any]], command: str) -> str:
    lines = [
        "# Time and memory of selection by number of samples",
        "",
        f"`{command}`, {date.today().isoformat()}: {platform.machine()}, one core of a shared",
        f"machine, numpy {np.__version__}, Python {platform.python_version()}.",
        f"{CLASSES} classes, {WRONG:.0%} of the labels replaced at random, protocol `auto`, at most four iterations.",
        "*decisions* is the time of INCV without its trainings. *end to end* is INCV with a",
        f"linear classifier on {FEATURES} features from a memory-mapped file, with trainings and scoring.",
        "The machine was shared, so CPU and wall time are shown.",
        "Memory is the peak above the resident memory before the call, including resident pages of the mapped",
        "file. LP and LR are label precision and recall of the selected samples.",
        "",
        "| samples | part | iterations | CPU s | wall s | µs per sample | extra MB | bytes per sample | LP | LR |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        n, seconds, held = row["samples"], row["seconds"], row["bytes"]
        precision, recall = row["label_precision"], row["label_recall"]
        lines.append(
            f"| {n:,} | {row['kind']} | {row['iterations']} | {seconds:.3g} | {row['wall']:.3g} "
            f"| {1e6 * seconds / n:.2f} | {held / 1e6:,.1f} | {held / n:,.0f} | {precision:.3f} | {recall:.3f} |"
        )
    lines += ["", "Exponents k of constant x samples^k, from least squares on the logarithms:", ""]
    for kind, found in fits(rows).items():
        lines.append(f"- {kind}: " + "; ".join(f"{name} **{value:.2f}**" for name, value in found.items()))
    lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=float, default=1e7, help="of the sizes")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        kind, n, folder = options.measure
        print(json.dumps(measure(kind, int(n), Path(folder))))
        return
    rows = []
    for n in (size for size in SIZES if size <= options.largest):
        with tempfile.TemporaryDirectory(prefix="labelsieve-growth-") as folder:
            write_case(n, Path(folder))
            for kind in KINDS:
                rows.append(measured(kind, n, Path(folder), repeats=3 if n <= 1_000_000 else 2))
                if not options.json:
                    print(f"{n:,} {kind}: {rows[-1]['seconds']:.3f} s, {rows[-1]['bytes'] / 1e6:.1f} MB", flush=True)
    command = "python benchmarks/growth.py" + ("" if options.largest >= 1e7 else f" --largest {options.largest:g}")
    text = page(rows, command)
    if options.write:
        options.write.write_text(text, encoding="utf-8")
    print(json.dumps({"results": rows, "exponents": fits(rows)}) if options.json else text)


if __name__ == "__main__":
    main()
