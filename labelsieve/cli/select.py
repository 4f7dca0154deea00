"""labelsieve select: which labels to trust."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from labelsieve.cli.common import (
    Common,
    beside_others,
    check_seed,
    counted,
    folder_for,
    one_first,
    percent,
    table,
)
from labelsieve.errors import Problems
from labelsieve.workflow.read import SourceOptions, absolute, absolute_source, check_size

if TYPE_CHECKING:
    from labelsieve.data.labels import LabelFile
    from labelsieve.progress import Progress
    from labelsieve.runfolder import RunFolder
    from labelsieve.selection.settings import INCVSettings
    from labelsieve.selection.stored import StoredPredictions
    from labelsieve.types import LabelledData, Trainer


@Parameter(name="*")
@dataclass(frozen=True)
class SelectOptions(SourceOptions):
    """Options of the selection, in `select` and in `run`."""

    iterations: int = 4
    """At most so many of INCV."""

    epochs: int | None = None
    """Of each training of the selection, where the model is a network: 50, or 10 of the fast one."""

    model: str = "auto"
    """auto; boosting, forest, logistic, nearest, neighbours, svm, tfidf, trees; edges (pictures, quick without a GPU),
fast (small pictures, on a GPU), mlp, small-cnn, resnet20 to resnet110, preact-resnet18, inception-resnet-v2;
package.module:Name of a scikit-learn classifier or a torch factory."""

    loss: str = "ce"
    """What the selection's networks minimise: ce, or gce (generalised cross-entropy: learns doubtful labels late)."""

    repeats: int = 1
    """Random splits in each iteration, whose predictions are averaged: better, for so many times the cost."""

    predictions: Path | None = None
    """Out-of-sample probabilities that you have, instead of training anything: an .npy or .npz (pred_probs), or a .csv
or .parquet with a column for each class and an id."""

    remove_ratio: str = "auto"
    """Samples removed for each one selected: a number, or auto."""

    labels: Path | None = None
    """A CSV of id, label and optionally true: replaces the source's labels. True ones only measure the result."""

    executor: str = "local"
    """Where the selection's trainings run: local; ray (this machine or $RAY_ADDRESS); ray://HEAD:PORT, a cluster."""

    device: str = "auto"
    """auto, cpu, cuda or mps."""

    protocol: str = "auto"
    """auto (the noise is measured) or paper (as the authors' code does)."""

    pattern: str = "auto"
    """Where the noise is known: symmetric or pair."""

    size: int | None = None
    """Pictures become squares of so many pixels."""

    workers: int = 1
    """Processes for scikit-learn classifiers."""

    def check(self, problems: Problems) -> tuple[INCVSettings | None, LabelFile | None]:
        from labelsieve.data.labels import read_label_file
        from labelsieve.execute.losses import LOSSES
        from labelsieve.selection.settings import INCVSettings

        problems.check(self.epochs is None or self.epochs >= 1, f"--epochs {self.epochs}: at least 1 is needed")
        problems.check(self.workers >= 1, f"--workers {self.workers}: at least 1 is needed")
        known = self.executor in ("local", "ray") or self.executor.startswith("ray://")
        problems.check(known, f"--executor {self.executor!r} is not known: choose local, ray or ray://HEAD:PORT")
        known = self.device.split(":")[0] in ("auto", "cpu", "cuda", "mps")
        problems.check(known, f"--device {self.device!r} is not known: choose auto, cpu, cuda or mps")
        problems.check(self.loss in LOSSES, f"--loss {self.loss!r} is not known: choose ce or gce")
        if self.predictions is not None and (needless := self._needless()):
            problems.check(False, f"--predictions: nothing is trained or removed, leave out {', '.join(needless)}")
        grouped = self.group_column is not None and self.protocol == "paper"
        problems.check(not grouped, "--group-column: the paper's protocol has no groups, leave it out")
        ratio = problems.attempt(_number_or_auto, self.remove_ratio)
        problems.check(self.root is None or self.root.is_dir(), f"--root {self.root} is not a folder")
        asked: dict[str, Any] = {
            "n_iterations": self.iterations, "remove_ratio": "auto" if ratio is None else ratio,
            "pattern": self.pattern, "repeats": self.repeats, "protocol": self.protocol,
        }  # fmt: skip
        settings = problems.attempt(INCVSettings, **asked) if _each_is_fine(problems, asked) else None
        return settings, problems.attempt(read_label_file, self.labels) if self.labels is not None else None

    def _needless(self) -> list[str]:
        """Options that say something of trainings, where predictions take their place."""
        usual = {
            "model": "auto", "epochs": None, "loss": "ce", "repeats": 1, "remove_ratio": "auto", "executor": "local",
            "protocol": "auto", "iterations": 4,
        }  # fmt: skip
        return [f"--{name.replace('_', '-')}" for name, value in usual.items() if getattr(self, name) != value]

    def load(
        self, source: str, file: LabelFile | None, cache_dir: Path, progress: Progress, *, refuse_mixed: bool = True
    ) -> LabelledData:
        """`refuse_mixed` as in `ReadOptions`: a run that was started has made this choice."""
        data = self.read(
            source, labels=file, size=self.size, cache_dir=cache_dir, refuse_mixed=refuse_mixed, progress=progress
        )
        check_size(data, self.size)
        return data

    def record(self, data: LabelledData, *, method: str, model: str, seed: int) -> dict[str, Any]:
        """What a resumed selection must have in common with the one that was begun. Where it runs is no part of it."""
        from labelsieve.workflow.build_trainer import epochs_of

        network = is_network(model, len(data.classes))  # nothing else has epochs, or a loss that can be chosen
        return self.known(method=method, seed=seed) | {
            "model": model,
            "epochs": epochs_of(model, self.epochs) if network else None, "loss": self.loss if network else None,
            "text_column": self.text_column or getattr(getattr(data.x, "encoding", None), "text", None),
        }  # fmt: skip

    def known(self, *, method: str, seed: int) -> dict[str, Any]:
        """What of it is known before the samples are read."""
        named = {} if self.model == "auto" or self.predictions is not None else {"model": self.model}
        return named | {
            "method": method if self.predictions is None else "ncv", "iterations": self.iterations, "seed": seed,
            "repeats": self.repeats, "remove_ratio": self.remove_ratio, "protocol": self.protocol,
            "pattern": self.pattern, "size": self.size, "label_column": self.label_column or "label",
            "id_column": self.id_column or "id",
            "ignore_columns": self.ignored or None,  # runs of earlier versions have none
            "group_column": self.group_column,
            "labels": None if self.labels is None else absolute(self.labels),
            "root": None if self.root is None else absolute(self.root),
            "predictions": None if self.predictions is None else absolute(self.predictions),
        }  # fmt: skip

    def where(self, data: LabelledData, model: str) -> dict[str, Any]:
        """Where it runs, which a resumed selection may do elsewhere."""
        device = self.device if self.executor != "local" else "cpu"
        if self.executor == "local" and is_network(model, len(data.classes)):
            from labelsieve.engine.device import choose_device

            device = str(choose_device(self.device))
        return {"device": device, "executor": self.executor, "workers": self.workers}


