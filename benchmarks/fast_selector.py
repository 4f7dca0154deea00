"""INCV with the fast selector on CIFAR-10: seconds, LP and LR by iteration, compared with figure 4 of the paper.

    python3 benchmarks/fast_selector.py --data DIR --protocol auto      90 seconds on an H200
    python3 benchmarks/fast_selector.py --small --out some.json         synthetic pictures on a CPU, 30 seconds
    python3 benchmarks/fast_selector.py --draw                          write the page again from the JSON

Writes fast-selector.json and fast-selector.md. Runs with other settings are added to the existing ones. Each selection
runs alone and is timed from its first training to its last verdict, with the pictures already on the device. Protocol
`auto` does not know the pattern, `paper` does. If git is not available, set LABELSIEVE_COMMIT.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
import torch
from fast_network import multiply_adds
from noise_estimate import given_labels

from labelsieve import metrics
from labelsieve.engine import Plan, train
from labelsieve.engine.device import choose_device
from labelsieve.engine.schedule import FAST_BATCH_SIZE
from labelsieve.engine.store import fast_store
from labelsieve.execute.network_trainer import LABEL_SMOOTHING, FastTrainer
from labelsieve.experiments.datasets import PictureArrays, open_cifar10, synthetic
from labelsieve.experiments.paper import FIGURE_4, TABLE_NOISES, Noise
from labelsieve.experiments.records import commit, device_name, versions
from labelsieve.methods.standard import GeneralisedCE
from labelsieve.models.choose import FAST_EPOCHS
from labelsieve.models.fast_cnn import WIDTHS
from labelsieve.selection.incv import drive, incv_steps
from labelsieve.selection.settings import INCVSettings
from labelsieve.selection.state import INCVState
from labelsieve.types import SELECTED

HERE = Path(__file__).parent


def clean_accuracy(data: PictureArrays, trainer: FastTrainer) -> dict[str, Any]:
    """The recipe on the labels as they are, all of them: accuracy on the test pictures by epoch."""
    test = data.test_store(trainer.store)
    plan = Plan("clean", data.true, np.arange(len(data.true)), 0)
    began = time.monotonic()
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=True):
        (trained,) = train(
            trainer.store, trainer.factory, trainer.method, [plan],
            schedule=trainer.schedule, batch_size=trainer.options["batch_size"], watch=test,
        )  # fmt: skip
    seconds = time.monotonic() - began
    curve = [metrics.accuracy(data.test_labels(), epoch[0].astype(np.int64)) for epoch in trained.watched]
    return {"test_accuracy": curve[-1], "by_epoch": curve, "seconds": seconds}


def selected(
    data: PictureArrays, trainer: FastTrainer, setting: Noise, protocol: str, *,
    iterations: int, checkpoint: str, repeats: int, seed: int,
) -> dict[str, Any]:  # fmt: skip
    """One INCV: its seconds, LP and LR by iteration, and what it made of the noise."""
    given = given_labels(data, setting.pattern, setting.ratio, seed)
    pattern = setting.pattern if protocol == "paper" else "auto"
    settings = INCVSettings(
        n_iterations=iterations, protocol=protocol, pattern=pattern, checkpoint=checkpoint,
        repeats=repeats if protocol == "auto" else 1,
    )  # fmt: skip
    ends: list[float] = []
    by_iteration: list[dict[str, Any]] = []

    def on_iteration(state: INCVState) -> None:
        ends.append(time.monotonic())
        chosen = state.verdict == SELECTED
        by_iteration.append(
            {
                "iteration": state.done,
                "label_precision": metrics.label_precision(chosen, given, data.true),
                "label_recall": metrics.label_recall(chosen, given, data.true),
                "selected": int(chosen.sum()),
                "auroc": metrics.auroc(given != data.true, np.nan_to_num(state.suspicion, nan=0.5)),
            }
        )

    steps = incv_steps(given, data.classes, settings=settings, seed=seed, on_iteration=on_iteration)
    began = time.monotonic()
    selection = drive(steps, trainer)
    seconds = time.monotonic() - began
    return {
        "setting": setting.key,
        "protocol": protocol,
        "checkpoint": checkpoint,
        "repeats": settings.repeats,
        "seconds": seconds,
        "seconds_by_iteration": np.diff([began, *ends]).tolist(),
        "by_iteration": by_iteration,
        "noise_ratio": metrics.noise_ratio(given, data.true),
        "noise_ratio_estimate": selection.noise_ratio,
        "expected_precision": selection.expected_precision,
        "notes": list(selection.notes),
    }


PAGE = """\
# The fast selector on CIFAR-10

