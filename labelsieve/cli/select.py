"""labelsieve select: find the labels to trust and the suspects."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from cyclopts import Parameter

from labelsieve.cli.common import Flat, Output, counted, percent, table
from labelsieve.workflow.settings import SelectSettings


@dataclass(frozen=True)
class SelectOptions(SelectSettings):
    """The settings of a selection; its algorithm is called --method here and --selection in `run`.

    Parameters
    ----------
    selection
        Selection algorithm: incv (iterative noisy cross-validation) or ncv (one round, removes nothing).
    """

    selection_option: ClassVar[str] = "--method"

    selection: Annotated[str, Parameter(name="--method")] = "incv"


def select(
    source: str,
    /,
    *,
    out: Path | None = None,
    settings: Annotated[SelectOptions, Flat] = SelectOptions(),
    output: Output = Output(),
) -> None:
    """Find the labels to trust and the suspects. Run the same command again to resume a stopped selection.

    Parameters
    ----------
    source
        A folder of class folders; a .csv, .parquet, .jsonl or .xlsx file with a label column and path, text or
        feature columns; an .npz file with x and y; cifar10:DIR, cifar10n:DIR?labels=worse, webvision:DIR,
        hf:NAME_OR_DIR; digits (embedded).
    out
        Run folder to write. Default: runs/ and the name of the source.
    """
    from labelsieve.workflow.run import select_source

    result = select_source(source, out, settings, output.progress())
    named = shlex.quote(str(result.path))
    output.say(
        *describe_summary(result.summary, shown=result.data_notes),
        f"files: {result.path}/labels.csv, {result.path}/summary.json",
        f"next: labelsieve report {named}, labelsieve review {named} or labelsieve export {named} --what suspects",
    )
    output.answer({"run": result.path, "resumed": result.stages["select"], "model": result.model, **result.summary})


def describe_summary(summary: dict[str, Any], *, shown: Sequence[Any] = ()) -> list[str]:
    """Return the lines that describe a selection; notes that were `shown` while reading are not repeated."""
    counts = summary["counts"]
    candidates = counted(counts["candidate"], "candidate")
    lines = [
        f"{summary['samples']:,} samples: {counts['selected']:,} selected, {candidates}, {counts['removed']:,} removed"
        + (f", {summary['skipped']:,} skipped (skipped.csv)" if summary["skipped"] else "")
    ]
    known = summary.get("noise_known", True)
    measured = "measured_noise_ratio" in summary
    some = summary.get("measured_samples")  # if not all samples have a true label
    rows = [["", "expected", *([f"measured on {some:,.0f}" if some else "measured"] if measured else [])]]
    for name, key in (
        ("  wrong labels in the data", "noise_ratio"),
        ("  label precision of the selected", "label_precision"),
        ("  label recall of the selected", "label_recall"),
    ):
        row = [name, percent(summary[key]) if known else "not known"]
        rows.append([*row, percent(summary[f"measured_{key}"])] if measured else row)
    # If the noise is not known, a column that was not used may be the reason: notes are then repeated.
    hidden = {str(note) for note in shown} if known else set()
    return [*lines, *table(rows), *(f"note: {note}" for note in summary["notes"] if note not in hidden)]
