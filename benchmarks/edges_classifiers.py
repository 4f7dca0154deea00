"""Compare classifiers on edge features of pictures: all columns or principal components, exact or approximate kernel.

    .venv/bin/python benchmarks/edges_classifiers.py --data DIR     DIR contains CIFAR-10; about 3 minutes on one core

Trains on the first pictures of CIFAR-10 with symmetric noise of 0.2, predicts other pictures and compares with their
clean labels. Writes edges-classifiers.md. These numbers are the reason for `COMPONENTS` in data/edges.py and for
`KERNEL_COMPONENTS` in models/choose.py.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from labelsieve import noise, theory
from labelsieve.data import edges
from labelsieve.experiments.datasets import open_cifar10

HERE = Path(__file__).parent
TRAIN, TEST = 4_000, 2_000
RATIO = 0.2
COMPONENTS = (64, 128, 256)
LANDMARKS = (100, 500, 1_000)


def logistic(landmarks: int):
    """Return the approximate kernel machine that `edges` is for many pictures."""
    kernel = Nystroem(n_components=landmarks, random_state=0)
    return make_pipeline(kernel, LogisticRegression(C=3, max_iter=300, tol=1e-3))


def projected(pictures, components: int):
    """Return the rows that `EdgeFeatures` makes of many pictures."""
    full, count = edges.FULL_ROWS, edges.COMPONENTS
    edges.FULL_ROWS, edges.COMPONENTS = min(full, len(pictures) - 1), components
    try:
        return edges.EdgeFeatures.learn(pictures).rows(pictures)
    finally:
        edges.FULL_ROWS, edges.COMPONENTS = full, count


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with CIFAR-10")
    parser.add_argument("--write", type=Path, default=HERE / "edges-classifiers.md", help="page to write")
    options = parser.parse_args()
    data = open_cifar10(options.data)
    pictures, true = data.pictures[: TRAIN + TEST], data.true[: TRAIN + TEST]
    given = noise.corrupt(true[:TRAIN], theory.symmetric(10, RATIO), np.random.default_rng(0))
    rows = {"all columns": edges._features(pictures)}
    rows |= {f"{count} components": projected(pictures, count) for count in COMPONENTS}
    chosen = f"{edges.COMPONENTS} components"
    cases = [("all columns", "exact kernel (SVC)", SVC(C=3))]
    cases += [("all columns", "the same, columns scaled", make_pipeline(StandardScaler(), SVC(C=3)))]
    cases += [(name, "500 landmarks", logistic(500)) for name in rows if name != "all columns"]
    cases += [(chosen, f"{count} landmarks", logistic(count)) for count in LANDMARKS if count != 500]
    lines = []
    for name, kind, model in cases:
        began = time.process_time()
        model.fit(rows[name][:TRAIN], given)
        accuracy = np.mean(model.predict(rows[name][TRAIN:]) == true[TRAIN:])
        lines.append(f"| {name} | {kind} | {accuracy:.3f} | {time.process_time() - began:.1f} |")
        print(lines[-1], flush=True)
    options.write.write_text(
        "# Classifiers on edge features\n\n"
        "`.venv/bin/python benchmarks/edges_classifiers.py --data DIR`\n\n"
        f"The first {TRAIN:,} pictures of CIFAR-10 with symmetric noise of {RATIO}; accuracy on the clean labels of\n"
        f"the next {TEST:,} pictures, with a standard error of about 0.011. Seconds of CPU time for training and\n"
        "prediction. *Components*: principal components of the features. *Landmarks*: training pictures on which an\n"
        "approximate kernel (Nystroem) is based; logistic regression uses it.\n\n"
        "| rows | classifier | accuracy | seconds |\n|---|---|---|---|\n" + "\n".join(lines) + "\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