`python3 benchmarks/fast_selector.py --data DIR --protocol auto`, with `--repeats` and `--iterations` as below.

Measured before suspicion got finer levels (5,000 instead of 60), on which the verdicts of labels near 0.5 depend, and
before later iterations trained on balanced classes and for as many steps as the first one.

INCV with `--model fast`; label precision / label recall by iteration. *AUROC*: of
suspicion after the last iteration. *Seconds*: the whole selection, including the trainings for the noise estimate, with
the pictures on the GPU. *ResNet-32*: our run of the paper's protocol with the
known pattern (`results/selection`, seed 0) after its fourth iteration; several selections were trained together, and
the seconds are the share of one of them. *Paper*: values read from figure 4.

"""


def page(runs: list[dict[str, Any]]) -> str:
    """What was measured, as Markdown."""
    text = PAGE
    for run in runs:
        clean, rows = run["clean"], run["selections"]
        repeats, iterations = rows[0]["repeats"], max(len(row["by_iteration"]) for row in rows)
        text += (
            f"## {repeats} split{'s' * (repeats > 1)} per iteration, {iterations} iterations\n\n"
            f"{run['data']}, {run['device']}, torch {run['versions']['torch']}; {run['schedule']['epochs']} epochs,"
            f" batch {run['batch_size']}, seed {run['seed']}; commit {run['commit'][:7]}. On clean labels:"
            f" {100 * clean['test_accuracy']:.2f} % on the test pictures.\n\n"
            "| noise | true ratio | estimate | seconds | " + " | ".join(str(1 + k) for k in range(iterations))
            + " | AUROC | ResNet-32 | paper |\n" + "|---" * (7 + iterations) + "|\n"
        )  # fmt: skip
        for row in rows:
            pairs = [f"{it['label_precision']:.3f} / {it['label_recall']:.3f}" for it in row["by_iteration"]]
            pairs += [""] * (iterations - len(pairs))
            figure = FIGURE_4.get(row["setting"])
            name = f"{row['setting']}" + (", known pattern" if row["protocol"] == "paper" else "")
            cells = [name, f"{row['noise_ratio']:.3f}", f"{row['noise_ratio_estimate']:.3f}", f"{row['seconds']:.1f}"]
            cells += [
                *pairs,
                f"{row['by_iteration'][-1]['auroc']:.3f}",
                by_resnet(row["setting"]),
                "" if figure is None else "{:.3f} / {:.3f}".format(*figure[-1]),
            ]
            text += "| " + " | ".join(cells) + " |\n"
        text += "\n"
    return text.rstrip() + "\n"


def by_resnet(setting: str) -> str:
    """LP / LR of our ResNet-32 after the last iteration, and its seconds, where there is a record."""
    path = HERE.parent / "results" / "selection" / f"incv-{setting}-seed0.json"
    if not path.is_file():
        return ""
    record = json.loads(path.read_text())
    last = record["results"]["by_iteration"][-1]
    return f"{last['label_precision']:.3f} / {last['label_recall']:.3f}, {record['seconds']:.0f} s"


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two runs asked for the same."""
    names = ("data", "schedule", "batch_size", "widths", "loss", "seed", "asked")
    return all(one.get(name) == other.get(name) for name in names)


