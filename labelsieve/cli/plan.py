"""labelsieve plan: the time, memory and disk space of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from labelsieve.cli.common import Flat, Output, counted, table
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
    network = workload["selection_passes"] > 0 or measured["trained"] > 0
    rows = [[name, format_duration(value)] for name, value in found["seconds"].items() if value]
    if found["seconds_without_cache"]:
        rows.append(["decoding, if pictures are not cached", format_duration(found["seconds_without_cache"])])
    rows += [
        ["total", format_duration(found["total_seconds"])],
        ["memory", format_bytes(found["host_bytes"])],
        # On a CPU the networks are in the memory of the process.
        *([["memory, device", format_bytes(found["device_bytes"])]] if measured["working_bytes"] else []),
        *([[f"disk, {name}", format_bytes(size)] for name, size in found["disk_bytes"].items() if size]),
    ]
    if network:
        training = f"training of {found['model']}, {counted(workload['training_epochs'], 'epoch')}: {_speeds(measured)}"
    else:
        training = f"training of {found['model']}: {format_duration(found['seconds']['training'])}"
    return [
        f"measured on {counted(measured['samples'], 'sample')} ({found['device']}):",
        f"selection with {found['selector']}: {_selection_speed(found)}",
        training,
        *([f"{_speed(measured['read'])} pictures decoded per second"] if measured["read"] else []),
        "",
        f"{counted(workload['samples'], 'sample')}, {counted(gpus, 'device')}, about:",
        *table(rows),
        *([f"Training reads the pictures from {PLACES[found['pictures']]}."] if found["pictures"] else []),
        f"Slowest stage: {found['bottleneck']}.",
    ]


PLACES = {
    "memory": "memory",
    "device": "the memory of the GPU",
    "staged": "the disk, decoded once into the run folder",
    "streamed": "their files, decoded again in every epoch",
}


def _selection_speed(found: dict[str, Any]) -> str:
    if found["measured_selecting"]:
        epochs = counted(found["wanted"]["selection_epochs"], "epoch")
        return f"{epochs}: {_speeds(found['measured_selecting'])}"
    seconds = found["selection_seconds"]
    return "not measured" if seconds is None else format_duration(seconds)


def _speeds(measured: dict[str, Any]) -> str:
    return f"{_speed(measured['trained'])} samples trained and {_speed(measured['scored'])} scored per second"


def _speed(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 10 else f"{amount:.1f}"
