"""labelsieve theory, demo, reproduce and bench: the closed forms, the results of the paper, and speed."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from labelsieve.cli.common import Common, percent, table
from labelsieve.errors import InputError, Problems
from labelsieve.experiments import ReproduceOptions


def theory(
    *,
    classes: int = 10,
    pattern: str = "symmetric",
    ratio: float = 0.4,
    matrix: Path | None = None,
    accuracy: float | None = None,
    common: Common = Common(),
) -> None:
    """Print the test accuracy, label precision and label recall that the theory predicts for a noise pattern.

    Parameters
    ----------
    classes
        Number of classes.
    pattern
        Noise pattern: symmetric (any other class), symmetric-inclusive (any class), pair (the next class) or
        cifar10-map
        (pairs of similar classes of CIFAR-10).
    ratio
        Probability that a label is replaced, from 0 to 1. The proportion of wrong labels is lower with
        symmetric-inclusive and cifar10-map.
    matrix
        File with a transition matrix: .csv, .npy, .json or the summary.json of a run. It replaces --pattern and
        --ratio.
    accuracy
        Test accuracy measured on noisy labels. It replaces --ratio: the corresponding noise ratio is printed (Eq. 4 and
        5 of the paper).
    """
    from labelsieve import noise
    from labelsieve import theory as closed_forms

    problems = Problems()
    problems.check(classes >= 2, f"--classes must be at least 2, got {classes}")
    found = None
    if accuracy is not None:
        problems.check(0 <= accuracy <= 1, f"--accuracy must be a number from 0 to 1, got {accuracy}")
        problems.check(pattern in ("symmetric", "pair"), f"--accuracy needs --pattern symmetric or pair, not {pattern}")
        problems.check(matrix is None, "--accuracy and --matrix exclude each other")
        problems.stop_if_any()
        found = closed_forms.ratio_from_accuracy(accuracy, classes, pattern)
        ratio = found.ratio
    problems.check(0 <= ratio <= 1, f"--ratio must be a number from 0 to 1, got {ratio}")
    if matrix is not None:
        transition = problems.attempt(noise.load_matrix, matrix)
    else:
        transition = problems.attempt(closed_forms.matrix, pattern, max(2, classes), min(1.0, max(0.0, ratio)))
    problems.stop_if_any()
    assert transition is not None
    summary = closed_forms.summary(transition)
    result = {"pattern": str(matrix) if matrix is not None else pattern, "ratio": None if matrix else ratio, **summary}
    if found is not None:
        result |= {"accuracy": accuracy, "in_reach": found.in_reach}
        clamped = "" if found.in_reach else " (clamped: no ratio explains it)"
        common.say(f"a noise ratio of {ratio:.4f} explains a test accuracy of {accuracy}{clamped}")
    name = f"matrix {matrix}" if matrix is not None else f"{pattern} noise, ratio {ratio:.4g}"
    common.say(
        f"{name}, {summary['classes']} classes: a network trained on one half and tested on the other",
        *table(
            [
                ["  wrong labels in the data", percent(summary["noise_ratio"])],
                ["  test accuracy on the given labels", percent(summary["test_accuracy"])],
                ["  label precision of the selection", percent(summary["label_precision"])],
                ["  label recall of the selection", percent(summary["label_recall"])],
                ["  wrong labels in the selection", percent(summary["selected_noise_ratio"])],
            ]
        ),
    )
    common.answer(result)


def demo(*, out: Path = Path("labelsieve-demo"), common: Common = Common()) -> None:
    """Find wrong labels in 1,197 built-in pictures of handwritten digits. About 40 % of their labels are wrong.

    Parameters
    ----------
    out
        Folder for the results.
    """
    from labelsieve.runfolder import RunFolder
    from labelsieve.workflow.demo import MODEL, run_demo
    from labelsieve.workflow.settings import check_seed

    problems = Problems()
    check_seed(problems, common.seed)
    run = problems.attempt(RunFolder.to_write, out)
    problems.stop_if_any()
    assert run is not None
    began = time.monotonic()
    files = [str(out / "data" / "train.npz"), "--labels", str(out / "data" / "labels.csv")]
    result = run_demo(run, common.seed)
    result["seconds"] = round(time.monotonic() - began, 1)
    common.say(
        f"{result['samples']:,} handwritten digits, {percent(result['noise_ratio']['true'])} of the labels are wrong",
        f"$ {shlex.join(['labelsieve', 'select', *files, '--model', MODEL, '--out', str(out)])}",
        *describe_demo(result, out),
    )
    common.answer({"run": out, **result})


def describe_demo(result: dict[str, Any], out: Path) -> list[str]:
    """Return the lines that describe the results of the demo."""
    names = {
        "test_accuracy": "test accuracy on the given labels",
        "label_precision": "label precision of the selection",
        "label_recall": "label recall of the selection",
    }
    last, found = result["by_iteration"][-1], result["noise_ratio"]
    rows = [["one iteration, a classifier that memorises", "theory", "measured"]]
    rows += [
        [f"  {text}", percent(result["theory"][key]), percent(result["measured"][key])] for key, text in names.items()
    ]
    rows += [["", "", ""], [f"INCV, {len(result['by_iteration'])} iterations", "expected", "measured"]]
    rows += [["  wrong labels in the data", percent(found["estimated"]), percent(found["true"])]]
    rows += [
        [f"  {names[key]}", percent(result["expected"][key]), percent(last[key])]
        for key in ("label_precision", "label_recall")
    ]
    gain = [["accuracy on clean digits, trained on", "all samples", "the selection"]]
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
        f"figure    {result['picture']}",
        f"report    {result['report']}",
        f"suspects  {out}/labels.csv: a higher suspicion means that a label is more likely wrong",
        f"done in {result['seconds']} s",
    ]


Options = Annotated[ReproduceOptions, Parameter(name="*", negative_iterable="")]


def reproduce(
    item: str,
    /,
    *,
    options: Options = ReproduceOptions(),
    common: Common = Common(),
) -> None:
    """Reproduce a figure or table of the paper. Only missing experiments are run.

    Parameters
    ----------
    item
        Name of the figure or table. "list" prints all names. "all" is every item that needs CIFAR-10.
    """
    from labelsieve.experiments import runner

    if item == "list":
        common.say(*(f"{name:26}{title}" for name, title in runner.list_items()))
        common.answer([{"item": name, "title": title} for name, title in runner.list_items()])
        return

    if options.seeds is None:
        options = replace(options, seeds=str(common.seed))
    outcome = runner.reproduce(item, options, progress=common.progress())
    common.say(*outcome["files"])
    common.answer(outcome)


MIN_PICTURES = 10  # fewer take no measurable time


def bench(
    what: Literal["engine", "select", "io"],
    /,
    *,
    device: str = "auto",
    large: bool = False,
    pictures: int = 3000,
    common: Common = Common(),
) -> None:
    """Measure the speed of the training engine, of the selection, or of reading pictures.

    Parameters
    ----------
    what
        engine: training several networks at once, compared with a plain training loop. select: the selection, compared
        with cleanlab. io: reading pictures, compared with a plain Pillow loop.
    device
        For engine: device (auto, cpu, cuda or mps).
    large
        For select: also measure 10 M x 100 probabilities in a memory-mapped file (4 GB of disk).
    pictures
        For io: number of pictures.
    """
    if pictures < MIN_PICTURES:
        raise InputError(f"--pictures must be at least {MIN_PICTURES}, got {pictures}")
    if what == "engine":
        from labelsieve.bench import engine_speed

        engine_speed.run(device=device, as_json=common.json)
    elif what == "select":
        from labelsieve.bench import selection_speed

        selection_speed.run(json=common.json, large=large)
    else:
        from labelsieve.bench.selection_speed import describe_io, run_io

        result = run_io(pictures, seed=common.seed)
        common.say(*describe_io(result))
        common.answer(result)
