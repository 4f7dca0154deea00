"""Plans beside runs: time and memory that `labelsieve plan` announces, and those that `labelsieve run` takes.

    python benchmarks/plans.py [--data FOLDER] [--only NAME ...]

The sources are data sets of scikit-learn and made ones; --data adds banking77-train.csv and banking77-test.csv of that
folder. Each plan and each run is a process of its own, on the CPU. The table is written to plans.md beside this file
after every source.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_classification

from labelsieve.progress import format_bytes, format_duration

HERE = Path(__file__).parent
Made = Callable[[Path], str]
FACTOR = 2.0  # a plan holds if it is right within this factor


def table(name: str, load: Callable[[], tuple[Any, Any]]) -> Made:
    """Return a function that writes a CSV file of numbers."""

    def make(folder: Path) -> str:
        x, y = load()
        rows = [",".join([*(f"{value:.5g}" for value in row), f"c{label}"]) for row, label in zip(x, y, strict=True)]
        header = ",".join([*(f"f{i}" for i in range(x.shape[1])), "label"])
        (folder / f"{name}.csv").write_text("\n".join([header, *rows]))
        return str(folder / f"{name}.csv")

    return make


def made(samples: int, columns: int, classes: int) -> Callable[[], tuple[Any, Any]]:
    """Return a function that makes rows of numbers."""
    return lambda: make_classification(
        samples, columns, n_informative=min(columns, 12), n_classes=classes, random_state=0
    )


def texts(folder: Path) -> str:
    """Write 600 short texts of six classes."""
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(300)]
    rows = [f"{' '.join(rng.choice(words[40 * c : 40 * c + 90], 12))},c{c}" for c in rng.integers(0, 6, 600)]
    (folder / "texts.csv").write_text("\n".join(["text,label", *rows]))
    return str(folder / "texts.csv")


def digits_array(folder: Path) -> str:
    """Write the digits as pictures of 16 x 16 pixels."""
    x, y = load_digits(return_X_y=True)
    pictures = np.kron(x.reshape(-1, 8, 8), np.ones((2, 2))).astype(np.uint8) * 15
    np.savez(folder / "digits16.npz", x=pictures[:600, :, :, None], y=y[:600])
    return str(folder / "digits16.npz")


def picture_folder(folder: Path) -> str:
    """Write 120 pictures of 48 x 48 pixels in two class folders."""
    rng = np.random.default_rng(0)
    for i in range(120):
        target = folder / "pictures" / ("dark" if i % 2 else "light")
        target.mkdir(parents=True, exist_ok=True)
        pixels = np.clip(rng.normal(90 if i % 2 else 160, 50, (48, 48, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(target / f"{i}.png")
    return str(folder / "pictures")


SOURCES: dict[str, tuple[Made, str]] = {
    "iris": (table("iris", lambda: load_iris(return_X_y=True)), ""),
    "wine": (table("wine", lambda: load_wine(return_X_y=True)), ""),
    "breast cancer": (table("cancer", lambda: load_breast_cancer(return_X_y=True)), ""),
    "digits": (lambda folder: "digits", ""),
    "texts, 600": (texts, ""),
    "rows, 1,000 x 200": (table("wide", made(1_000, 200, 4)), ""),
    "rows, 6,000 x 150": (table("wider", made(6_000, 150, 4)), ""),
    "rows, 10,000 x 10": (table("long", made(10_000, 10, 3)), ""),
    "wine, logistic": (table("wine", lambda: load_wine(return_X_y=True)), "--model logistic"),
    "breast cancer, network": (table("cancer", lambda: load_breast_cancer(return_X_y=True)), "--network mlp"),
    "pictures, array": (digits_array, "--train-epochs 10"),
    "pictures, folder": (picture_folder, "--train-epochs 10"),
}


def measure(words: list[str]) -> tuple[dict[str, Any], int]:
    """Run labelsieve in a process; return its answer and the most bytes of memory that it used."""
    command = [sys.executable, "-m", "labelsieve", *words, "--json", "--device", "cpu"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    answer = process.stdout.read()
    _, _, used = os.wait4(process.pid, 0)
    return json.loads(answer), used.ru_maxrss * 1024


def main() -> None:
    """Measure every source, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    chosen = parser.parse_args()
    sources = dict(SOURCES)
    for part in ("test", "train") if chosen.data else ():
        path = str(chosen.data / f"banking77-{part}.csv")
        sources[f"banking77, {part}"] = (lambda folder, path=path: path, "--label-column category")
    head = ("source", "options", "samples", "planned", "took", "ratio", "memory planned", "memory used", "ratio")
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    held: list[bool] = []
    for name, (make, options) in sources.items():
        if chosen.only and name not in chosen.only:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            words = [make(Path(scratch)), *options.split()]
            plan, _ = measure(["plan", *words])
            done, memory = measure(["run", *words, "--out", f"{scratch}/run"])
        time_ratio, memory_ratio = plan["total_seconds"] / done["seconds"], plan["host_bytes"] / memory
        held.append(all(1 / FACTOR <= ratio <= FACTOR for ratio in (time_ratio, memory_ratio)))
        cells = (
            name, options and f"`{options}`", f"{plan['samples']:,}", format_duration(plan["total_seconds"]),
            format_duration(done["seconds"]), f"{time_ratio:.2f}", format_bytes(plan["host_bytes"]),
            format_bytes(memory), f"{memory_ratio:.2f}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
        text = f"{sum(held)} of {len(held)} plans are right within a factor of {FACTOR:.0f}, in time and in memory."
        page = ["# Plans and runs", "", "`python benchmarks/plans.py --data FOLDER`, CPU only.", "", text, "", *lines]
        (HERE / "plans.md").write_text("\n".join(page) + "\n")
        print(lines[-1], flush=True)


if __name__ == "__main__":
    main()
