"""labelsieve select: which labels to trust."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labelsieve.commands.common import Common, Problems, check_seed, percent, table


def select(
    source: str,
    /,
    *,
    out: Path,
    method: str = "incv",
    iterations: int = 4,
    epochs: int = 50,
    model: str = "auto",
    remove_ratio: str = "auto",
    labels: Path | None = None,
    executor: str = "local",
    device: str = "auto",
    protocol: str = "auto",
    pattern: str = "auto",
    size: int | None = None,
    root: Path | None = None,
    label_column: str = "label",
    workers: int = 1,
    common: Common = Common(),
) -> None:
    """Find the labels to trust and the suspects; the same command goes on where it was stopped.

    Parameters
    ----------
    source
        A folder of class folders; a .csv or .parquet file with a label column and path, text or feature columns; an
        .npz with x and y; cifar10:DIR, cifar10n:DIR?labels=worse, webvision:DIR, hf:NAME_OR_DIR; digits (embedded).
    out
        The run folder to write.
    method
        incv (iterations of noisy cross-validation) or ncv (one round, nothing removed).
    iterations
        At most so many of INCV.
    epochs
        Of each training, where the model is a network.
    model
        auto, boosting, forest, logistic, nearest, neighbours, svm, tfidf, trees, mlp, small-cnn, resnet20 to resnet110,
        preact-resnet18, inception-resnet-v2, or package.module:Name of a scikit-learn classifier or a torch factory.
    remove_ratio
        Samples removed for each one selected: a number, or auto.
    labels
        A CSV of id, label and optionally true: replaces the source's labels. True ones only measure the result.
    executor
        local, or ray[://address].
    device
        auto, cpu, cuda or mps.
    protocol
        auto (the noise is measured) or paper (as the authors' code does).
    pattern
        Where the noise is known: symmetric or pair.
    size
        Pictures become squares of so many pixels.
    root
        Where the relative paths in a CSV begin; default: beside it.
    label_column
        Name of the column with the labels.
    workers
        Processes for scikit-learn classifiers.
    """
    from labelsieve.commands.models import make_trainer, resolve
    from labelsieve.commands.selecting import run_selection
    from labelsieve.data.labels import read_label_file, true_codes
    from labelsieve.data.source import load_source
    from labelsieve.runfolder import RunFolder
    from labelsieve.selection.settings import INCVSettings

    problems = Problems()
    check_seed(problems, common)
    problems.check(method in ("incv", "ncv"), f"--method {method!r} is not known: choose incv or ncv")
    problems.check(epochs >= 1, f"--epochs {epochs}: at least 1 is needed")
    problems.check(workers >= 1, f"--workers {workers}: at least 1 is needed")
    problems.check(executor == "local", f"--executor {executor!r} is not known: choose local")
    problems.check(device.split(":")[0] in ("auto", "cpu", "cuda", "mps"), f"--device {device!r} is not known")
    removed = problems.attempt(_number_or_auto, remove_ratio)
    settings = problems.attempt(
        INCVSettings, n_iterations=iterations, remove_ratio=removed or 0.0 if removed != "auto" else "auto",
        pattern=pattern, protocol=protocol,
    )  # fmt: skip
    run = problems.attempt(RunFolder, out)
    file = problems.attempt(read_label_file, labels) if labels is not None else None
    problems.stop_if_any()
    assert run is not None and settings is not None
    progress = common.progress()
    with run.lock():
        data = load_source(
            source,
            labels=file,
            label_column=label_column,
            root=root,
            size=size,
            staging=run / "staged",
            progress=progress,
        )
        chosen = resolve(model, data, device)
        asked: dict[str, Any] = {
            "method": method, "iterations": iterations, "epochs": epochs, "model": chosen, "remove_ratio": remove_ratio,
            "protocol": protocol, "pattern": pattern, "seed": common.seed, "size": size, "label_column": label_column,
            "labels": str(labels) if labels is not None else None, "root": str(root) if root is not None else None,
        }  # fmt: skip
        begun = run.start("select", settings=asked, data=data, source=source)
        if begun == "done":
            progress.note(f"{out}: the selection is done already")
        else:
            if begun == "resumed":
                progress.note(f"{out}: going on with the selection")
            progress.note(f"{data.name}: {len(data):,} samples of {len(data.classes)} classes, model {chosen}")
            trainer = make_trainer(
                data, chosen, epochs=epochs, device=device, workers=workers if workers > 1 else None,
                checkpoint=run.checkpoints / "networks", progress=progress,
            )  # fmt: skip
            true = true_codes(data, file) if file is not None else None
            run_selection(
                run, data, trainer, method=method, settings=settings, seed=common.seed, progress=progress, true=true
            )
        summary = run.read_summary()
    common.say(*describe(summary), f"files: {out}/labels.csv, {out}/summary.json")
    common.answer({"run": out, "resumed": begun, "model": chosen, **summary})


def describe(summary: dict[str, Any]) -> list[str]:
    """A summary as lines for a person."""
    counts = summary["counts"]
    n = summary["samples"]
    lines = [
        f"{n:,} samples: {counts['selected']:,} selected, {counts['candidate']:,} candidates, "
        f"{counts['removed']:,} removed"
        + (f", {summary['skipped']:,} could not be read (skipped.csv)" if summary["skipped"] else "")
    ]
    header = ["", "expected", "measured"] if "measured_noise_ratio" in summary else ["", "expected"]
    rows = [header]
    for name, key in (
        ("  wrong labels in the data", "noise_ratio"),
        ("  label precision of the selected", "label_precision"),
        ("  label recall of the selected", "label_recall"),
    ):
        row = [name, _percent(summary[key])]
        rows.append([*row, _percent(summary[f"measured_{key}"])] if len(header) == 3 else row)
    return [*lines, *table(rows), *(f"note: {note}" for note in summary["notes"])]


def _percent(value: float | None) -> str:
    return "-" if value is None else percent(value)


def _number_or_auto(text: str) -> Any:
    from labelsieve.errors import InputError

    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--remove-ratio {text!r}: give a number or auto") from None