def is_network(model: str, classes: int) -> bool:
    """Whether a resolved model is one, and not a classifier or somebody's predictions."""
    from labelsieve.selection.defaults import CLASSIFIERS
    from labelsieve.workflow.build_trainer import STORED
    from labelsieve.workflow.choose_model import from_name

    if ":" in model:
        return from_name(model, classes)[1] is not None
    return model not in CLASSIFIERS and model != STORED


def select(
    source: str,
    /,
    *,
    out: Path | None = None,
    method: str = "incv",
    options: SelectOptions = SelectOptions(),
    common: Common = Common(),
) -> None:
    """Find the labels to trust and the suspects; the same command goes on where it was stopped.

    Parameters
    ----------
    source
        A folder of class folders; a .csv or .parquet file with a label column and path, text or feature columns; an
        .npz with x and y; cifar10:DIR, cifar10n:DIR?labels=worse, webvision:DIR, hf:NAME_OR_DIR; digits (embedded).
    out
        The run folder to write; runs/ and the source's name where none is given.
    method
        incv (iterations of noisy cross-validation) or ncv (one round, nothing removed).
    """
    from labelsieve.data.decode_cache import trial
    from labelsieve.runfolder import STAGED, RunFolder
    from labelsieve.workflow.build_trainer import check_selector

    problems = Problems()
    check_seed(problems, common)
    check_method(problems, "--method", method)
    check_selector(problems, options.model, options.size)
    settings, file = options.check(problems)
    out = folder_for(source, out)
    run = problems.attempt(RunFolder.to_write, beside_others(out, options.device))
    problems.stop_if_any()
    assert run is not None and settings is not None
    with run.lock(), trial(run / STAGED, begun=run.exists()) as take:
        run.check_settings("select", options.known(method=method, seed=common.seed))
        with one_first():
            refuse_mixed = run.state("select") is None
            data = options.load(source, file, run / STAGED, common.progress(), refuse_mixed=refuse_mixed)
        begun, model = select_stage(run, source, data, method, options, settings, file, common, take)
        summary = run.read_summary()
    named = shlex.quote(str(out))
    common.say(
        *describe(summary, told=data.notes),
        f"files: {out}/labels.csv, {out}/summary.json",
        f"next: labelsieve report {named}, labelsieve review {named} or labelsieve export {named} --what suspects",
    )
    common.answer({"run": out, "resumed": begun, "model": model, **summary})


