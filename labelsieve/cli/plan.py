"""labelsieve plan: the time, memory and disk space of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from labelsieve.cli.common import Flat, Output, table
from labelsieve.progress import format_bytes, format_duration
from labelsieve.workflow.settings import PlanRequest, RunSettings


def plan(
    source: str,
    /,
    *,
    request: Annotated[PlanRequest, Flat] = PlanRequest(),
    settings: Annotated[RunSettings, Flat] = RunSettings(),
    output: Output = Output(),
) -> None:
    """Estimate the time, memory and disk space of a run, from a short measurement of what the run would use.

    Parameters
    ----------
    source
        A folder of class folders, a .csv, .parquet or .npz file, cifar10:DIR, webvision:DIR, hf:NAME_OR_DIR, digits.
    """
    from labelsieve.workflow.run import plan_source

    found = plan_source(source, None, settings, request, output.progress())
    output.say(*describe_plan(found["plan"]))
    output.answer(found["plan"])


def print_dry_run(source: str, out: Path | None, settings: RunSettings, output: Output) -> None:
    """Print what `run` would do: the state of its stages, and the plan."""
    from labelsieve.workflow.run import plan_source

    found = plan_source(source, out, settings, PlanRequest(), output.progress())
    output.say(
        f"{found['run']}: {found['samples']:,} samples, {found['classes']} classes, {found['skipped']:,} skipped",
        *(f"{stage}: {state}" for stage, state in found["stages"].items()),
        f"disk: {format_bytes(found['disk_free'])} free",
        *describe_plan(found["plan"]),
    )
    output.answer(found)


def describe_plan(found: dict[str, Any]) -> list[str]:
    """Return the lines that describe a plan."""
    measured, workload = found["measured"], found["wanted"]
    gpus = workload["gpus"]
    least = "" if measured["working_bytes"] else "at least "  # the peak of a step is only measured on GPUs
    unmeasured = f" (without the selection with {found['selector']})" if found["selection_seconds"] is None else ""
    rows = [[name, format_duration(value)] for name, value in found["seconds"].items() if value]
    if found["seconds_without_cache"]:
        rows.append(["decoding, if pictures are not cached", format_duration(found["seconds_without_cache"])])
    rows += [
        ["total", format_duration(found["total_seconds"])],
        ["memory, device", least + format_bytes(found["device_bytes"])],
        ["memory, host", format_bytes(found["host_bytes"])],
        ["disk, decoded pictures", format_bytes(found["disk_bytes"]["staged pictures"])],
        ["disk, checkpoints", format_bytes(found["disk_bytes"]["checkpoints"])],
    ]
    return [
        f"samples of {_shape(found['shape'])}, measured on {measured['samples']:,} ({found['device']}):",
        f"selection with {found['selector']}: {_selection_speed(found)}",
        f"robust training of {found['model']}, {workload['training_epochs']} epochs: {_speeds(measured)}",
        *([f"{_speed(measured['read'])} pictures decoded per second"] if measured["read"] else []),
        "",
        f"{workload['samples']:,} samples, {gpus} device{'s' if gpus > 1 else ''}, at most:",
        *table(rows),
        *([f"Training reads the pictures from {PLACES[found['pictures']]}."] if found["pictures"] else []),
        f"Samples: {found['data']}. Slowest stage: {found['bottleneck']}{unmeasured}.",
    ]


PLACES = {
    "memory": "memory",
    "device": "the memory of the GPU",
    "staged": "the disk, decoded once into the run folder",
    "streamed": "their files, decoded again in every epoch",
}


def _shape(shape: list[int] | tuple[int, ...]) -> str:
    """Return "14 numbers" or "3 x 32 x 32"."""
    return f"{shape[0]} numbers" if len(shape) == 1 else " x ".join(map(str, shape))


def _selection_speed(found: dict[str, Any]) -> str:
    if found["measured_selecting"]:
        return f"{found['wanted']['selection_epochs']} epochs: {_speeds(found['measured_selecting'])}"
    seconds = found["selection_seconds"]
    return "not measured" if seconds is None else f"{format_duration(seconds)}, from one of its trainings"


def _speeds(measured: dict[str, Any]) -> str:
    return f"{_speed(measured['trained'])} samples trained and {_speed(measured['scored'])} scored per second"


def _speed(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 10 else f"{amount:.1f}"
