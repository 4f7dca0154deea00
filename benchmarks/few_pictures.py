"""What should look for wrong labels among a few hundred pictures without a GPU: seconds, and what is found.

    .venv/bin/python benchmarks/few_pictures.py --data DIR          DIR holds CIFAR-10; about 10 minutes of one core

The first pictures of CIFAR-10, of four of its classes and of all ten, symmetric noise of 0.2 and none, two iterations
of INCV, told nothing, on one CPU core. Writes few-pictures.md.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labelsieve import INCV, metrics, noise, theory
from labelsieve.experiments.datasets import open_cifar10
from labelsieve.models.small import SmallCNN

HERE = Path(__file__).parent
SETS = ((400, (0, 1, 8, 9)), (1000, tuple(range(10))))
SELECTORS = ("edges", "forest on pixels", "small-cnn")
RATIO = 0.2


def agreement(found: Any, wanted: Any) -> float:
    """F1."""
    return float(2 * (found & wanted).sum() / max(1, found.sum() + wanted.sum()))


def selected_by(name: str, pictures: Any, given: Any, classes: int) -> INCV:
    settings: dict[str, Any] = {"random_state": 0, "n_iterations": 2, "device": "cpu"}
    if name == "edges":
        return INCV("edges", **settings).fit(pictures, given)
    if name == "small-cnn":
        return INCV(partial(SmallCNN, classes, channels=3), **settings).fit(pictures, given)
    return INCV("forest", **settings).fit(pictures.reshape(len(pictures), -1), given)


def line(name: str, pictures: Any, true: Any, classes: int) -> str:
    given = np.asarray(noise.corrupt(true, theory.symmetric(classes, RATIO), np.random.default_rng(0)))
    wrong = given != true
    began = time.process_time()
    model = selected_by(name, pictures, given, classes)
    seconds = time.process_time() - began
    clean = selected_by(name, pictures, true, classes)
    values = (
        float(np.mean(model.predicted_ == true)), agreement(model.selected_, ~wrong),
        agreement(model.suspicion_ > 0.5, wrong), metrics.auroc(wrong, model.suspicion_),
        model.noise_ratio_, clean.noise_ratio_, float((clean.suspicion_ > 0.5).mean()),
    )  # fmt: skip
    return f"| {name} | " + " | ".join(f"{value:.3f}" for value in values) + f" | {seconds:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with CIFAR-10")
    parser.add_argument("--out", type=Path, default=HERE / "few-pictures.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    bench = open_cifar10(options.data)
    lines = [
        "# A few hundred pictures, no GPU", "",
        "`.venv/bin/python benchmarks/few_pictures.py --data DIR`", "",
        f"The first pictures of CIFAR-10 with symmetric noise of {RATIO}, and as they are (*clean*, where what is",
        "flagged is a false alarm); INCV told nothing, two iterations, seconds of one processor. One seed.", "",
    ]  # fmt: skip
    heads = (
        "selector", "predicted right", "F1 of the selected", "F1 of the flagged", "AUROC", "noise read as",
        "clean: read as", "clean: flagged", "seconds",
    )  # fmt: skip
    for number, kept in SETS:
        chosen = np.flatnonzero(np.isin(bench.true, kept))[:number]
        pictures, true = bench.pictures[chosen], np.searchsorted(kept, bench.true[chosen])
        lines += [
            f"## {number} pictures of {len(kept)} classes",
            "",
            f"| {' | '.join(heads)} |",
            "|---" * len(heads) + "|",
        ]
        for name in SELECTORS:
            lines.append(line(name, pictures, true, len(kept)))
            print(lines[-1], flush=True)
        lines.append("")
    options.out.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