def describe(row: dict[str, Any], figure: tuple[tuple[float, float], ...] | None) -> str:
    pairs = "  ".join(f"{it['label_precision']:.3f} / {it['label_recall']:.3f}" for it in row["by_iteration"])
    beside = "" if figure is None else "   figure 4: " + "  ".join(f"{lp:.3f} / {lr:.3f}" for lp, lr in figure)
    estimate = f"eps {row['noise_ratio']:.3f} estimated {row['noise_ratio_estimate']:.3f}"
    return f"{row['setting']:14s} {row['protocol']:5s} {row['seconds']:6.1f} s  {estimate}  LP / LR {pairs}{beside}"


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with CIFAR-10")
    parser.add_argument("--out", type=Path, default=HERE / "fast-selector.json", help="written after every selection")
    parser.add_argument("--draw", action="store_true", help="the page alone, from --out")
    parser.add_argument("--protocol", choices=("auto", "paper", "both"), default="both")
    parser.add_argument(
        "--settings", nargs="*", default=[n.key for n in TABLE_NOISES], help="symmetric-0.5 pair-0.4 ..."
    )
    parser.add_argument("--epochs", type=int, default=FAST_EPOCHS)
    parser.add_argument("--batch-size", type=int, default=FAST_BATCH_SIZE)
    parser.add_argument("--widths", type=int, nargs="*", default=list(WIDTHS))
    parser.add_argument("--q", type=float, default=0.0, help="of generalised cross-entropy; 0 is cross-entropy")
    parser.add_argument("--smoothing", type=float, default=LABEL_SMOOTHING, help="of the labels")
    parser.add_argument("--checkpoint", default="last", help="which epoch selects: last, auto, best-until-1")
    parser.add_argument("--repeats", type=int, default=1, help="splits per iteration; protocol auto only")
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--budget", type=float, help="seconds after which no further selection begins")
    parser.add_argument("--small", action="store_true", help="synthetic pictures on a CPU")
    args = parser.parse_args(arguments)
    runs: list[dict[str, Any]] = json.loads(args.out.read_text())["runs"] if args.out.is_file() else []
    if args.draw:
        args.out.with_suffix(".md").write_text(page(runs))
        return {"runs": runs}
    if args.small:
        data = synthetic(classes=6, samples=300, test_samples=60)
        args.device, args.epochs, args.batch_size, args.widths, args.iterations = "cpu", 3, 32, [24, 32], 2
    else:
        data = open_cifar10(args.data)
    began = time.monotonic()
    trainer = FastTrainer(
        fast_store(data.pictures, choose_device(args.device)),
        classes=data.classes,
        epochs=args.epochs,
        batch_size=args.batch_size,
        widths=args.widths,
        method=GeneralisedCE(q=args.q, label_smoothing=args.smoothing),
    )
    result: dict[str, Any] = {
        "data": data.name,
        "device": device_name(str(trainer.store.device)),
        "versions": versions(),
        "commit": commit(),
        "schedule": trainer.schedule.settings(),
        "batch_size": args.batch_size,
        "widths": list(args.widths),
        "loss": trainer.method.settings(),
        "seed": args.seed,
        "asked": [args.protocol, args.repeats, args.iterations, args.checkpoint],
        "staging_seconds": time.monotonic() - began,
        "multiply_adds_a_picture": multiply_adds(data.pictures.shape[1], 3, args.widths),
        "clean": clean_accuracy(data, trainer),
        "selections": [],
    }
    clean = result["clean"]
    print(f"clean labels: {100 * clean['test_accuracy']:.2f} % after {args.epochs} epochs, {clean['seconds']:.1f} s")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    runs = [*(run for run in runs if not same(run, result)), result]
    for protocol in ("auto", "paper") if args.protocol == "both" else (args.protocol,):
        for key in args.settings:
            if args.budget is not None and time.monotonic() - began > args.budget:
                print(f"{key} {protocol}: left out, the budget is spent")
                continue
            setting = Noise.parse(key)
            row = selected(
                data, trainer, setting, protocol,
                iterations=args.iterations, checkpoint=args.checkpoint, repeats=args.repeats, seed=args.seed,
            )  # fmt: skip
            result["selections"].append(row)
            args.out.write_text(json.dumps({"runs": runs}, indent=1) + "\n")
            args.out.with_suffix(".md").write_text(page(runs))
            print(describe(row, None if args.small else FIGURE_4.get(setting.key)), flush=True)
    return {"runs": runs}


if __name__ == "__main__":
    main()
