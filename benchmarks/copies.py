"""What copies of samples do to the search: kept together in a split, or wherever chance puts them.

    .venv/bin/python benchmarks/copies.py          about 5 minutes of one core; writes copies.md

INCV, told nothing, with the default classifier. Two questions: what is found where each sample is there several times
with its label, and whether it costs anything where samples are the same by nature (rows of few columns with few values,
phrases that many people write), each with a label of its own.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from own_half import texts
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from labelsieve import INCV, noise, theory
from labelsieve.data.duplicates import copies_among
from labelsieve.experiments.render import markdown as table

HERE = Path(__file__).parent
SEEDS = (0, 1, 2)
COPIES = (1, 2, 4)
RATIO = 0.2

HEAD = """# Copies of samples

`.venv/bin/python benchmarks/copies.py` ({minutes:.0f} minutes of one core here)

INCV, told nothing, with the default classifier; means over seeds {seeds}. *Apart*: copies are where chance puts them,
as if they were samples of their own (`groups=range(n)`). *Together*: never on both sides of a split, which is what
`select` and `INCV` do where they take samples for copies (data/duplicates.py). Recall and precision are of the flagged.
"""

Made = tuple[Any, Any, int]


def phrases(count: int, seed: int) -> Made:
    """What many people write: 150 phrases of one to three words, few of them often, most seldom."""
    rng = np.random.default_rng([seed, 5])
    own = [
        (" ".join(f"w{kind}x{word}" for word in rng.integers(0, 30, rng.integers(1, 4))), kind)
        for kind in rng.integers(0, 4, 150)
    ]
    share = 1 / np.arange(1, 151)
    drawn = rng.choice(150, count, p=share / share.sum())
    return [own[i][0] for i in drawn], np.array([own[i][1] for i in drawn]), 4


def few_values(count: int, seed: int) -> Made:
    """Rows of five columns with four values each; the class follows from two of them."""
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
    began = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        incv = INCV(random_state=seed).fit(x, given, groups=None if together else np.arange(len(true)))
    wrong, flagged = given != true, incv.suggested_ != given
    estimate = incv.history_[0]["estimate"]
    return {
        "recall": float(flagged[wrong].mean()) if wrong.any() else np.nan,
        "precision": float(wrong[flagged].mean()) if flagged.any() else np.nan,
        "flagged": float(flagged.mean()),
        "error": incv.noise_ratio_ - float(wrong.mean()),
        "covered": float(estimate["low"] <= wrong.mean() <= estimate["high"]),
        "seconds": time.monotonic() - began,
    }


def mean(rows: list[dict[str, float]]) -> dict[str, float]:
    """Over the seeds; nan where no seed has it (nothing was flagged, or nothing was wrong)."""
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
    began = time.monotonic()
    twice = ("apart", "together")
    columns = [
        f"{what}: {way}" for what in ("recall", "precision", "error of the ratio", "in the interval") for way in twice
    ]
    copied = table(["data", "each sample is there", *columns], copied_rows())
    columns = [f"{what}: {way}" for what in ("flagged", "recall", "precision", "error of the ratio") for way in twice]
    natural = table(["data", "noise", "taken for copies", *columns], natural_rows())
    head = HEAD.format(minutes=(time.monotonic() - began) / 60, seeds=", ".join(map(str, SEEDS)))
    page = (
        f"{head}\n## Each sample several times, with its label\n\nSymmetric noise of {RATIO}.\n\n{copied}\n\n"
        f"## The same by nature, each with a label of its own\n\n{natural}\n"
    )
    (HERE / "copies.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
