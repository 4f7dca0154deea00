"""How the noise of texts is measured: g learns from what the other half's classifier selected, or its own half's.

    .venv/bin/python benchmarks/own_half.py          about 5 minutes of one core; writes own-half.md

INCV, told nothing, on made texts that share many of their words, with planted noise. Both ways on the same labels and
splits (selection/within_half_folds.py).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from table_classifiers import agreement

from labelsieve import noise, theory
from labelsieve.execute.sklearn_trainer import SklearnTrainer
from labelsieve.experiments.render import markdown as table
from labelsieve.models.choose import SelectorRequest, choose_selector
from labelsieve.selection.incv import incv_steps
from labelsieve.selection.inputs import describe_samples
from labelsieve.selection.run_selection import drive
from labelsieve.selection.settings import INCVSettings

HERE = Path(__file__).parent
NOISE = (("symmetric", 0.0), ("symmetric", 0.1), ("symmetric", 0.2), ("symmetric", 0.4), ("pair", 0.15), ("pair", 0.3))
SEEDS = (0, 1, 2)
TEXTS = (
    (1500, 0.3),
    (1500, 0.5),
    (1500, 0.65),
    (1500, 0.75),
    (500, 0.4),
    (3000, 0.6),
)  # how many; share of common words
WAYS = {"other half": False, "own half": True}

HEAD = """# How the noise of texts is measured

`.venv/bin/python benchmarks/own_half.py` ({minutes:.0f} minutes of one core here)

The noise is counted in one half by a classifier g that was trained on what was selected of the other. *Other half*: by
the classifier that selects, which was trained on the very labels that g then counts. *Own half*: by three classifiers
of the half that g learns from, each for the third that it did not see; so it is done for texts. Planted noise: {noise};
seeds {seeds}. The interval is the one of 95 % that a run prints; F1 is of the labels with a suspicion over 0.5, where
there is noise. Five classes, in pairs of look-alikes: a fifth of a class's own words are of the other one of its pair.
"""


class Trial(NamedTuple):
    case: str
    setting: str
    way: str
    error: float  # of the ratio
    covered: bool
    flagged: float
    sure: bool
    seconds: float


def texts(count: int, common: float, seed: int = 0) -> tuple[list[str], Any]:
    """Five classes in pairs: a fifth of the words that are a class's own come from its look-alike's."""
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


def trials(name: str, x: Any, true: Any) -> Iterator[Trial]:
    classes = int(true.max()) + 1
    for pattern, ratio in NOISE:
        for seed in SEEDS:
            given = np.asarray(noise.corrupt(true, theory.matrix(pattern, classes, ratio), np.random.default_rng(seed)))
            wrong = given != true
            for way, own_half in WAYS.items():
                began = time.process_time()
                classifier = choose_selector(describe_samples(x), classes, SelectorRequest()).classifier
                steps = incv_steps(given, classes, settings=INCVSettings(own_half=own_half, networks=False), seed=seed)
                found = drive(steps, SklearnTrainer(x, classifier, classes))
                first = found.history[0]["estimate"]
                yield Trial(
                    name, f"{pattern} {ratio}", way, first["ratio"] - float(wrong.mean()),
                    first["low"] <= wrong.mean() <= first["high"],
                    agreement(np.nan_to_num(found.suspicion) > 0.5, wrong),
                    first["trust"].startswith("trustworthy"), time.process_time() - began,
                )  # fmt: skip


def line(name: str, found: list[Trial]) -> list[str]:
    cells = [name, str(len(found) // len(WAYS))]
    by_way = [[trial for trial in found if trial.way == way] for way in WAYS]
    noisy = [[trial for trial in of if not trial.setting.endswith(" 0.0")] for of in by_way]
    for measure in (
        lambda of: f"{np.mean([abs(t.error) for t in of]):.4f}",
        lambda of: f"{np.mean([t.error for t in of]):+.4f}",
        lambda of: f"{np.mean([t.covered for t in of]):.2f}",
    ):
        cells += [measure(of) for of in by_way]
    return [*cells, *(f"{np.mean([t.flagged for t in of]):.3f}" if of else "-" for of in noisy)]


def page(found: list[Trial], minutes: float) -> str:
    head = ["", "trials"]
    for measure in ("error of the ratio", "its mean", "in the interval", "F1 of the flagged"):
        head += [f"{measure}: {way}" for way in WAYS]
    sure = {way: [t for t in found if t.way == way and t.sure] for way in WAYS}
    rows = [line("**all**", found)]
    rows += [line(name, [t for t in found if t.case == name]) for name in dict.fromkeys(t.case for t in found)]
    rows += [line(name, [t for t in found if t.setting == name]) for name in dict.fromkeys(t.setting for t in found)]
    seconds = [np.sum([t.seconds for t in found if t.way == way]) for way in WAYS]
    told = "; ".join(
        f"{way}: {len(of)} trials call themselves trustworthy, the interval holds the truth in "
        f"{np.mean([t.covered for t in of]):.2f} of them"
        for way, of in sure.items()
    )
    top = HEAD.format(minutes=minutes, noise=", ".join(f"{p} {r}" for p, r in NOISE), seeds=", ".join(map(str, SEEDS)))
    cost = f"Seconds of the whole selection, own half: {seconds[1] / seconds[0]:.2f} times the other's"
    return f"{top}\n{table(head, rows)}\n\n{told}. {cost}.\n"


def main() -> None:
    began = time.process_time()
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for count, common in TEXTS:
            name = f"{count:,} texts, {100 * common:.0f} % common words"
            found += list(trials(name, *texts(count, common)))
            print(" ".join(line(name, [t for t in found if t.case == name])), flush=True)
    (HERE / "own-half.md").write_text(page(found, (time.process_time() - began) / 60), encoding="utf-8")
    print(f"wrote {HERE / 'own-half.md'}")


if __name__ == "__main__":
    main()
