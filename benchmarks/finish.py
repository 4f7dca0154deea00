"""incv-posterior compared with standard and incv-coteaching on rows of numbers: digits and embeddings of pictures.

    python benchmarks/finish.py --cache DIR                                digits; writes finish.md, about 10 minutes
    PYTHONPATH=benchmarks python benchmarks/finish.py --photos FOLDER --test FOLDER --cache DIR     photos as well
    PYTHONPATH=benchmarks python benchmarks/finish.py --people FOLDER --cache DIR     human labels as well
    python benchmarks/finish.py --cache DIR --settings momentum=0.2 --settings warmup=0.3     compares settings
    python benchmarks/finish.py --cache DIR --settings rounds=1 --longer 2     the same with twice the epochs

The folders of photos hold class folders; `--people` has CIFAR-10 and CIFAR-10_human.pt (CIFAR-10N). Pictures are
embedded into DIR. Wrong labels are planted, except those of people. Every method starts from the same selection
(`INCV`), which is stored in DIR, and trains with the MLP, batch size, epochs and learning rates of `labelsieve train`.
Every row is kept in finish.json beside the page, so a stopped measurement continues. With `--settings`, incv-posterior
with these settings is compared with its defaults on other seeds, and nothing is written.
"""

from __future__ import annotations

import argparse
import json
import pickle
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch

from labelsieve import INCV, metrics, noise, theory
from labelsieve.data.cifar import human_labels
from labelsieve.engine import Plan, VectorStore, train
from labelsieve.engine.bundle import Bundle
from labelsieve.engine.evaluate import mean_scores, probabilities
from labelsieve.engine.method import Method
from labelsieve.engine.schedule import auto_batch_size, auto_epochs, one_drop
from labelsieve.experiments.datasets import open_cifar10
from labelsieve.experiments.evaluate import calibration_error
from labelsieve.methods import create
from labelsieve.methods.custom_method import read_settings
from labelsieve.models.choose import named_classifier
from labelsieve.models.small import MLP
from labelsieve.selection.finalize import judge_again
from labelsieve.selection.posterior import flag_labels
from labelsieve.types import CANDIDATE, REMOVED, SELECTED, Selection

CLASSES, TRAINING = 10, 1257
SEEDS = range(20, 30)  # not those of any choice
CHOICE_SEEDS = range(50, 56)  # of --settings
NOISE = {
    "symmetric 20 %": theory.symmetric(CLASSES, 0.2),
    "symmetric 40 %": theory.symmetric(CLASSES, 0.4),
    "symmetric 60 %": theory.symmetric(CLASSES, 0.6),
    "pair 40 %": theory.pair(CLASSES, 0.4),
}
CHOICE_NOISE = NOISE | {f"symmetric {ratio} %": theory.symmetric(CLASSES, ratio / 100) for ratio in (70, 80)}
PEOPLE = {"one person, 18 %": ("random2",), "worse of two, 31 %": ("random2", "random3")}
PEOPLE_EMBEDDED, PEOPLE_TRAINING = (12_000, 3_000), 3_000  # embedded pictures of both parts, training samples of a seed
METHODS = ("standard", "incv-coteaching", "incv-posterior")
FITTED = (
    "candidate_", "selected_", "iteration_", "suspicion_", "predicted_", "probability_", "confidence_", "loss_",
    "noise_ratio_", "expected_precision_", "expected_recall_", "transition_matrix_", "history_",
)  # fmt: skip
Arrays = tuple[Any, Any, Any, Any]  # rows and labels for training, rows and labels for testing


class Source(NamedTuple):
    """A data set whose labels are made wrong in several ways."""

    draw: Callable[[str, int], tuple[Arrays, Any]]  # arrays and given labels for a kind of noise and a seed
    kinds: list[str]
    estimator: Any  # of the selection


def digits() -> Arrays:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = (x[order] / 8 - 1).astype(np.float32), y[order].astype(np.int64)
    return x[:TRAINING], y[:TRAINING], x[TRAINING:], y[TRAINING:]


def photos(folder: Path, test: Path, cache: Path) -> Arrays:
    from embeddings import read

    found, clean = (read("photos", part, "pretrained:lite0", cache) for part in (folder, test))
    x, x_test = (np.asarray(part.features().x) for part in (found, clean))
    x, x_test = standardised(x, x_test)
    return x, found.y, x_test, clean.y


def standardised(x: Any, x_test: Any) -> tuple[Any, Any]:
    mean, spread = x.mean(0), x.std(0) + 1e-6
    return (x - mean) / spread, (x_test - mean) / spread


def planted(arrays: Arrays, kinds: list[str], estimator: Any) -> Source:
    def draw(kind: str, seed: int) -> tuple[Arrays, Any]:
        given = noise.corrupt(arrays[1], CHOICE_NOISE[kind], np.random.default_rng([seed, 7]))
        return arrays, np.asarray(given, dtype=np.int64)

    return Source(draw, kinds, estimator)


