"""labelsieve demo: digits with 40 % wrong labels, theory beside measurement, in under a minute on a CPU."""

from __future__ import annotations

import csv
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labelsieve.cli.common import Common, check_seed, percent, table
from labelsieve.errors import Problems
from labelsieve.types import BoolArray, IntArray, LabelledData

if TYPE_CHECKING:
    from labelsieve.runfolder import RunFolder

RATIO = 0.4
TEST_SAMPLES = 600
MODEL = "neighbours"
# The theory is about a classifier that learns its training labels by heart: the nearest neighbour does.
MEMORISING = "nearest"
TITLES = {"nearest": "nearest neighbour", "neighbours": "ten neighbours"}


def demo(*, out: Path = Path("labelsieve-demo"), common: Common = Common()) -> None:
    """Find wrong labels in 1,197 embedded digits, 40 % of which are labelled wrongly on purpose.

    Parameters
    ----------
    out
        The run folder to write.
    """
    from labelsieve.cli.select import SelectOptions, select
    from labelsieve.report.page import write_report
    from labelsieve.runfolder import RunFolder

    problems = Problems()
    check_seed(problems, common)
    run = problems.attempt(RunFolder.to_write, out)
    problems.stop_if_any()
    assert run is not None
    check_own(run, common.seed)
    began = time.monotonic()
    if not run.exists():
        run.update(demo=True)  # before the data: a demo that is stopped now finds its own folder again
    train, test, true = make_data(run / "data", common.seed)
    given = np.array([row["label"] for row in _rows(run / "data" / "labels.csv")], dtype=np.int64)
    wrong = float(np.mean(given != true))
    files = out / "data" / "train.npz", "--labels", out / "data" / "labels.csv"
    command = "labelsieve", "select", *files, "--model", MODEL, "--out", out
    common.say(
        f"{len(train):,} handwritten digits, {percent(wrong)} of their labels made wrong (symmetric noise)",
        f"$ {shlex.join(map(str, command))}",
    )
    with _silence():
        options = SelectOptions(model=MODEL, labels=run / "data" / "labels.csv")
        select(str(run / "data" / "train.npz"), out=out, options=options, common=common)
    result = compare(run, train, test, true, given, common.seed)
    picture = draw(run, train, result)
    result["picture"] = str(picture)
    result["report"] = str(write_report(run))
    result["seconds"] = round(time.monotonic() - began, 1)
    common.say(*describe(result, out))
    common.answer({"run": out, **result})


def check_own(run: RunFolder, seed: int) -> None:
    """Before anything is written: a folder with another run, or another seed's, would lose its data."""
    from labelsieve.errors import InputError
    from labelsieve.workflow.read import absolute

    record = run.record()
    before = (record.get("data") or {}).get("source")
    if before is not None and before != absolute(run / "data" / "train.npz"):
        raise InputError(f"{run.path} holds a run of {before}: give another --out")
    selected = record.get("stages", {}).get("select")
    if selected is not None and selected["settings"].get("seed") != seed:
        was = selected["settings"].get("seed")
        raise InputError(f"{run.path} was begun differently: seed was {was}, now {seed}. Give another --out")


def make_data(folder: Path, seed: int) -> tuple[LabelledData, LabelledData, IntArray]:
    """Digits as 8 x 8 pictures: some to train on with labels made wrong, others with right labels to test on."""
    from labelsieve import noise, theory
    from labelsieve.data import digits
    from labelsieve.data.npz import load
    from labelsieve.files import atomic_path, atomic_writer

    data = digits.load()
    pictures = np.round(data.x.reshape(-1, 8, 8) * 255).astype(np.uint8)
    order = np.random.default_rng([seed, 1]).permutation(len(data))
    parts = {"test": np.sort(order[:TEST_SAMPLES]), "train": np.sort(order[TEST_SAMPLES:])}
    for name, part in parts.items():
        with atomic_path(folder / f"{name}.npz") as partial, partial.open("wb") as file:
            np.savez_compressed(file, x=pictures[part], y=data.y[part], ids=data.ids[part])
    true = data.y[parts["train"]]
    given = noise.corrupt(true, theory.symmetric(10, RATIO), np.random.default_rng([seed, 2]))
    with atomic_writer(folder / "labels.csv") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("id", "label", "true"))
        writer.writerows(zip(data.ids[parts["train"]].tolist(), given.tolist(), true.tolist(), strict=True))
    return load(folder / "train.npz"), load(folder / "test.npz"), true


