"""labelsieve plan: what a run would take, before it takes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from labelsieve.cli.common import Common, check_seed, table
from labelsieve.errors import Problems
from labelsieve.workflow.read import SourceOptions, check_size

if TYPE_CHECKING:
    from labelsieve.types import LabelledData


def plan(
    source: str,
    /,
    *,
    gpus: int = 1,
    model: str = "auto",
    iterations: int = 4,
    epochs: int | None = None,
    train_epochs: int | None = None,
    batch_size: int | None = None,
    crop: int = 227,
    samples: int | None = None,
    seconds: float = 10.0,
    device: str = "auto",
    labels: Path | None = None,
    pixels: Annotated[int | None, Parameter(name="--size")] = None,
    reading: SourceOptions = SourceOptions(),
    common: Common = Common(),
) -> None:
    """Time, memory and disk of a run, from a short measurement on this machine of what the run would use.

    Parameters
    ----------
    source
        A folder of class folders, a .csv, .parquet or .npz file, cifar10:DIR, webvision:DIR, hf:NAME_OR_DIR, digits.
    gpus
        How many devices like this one share the work.
    model
        What selects, and the network that is trained, where they are one; auto: each as `run` chooses it.
    iterations
        Of INCV.
    epochs
        Of each of INCV's trainings; default: as `run`.
    train_epochs
        Of the robust training; default: as `run`.
    batch_size
        Samples a step of the robust training; default: as `run`.
    crop
        Side of the random crop, for pictures that are larger than a network reads.
    samples
        Work it out for so many samples instead of the source's own number.
    seconds
        How long to measure.
    device
        auto, cpu, cuda or mps.
    labels
        A CSV of id and label: replaces the source's labels.
    pixels
        Pictures become squares of so many pixels.
    """
    from labelsieve.models.catalog import MODELS
    from labelsieve.workflow.build_trainer import check_picture_size

    problems = Problems()
    check_seed(problems, common)
    for name, value in (("gpus", gpus), ("iterations", iterations), ("epochs", epochs), ("train-epochs", train_epochs)):
        problems.check(value is None or value >= 1, f"--{name} {value} is less than 1")
    problems.check(batch_size is None or batch_size >= 2, f"--batch-size {batch_size} is less than 2")
    problems.check(crop >= 1, f"--crop {crop} is less than 1")
    problems.check(samples is None or samples >= 1, f"--samples {samples} is less than 1")
    problems.check(seconds > 0, f"--seconds {seconds} is not more than 0")
    problems.check(model in MODELS, f"--model {model!r} is not known: choose one of {', '.join(MODELS)}")
    check_picture_size(problems, pixels)
    data = problems.attempt(_read, source, labels, pixels, reading, common)
    problems.stop_if_any()
    assert data is not None
    from labelsieve.workflow.build_trainer import epochs_of, resolve_selector
    from labelsieve.workflow.planning import Asked, not_measured, plan_run

    selector = resolve_selector("auto", data, device, epochs=epochs, samples=samples) if model == "auto" else model
    asked = Asked(
        selector, model, rounds=iterations + 1, epochs=epochs_of(selector, epochs), train_epochs=train_epochs,
        batch_size=batch_size, samples=samples, gpus=gpus, crop=crop, seconds=seconds,
    )  # fmt: skip
    found = plan_run(data, asked, device=device)
    measured, wanted = found["measured"], found["wanted"]
    least = "" if measured["working_bytes"] else "at least "  # what a step holds is measured on GPUs alone
    shape = " x ".join(str(length) for length in found["shape"])
    common.say(
        f"samples of {shape}, measured on {measured['samples']:,} of them ({found['device']}):",
        *_timed(found),
        *([f"{speed(measured['read'])} pictures decoded a second"] if measured["read"] else []),
        "",
        f"{wanted['samples']:,} samples, {gpus} such device{'s' if gpus > 1 else ''}, at most:",
        *table(
            [[name, duration(value)] for name, value in found["seconds"].items() if value]
            + [
                ["in all", duration(found["total_seconds"])],
                ["memory, device", least + size(found["device_bytes"])],
                ["memory, host, beside the program", size(found["host_bytes"])],
                ["disk, staged pictures", size(found["disk_bytes"]["staged pictures"])],
                ["disk, checkpoints", size(found["disk_bytes"]["checkpoints"])],
            ]
        ),
        f"The data: {found['data']}. Takes longest: {found['bottleneck']}{not_measured(found)}.",
    )
    common.answer(found)


def _read(source: str, labels: Path | None, pixels: int | None, reading: SourceOptions, common: Common) -> LabelledData:
    """As `select` would."""
    from labelsieve.data.labels import read_label_file

    file = read_label_file(labels) if labels is not None else None
    data = reading.read(source, labels=file, size=pixels, progress=common.progress())
    check_size(data, pixels)
    return data


def _timed(found: dict[str, Any]) -> list[str]:
    """What was timed, one line for what selects and one for what is trained."""
    selecting, taken, wanted = found["measured_selecting"], found["selection_seconds"], found["wanted"]
    if selecting:
        told = f", {wanted['selection_epochs']} epochs: {_speeds(selecting)}"
    else:
        told = ": not measured" if taken is None else f": {duration(taken)} in all, from one of its trainings"
    return [
        f"selection with {found['selector']}{told}",
        f"robust training of {found['model']}, {wanted['training_epochs']} epochs: {_speeds(found['measured'])}",
    ]


def _speeds(measured: dict[str, Any]) -> str:
    return f"{speed(measured['trained'])} trained and {speed(measured['scored'])} scored a second"


def speed(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 10 else f"{amount:.1f}"


def duration(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.1f} s"


def size(amount: float) -> str:
    for unit, length in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if amount >= length:
            return f"{amount / length:,.1f} {unit}"
    return f"{amount / 1e3:,.1f} kB"