def people(folder: Path, cache: Path) -> Source:
    """Samples of CIFAR-10 with human labels. The seeds of a choice draw from other pictures than the others."""
    data, sizes = open_cifar10(folder), PEOPLE_EMBEDDED
    chosen, stored = np.random.default_rng(0).permutation(len(data.true))[: sizes[0]], cache / "cifar10-lite0.npz"
    if not stored.is_file():
        from PIL import Image
        from pretrained import lite0

        pictures = [Image.fromarray(picture) for picture in (*data.pictures[chosen], *data.test_pictures[: sizes[1]])]
        found = np.concatenate([lite0(pictures[i : i + 100]) for i in range(0, len(pictures), 100)])
        np.savez(stored, train=found[: sizes[0]], test=found[sizes[0] :])
    embedded = np.load(stored)
    rows, rows_test = embedded["train"], embedded["test"]
    true, true_test = data.true[chosen], data.test_labels()[: sizes[1]]
    given_by = {name: human_labels(folder, name)[chosen] for names in PEOPLE.values() for name in names}

    def draw(kind: str, seed: int) -> tuple[Arrays, Any]:
        half = 0 if seed in CHOICE_SEEDS else 1
        train, test = (np.array_split(np.arange(size), 2)[half] for size in sizes)
        train = np.random.default_rng([seed, 7]).choice(train, PEOPLE_TRAINING, replace=False)
        given, *others = (given_by[name][train] for name in PEOPLE[kind])
        for other in others:
            given = np.where(given == true[train], other, given)
        x, x_test = standardised(rows[train], rows_test[test])
        return (x, true[train], x_test, true_test[test]), given

    return Source(draw, list(PEOPLE), named_classifier("logistic", embedded=True))


def selection(x: Any, given: Any, seed: int, estimator: Any, stored: Path) -> Any:
    """The fitted attributes of INCV, from the file if it exists."""
    if not stored.is_file():
        found = INCV(estimator, random_state=seed, device="cpu").fit(x, given)
        stored.write_bytes(pickle.dumps({name: vars(found)[name] for name in FITTED}))
    return SimpleNamespace(**pickle.loads(stored.read_bytes()))


def measure(
    arrays: Arrays, given: Any, seed: int, found: Any, methods: Mapping[str, Method], longer: int = 1
) -> Iterator[dict[str, Any]]:
    """Accuracy on the clean test rows by method, and AUROC of the wrong labels before and after.

    Trains `longer` times as many epochs as `labelsieve train`.
    """
    x, true, x_test, y_test = arrays
    sets = {"candidates": np.flatnonzero(found.candidate_), "noise_ratio": 1 - found.expected_precision_}
    sets["suspicion"] = found.suspicion_
    device, batch_size = torch.device("cpu"), auto_batch_size(len(x))
    store, test = VectorStore(x, device), VectorStore(x_test, device)
    schedule, factory = one_drop(longer * auto_epochs(len(x), batch_size)), partial(MLP, CLASSES, inputs=x.shape[1])
    for name, method in methods.items():
        plan = Plan(name, given, np.arange(len(x)), seed)
        if method.needs() != "nothing":
            plan = Plan(name, given, np.flatnonzero(found.selected_), seed, transition=found.transition_matrix_, **sets)
        (result,) = train(store, factory, method, [plan], schedule=schedule, batch_size=batch_size, classes=CLASSES)
        bundles = [Bundle(factory, [state], schedule, device) for state in result.states]
        p = sum(probabilities(bundle, test, np.arange(len(x_test)), 0).numpy() for bundle in bundles)
        row = {"method": name, "accuracy": float(np.mean(p.argmax(1) == y_test))}
        if method.judges_labels(plan):
            scores = mean_scores(store, factory, result.states, given, np.arange(len(x)))
            verdict = np.where(found.selected_, SELECTED, np.where(found.candidate_, CANDIDATE, REMOVED))
            before = Selection(
                verdict.astype(np.int8), found.iteration_, found.predicted_, found.probability_, found.confidence_,
                found.loss_, found.suspicion_, found.noise_ratio_, found.transition_matrix_,
                found.expected_precision_, found.expected_recall_, tuple(found.history_),
            )  # fmt: skip
            after = judge_again(scores, given, CLASSES, before).suspicion
            suspicions = {"before": found.suspicion_, "networks": 1 - scores.probability, "after": after}
            row |= {name: judgement(given != true, suspicion) for name, suspicion in suspicions.items()}
            row["contradicted"] = float((scores.probability < 0.5).mean() / np.nanmean(found.suspicion_))
        yield row


def judgement(wrong: Any, suspicion: Any) -> dict[str, float]:
    """How well the wrong labels are found: AUROC, F1 of the flagged labels, and the calibration error."""
    found = metrics.detection(wrong, flag_labels(suspicion), suspicion)
    return {"AUROC": found.auroc, "F1": found.f1, "ECE": calibration_error(wrong, suspicion)}


def table(lines: list[dict[str, Any]], columns: dict[str, Callable[[list[dict[str, Any]]], str]]) -> list[str]:
    """One row per data set and noise; a column turns the lines of one row into a cell."""
    text = ["", "| data | noise | " + " | ".join(columns) + " |", "|---" * (len(columns) + 2) + "|"]
    for data, kind in dict.fromkeys((line["data"], line["noise"]) for line in lines):
        rows = [line for line in lines if (line["data"], line["noise"]) == (data, kind)]
        text.append(f"| {data} | {kind} | {' | '.join(cell(rows) for cell in columns.values())} |")
    return text


def difference(values: list[float], digits: int) -> str:
    """The mean of paired differences and its standard error."""
    return f"{np.mean(values):+.{digits}f} ± {np.std(values, ddof=1) / len(values) ** 0.5:.{digits}f}"


