"""Compare selectors for a few hundred pictures on a CPU.

    .venv/bin/python benchmarks/few_pictures.py --data DIR          DIR contains CIFAR-10; about 10 minutes on one core

The first pictures of four classes and of all ten classes of CIFAR-10, with symmetric noise of 0.2 and without noise,
and two iterations of INCV. Writes few-pictures.md.
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
        "# Selectors for few pictures without a GPU", "",
        "`.venv/bin/python benchmarks/few_pictures.py --data DIR`", "",
        f"The first pictures of CIFAR-10 with symmetric noise of {RATIO} and without added noise (*clean*: all flagged",
        "labels are false alarms). INCV with two iterations, one seed; seconds on one core.", "",
    ]  # fmt: skip
    heads = (
        "selector", "accuracy", "F1 of the selected", "F1 of the flagged", "AUROC", "noise ratio",
        "clean: noise ratio", "clean: flagged", "seconds",
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
