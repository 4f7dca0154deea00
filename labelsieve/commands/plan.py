"""labelsieve plan: what a run would take, before it takes it."""

from __future__ import annotations

from labelsieve.commands.common import Common, Problems, check_seed, table


def plan(
    source: str,
    /,
    *,
    gpus: int = 1,
    model: str = "auto",
    iterations: int = 4,
    epochs: int = 50,
    train_epochs: int = 200,
    batch_size: int = 128,
    crop: int = 227,
    samples: int | None = None,
    seconds: float = 10.0,
    device: str = "auto",
    label_column: str = "label",
    common: Common = Common(),
) -> None:
    """Time, memory and disk of a run, from a short measurement on this machine.

    Parameters
    ----------
    source
        A folder of class folders, a .csv, .parquet or .npz file, cifar10:DIR, webvision:DIR, hf:NAME_OR_DIR, digits.
    gpus
        How many devices like this one share the work.
    model
        The network; auto chooses by the samples' shape.
    iterations
        Of INCV.
    epochs
        Of each of INCV's trainings.
    train_epochs
        Of the robust training.
    batch_size
        Samples a step.
    crop
        Side of the random crop, for pictures that are larger than a network reads.
    samples
        Work it out for so many samples instead of the source's own number.
    seconds
        How long to measure.
    device
        auto, cpu, cuda or mps.
    label_column
        Name of the column with the labels.
    """
    from labelsieve.data.source import load_source
    from labelsieve.models.catalog import MODELS

    problems = Problems()
    check_seed(problems, common)
    for name, value in (("gpus", gpus), ("iterations", iterations), ("epochs", epochs), ("train-epochs", train_epochs)):
        problems.check(value >= 1, f"--{name} {value} is less than 1")
    problems.check(batch_size >= 2, f"--batch-size {batch_size} is less than 2")
    problems.check(crop >= 1, f"--crop {crop} is less than 1")
    problems.check(samples is None or samples >= 1, f"--samples {samples} is less than 1")
    problems.check(seconds > 0, f"--seconds {seconds} is not more than 0")
    problems.check(model in MODELS, f"--model {model!r} is not known: choose one of {', '.join(MODELS)}")
    data = problems.attempt(load_source, source, label_column=label_column, progress=common.progress())
    problems.stop_if_any()
    assert data is not None
    from labelsieve.engine.device import choose_device
    from labelsieve.plan import Wanted
    from labelsieve.plan import plan as work_out

    wanted = Wanted(samples or len(data), iterations, epochs, train_epochs, gpus=gpus)
    found = work_out(
        data, wanted, model=model, device=choose_device(device), batch_size=batch_size, crop=crop, seconds=seconds
    )
    measured = found["measured"]
    least = "" if measured["working_bytes"] else "at least "  # what a step holds is measured on GPUs alone
    shape = " x ".join(str(length) for length in found["shape"])
    common.say(
        f"{found['model']} on samples of {shape}, measured on {measured['samples']:,} of them ({found['device']}):",
        f"{speed(measured['trained'])} trained and {speed(measured['scored'])} scored a second"
        + (f", {speed(measured['read'])} pictures decoded" if measured["read"] else ""),
        "",
        f"{wanted.samples:,} samples, {gpus} such device{'s' if gpus > 1 else ''}, at most:",
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
        f"The data: {found['data']}. Takes longest: {found['bottleneck']}.",
    )
    common.answer(found)


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
