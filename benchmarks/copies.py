"""Effect of copies on selection, if copies stay together in a split and if they are split at random.

    .venv/bin/python benchmarks/copies.py          about 5 minutes on one core; writes copies.md

INCV with default settings. The first table has several copies of each sample with the same label. The second table has
identical samples that were labelled independently (rows with few distinct values, common phrases).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from labelsieve import INCV, noise, theory
from labelsieve.data.duplicates import copies_among
from labelsieve.experiments.render import markdown as table

HERE = Path(__file__).parent
SEEDS = (0, 1, 2)
COPIES = (1, 2, 4)
RATIO = 0.2

HEAD = """# Copies of samples

`.venv/bin/python benchmarks/copies.py` ({minutes:.0f} processor minutes)

INCV with default settings; means over seeds {seeds}. *Apart*: copies are split at random (`groups=range(n)`).
*Together*: copies are always on the same side of a split, as `select` and `INCV` do for detected copies
(data/duplicates.py). Recall and precision refer to the flagged labels. *Error of the ratio*: estimated minus true noise
ratio. *In the interval*: proportion of runs whose 95 % interval contains the true ratio. *Detected as copies*: number
of runs in which labelsieve treats the identical samples as copies.
"""

Made = tuple[Any, Any, int]


def texts(count: int, common: float, seed: int = 0) -> tuple[list[str], Any]:
    """Texts of five classes. Similar classes come in pairs that share a fifth of their words."""
    rng = np.random.default_rng([seed, count, int(100 * common)])
    label = rng.integers(0, 5, count)
    made = []
    for own in label.tolist():
        words = []
        for _ in range(rng.integers(6, 16)):
            if rng.random() < common:
                words.append(f"common{min(119, int(rng.exponential(25)))}")
            else:
                which = own ^ 1 if rng.random() < 0.2 and own ^ 1 < 5 else own
                words.append(f"own{which}x{min(24, int(rng.exponential(8)))}")
        made.append(" ".join(words))
    return made, label


def phrases(count: int, seed: int) -> Made:
    """Return samples of 150 phrases of one to three words with a Zipf distribution."""
    rng = np.random.default_rng([seed, 5])
    own = [
        (" ".join(f"w{kind}x{word}" for word in rng.integers(0, 30, rng.integers(1, 4))), kind)
        for kind in rng.integers(0, 4, 150)
    ]
    share = 1 / np.arange(1, 151)
    drawn = rng.choice(150, count, p=share / share.sum())
    return [own[i][0] for i in drawn], np.array([own[i][1] for i in drawn]), 4


def few_values(count: int, seed: int) -> Made:
    """Return rows of five columns with four values each; two columns determine the class."""
    rng = np.random.default_rng([seed, 6])
    x = rng.integers(0, 4, (count, 5)).astype(float)
    return x, ((x[:, 0] > 1).astype(int) + 2 * (x[:, 1] > 1).astype(int)), 4


def of(load: Callable[[], Any]) -> Callable[[int], Made]:
    data = load()
    return lambda seed: (data.data, data.target, len(data.target_names))


def made_texts(seed: int) -> Made:
    x, y = texts(600, 0.4, seed)
    return x, y, 5


COPIED = {
    "wine": of(load_wine),
    "breast cancer": of(load_breast_cancer),
    "digits": of(load_digits),
    "texts": made_texts,
}
NATURAL = {
    "rows of few values": lambda seed: few_values(1000, seed),
    "phrases": lambda seed: phrases(1500, seed),
}


def taken(x: Any, rows: Any) -> Any:
    return [x[i] for i in rows] if isinstance(x, list) else x[rows]


def found(x: Any, true: Any, given: Any, seed: int, *, together: bool) -> dict[str, float]:
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        incv = INCV(random_state=seed).fit(x, given, groups=None if together else np.arange(len(true)))
    wrong, flagged = given != true, incv.suggested_ != given
    estimate = incv.history_[-1]["estimate"]
    return {
        "recall": float(flagged[wrong].mean()) if wrong.any() else np.nan,
        "precision": float(wrong[flagged].mean()) if flagged.any() else np.nan,
        "flagged": float(flagged.mean()),
        "error": incv.noise_ratio_ - float(wrong.mean()),
        "covered": float(estimate["low"] <= wrong.mean() <= estimate["high"]),
        "seconds": time.process_time() - began,
    }


def mean(rows: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean over the seeds; NaN if no seed has a value."""
    known = {name: [row[name] for row in rows if not np.isnan(row[name])] for name in rows[0]}
    return {name: float(np.mean(values)) if values else np.nan for name, values in known.items()}


def copied_rows() -> list[list[str]]:
    lines = []
    for name, make in COPIED.items():
        for copies in COPIES:
            ways: dict[bool, list[dict[str, float]]] = {False: [], True: []}
            for seed in SEEDS:
                x, true, classes = make(seed)
                rng = np.random.default_rng([seed, copies])
                given = noise.corrupt(true, theory.symmetric(classes, RATIO), np.random.default_rng(seed))
                order = rng.permutation(np.repeat(np.arange(len(true)), copies))
                for together in ways:
                    ways[together].append(found(taken(x, order), true[order], given[order], seed, together=together))
            apart, both = (mean(ways[way]) for way in (False, True))
            lines.append([name, str(copies), *(
                "-" if np.isnan(one[key]) else f"{one[key]:+.3f}" if key == "error" else f"{one[key]:.2f}"
                for key in ("recall", "precision", "error", "covered") for one in (apart, both)
            )])  # fmt: skip
            print(lines[-1], flush=True)
    return lines


def natural_rows() -> list[list[str]]:
    lines = []
    for name, make in NATURAL.items():
        for ratio in (0.0, 0.05, RATIO):
            ways: dict[bool, list[dict[str, float]]] = {False: [], True: []}
            kept = 0
            for seed in SEEDS:
                x, true, classes = make(seed)
                given = noise.corrupt(true, theory.symmetric(classes, ratio), np.random.default_rng(seed))
                kept += copies_among(x, given, text=isinstance(x, list)) is not None
                for together in ways:
                    ways[together].append(found(x, true, given, seed, together=together))
            apart, both = (mean(ways[way]) for way in (False, True))
            lines.append([name, f"{ratio:g}", f"{kept} of {len(SEEDS)}", *(
                "-" if np.isnan(one[key]) else f"{one[key]:+.3f}" if key == "error" else f"{one[key]:.3f}"
                for key in ("flagged", "recall", "precision", "error") for one in (apart, both)
            )])  # fmt: skip
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    began = time.process_time()
    twice = ("apart", "together")
    columns = [
        f"{what}: {way}" for what in ("recall", "precision", "error of the ratio", "in the interval") for way in twice
    ]
    copied = table(["data", "copies", *columns], copied_rows())
    columns = [f"{what}: {way}" for what in ("flagged", "recall", "precision", "error of the ratio") for way in twice]
    natural = table(["data", "noise", "detected as copies", *columns], natural_rows())
    head = HEAD.format(minutes=(time.process_time() - began) / 60, seeds=", ".join(map(str, SEEDS)))
    page = (
        f"{head}\n## Several copies of each sample with the same label\n\nSymmetric noise of {RATIO}.\n\n{copied}\n\n"
        f"## Identical samples that were labelled independently\n\n{natural}\n"
    )
    (HERE / "copies.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
