"""Compare settings of incv-posterior on CIFAR-10, without the test pictures.

    python benchmarks/finish_trials.py DATA RESULTS --noise symmetric-0.8 --seeds 10,11 --epochs 80 \\
        --settings "" --settings momentum=0.2 --settings momentum=0.2,temperature=0.75

Trains on 40,000 of the 50,000 training pictures (fast selection first) and tests on the other 10,000. DATA has
CIFAR-10; `--noise random2` (or another set of CIFAR-10N) and `worst` need CIFAR-10_human.pt in it: the label of one
person, and of those of two people the wrong one if there is one. `worst-of-three` adds a simulated third person, as the
labels of CIFAR-10N with 40 % wrong ones have three. Needs a GPU: 80 epochs of eight ResNet-32 take about
three minutes on an H200. The records in RESULTS are kept, so the same command continues or only prints the table.
Settings of the views (mixup, strong, ...) cannot train together with others: give them in a command of their own.
`--ratio 0.6` trains with a transition matrix of this noise ratio, `--true-transition` with the true one, from the same
selections: how much does the estimate matter? `--repeats 3` and `--iterations 8` train from selections with more splits
or iterations.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from labelsieve import metrics
from labelsieve.data.cifar import human_labels
from labelsieve.experiments import records, run_cells
from labelsieve.experiments.cells import (
    FINISH,
    FINISH_SELECTION,
    Cell,
    SweepRequest,
    finish_cells,
    parse_method_setting,
    parse_seeds,
)
from labelsieve.experiments.datasets import PictureArrays, open_cifar10
from labelsieve.experiments.paper import PAPER, PEOPLE, PEOPLES_LABELS, POSTERIOR, Noise
from labelsieve.experiments.records import Record
from labelsieve.experiments.runner import is_finished
from labelsieve.experiments.train_cells import ExperimentContext
from labelsieve.methods import incv_posterior
from labelsieve.progress import Progress
from labelsieve.selection.noise_model import scale_transition
from labelsieve.types import FloatArray, IntArray

HELD_OUT, SPLIT_SEED = 10_000, 2024
WORST, WORST_OF_THREE = "worst", "worst-of-three"
# Of CIFAR-10N (Wei et al. 2022), 40.21 % are wrong if the wrong one of three labels is taken, if there is one.
WRONG_OF_THREE = 0.4021


def held_out(folder: Path, noise: str) -> PictureArrays:
    """CIFAR-10 whose test part is a part of the training pictures."""
    whole = open_cifar10(folder)
    people = {name: human_labels(folder, name) for name in PEOPLES_LABELS if name == noise}
    if noise in (WORST, WORST_OF_THREE):
        two = [human_labels(folder, name) for name in (PEOPLE.pattern, "random3")]
        worst = np.where(two[0] == whole.true, two[1], two[0])
        people[PEOPLE.pattern] = worst if noise == WORST else with_third_person(whole.true, two, worst)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(whole.true))
    test, train = np.sort(order[:HELD_OUT]), np.sort(order[HELD_OUT:])
    return PictureArrays(
        whole.pictures[train], whole.true[train], whole.pictures[test], whole.true[test], whole.class_names, "held-out",
        {name: labels[train] for name, labels in people.items()},
    )  # fmt: skip


def with_third_person(true: IntArray, people: list[IntArray], worst: IntArray) -> IntArray:
    """The labels `worst` of these people, with more mistakes: those of a simulated third person.

    This person is wrong on a random part of the pictures on which the others are right, and takes the same classes for
    each other as they do. Real people are wrong on the difficult pictures, so the real labels may be harder to learn.
    """
    rng, right = np.random.default_rng(SPLIT_SEED), np.flatnonzero(worst == true)
    mistaken = rng.permutation(right)[: max(0, len(right) - round((1 - WRONG_OF_THREE) * len(true)))]
    wrong_labels = np.concatenate([labels[labels != true] for labels in people])
    of_class, worst = np.concatenate([true[labels != true] for labels in people]), worst.copy()
    for k in np.unique(true[mistaken]):
        chosen = mistaken[true[mistaken] == k]
        worst[chosen] = rng.choice(wrong_labels[of_class == k], len(chosen))
    return worst


def parse_settings(text: str) -> tuple[tuple[str, str, object], ...]:
    """Read `momentum=0.2,temperature=0.75`."""
    return tuple(parse_method_setting(f"{POSTERIOR}.{part}") for part in text.split(",") if part)


def copy_selections(source: Path, target: Path, change: Callable[[Record], FloatArray] | None) -> None:
    """Copy selections, with the transition matrices that `change` returns for their records."""
    shutil.copytree(source / FINISH_SELECTION, target / FINISH_SELECTION, dirs_exist_ok=True)
    for path in (target / FINISH_SELECTION).glob("*.json") if change is not None else ():
        record = json.loads(path.read_text(encoding="utf-8"))
        record["results"]["transition_matrix"] = change(record).tolist()
        path.write_text(json.dumps(record), encoding="utf-8")


def with_ratio(record: Record, ratio: float) -> FloatArray:
    """The transition matrix of a selection, scaled to this noise ratio."""
    found = np.array(record["results"]["transition_matrix"])
    even = np.full(len(found), 1 / len(found))  # CIFAR-10 has as many pictures of each class
    return scale_transition(found, even, ratio)


def true_transition(record: Record, data: PictureArrays, cells: Mapping[str, Cell]) -> FloatArray:
    return metrics.confusion(data.true, data.given(cells[record["id"]]), data.classes)


def table(results: Path, network: str) -> str:
    """Accuracy, AUROC and the learnt labels of each record."""
    lines = []
    for record in records.read_all(results, FINISH, scale=PAPER.name):
        cell, found = record["cell"], record["results"]
        if cell["network"] != network:
            continue
        stored = records.load_arrays(results, record)
        learnt, wrong = np.exp(-stored["label_loss"].astype(np.float64)) > 0.5, stored["label_wrong"]
        settings = ",".join(f"{key}={value}" for key, value in cell["settings"].items()) or "default"
        judged = f"AUROC {found['before']['auroc']:.4f} -> {found['after']['auroc']:.4f}"
        first_round = found["curve"][cell["epochs"] - 1 : -1]  # empty: one round
        earlier = f"{100 * first_round[0]:.2f} % after one round, " if first_round else ""
        learnt_of = (
            f"learnt {learnt[~wrong].mean():.3f} of the right and {learnt[wrong].mean():.3f} of the wrong labels"
        )
        lines.append(
            f"{cell['network']} {cell['noise']['pattern']}-{cell['noise']['ratio']:g} seed {cell['seed']} "
            f"{cell['epochs']} epochs, {cell['iterations']} iterations, {settings}: {earlier}"
            f"{100 * found['test_accuracy']:.2f} % (predict: {100 * found.get('predict_accuracy', np.nan):.2f} %), "
            f"{judged}, "
            f"ECE {found['after']['calibration_error']:.3f}, {learnt_of}, {record['seconds']:.0f} s"
        )
    return "\n".join(sorted(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--network", default="resnet32")
    names = "symmetric-0.8, pair-0.4, random2, worst, worst-of-three, ..."
    parser.add_argument("--noise", default="symmetric-0.8", help=names)
    parser.add_argument("--seeds", default="10,11")
    parser.add_argument("--epochs", type=int, default=80)
    parser.add_argument(
        "--settings", action="append", default=[], help="e.g. momentum=0.2,temperature=0.75; empty: the defaults"
    )
    parser.add_argument("--batch-size", type=int, default=PAPER.finish_batch_size)
    parser.add_argument("--rate", type=float, default=incv_posterior.RATE_AT_256, help="learning rate at 256 samples")
    parser.add_argument("--ratio", type=float, help="of the transition matrix, instead of the estimated one")
    parser.add_argument("--true-transition", action="store_true", help="train with the true transition matrix")
    parser.add_argument("--repeats", type=int, default=1, help="splits per iteration of the selection")
    parser.add_argument("--iterations", type=int, help="of the selection; default: 4")
    parser.add_argument("--lockstep", type=int, default=40, help="twice the number of networks that train at once")
    arguments = parser.parse_args()
    noise = PEOPLE if arguments.noise in (WORST, WORST_OF_THREE) else Noise.parse(arguments.noise)
    scale = replace(PAPER, finish_batch_size=arguments.batch_size)
    shared = results = arguments.results / arguments.noise
    if arguments.repeats != 1:
        shared = results = results.with_name(f"{results.name}-repeats{arguments.repeats}")
        one_split = run_cells.incv_settings
        run_cells.incv_settings = lambda cell: replace(one_split(cell), repeats=arguments.repeats)
    if (arguments.batch_size, arguments.rate) != (PAPER.finish_batch_size, incv_posterior.RATE_AT_256):
        results = results.with_name(f"{results.name}-batch{arguments.batch_size}-rate{arguments.rate}")
        incv_posterior.RATE_AT_256 = arguments.rate
    if arguments.ratio is not None:
        results = results.with_name(f"{results.name}-ratio{arguments.ratio}")
    if arguments.true_transition:
        results = results.with_name(f"{results.name}-true")
    cells = {}
    for settings in arguments.settings or [""]:
        request = SweepRequest(
            seeds=parse_seeds(arguments.seeds), noises=(noise,), networks=(arguments.network,), epochs=arguments.epochs,
            iterations=arguments.iterations, settings=parse_settings(settings),
        )  # fmt: skip
        cells |= {cell.id: cell for cell in finish_cells(scale, request)}
    data, commit = held_out(arguments.data, arguments.noise), records.commit(None)
    selections = [cell for cell in cells.values() if cell.kind == FINISH_SELECTION and not is_finished(cell, shared)]
    if selections:
        run_cells.run_cells(
            selections, ExperimentContext(data, shared, commit, progress=Progress()), arguments.lockstep
        )
    if results != shared:
        change = None
        if arguments.true_transition:
            change = partial(true_transition, data=data, cells=cells)
        elif arguments.ratio is not None:
            change = partial(with_ratio, ratio=arguments.ratio)
        copy_selections(shared, results, change)
    missing = [cell for cell in cells.values() if not is_finished(cell, results)]
    if missing:
        run_cells.run_cells(missing, ExperimentContext(data, results, commit, progress=Progress()), arguments.lockstep)
    print(table(results, arguments.network))


if __name__ == "__main__":
    main()