def compare(
    run: RunFolder, train: LabelledData, test: LabelledData, true: IntArray, given: IntArray, seed: int
) -> dict[str, Any]:
    """Theory beside measurement, and what training on the selected labels gains."""
    from labelsieve import metrics, theory
    from labelsieve.execute.sklearn_trainer import SklearnTrainer
    from labelsieve.selection.defaults import named_classifier
    from labelsieve.selection.incv import incv_steps
    from labelsieve.selection.ncv import ncv_steps
    from labelsieve.selection.run_selection import drive
    from labelsieve.selection.settings import INCVSettings
    from labelsieve.workflow.choose_model import rows

    expected = theory.summary(theory.symmetric(10, RATIO))
    summary = run.read_summary()
    x, x_test = rows(train), rows(test)
    memorising = SklearnTrainer(x, named_classifier(MEMORISING), 10)
    told = INCVSettings(protocol="paper", pattern="symmetric")
    first = drive(ncv_steps(given, 10, settings=told, seed=seed), memorising)
    selected = drive(incv_steps(given, 10, seed=seed), memorising).selected
    fell = np.array([row.iteration if row.verdict == "selected" else 0 for row in run.read_labels()])

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
        "by_iteration": [quality((fell >= 1) & (fell <= k)) for k in range(1, len(summary["iterations"]) + 1)],
        "auroc": summary["measured_auroc"],
        "accuracy": {
            TITLES[MODEL]: gain(MODEL, fell >= 1),
            TITLES[MEMORISING]: gain(MEMORISING, selected),
        },
    }


def describe(result: dict[str, Any], out: Path) -> list[str]:
    names = {
        "test_accuracy": "test accuracy on the given labels",
        "label_precision": "label precision of the selected",
        "label_recall": "label recall of the selected",
    }
    last, found = result["by_iteration"][-1], result["noise_ratio"]
    rounds = len(result["by_iteration"])
    rows = [["one round, a classifier that memorises", "theory", "measured"]]
    rows += [
        [f"  {text}", percent(result["theory"][key]), percent(result["measured"][key])] for key, text in names.items()
    ]
    rows += [["", "", ""], [f"INCV, {rounds} iterations, told nothing", "expected", "measured"]]
    rows += [["  wrong labels in the data", percent(found["estimated"]), percent(found["true"])]]
    rows += [
        [f"  {names[key]}", percent(result["expected"][key]), percent(last[key])]
        for key in ("label_precision", "label_recall")
    ]
    gain = [["accuracy on clean digits, trained on", "everything", "the selected"]]
    gain += [
        [f"  {title}", percent(found["everything"]), percent(found["selected"])]
        for title, found in result["accuracy"].items()
    ]
    return [
        "",
        *table(rows),
        "",
        *table(gain),
        "",
        f"picture   {result['picture']}",
        f"report    {result['report']}",
        f"suspects  {out}/labels.csv: the higher its suspicion, the more likely a label is wrong",
        f"done in {result['seconds']} s",
    ]


def draw(run: RunFolder, train: LabelledData, result: dict[str, Any]) -> Path:
    """demo.png and demo.svg: theory beside measurement, the gain, and the most suspicious digits."""
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
        first.set(title="One round against the theory", xticks=place, xticklabels=list(keys.values()), ylim=(0, 1.15))
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
        second.set(title="INCV by iteration", xticks=steps, ylim=(0.5, 1.05))
        accuracy = result["accuracy"]
        place = np.arange(len(accuracy))
        bars = [("everything", grey, -0.2), ("selected", blue, 0.2)]
        for key, colour, shift in bars:
            drawn = third.bar(place + shift, [found[key] for found in accuracy.values()], 0.38, color=colour, label=key)
            third.bar_label(drawn, fmt=lambda value: f"{100 * value:.0f}", padding=1)
        third.set(title="Accuracy on clean digits", xticks=place, xticklabels=list(accuracy), ylim=(0, 1.3))
        third.set_yticks(np.linspace(0, 1, 6))  # above is room for the legend alone
        third.legend(frameon=False, loc="upper right", ncols=2)
        bottom.suptitle("Most suspicious: given label, crossed out, and the suggested one", fontsize=9)
        position = {id: i for i, id in enumerate(train.ids.tolist())}
        for row, axes in zip(suspects, np.ravel(bottom.subplots(1, max(1, len(suspects)))), strict=False):
            axes.imshow(train.x[position[row.id]], interpolation="nearest")
            axes.set_axis_off()
            axes.set_title("\u0336".join([*row.label, ""]) + f"  {row.suggested}", fontsize=11, color=orange)
        figure.savefig(run / "demo.svg", metadata={"Date": None})
        figure.savefig(run / "demo.png", dpi=150)
    return run / "demo.png"


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _silence() -> Any:
    """What `select` says to a person; the demo says it better."""
    from contextlib import redirect_stdout
    from io import StringIO

    return redirect_stdout(StringIO())
