"""labelsieve demo: find planted wrong labels in embedded digits, in under a minute on a CPU."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Any

from labelsieve.cli.common import Common, percent, table
from labelsieve.errors import Problems


def demo(*, out: Path = Path("labelsieve-demo"), common: Common = Common()) -> None:
    """Find wrong labels in 1,197 embedded digits, 40 % of which were given wrong labels.

    Parameters
    ----------
    out
        Run folder to write.
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
        "label_precision": "label precision of the selected",
        "label_recall": "label recall of the selected",
    }
    last, found = result["by_iteration"][-1], result["noise_ratio"]
    rounds = len(result["by_iteration"])
    rows = [["one round, a classifier that memorises", "theory", "measured"]]
    rows += [
        [f"  {text}", percent(result["theory"][key]), percent(result["measured"][key])] for key, text in names.items()
    ]
    rows += [["", "", ""], [f"INCV, {rounds} iterations", "expected", "measured"]]
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
        f"suspects  {out}/labels.csv: a higher suspicion means that a label is more likely wrong",
        f"done in {result['seconds']} s",
    ]