def page(lines: list[dict[str, Any]]) -> str:
    def accuracy(name: str, rows: list[dict[str, Any]]) -> str:
        values = [100 * row["accuracy"] for row in rows if row["method"] == name]
        return f"{np.mean(values):.1f} ± {np.std(values):.1f}"

    def gain(name: str, rows: list[dict[str, Any]]) -> str:
        by = {(row["seed"], row["method"]): 100 * row["accuracy"] for row in rows}
        return difference([by[seed, METHODS[-1]] - by[seed, name] for seed in dict.fromkeys(s for s, _ in by)], 2)

    def rise(rows: list[dict[str, Any]]) -> str:
        return difference([row["after"]["AUROC"] - row["before"]["AUROC"] for row in rows if "after" in row], 4)

    def judged(when: str, measure: str, rows: list[dict[str, Any]]) -> str:
        return f"{np.mean([row[when][measure] for row in rows if when in row]):.4f}"

    cells = [("before", "AUROC"), ("networks", "AUROC"), ("after", "AUROC")]
    cells += [(when, measure) for measure in ("F1", "ECE") for when in ("before", "after")]
    text = [
        "# incv-posterior on rows of numbers",
        "",
        f"Generated by `benchmarks/finish.py` (its docstring has the commands). Means over the seeds {SEEDS[0]} to",
        f"{SEEDS[-1]}, with standard deviations. Digits: {TRAINING:,} training and 540 test samples. Photos: clothing,",
        "3,068 training and 372 test photos, embeddings by EfficientNet-Lite0. People: 3,000 training and 1,500 test",
        "samples of CIFAR-10, the same embeddings, labels of one person or of two (the wrong one if there is one;",
        "CIFAR-10N). Differences are paired by seed, with standard errors.",
        "",
        "## Test accuracy in %, from the mean prediction of the networks of a method",
        *table(
            lines,
            {name: partial(accuracy, name) for name in METHODS}
            | {f"more than {name}": partial(gain, name) for name in METHODS[:-1]},
        ),
        "",
        "## Detection of wrong labels before and after the training",
        "",
        "`before`: suspicion from the selection. `networks`: 1 - the probability of the given label by the networks.",
        "`after`: suspicion from both, which users get. F1 is that of the flagged labels, ECE is the calibration error",
        "of the suspicion.",
        *table(
            lines,
            {f"{measure} {when}": partial(judged, when, measure) for when, measure in cells} | {"AUROC rises by": rise},
        ),
    ]
    return "\n".join(text) + "\n" + REMARKS


