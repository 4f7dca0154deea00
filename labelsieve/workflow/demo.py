"""The demo: corrupt the labels of embedded digits, select, and compare the result with the theory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from labelsieve import metrics, noise, theory
from labelsieve.csv_files import write_csv
from labelsieve.errors import InputError
from labelsieve.files import atomic_file
from labelsieve.progress import SILENT
from labelsieve.report import write_report
from labelsieve.runfolder import RunFolder
from labelsieve.selection.incv import drive, incv_steps
from labelsieve.selection.settings import INCVSettings, ncv_settings
from labelsieve.types import BoolArray, IntArray, LabelledData
from labelsieve.workflow.run import select_source
from labelsieve.workflow.settings import SelectSettings, absolute

RATIO = 0.4  # as in figures 1 and 4 of the paper
TEST_SAMPLES = 600  # clean digits that measure the gain
MODEL = "neighbours"
MEMORISING = "nearest"  # the theory is about a classifier that memorises its training labels
TITLES = {"nearest": "nearest neighbour", "neighbours": "ten neighbours"}


def run_demo(run: RunFolder, seed: int) -> dict[str, Any]:
    """Run the demo in a run folder and return its results."""
    check_folder(run, seed)
    if not run.exists():
        run.update(demo=True)  # first, so that a stopped demo finds its own folder again
    train, test, true, given = make_data(run / "data", seed)
    settings = SelectSettings(model=MODEL, labels=run / "data" / "labels.csv", seed=seed)
    select_source(str(run / "data" / "train.npz"), run.path, settings, SILENT)
    result = compare(run, (train, test), true, given, seed)
    result["picture"] = str(draw(run, train, result))
    result["report"] = str(write_report(run))
    return result


def check_folder(run: RunFolder, seed: int) -> None:
    """Refuse a folder with another run, or with a demo of another seed, before anything is written."""
    record = run.record()
    source = (record.get("data") or {}).get("source")
    if source is not None and source != absolute(run / "data" / "train.npz"):
        raise InputError(f"{run.path} holds a run of {source}; give another --out")
    before = run.stage_settings("select").get("seed", seed)
    if before != seed:
        raise InputError(f"{run.path} was started with --seed {before}, not {seed}; give another --out")


def make_data(folder: Path, seed: int) -> tuple[LabelledData, LabelledData, IntArray, IntArray]:
    """Write digits as 8 x 8 pictures: training pictures with corrupted labels, test pictures with right ones."""
    from labelsieve.data.npz import load
    from labelsieve.data.source import load_digits

    data = load_digits()
    pictures = np.round(data.x.reshape(-1, 8, 8) * 255).astype(np.uint8)
    order = np.random.default_rng([seed, 1]).permutation(len(data))
    parts = {"test": np.sort(order[:TEST_SAMPLES]), "train": np.sort(order[TEST_SAMPLES:])}
    for name, part in parts.items():
        with atomic_file(folder / f"{name}.npz") as file:
            np.savez_compressed(file, x=pictures[part], y=data.y[part], ids=data.ids[part])
    true = data.y[parts["train"]]
    given = noise.corrupt(true, theory.symmetric(10, RATIO), np.random.default_rng([seed, 2]))
    rows = zip(data.ids[parts["train"]].tolist(), given.tolist(), true.tolist(), strict=True)
    write_csv(folder / "labels.csv", ("id", "label", "true"), rows)
    return load(folder / "train.npz"), load(folder / "test.npz"), true, given


def compare(
    run: RunFolder, parts: tuple[LabelledData, LabelledData], true: IntArray, given: IntArray, seed: int
) -> dict[str, Any]:
    """Compare theory with measurement, and training on everything with training on the selected samples."""
    from labelsieve.execute.sklearn_trainer import SklearnTrainer
    from labelsieve.models.choose import named_classifier

    train, test = parts
    expected = theory.summary(theory.symmetric(10, RATIO))
    summary = run.read_summary()
    x, x_test = (data.x.reshape(len(data), -1).astype(np.float32) / 255 for data in (train, test))
    memorising = SklearnTrainer(x, named_classifier(MEMORISING), 10)
    paper = ncv_settings(INCVSettings(protocol="paper", pattern="symmetric"))
    first = drive(incv_steps(given, 10, settings=paper, seed=seed), memorising)
    selected = drive(incv_steps(given, 10, seed=seed), memorising).selected
    iteration = np.array([row.iteration if row.verdict == "selected" else 0 for row in run.read_labels()])

    def quality(chosen: BoolArray) -> dict[str, float]:
        precision, recall = (
            measure(chosen, given, true) for measure in (metrics.label_precision, metrics.label_recall)
        )
        return {"label_precision": precision, "label_recall": recall}

    def gain(name: str, chosen: BoolArray) -> dict[str, float]:
        everything = named_classifier(name).fit(x, given)
        trusted = named_classifier(name).fit(x[chosen], given[chosen])
        return {
            "everything": metrics.accuracy(test.y, everything.predict(x_test)),
            "selected": metrics.accuracy(test.y, trusted.predict(x_test)),
        }

    return {
        "samples": len(train),
        "theory": {key: expected[key] for key in ("test_accuracy", "label_precision", "label_recall")},
        "measured": {"test_accuracy": float(np.mean(first.history[0]["agreement"])), **quality(first.selected)},
        "noise_ratio": {"true": metrics.noise_ratio(given, true), "estimated": summary["noise_ratio"]},
        "expected": {key: summary[key] for key in ("label_precision", "label_recall")},
        "by_iteration": [
            quality((iteration >= 1) & (iteration <= k)) for k in range(1, len(summary["iterations"]) + 1)
        ],
        "auroc": summary["measured_auroc"],
        "accuracy": {
            TITLES[MODEL]: gain(MODEL, iteration >= 1),
            TITLES[MEMORISING]: gain(MEMORISING, selected),
        },
    }


def draw(run: RunFolder, train: LabelledData, result: dict[str, Any]) -> Path:
    """Draw demo.png and demo.svg: theory and measurement, the gain, and the most suspicious digits."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    blue, grey, orange = "#2563a8", "#b8bfc8", "#d9822b"
    suspects = sorted((row for row in run.read_labels() if row.suggested), key=lambda row: (-row.suspicion, row.id))[
        :14
    ]
    with mpl.rc_context(
        {"svg.hashsalt": "labelsieve", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    ):
        figure = Figure(figsize=(9, 4.4), layout="constrained")
        top, bottom = np.ravel(figure.subfigures(2, 1, height_ratios=[2.5, 1], squeeze=False))
        first, second, third = top.subplots(1, 3, width_ratios=[1.25, 1, 1])
        keys = {
            "test_accuracy": "test\naccuracy",
            "label_precision": "label\nprecision",
            "label_recall": "label\nrecall",
        }
        place = np.arange(len(keys))
        first.bar(place - 0.2, [result["theory"][key] for key in keys], 0.38, color=grey, label="theory")
        first.bar(place + 0.2, [result["measured"][key] for key in keys], 0.38, color=blue, label="measured")
        first.set(title="One iteration and theory", xticks=place, xticklabels=list(keys.values()), ylim=(0, 1.15))
        first.legend(frameon=False, loc="upper right", ncols=2)
        steps = np.arange(1, len(result["by_iteration"]) + 1)
        for key, colour, above in (("label_precision", blue, 6), ("label_recall", orange, -14)):
            values = [found[key] for found in result["by_iteration"]]
            second.plot(steps, values, "o-", color=colour)
            second.annotate(
                key.replace("_", " "),
                (steps[-1], values[-1]),
                (0, above),
                textcoords="offset points",
                ha="right",
                color=colour,
            )
        second.set(title="Selected since iteration", xticks=steps, ylim=(0.5, 1.05))
        accuracy = result["accuracy"]
        place = np.arange(len(accuracy))
        bars = [("everything", grey, -0.2), ("selected", blue, 0.2)]
        for key, colour, shift in bars:
            drawn = third.bar(place + shift, [found[key] for found in accuracy.values()], 0.38, color=colour, label=key)
            third.bar_label(drawn, fmt=lambda value: f"{100 * value:.0f}", padding=1)
        third.set(title="Accuracy on clean digits", xticks=place, xticklabels=list(accuracy), ylim=(0, 1.3))
        third.set_yticks(np.linspace(0, 1, 6))  # the legend is above 1
        third.legend(frameon=False, loc="upper right", ncols=2)
        bottom.suptitle("Most suspicious: given label, crossed out, and the suggested one", fontsize=9)
        position = {id: i for i, id in enumerate(train.ids.tolist())}
        for row, axes in zip(suspects, np.ravel(bottom.subplots(1, max(1, len(suspects)))), strict=False):
            axes.imshow(train.x[position[row.id]], interpolation="nearest")
            axes.set_axis_off()
            axes.set_title("\u0336".join([*row.label, ""]) + f"  {row.suggested}", fontsize=11, color=orange)
        with atomic_file(run / "demo.svg") as svg, atomic_file(run / "demo.png") as png:
            figure.savefig(svg, format="svg", metadata={"Date": None})
            figure.savefig(png, format="png", dpi=150)
    return run / "demo.png"
