"""labelsieve run: select, train and report."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from labelsieve.cli.common import Flag, Flat, Output
from labelsieve.workflow.settings import RunSettings


def run(
    source: str,
    /,
    *,
    out: Path | None = None,
    dry_run: Flag = False,
    settings: Annotated[RunSettings, Flat] = RunSettings(),
    output: Output = Output(),
) -> None:
    """Select, train and report. Run the same command again to resume a stopped run.

    Parameters
    ----------
    source
        A folder of class folders; a .csv, .parquet, .jsonl or .xlsx file with a label column and path, text or
        feature columns; an .npz file with x and y; cifar10:DIR, cifar10n:DIR?labels=worse, webvision:DIR,
        hf:NAME_OR_DIR; digits (embedded).
    out
        Run folder to write. Default: runs/ and the name of the source.
    dry_run
        Print what the run would do, and its time, memory and disk space; write nothing.
    """
    from labelsieve.cli.select import describe_summary

    if dry_run:
        from labelsieve.cli.plan import print_dry_run

        print_dry_run(source, out, settings, output)
        return
    from labelsieve.workflow.run import run_source

    result = run_source(source, out, settings, output.progress())
    named = shlex.quote(str(result.path))
    done = set(result.stages.values()) == {"done"}
    output.say(
        *describe_summary(result.summary, shown=result.data_notes),
        f"files: {result.path}/labels.csv, {result.path}/model.safetensors, {result.path}/report.html",
        f"next: labelsieve review {named}, or labelsieve export {named}",
        "everything was already done" if done else f"done in {result.seconds:.1f} s",
    )
    output.answer(
        {
            "run": result.path,
            "stages": result.stages,
            "model": result.model_path,
            "report": result.report_path,
            "seconds": round(result.seconds, 3),
            **result.summary,
        }
    )