REMARKS = """
**Accuracy**: incv-posterior is much more accurate than standard in all settings. Its mean is higher than that of
incv-coteaching in all settings. The differences are significant (more than 2.26 standard errors with ten seeds)
except on digits with 20 % (2.0 standard errors), **on photos with 20 and 40 %** (2.1 and 1.5) and **with labels of two
people** (1.9).

**Wrong labels**: after the training, the AUROC is higher in all settings except **with labels of two people, where it
is the same and F1 is 0.014 lower**. The gain is small on photos with 20 % and with labels of one person (0.0003 and
0.0001): the networks have memorised many wrong labels, so their weight is small. With labels of two people, the
selection expects 26 % wrong labels and flags 30 %, and 31 % are wrong. The combined suspicions are surer, so that as
many labels are flagged as are expected to be wrong, which is too few here (numbers of the seeds 50 to 55, a trial
without a command). If the suspicions of the selection were assigned in the new order, the number of flagged labels
would not change, but photos would lose 0.010 of F1. The ECE is at most 0.05 in every setting.

**The transition matrix is estimated again** before each epoch, with the class shares, from the predictions and the
given labels. Earlier versions used that of the selection in the whole training. Differences between the code of the
commits d6ad606 and 21b1e32 with the seeds of this page, from the same selections, accuracy in points (the sections
after this one were measured before):

| data | noise | accuracy | AUROC of the networks | AUROC after |
|---|---|---|---|---|
| digits | symmetric 20 % | +0.22 ± 0.06 | +0.0001 | 0.0000 |
| digits | symmetric 40 % | +0.13 ± 0.22 | +0.0001 | +0.0001 |
| digits | symmetric 60 % | +0.46 ± 0.14 | +0.0002 | +0.0002 |
| digits | pair 40 % | +0.22 ± 0.18 | +0.0007 | +0.0013 |
| photos | symmetric 20 % | +0.59 ± 0.35 | +0.0051 | +0.0003 |
| photos | symmetric 40 % | +0.67 ± 0.24 | +0.0015 | +0.0003 |
| photos | symmetric 60 % | +0.48 ± 0.38 | +0.0009 | +0.0003 |
| people | one person, 18 % | +0.45 ± 0.15 | +0.0097 | +0.0001 |
| people | worse of two, 31 % | +0.27 ± 0.18 | +0.0093 | 0.0000 |

Texts with 77 classes (banking77, 10,003 questions for training, 3,080 for testing, TF-IDF; `labelsieve corrupt`,
`select`, `train --method incv-posterior` and `predict --score` at both commits, from the same selections), accuracy in
%:

| noise | seeds | d6ad606 | 21b1e32 |
|---|---|---|---|
| symmetric 40 % | 1 to 4 | 80.0, 80.2, 79.5, 79.8 | 80.1, 79.4, 79.2, 79.9 |
| pair 20 % | 2, 3 | 81.7, 81.7 | 82.5, 82.0 |
| pair 40 % | 2, 3 | 67.8, 66.5 | **76.0, 74.3** |

With symmetric noise, these texts lose 0.2 points in the mean of four seeds, which may be chance. If the matrix of the
selection counts like 77 instead of 10 samples of each class, symmetric noise has 79.5 and 79.3 % (seeds 2 and 3), but
pair noise only 71.9 % (seed 3).

This was chosen with the seeds 50 to 55 (trials without a command). The reason: with labels of people, the off-diagonal
entries of the matrix of the selection have a root mean square error of 0.014 (one person) and 0.020 (two), and those of
a matrix from the predictions of the trained networks 0.009 and 0.015. With the true matrix, the accuracy was 0.36 ±
0.21 and 0.11 ± 0.24 points higher, with true suspicions 0.51 ± 0.20 and 0.88 ± 0.21. Variants, differences from the
matrix of the selection in points. `scaled`: the matrix has the noise ratio of the selection; `shares`: the class shares
are estimated again, too; `L^a`: `label_weight` is a instead of 0.5; `fading`: it falls from 0.5 to 0 after the warm-up.

| variant | digits 20 / 40 / 60 % / pair / 80 % | people 18 / 31 % | photos 20 / 40 % |
|---|---|---|---|
| estimated again | 0.00 / +0.31 / +0.12 / +0.03 / +0.25 ± 0.62 | +0.10 / +0.14 | -0.04 / -0.04 |
| estimated again, scaled | 0.00 / +0.25 / +0.25 / +0.03 / -0.37 ± 0.91 | +0.08 / +0.26 | -0.09 / -0.18 |
| **estimated again, shares** (used) | -0.03 / +0.25 / +0.12 / +0.12 / +1.02 ± 0.91 | +0.13 / +0.33 | |
| L^0.2, matrix of the selection | -0.15 / -0.25 / -0.19 / -0.37 / -0.19 ± 1.13 | +0.09 / +0.53 | +0.40 / -0.72 |
| estimated again, scaled, shares, L^0.2 | -0.25 / -0.12 / 0.00 / -0.43 / +1.48 ± 1.24 | +0.30 / +0.58 | +0.49 / -0.27 |
| fading, matrix of the selection | -0.12 / +0.15 / +0.09 / -0.22 / +0.49 ± 0.48 | +0.06 / +0.16 | +0.09 / -0.09 |
| estimated again, shares, fading | -0.15 / +0.19 / 0.00 / -0.12 / +1.23 ± 0.47 | +0.22 / +0.41 | |
| estimated again, shares, fading to 0.1 | -0.09 / +0.22 / 0.00 / -0.06 / +1.42 ± 0.49 | +0.07 / +0.49 | |

The standard errors are 0.1 to 0.3 (digits, people) and 0.3 to 0.7 (photos). Weaker labels gain with labels of people
and lose on digits, so 0.5 stays. Weights that depend on the suspicion (L^(1-s), no label above s = 0.5) lose 0.8 to 1.5
points on digits with pair noise.

Since commit 49e2580, selections find a few confusions of a class better (`benchmarks/real-noise.md`). This changes
those with pair noise and human labels; the tables of this page were not measured again.

**Noise estimate.** After commit e3c0066, the surest labels limit the noise ratio (own-training.md), which changes all
selections. On photos with 60 % wrong labels the ratio was estimated as 0.64 to 0.70, now as 0.61 to 0.63; the ECE
before the training is 0.033 instead of 0.094, and the accuracy of incv-posterior is 1.6 ± 0.7 points higher (of
incv-coteaching 1.3 ± 0.6). On photos with 40 % the ECE is 0.036 instead of 0.044, but incv-posterior is **1.1 ± 0.4
points less accurate**. The other differences of the accuracy are at most 0.4 points and smaller than 1.5 standard
errors. With the seeds 50 to 55, photos with 40 % gain 0.4 ± 0.7 points, so that loss may be chance. Photos with 80 %,
same seeds: the ratio is estimated as 0.78 to 0.81 instead of 0.78 to 0.85, the ECE before the training is 0.053 instead
of 0.092, and the accuracy is 0.4 ± 0.7 points higher (trials without a command).

The likelihood of a label is the geometric mean of that by its suspicion and that by the transition matrix, and the
class shares are fully pulled to the prior. Before, the suspicion alone was used, and the shares were pulled half as far
(on a logarithmic scale). The change was chosen with the seeds 50 to 55. The differences between finish.json at the
commits 1511f25 and e3c0066, from the same selections, are -0.15 ± 0.08, +0.17 ± 0.18, -0.04 ± 0.09 and +0.31 ± 0.20
points on digits (20, 40, 60 %, pair), and -0.16 ± 0.23, +0.30 ± 0.38 and +1.40 ± 0.45 points on photos (20, 40, 60 %).
The AUROC after the training rose by up to 0.0016 and fell nowhere by more than 0.0001. Digits with 80 % wrong labels,
seeds 50 to 55: +3.58 ± 0.85 points, AUROC +0.018 ± 0.006. Other changes on digits with these seeds, at 20, 40, 60 % /
pair 40 % / 80 %:

| settings | accuracy in points |
|---|---|
| `suspicion_weight=0.5,pull=1` (used) | -0.12 ± 0.06, 0.00 ± 0.17, +0.46 ± 0.29 / +0.25 ± 0.21 / +3.58 ± 0.85 |
| `trusted=4` | -0.22 ± 0.11, +0.03 ± 0.13, +0.03 ± 0.22 / -0.56 ± 0.27 / -0.90 ± 1.48 |
| `trusted=4,suspicion_weight=0.5,pull=1` | -0.12 ± 0.12, -0.03 ± 0.12, +0.09 ± 0.15 / -0.19 ± 0.25 / +3.58 ± 1.20 |
| the same with `forward=0.5` | -0.09 ± 0.12, -0.09 ± 0.13, +0.03 ± 0.20 / -0.03 ± 0.23 / +3.49 ± 1.36 |

`trusted` is the weight of labels that are probably right, `forward` that of a forward-corrected loss of the given
labels. With `--settings` this script compares settings. All four exist in commit d87dd94.

The balance was chosen with digits and photos of the seeds 50 to 54, and with tables (calibration.md and repeats.md were
not used). A trial without a command, accuracy in % without and with balanced classes in the first epochs, from the same
selections, which were not balanced: digits 97.4 and 97.2 (symmetric 40 %), 94.3 and 94.6 (60 %), 82.7 and 86.4 (70 %),
41.9 and 59.0 (80 %); photos 79.9 and 82.4 (40 %), 62.5 and 69.4 (60 %).

`hidden`, the share of the values of a row that a network does not see, was chosen with the seeds 0 to 2 among the
variants of the following table, on stored selections. The code of the other trials is not kept. The numbers are
accuracies in % of the mean prediction, with the networks, epochs and learning rates of the first table. "Halves" is the
method of earlier versions: each network uses the labels of one half of the samples, with the transition matrix as their
likelihood, and learns the other half from its own predictions. "All labels" uses the suspicion of the selection as the
likelihood of each label.

| variant | digits 20 % | digits 40 % | digits pair 40 % | photos 20 % | photos 40 % |
|---|---|---|---|---|---|
| incv-coteaching | 98.2 | 98.0 | 85.7 | 83.9 | 83.1 |
| halves | 98.1 | 97.7 | 92.3 | 83.8 | 81.5 |
| halves, without sharpening (temperature 1) | 98.3 | 97.2 | 92.4 | | |
| one network | 97.6 | 97.4 | 90.7 | | |
| two networks, all labels, own predictions | 97.5 | 97.7 | 90.8 | 85.1 | 81.5 |
| two networks, all labels, predictions of the other one | 97.8 | 98.0 | 90.9 | 85.3 | 81.9 |
| the same, temperature 1 | 97.8 | 97.2 | 90.8 | | |
| halves, then all labels with fixed predictions | 97.8 | 97.7 | 92.5 | | |
| the same with suspicion, temperature 1 | 98.0 | 97.3 | 91.2 | 84.1 | 81.5 |
| suspicion alone, no predictions in the targets | 98.0 | 96.9 | 89.6 | 80.7 | 73.3 |
| two networks, all labels, ranked again before each epoch | 97.9 | 97.6 | 92.0 | 84.5 | 82.2 |
| the same, mixup 0.1 | 97.7 | 97.8 | 92.2 | 84.3 | 82.5 |
| the same, mixup 0.1, mean predictions of both networks | 97.8 | 97.5 | 92.0 | | |
| the same, mixup 0.1, without the tenth with the largest loss | 97.7 | 97.8 | 91.1 | 84.1 | 82.3 |
| the same, mixup 0 | 97.4 | 97.0 | 91.2 | 84.9 | 83.4 |
| the same, temperature 1 | 98.0 | 97.2 | 93.1 | | |
| the same, class shares not pulled to the prior | 98.2 | 97.8 | 92.2 | | |
| the same, not pulled, weighted by the largest target | 98.1 | 97.9 | 92.3 | 84.2 | 81.5 |
| the same, not pulled, weighted, mixup 0 | | | | 84.3 | 81.5 |
| halves, predictions of the selection in the targets (log-mean, weight 0.3) | 97.8 | 97.8 | 89.4 | | |
| the same, weight 0.5 | 97.8 | 97.5 | 88.5 | 84.7 | 83.2 |
| the same, weight 0.7 | 97.7 | 97.3 | 88.2 | | |
| the same, weight 0.5, temperature 1 | 97.5 | 97.2 | 88.6 | | |
| the same, weight by the likelihood of the given labels before each epoch | 98.0 | 97.8 | 90.2 | 84.8 | 83.4 |
| halves, the running means start from the predictions of the selection | 97.9 | 97.7 | 92.2 | | |
| halves, mixup for one of the networks only | 97.5 | 97.1 | 91.3 | | |
| halves, 30 % of the values hidden | 97.3 | 96.8 | 92.3 | | |
| all labels, ranked again, predictions of the selection with weight 0.5 | 97.8 | 97.6 | 91.0 | | |
| all labels, ranked again, mixup for one of the networks only | 97.7 | 97.3 | 91.7 | | |
| **all labels, ranked again, 30 % hidden** (independent random numbers) | 98.3 | 98.0 | 92.5 | 85.3 | 84.3 |
| the same, as in the code (numbers of the epoch) | 98.0 | 97.5 | 92.7 | | |
| the same, 20 % hidden | 98.3 | 98.0 | 93.0 | | |
| the same, 30 %, the same values hidden from both networks | 97.9 | 97.5 | 93.0 | | |
| the same, 30 %, 0 instead of the mean (here 0 is not the mean of digits) | 97.6 | 97.3 | 92.9 | | |
| the same, 30 %, values of another sample instead of the mean | 96.9 | 96.7 | 92.0 | | |
| two networks, all labels, true labels as targets (for comparison) | 98.8 | 99.1 | 98.9 | | |
| the same without mixup | 98.4 | 98.5 | 98.4 | | |

Empty cells were not measured. Variants that rank again use the predictions of the other network. The first two variants
with 30 % hidden differ in their random numbers only, so differences of half a point are chance; the second one is 0.2
and 0.5 below incv-coteaching on digits with symmetric noise. The test parts have 540 and 372 samples. The classifier of
the selection, trained again on labels that are probably right, reaches 95.7 / 94.4 / 86.5 % on digits (random forest)
and 85.1 / 83.4 % on photos (logistic regression) with the same seeds.

The decay of the teacher has no effect here: it is limited by the number of steps, and a training has 340 to 540 steps.
incv-coteaching uses the same optimizer, learning rates and number of epochs; its epochs contain the selected samples
only. With true labels, mixup helps on digits. Mixup of 0.2 or 2, and twice the epochs with and without sharpening, were
not better on digits at 20 % (halves).

## Two rounds

`rounds=auto` (default) trains a second round if more than 10 % of the selected labels are expected to be wrong.
Accuracy of the default in %, and differences from it in points, with the seeds 50 to 55 (`--settings rounds=1
--settings rounds=2`). The AUROCs of this section were computed with the weight (1 + u) / 2 of earlier versions (below):

| data | noise | `auto` | `rounds=1` | `rounds=2` | AUROC, `rounds=1` |
|---|---|---|---|---|---|
| digits | symmetric 20 % | 98.12 | 0 | +0.03 ± 0.21 | 0 |
| digits | symmetric 40 % | 97.31 | 0 | 0.00 ± 0.32 | 0 |
| digits | symmetric 60 % | 95.09 | 0 | -0.22 ± 0.20 | 0 |
| digits | symmetric 70 % | 91.73 | -0.52 ± 0.25 | +0.28 ± 0.27 | -0.0005 ± 0.0003 |
| digits | symmetric 80 % | 79.35 | -4.23 ± 1.71 | 0 | -0.0075 ± 0.0078 |
| digits | pair 40 % | 98.18 | 0 | +0.03 ± 0.13 | 0 |
| photos | symmetric 60 % | 80.69 | +0.04 ± 0.49 | -0.27 ± 0.27 | +0.0013 ± 0.0006 |
| photos | symmetric 70 % | 73.61 | +0.45 ± 0.59 | 0 | +0.0005 ± 0.0004 |
| photos | symmetric 80 % | 60.04 | +0.18 ± 0.34 | 0 | +0.0008 ± 0.0009 |

The digits of these seeds were also used to choose. Trials without a command, with random forests as selectors and
80 % wrong labels, in points more than one round (six seeds): two rounds as now +3.55 ± 0.86, three rounds +4.29 ± 1.38;
a second training that starts from the labels judged again +2.65 ± 0.95, a third one +3.27 ± 1.38; one round of twice
the epochs -5.15 ± 1.07. Two rounds at 65 and 70 % gained about 0.3 and 0.5 points, also in runs below the limit of
10 %; at 60 % they lost 0.4. When the limit was set, the shares that CIFAR-10 has were known (1 to 5 and 23 to 25 %),
and so were four photo runs with 80 % (seeds 60 to 63: -0.3 points, AUROC -0.001). The photos of the table came later.

One round and two rounds **of twice the epochs** (`--settings rounds=1 --settings rounds=2 --longer 2`), differences
from the default. At 80 % and, for some or all seeds, at 70 % the default has two rounds, so one longer round has as
many epochs as the default there. Photos: `rounds=1` only.

| data | noise | one longer round, points | AUROC | two longer rounds, points | AUROC |
|---|---|---|---|---|---|
| digits | symmetric 20 % | +0.43 ± 0.25 | 0.0000 ± 0.0001 | +0.12 ± 0.26 | 0.0000 ± 0.0001 |
| digits | symmetric 40 % | +0.43 ± 0.27 | +0.0001 ± 0.0001 | +0.56 ± 0.20 | +0.0001 ± 0.0000 |
| digits | symmetric 60 % | +0.52 ± 0.30 | +0.0004 ± 0.0002 | +0.74 ± 0.33 | +0.0004 ± 0.0002 |
| digits | symmetric 70 % | -0.59 ± 0.52 | -0.0016 ± 0.0007 | -0.12 ± 0.64 | -0.0011 ± 0.0012 |
| digits | symmetric 80 % | -5.62 ± 1.90 | -0.0166 ± 0.0071 | -1.85 ± 1.41 | -0.0036 ± 0.0048 |
| digits | pair 40 % | -0.06 ± 0.29 | +0.0003 ± 0.0002 | +0.46 ± 0.22 | +0.0005 ± 0.0003 |
| photos | symmetric 20 % | +0.54 ± 0.66 | -0.0002 ± 0.0003 | | |
| photos | symmetric 40 % | -0.49 ± 0.81 | -0.0007 ± 0.0002 | | |
| photos | symmetric 60 % | -0.76 ± 0.51 | -0.0011 ± 0.0004 | | |
| photos | symmetric 70 % | +0.27 ± 0.89 | -0.0026 ± 0.0013 | | |
| photos | symmetric 80 % | +0.72 ± 0.45 | -0.0020 ± 0.0027 | | |

So with 80 % wrong labels, digits are right for 75.1 % after one round, for 73.7 % after one round of twice the epochs,
and for 79.4 % after two rounds. With less noise, digits may gain half a point with twice the epochs (less than two
standard errors in each row) and more with two longer rounds, which take four times as long (2.1 to 2.8 standard errors
at 40 and 60 % and with pair noise). This was not chosen, because photos do not gain with twice the epochs.

With 80 % wrong labels, a second round gains 4 points on digits, and 2 (PreAct-ResNet-18) and 7 points (ResNet-32) on
pictures of CIFAR-10, where one round of twice the epochs gains as much (docs/reproduction.md). On photos it gains
nothing, and the AUROC is lower by about 0.001. Why is not known; a network on embeddings learns no features of its own.
The rule is the same for all data nevertheless, because digits gain much more than photos lose.

## Variants with more seeds

Digits with the seeds 0, 1, 2, 10 and 11, photos with 0, 1, 2 and 10 (20 % hidden: 0 to 2), from stored selections. In
brackets: the paired difference from incv-coteaching with its standard error.

| variant | digits 20 % | digits 40 % | photos 20 % | photos 40 % |
|---|---|---|---|---|
| incv-coteaching | 98.15 | 97.41 | | |
| **30 % hidden** | 97.93 (-0.22 ± 0.24) | 97.00 (-0.41 ± 0.09) | 86.02 | 83.20 |
| 20 % hidden | 98.19 (+0.04 ± 0.15) | 97.26 (-0.15 ± 0.21) | | 82.80 |
| 10 % hidden | 98.22 (+0.07 ± 0.18) | | | |

With 20 instead of 30 % hidden, digits are better by 0.26 ± 0.13 and 0.26 ± 0.22, and photos at 40 % worse by 0.27 ±
0.16 (seeds 0 to 2). No share is better on both by more than chance, so 30 % stays. Pair noise was not measured with
these seeds.

## Weight of the networks in the judgement after the training

The networks alone rank the labels better than the selection on digits and on most noises of CIFAR-10, and worse on
embeddings, most of all with human labels. They are too sure, so their log-odds are limited to those of 1 and 99 %.
Earlier versions gave them the weight (1 + u) / 2, where u is the share of the variance of "wrong" that the suspicion of
the selection leaves unexplained. With human labels, that lowered the AUROC by 0.003.

What differs between these data is how many wrong labels the networks have memorised. This shows without true labels:
*contradicted* is the share of the labels to which the networks give a probability below 0.5, divided by the share that
the selection expects to be wrong. Now the weight is (0.6 + 0.4 u) max(0, 1 - 6 m (1 - u)), with m = max(0, 1 -
contradicted). The table has the AUROC before the training, of the networks, of both weights, and of the constant weight
that is best for a row; "best" needs the true labels. Means of six (rows of numbers), two to three or (80 %) nine to ten
trainings (CIFAR-10, the records of docs/reproduction.md).

| data | contradicted | best weight | before | networks | (1 + u) / 2 | **used** | best |
|---|---|---|---|---|---|---|---|
| digits, symmetric 20 % | 1.04 | 0.9 | 0.9978 | 0.9993 | 0.9991 | 0.9992 | 0.9993 |
| digits, symmetric 40 % | 1.05 | 0.8 | 0.9970 | 0.9986 | 0.9986 | 0.9987 | 0.9987 |
| digits, symmetric 60 % | 1.03 | 0.8 | 0.9896 | 0.9946 | 0.9947 | 0.9950 | 0.9951 |
| digits, symmetric 70 % | 1.03 | 0.9 | 0.9689 | 0.9874 | 0.9877 | 0.9883 | 0.9889 |
| digits, symmetric 80 % | 0.98 | 1.0 | 0.7226 | 0.9485 | 0.9433 | 0.9404 | 0.9466 |
| digits, pair 40 % | 1.01 | 0.9 | 0.9934 | 0.9960 | 0.9958 | 0.9961 | 0.9965 |
| photos, symmetric 20 % | 0.79 | 0.2 | 0.9873 | 0.9598 | 0.9869 | 0.9874 | 0.9876 |
| photos, symmetric 40 % | 0.87 | 0.4 | 0.9806 | 0.9588 | 0.9812 | 0.9815 | 0.9815 |
| photos, symmetric 60 % | 0.89 | 0.5 | 0.9607 | 0.9343 | 0.9659 | 0.9668 | 0.9669 |
| photos, symmetric 70 % | 0.90 | 0.5 | 0.9331 | 0.9084 | 0.9429 | 0.9446 | 0.9447 |
| photos, symmetric 80 % | 0.91 | 0.5 | 0.8502 | 0.8356 | 0.8630 | 0.8664 | 0.8668 |
| people, one person, 18 % | 0.70 | 0.0 | 0.9647 | 0.8760 | 0.9614 | 0.9647 | 0.9647 |
| people, worse of two, 31 % | 0.80 | 0.0 | 0.9681 | 0.8903 | 0.9652 | 0.9678 | 0.9681 |
| CIFAR-10, PreAct-ResNet-18, symmetric 0.2 | 0.94 | 0.8 | 0.9948 | 0.9962 | 0.9979 | 0.9977 | 0.9981 |
| CIFAR-10, PreAct-ResNet-18, symmetric 0.5 | 0.98 | 0.8 | 0.9886 | 0.9954 | 0.9959 | 0.9959 | 0.9966 |
| CIFAR-10, PreAct-ResNet-18, symmetric 0.8 | 1.00 | 0.9 | 0.8829 | 0.9874 | 0.9864 | 0.9868 | 0.9873 |
| CIFAR-10, PreAct-ResNet-18, pair 0.4 | 1.00 | 0.8 | 0.9962 | 0.9984 | 0.9989 | 0.9990 | 0.9991 |
| CIFAR-10, PreAct-ResNet-18, human labels | 0.95 | 0.8 | 0.9811 | 0.9805 | 0.9888 | 0.9884 | 0.9893 |
| CIFAR-10, ResNet-32, symmetric 0.2 | 1.07 | 0.7 | 0.9948 | 0.9968 | 0.9971 | 0.9971 | 0.9971 |
| CIFAR-10, ResNet-32, symmetric 0.5 | 1.01 | 0.8 | 0.9882 | 0.9952 | 0.9946 | 0.9947 | 0.9948 |
| CIFAR-10, ResNet-32, symmetric 0.8 | 1.02 | 0.9 | 0.8817 | 0.9747 | 0.9674 | 0.9676 | 0.9678 |
| CIFAR-10, ResNet-32, pair 0.4 | 1.04 | 0.7 | 0.9962 | 0.9983 | 0.9984 | 0.9984 | 0.9985 |
| CIFAR-10, ResNet-32, human labels | 1.17 | 0.6 | 0.9811 | 0.9857 | 0.9878 | 0.9877 | 0.9877 |

`--settings rounds=1` prints the columns "contradicted", "before", "networks" and "used" of the rows of numbers. Those
of CIFAR-10 and the other weights come from stored predictions, without a command.

The form and both numbers were chosen on this table (seeds 50 to 55 of the rows of numbers), among about 25 variants;
differences between similar ones are chance. The tables at the top of this page have other seeds, and for people other
pictures. A weight without u loses up to 0.04 on digits with 80 %, where the expected number of wrong labels is
uncertain. A lower limit of the networks' suspicion that depends on m instead of the weight gains less (people -0.0017
and -0.0010).

**Out of sample instead** (trial without a command, chosen on nothing, not used): the classifier of the selection is
cross-validated again, in four parts and twice, on the classes that the networks predict, and its log-odds are averaged
with those of the selection. On photos (seeds 50 to 54) the AUROC rises by 0.0003 ± 0.0002, 0.0026 ± 0.0007, 0.0100 ±
0.0013 and 0.0206 ± 0.0024 at 20, 40, 60 and 80 %; with the weight used now it rises by 0.0001, 0.0009, 0.0061 and
0.0162 (seeds 50 to 55). On digits (seeds 50 to 53, random forest) it is worse, with pair noise +0.0013 instead of
+0.0033. With human labels (seeds 50 to 52) it falls by 0.0003 and 0.0006. It takes eight more trainings of the
classifier. On labels corrected by the selection instead of the networks, the same mean gains less: 0.0004 and 0.0006 at
40 and 60 % (photos, three seeds).

Earlier versions ranked by the mean of both assessments and estimated the noise again. This is not used because the
networks have learnt the labels that they assess.

The same networks with the seeds 3 to 5, which an earlier version of this page reported: 97.9 / 96.9 / 97.5 % on digits
and 86.7 / 84.0 % on photos, incv-coteaching 98.0 / 96.5 / 91.5 % and 84.0 / 80.8 %.
"""