def check_method(problems: Problems, option: str, method: str) -> None:
    problems.check(method in ("incv", "ncv"), f"{option} {method!r} is not known: choose incv or ncv")


def select_stage(
    run: RunFolder,
    source: str,
    data: LabelledData,
    method: str,
    options: SelectOptions,
    settings: INCVSettings,
    file: LabelFile | None,
    common: Common,
    take: Callable[[], None],
) -> tuple[str, str]:
    """Select into a locked run folder; how it began (new, resumed, done) and the model.

    `take` is called when the run has found the samples to be its own.
    """
    from labelsieve.data.labels import true_codes
    from labelsieve.selection.inputs import columns_of
    from labelsieve.selection.stored import ALL_PREDICTED, stored_settings
    from labelsieve.workflow.build_trainer import FAST, STORED, resolve_selector
    from labelsieve.workflow.select import measure_again, run_selection

    progress = common.progress()
    stored = None if options.predictions is None else predictions_of(options.predictions, data)
    if stored is not None:
        model, method, settings = STORED, "ncv", stored_settings(settings)
    else:
        model = resolve_selector(
            options.model, data, options.device, loss=options.loss, protocol=options.protocol, epochs=options.epochs
        )
        settings = settings.for_fast_network() if model == FAST else settings
    asked = options.record(data, method=method, model=model, seed=common.seed)
    if stored is not None:
        asked["predictions_sha256"] = stored.scores.sha256()
    begun = run.start("select", settings=asked, data=data, source=absolute_source(source))
    take()
    true = true_codes(data, file) if file is not None else None
    if begun == "done":
        again = measure_again(run, data, true)
        told = ", and measured again with the true labels as they are now" if again else ""
        progress.note(f"{run.path}: the selection is done already{told}")
        return begun, model
    stages = run.record()["stages"]
    run.update(stages=stages | {"select": stages["select"] | {"where": options.where(data, model)}})
    who = f"model {model}" if stored is None else f"predictions from {options.predictions}"
    progress.note(
        f"{data.name}: {len(data):,} samples of {len(data.classes)} classes, {who}"
        + (", going on where it was stopped" if begun == "resumed" else "")
    )
    if stored is not None and (stored.scores.predicted == data.y).all():
        progress.note(ALL_PREDICTED)
    trainer = stored or trainer_of(run, data, model, options, settings, progress)
    networks = is_network(model, len(data.classes))
    settings = replace(
        settings,
        networks=networks,
        own_half=data.kind == "text" and not networks and stored is None,
        columns=columns_of(data.x) if data.kind == "table" and stored is None else None,
    )
    run_selection(run, data, trainer, method=method, settings=settings, seed=common.seed, progress=progress, true=true)
    return begun, model


