"""labelsieve plan, select, train, run and predict: the stages of a run."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from cyclopts import Parameter

from labelsieve.cli.common import Common, Flag, Flat, Output, check_target, percent, table
from labelsieve.csv_files import write_csv
from labelsieve.errors import Problems
from labelsieve.progress import counted, format_bytes, format_duration
from labelsieve.workflow.settings import (
    PlanRequest,
    RunSettings,
    SelectSettings,
    SourceSettings,
    TrainSettings,
    check_device,
)

if TYPE_CHECKING:
    from labelsieve.workflow.predict import Accuracy


@dataclass(frozen=True)
class SelectOptions(SelectSettings):
    """The settings of a selection; its algorithm is --method, or --selection as in `run`.

    Parameters
    ----------
    selection
        Selection algorithm: incv (iterative noisy cross-validation) or ncv (noisy cross-validation: one iteration, no
        samples are removed). The name --selection is the one of `run`, where --method is the training method.
    """

    selection_option: ClassVar[str] = "--method"

    selection: Annotated[str, Parameter(name=("--method", "--selection"))] = "incv"


def select(
    source: str,
    /,
    *,
    out: Path | None = None,
    settings: Annotated[SelectOptions, Flat] = SelectOptions(),
    output: Output = Output(),
) -> None:
    """Select the samples whose labels are probably right and list the suspects. Run the same command again to
    resume a stopped selection.

    Parameters
    ----------
    source
        Folder with one subfolder per class; a .csv, .tsv, .parquet, .jsonl or .xlsx file with a label column and path,
        text or feature columns; an .npz file with the arrays x and y; cifar10:DIR, cifar100:DIR,
        cifar10n:DIR?labels=worse, webvision:DIR, hf:NAME_OR_DIR; or digits (built-in data set).
    out
        Folder for the results of the run. Default: runs/NAME, where NAME is the name of the source.
    """
    from labelsieve.workflow.run import select_source

    result = select_source(source, out, settings, output.progress())
    named = shlex.quote(str(result.path))
    output.say(
        *describe_summary(result.summary),
        f"files: {result.path}/labels.csv, {result.path}/summary.json",
        f"next: labelsieve report {named}, labelsieve review {named} or labelsieve export {named} --what suspects",
    )
    output.answer({"run": result.path, "resumed": result.stages["select"], "model": result.model, **result.summary})


def describe_summary(summary: dict[str, Any]) -> list[str]:
    """Return the lines that describe a selection; notes on the data, shown while reading, are not repeated."""
    from labelsieve.runfolder import NoteTopic, notes_besides

    counts = summary["counts"]
    candidates = counted(counts["candidate"], "candidate")
    lines = [
        f"{summary['samples']:,} samples: {counts['selected']:,} selected, {candidates}, {counts['removed']:,} removed"
        + (f", {summary['skipped']:,} skipped (skipped.csv)" if summary["skipped"] else "")
    ]
    known = summary["noise_known"]
    measured = "measured_noise_ratio" in summary
    some = summary.get("measured_samples")  # if not all samples have a true label
    rows = [["", "expected", *([f"measured on {some:,.0f}" if some else "measured"] if measured else [])]]
    for name, key in (
        ("  wrong labels in the data", "noise_ratio"),
        ("  label precision of the selection", "label_precision"),
        ("  label recall of the selection", "label_recall"),
    ):
        row = [name, percent(summary[key]) if known else "unknown"]
        rows.append([*row, percent(summary.get(f"measured_{key}"))] if measured else row)
    # If the noise is not known, a column that was not used may be the reason: notes are then repeated.
    notes = notes_besides(summary, NoteTopic.DATA) if known else summary["notes"]
    return [*lines, *table(rows), *(f"note: {note}" for note in notes)]


def train(
    run: Path,
    /,
    *,
    out: Path | None = None,
    settings: Annotated[TrainSettings, Flat] = TrainSettings(),
    output: Output = Output(),
) -> None:
    """Train the model of a run, using its selection. Run the same command again to resume it if it was stopped.

    Decisions of the review page are not used. To train on corrected labels, use an `export` as the source of `run`.

    Parameters
    ----------
    run
        Run folder created by `select` or `run`.
    out
        Folder for the model. Use another folder than RUN to compare methods on the same selection. Default: RUN.
    """
    from labelsieve.workflow.run import train_run

    done = train_run(run, out, settings, output.progress())
    stage = done.stage
    state = "already trained" if done.begun == "done" else f"trained in {stage['seconds']:.1f} s"
    model = done.path / "model.safetensors"
    used = stage["settings"]
    method = used["train_method"] + (f" ({used['set']})" if used.get("set") else "")
    output.say(f"{method}, {used['network']}: {state}", f"model: {model}")
    output.answer({"run": done.path, "resumed": done.begun, "model": model, **stage, "notes": done.notes})


def run(
    source: str,
    /,
    *,
    out: Path | None = None,
    dry_run: Flag = False,
    settings: Annotated[RunSettings, Flat] = RunSettings(),
    output: Output = Output(),
) -> None:
    """Select the samples whose labels are probably right, train a model and write a report. Run the same
    command again to resume a stopped run.

    Parameters
    ----------
    source
        Folder with one subfolder per class; a .csv, .tsv, .parquet, .jsonl or .xlsx file with a label column and path,
        text or feature columns; an .npz file with the arrays x and y; cifar10:DIR, cifar100:DIR,
        cifar10n:DIR?labels=worse, webvision:DIR, hf:NAME_OR_DIR; or digits (built-in data set).
    out
        Folder for the results of the run. Default: runs/NAME, where NAME is the name of the source.
    dry_run
        Print the models and the estimated time, memory and disk space, from a short measurement. Nothing is written.
    """
    if dry_run:
        print_dry_run(source, out, settings, output)
        return
    from labelsieve.workflow.run import run_source

    result = run_source(source, out, settings, output.progress())
    named = shlex.quote(str(result.path))
    done = set(result.stages.values()) == {"done"}
    output.say(
        *describe_summary(result.summary),
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


def plan(
    source: str,
    /,
    *,
    request: Annotated[PlanRequest, Flat] = PlanRequest(),
    settings: Annotated[RunSettings, Flat] = RunSettings(),
    output: Output = Output(),
) -> None:
    """Estimate the time, memory and disk space of a run from a short measurement.

    Parameters
    ----------
    source
        Source, as for `run`.
    """
    from labelsieve.workflow.run import plan_source

    found = plan_source(source, None, settings, request, output.progress())
    output.say(*describe_plan(found["plan"]))
    output.answer(found["plan"])


def print_dry_run(source: str, out: Path | None, settings: RunSettings, output: Output) -> None:
    """Print what `run` would do: the state of its stages, and the plan."""
    from labelsieve.workflow.run import check_resumable, plan_source

    check_resumable(source, out, settings)
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
        epochs, most = workload["training_epochs"], found["most_training_epochs"]
        noisy = f" ({most:,} if many of the selected labels are wrong)" if most > epochs else ""
        training = f"training of {found['model']}, {counted(epochs, 'epoch')}{noisy}: {_speeds(measured)}"
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


@dataclass(frozen=True)
class PredictOptions:
    """Options of `predict`.

    Parameters
    ----------
    to
        CSV file to write.
    all_classes
        Also write the probability of every class, one column per class.
    device
        Device: auto, cpu, cuda or mps.
    network
        package.module:Name of the custom network that the model was trained with. Custom code is imported only if you
        specify it.
    embed
        Pretrained model of the run, if it was moved or if it is package.module:function.
    score
        Compare the predictions with the labels of SOURCE.
    force
        Overwrite the file if it exists.
    """

    to: Path = Path("predictions.csv")
    all_classes: Flag = False
    device: str = "auto"
    network: str | None = None
    embed: str | None = None
    score: Flag = False
    force: Flag = False


@dataclass(frozen=True)
class PredictSource(SourceSettings):
    """How the source of `predict` is read.

    Parameters
    ----------
    split
        Splits to read, separated by commas, or all. Default: all splits, or test with --score; for CIFAR and
        Hugging Face datasets: train.
    """

    split: str | None = None


def predict(
    run: Path,
    source: str,
    /,
    *,
    options: Annotated[PredictOptions, Flat] = PredictOptions(),
    settings: Annotated[PredictSource, Flat] = PredictSource(),
    common: Common = Common(),
) -> None:
    """Write the id, the predicted class and its probability for every sample of SOURCE to a CSV file.

    SOURCE needs no labels.

    Columns and --root are those of the run unless you set them. If the run's id column is missing, a note says so.

    Parameters
    ----------
    run
        Run folder with a trained model.
    source
        Source, as for `run`. A folder may contain pictures without class folders.
    """
    from labelsieve.workflow.predict import read_to_predict

    problems = Problems()
    check_device(problems, options.device)
    problems.stop_if_any()
    prepared = read_to_predict(
        run, source, settings, progress=common.progress(), network=options.network, score=options.score,
        embed=options.embed,
    )  # fmt: skip
    check_target(problems, "--to", options.to, source=source, force=options.force, example="predictions.csv")
    problems.stop_if_any()
    found = prepared.predict(common.progress(), options.device)
    rows = iter(found.rows(all_classes=options.all_classes))
    write_csv(options.to, next(rows), rows)
    skipped = len(found.data.skipped)
    common.say(
        f"{options.to}: {counted(len(found.data), 'prediction')}"
        + (f", {counted(skipped, 'sample')} skipped" if skipped else "")
        + (f", accuracy {percent(found.accuracy.accuracy)}" if found.accuracy is not None else ""),
        *(describe_unknown(found.accuracy, len(found.data)) if found.accuracy is not None else ()),
    )
    counts = Counter(found.predicted)
    common.answer(
        {
            "to": options.to,
            "samples": len(found.data),
            "skipped": [sample._asdict() for sample in found.data.skipped],
            "notes": [str(note) for note in found.notes],
            "predicted": {name: counts[name] for name in found.classes},
            "accuracy": None,
            **(asdict(found.accuracy) if found.accuracy is not None else {}),
        }
    )


def describe_unknown(scored: Accuracy, samples: int) -> list[str]:
    """Return lines on labels of classes that the model does not know, which count as wrong."""
    from labelsieve.progress import join_names

    unknown, alike = scored.unknown_labels, scored.spelled_otherwise
    if not unknown:
        return []
    count = sum(unknown.values())
    known = "no label is of a known class"
    if scored.accuracy_known is not None:
        known = f"accuracy over the other {samples - count:,} is {percent(scored.accuracy_known)}"
    names = join_names(list(map(repr, unknown)))
    wrong = f"{count:,} of {counted(samples, 'label')} counted as wrong"
    lines = [f"{wrong}: the model does not know their classes ({names}); {known}"]
    if alike:
        pairs = join_names([f"{name!r} for {known_name!r}" for name, known_name in alike.items()])
        lines.append(f"only the spelling differs: {pairs}; use the spelling of the run and score again")
    return lines