def compare(sources: Mapping[str, Source], settings: list[str], longer: int, cache: Path) -> None:
    """Print the differences of settings from the defaults of incv-posterior: accuracy in points, and AUROC."""
    name = METHODS[-1]
    values = {text: read_settings(text.split(",")) for text in settings}
    defaults, others = {"": create(name)}, {text: create(name, **chosen) for text, chosen in values.items()}
    for data, source in sources.items():
        for kind in source.kinds:
            rows: dict[str, list[dict[str, Any]]] = {text: [] for text in (*defaults, *others)}
            for seed in CHOICE_SEEDS:
                arrays, given = source.draw(kind, seed)
                found = selection(arrays[0], given, seed, source.estimator, cache / f"{data}-{kind}-{seed}.pickle")
                for methods, factor in ((defaults, 1), (others, longer)):
                    for row in measure(arrays, given, seed, found, methods, factor):
                        rows[row["method"]].append(row)
            accuracy = {text: np.array([100 * row["accuracy"] for row in lines]) for text, lines in rows.items()}
            auroc = {text: np.array([row["after"]["AUROC"] for row in lines]) for text, lines in rows.items()}
            whens = ("before", "networks", "after")
            aurocs = ", ".join(f"{np.mean([row[when]['AUROC'] for row in rows['']]):.4f} {when}" for when in whens)
            contradicted = np.mean([row["contradicted"] for row in rows[""]])
            print(f"{data}, {kind}: defaults {accuracy[''].mean():.2f} %, AUROC {aurocs}, ", end="")
            print(f"contradicted {contradicted:.2f}", flush=True)
            for text in settings:
                better = difference(list(accuracy[text] - accuracy[""]), 2)
                print(f"    {text}: {better}, AUROC {difference(list(auroc[text] - auroc['']), 4)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--test", type=Path)
    parser.add_argument("--people", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument(
        "--settings", action="append", default=[], help="of incv-posterior, e.g. momentum=0.2,warmup=0.3"
    )
    parser.add_argument("--longer", type=int, default=1, help="times as many epochs with --settings, not by default")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    kinds = list(CHOICE_NOISE if options.settings else NOISE)
    sources = {"digits": planted(digits(), kinds, None)}
    if options.photos:
        arrays = photos(options.photos, options.test, options.cache)
        symmetric = [kind for kind in kinds if not kind.startswith("pair")]
        sources["photos"] = planted(arrays, symmetric, named_classifier("logistic", embedded=True))
    if options.people:
        sources["people"] = people(options.people, options.cache)
    if options.settings:
        compare(sources, options.settings, options.longer, options.cache)
        return
    stored = options.out / "finish.json"
    lines = json.loads(stored.read_text()) if stored.is_file() else []
    for data, source in sources.items():
        for seed, kind in product(SEEDS, source.kinds):
            if any((line["data"], line["noise"], line["seed"]) == (data, kind, seed) for line in lines):
                continue
            arrays, given = source.draw(kind, seed)
            file = options.cache / f"{data}-{kind}-{seed}.pickle"
            methods = {name: create(name) for name in METHODS}
            for row in measure(arrays, given, seed, selection(arrays[0], given, seed, source.estimator, file), methods):
                lines.append({"data": data, "noise": kind, "seed": seed, **row})
                print(lines[-1], flush=True)
            stored.write_text(json.dumps(lines, indent=0) + "\n", encoding="utf-8")
    (options.out / "finish.md").write_text(page(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