def trainer_of(
    run: RunFolder, data: LabelledData, model: str, options: SelectOptions, settings: INCVSettings, progress: Progress
) -> Trainer:
    """Who answers the trainings, here or on a cluster."""
    from labelsieve.execute.lockstep import EngineTrainer
    from labelsieve.workflow.build_trainer import cluster_selector, epochs_of, make_selector
    from labelsieve.workflow.train import check_disk

    asked: dict[str, Any] = {
        "epochs": epochs_of(model, options.epochs), "loss": options.loss, "device": options.device,
        "checkpoint": run.checkpoints / "networks", "progress": progress, "protocol": options.protocol,
    }  # fmt: skip
    if options.executor != "local":
        return cluster_selector(data, model, options.executor, **asked)
    trainer = make_selector(data, model, workers=options.workers if options.workers > 1 else None, **asked)
    if isinstance(trainer, EngineTrainer):  # networks: both halves of every split at once
        check_disk(run.path, trainer.factory, networks=2 * settings.repeats)
    return trainer


def predictions_of(path: Path, data: LabelledData) -> StoredPredictions:
    """The trainer that answers with what a file says."""
    from labelsieve.data.predictions import read_predictions
    from labelsieve.errors import InputError
    from labelsieve.scoring import score_probabilities
    from labelsieve.selection.stored import StoredPredictions

    try:
        return StoredPredictions(score_probabilities(data.y, read_predictions(path, data)))
    except InputError as problem:
        raise InputError(str(problem).replace("pred_probs:", f"{path}:", 1)) from None


def describe(summary: dict[str, Any], *, told: Sequence[str] = ()) -> list[str]:
    """A summary as lines for a person, who was told these notes when the source was read."""
    from labelsieve.report.facts import ignorance

    counts = summary["counts"]
    n = summary["samples"]
    lines = [
        f"{n:,} samples: {counts['selected']:,} selected, {counted(counts['candidate'], 'candidate')}, "
        f"{counts['removed']:,} removed"
        + (f", {summary['skipped']:,} left out (skipped.csv)" if summary["skipped"] else "")
    ]
    unknown = bool(ignorance(summary))  # the notes say why
    header = ["", "expected", "measured"] if "measured_noise_ratio" in summary else ["", "expected"]
    rows = [header]
    for name, key in (
        ("  wrong labels in the data", "noise_ratio"),
        ("  label precision of the selected", "label_precision"),
        ("  label recall of the selected", "label_recall"),
    ):
        row = [name, "not known" if unknown else _percent(summary[key])]
        rows.append([*row, _percent(summary[f"measured_{key}"])] if len(header) == 3 else row)
    if "measured_samples" in summary:
        header[2] = f"measured on {summary['measured_samples']:,.0f}"  # not all have a true label
    # Where nothing could be learnt, the column that was left out may be the one that says it all.
    said = {note for note in told if not (unknown and "--text-column" in note)}
    return [*lines, *table(rows), *(f"note: {note}" for note in summary["notes"] if note not in said)]


def _percent(value: float | None) -> str:
    return "-" if value is None else percent(value)


def _each_is_fine(problems: Problems, asked: dict[str, Any]) -> bool:
    """Every setting by itself, so that all that are wrong are told, by the names they have on the command line."""
    from labelsieve.errors import InputError
    from labelsieve.selection.settings import INCVSettings

    fine = True
    for name, value in asked.items():
        try:
            INCVSettings(**{name: value})
        except InputError as problem:
            option = "--iterations" if name == "n_iterations" else f"--{name.replace('_', '-')}"
            problems.check(False, option + str(problem).removeprefix(name))
            fine = False
    return fine


def _number_or_auto(text: str) -> Any:
    from labelsieve.errors import InputError

    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--remove-ratio {text!r}: give a number or auto") from None
