"""The selection stage of a run: choose the model, run the selection, write labels.csv and summary.json."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from labelsieve import metrics, stopping
from labelsieve.data.labels import NO_TRUE, LabelFile, true_codes
from labelsieve.data.predictions import read_predictions
from labelsieve.errors import FailedError, InputError
from labelsieve.execute.build_trainer import TrainerOptions, build_cluster_trainer, build_trainer, device_type
from labelsieve.files import atomic_file, free_disk, open_file
from labelsieve.models.choose import STORED, ModelChoice, ModelKind, SampleInfo, SelectorRequest, choose_selector
from labelsieve.progress import SILENT, Note, NoteKind, Progress, format_bytes, format_duration
from labelsieve.runfolder import RunFolder
from labelsieve.scoring import score_probabilities
from labelsieve.selection.finalize import SUGGESTIONS, write_suggestions
from labelsieve.selection.incv import drive_together, incv_steps
from labelsieve.selection.settings import INCVSettings, selection_passes
from labelsieve.selection.stored import StoredPredictions, stored_settings
from labelsieve.types import SELECTED, BoolArray, FloatArray, IntArray, Job, LabelledData, Scores, Selection, Trainer
from labelsieve.workflow.read import absolute_source
from labelsieve.workflow.settings import SelectSettings

# Two checkpoints of weights and two moments, a third one while it is written, and the model.
COPIES_OF_WEIGHTS, BYTES_PER_WEIGHT = 13, 4
PATIENCE_SECONDS = 5 * 60.0  # longer trainings on a CPU get a hint how to be faster


def choose_model(
    settings: SelectSettings, data: LabelledData, progress: Progress, *, samples: int | None = None
) -> ModelChoice:
    """Choose the model that selects; `samples` replaces the number of samples for a plan."""
    if settings.predictions is not None:
        return ModelChoice(STORED, ModelKind.STORED)
    info = SampleInfo.of(data)
    if samples is not None:
        info = replace(info, count=samples)
    request = SelectorRequest(
        settings.model, device_type(settings.device, info), settings.loss, settings.epochs, settings.protocol
    )
    choice = choose_selector(info, len(data.classes), request)
    if settings.epochs is not None and not choice.is_network:
        progress.note(Note.of(NoteKind.EPOCHS_NOT_USED, epochs=settings.epochs, model=choice.name))
    return choice


def select_labels(
    run: RunFolder, source: str, data: LabelledData, settings: SelectSettings, labels: LabelFile | None,
    progress: Progress,
) -> tuple[str, ModelChoice]:  # fmt: skip
    """Run or resume the selection of a locked run folder; return "new", "resumed" or "done", and the model.

    True labels in `labels` are only used to measure the result.
    """
    features = data.features()
    choice = choose_model(settings, features, progress)
    path = settings.predictions
    stored = None if path is None else read_stored_predictions(path, data, progress)
    recorded = settings.recorded_with(choice, data)
    if stored is not None:
        recorded["predictions_sha256"] = stored.scores.sha256()
    begun = run.start("select", settings=recorded, data=data, source=absolute_source(source))
    true = true_codes(data, labels) if labels is not None else None
    if begun == "done":
        again = measure_again(run, data, true)
        progress.note(Note.of(NoteKind.MEASURED_AGAIN if again else NoteKind.SELECTION_DONE, run=run.path))
        return begun, choice
    _record_device(run, choice, settings)
    model = f"model {choice.name}" if stored is None else f"predictions from {settings.predictions}"
    kind = NoteKind.SELECTION_RESUMED if begun == "resumed" else NoteKind.SELECTION_STARTED
    progress.note(Note.of(kind, name=data.name, samples=len(data), classes=len(data.classes), model=model))
    began = time.monotonic()
    trainer: Trainer
    if stored is not None:
        if (stored.scores.predicted == data.y).all():
            progress.note(Note.of(NoteKind.ALL_PREDICTED))
        incv, trainer = stored_settings(settings.incv_settings()), stored
    else:
        incv = settings.incv_settings().for_model(choice, data.why_unknown)
        trainer = RunTrainer(run, _build(run, choice, features, settings, incv, progress), incv, progress)
    steps = incv_steps(
        data.y, data.classes, settings=incv, seed=settings.seed, name=recorded["method"], groups=data.groups
    )
    with run.work("select", began):
        with progress.trainings(trainer, len(data) * selection_passes(incv)) if stored is None else nullcontext():
            selection = drive_together([steps], trainer)[0]
        measured = None if true is None else measure(selection.selected, selection.suspicion, data.y, true)
        write_selection(run, data, selection, measured)
    return begun, choice


def _build(
    run: RunFolder, choice: ModelChoice, data: LabelledData, settings: SelectSettings, incv: INCVSettings,
    progress: Progress,
) -> Trainer:  # fmt: skip
    """Return the trainer of the selection, on this machine or on a cluster."""
    options = TrainerOptions(
        settings.epochs, settings.loss, settings.device, settings.workers or "threads",
        settings.protocol, checkpoint=run.checkpoints / "networks", note=progress.note,
    )  # fmt: skip
    if settings.executor != "local":
        from labelsieve.execute.ray_cluster import RayPool

        pool = RayPool(settings.executor, device=settings.device, stop=stopping.requested, note=progress.note)
        return build_cluster_trainer(choice, data, options, pool)
    trainer = build_trainer(choice, data, options)
    if choice.is_network:
        from labelsieve.execute.network_trainer import EngineTrainer

        assert isinstance(trainer, EngineTrainer)
        check_disk(run.path, trainer.factory, networks=2 * incv.repeats)  # both halves of every split at once
    return trainer


def _record_device(run: RunFolder, choice: ModelChoice, settings: SelectSettings) -> None:
    """Record where the selection runs; a resumed one may run elsewhere."""
    device = settings.device if settings.executor != "local" else "cpu"
    if settings.executor == "local" and choice.is_network:
        from labelsieve.engine.device import choose_device

        device = str(choose_device(settings.device))
    where = {"device": device, "executor": settings.executor, "workers": settings.workers}
    stages = run.record()["stages"]
    run.update(stages=stages | {"select": stages["select"] | {"where": where}})


class StoredAnswers(Trainer):
    """Stores the answers of another trainer in files, so that a resumed selection trains only what is missing.

    When the answers of a request are stored, the checkpoints of its networks are removed.
    """

    def __init__(self, trainer: Trainer, folder: Path, checkpoints: Path, progress: Progress = SILENT) -> None:
        self.trainer, self.folder, self.checkpoints, self.progress = trainer, folder, checkpoints, progress
        self.epochs = trainer.epochs

    def train_and_score(self, jobs: Sequence[Job]) -> list[Scores]:
        answers = [self._load(job) for job in jobs]
        for job, answer in zip(jobs, answers, strict=True):
            if answer is not None and self.on_trained is not None:
                self.on_trained(job, loaded=True)
        missing = [i for i, answer in enumerate(answers) if answer is None]
        if missing:
            with self.show_progress([jobs[i] for i in missing]):
                found = self.trainer.train_and_score([jobs[i] for i in missing])
            for i, scores in zip(missing, found, strict=True):
                with atomic_file(self._path(jobs[i])) as file:
                    np.savez(file, **scores.arrays())
                answers[i] = scores
            shutil.rmtree(self.checkpoints, ignore_errors=True)  # not if all are stored: a later request may need them
        return [answer for answer in answers if answer is not None]

    @contextmanager
    def show_progress(self, jobs: Sequence[Job]) -> Iterator[None]:
        """Show how far a request to the other trainer is."""
        self.trainer.on_trained = self.on_trained
        stage, epochs = self.stage_name(jobs), self.trainer.epochs
        with self.progress.epochs(stage, epochs, hint=self.hint) if epochs else nullcontext() as self.trainer.on_epoch:
            yield

    def stage_name(self, jobs: Sequence[Job]) -> str:
        """Return the name of the stage that trains the jobs."""
        return f"{len(jobs)} trainings, first {jobs[0].name}"

    def hint(self, seconds_per_epoch: float) -> Note | None:
        """Return a note for the user after the first epoch."""
        return None

    def _path(self, job: Job) -> Path:
        return self.folder / f"{job.name.replace('/', '-')}-{job.digest()}.npz"

    def _load(self, job: Job) -> Scores | None:
        path = self._path(job)
        if not path.is_file():
            return None
        try:
            with open_file(path) as file, np.load(file, allow_pickle=False) as kept:
                return Scores(**{name: kept[name] for name in kept.files})
        except Exception:  # a damaged archive can raise nearly any exception
            self.progress.note(Note.of(NoteKind.DAMAGED_ANSWER, file=path.name))
            return None


class RunTrainer(StoredAnswers):
    """`StoredAnswers` of a run, with its history, and with notes on the trainings."""

    def __init__(self, run: RunFolder, trainer: Trainer, settings: INCVSettings, progress: Progress) -> None:
        super().__init__(trainer, run.checkpoints / "select", run.checkpoints / "networks", progress)
        self.settings = settings
        trainer.on_history = partial(append_epochs, run)
        self.hint_given = False

    @contextmanager
    def show_progress(self, jobs: Sequence[Job]) -> Iterator[None]:
        if stopping.requested():  # between two requests the selection can stop
            raise stopping.reason()
        self.progress.note(Note.of(NoteKind.TRAININGS, stage=self.stage_name(jobs), count=len(jobs)))
        with super().show_progress(jobs):
            yield

    def stage_name(self, jobs: Sequence[Job]) -> str:
        """Return the name of a stage of the selection for the user: `incv-2-1` is iteration 2."""
        job = jobs[0].name
        part = job.split("-")[1] if "-" in job else ""
        return f"iteration {part}" if part.isdigit() else "noise estimate" if part == "estimate" else job

    def hint(self, seconds_per_epoch: float) -> Note | None:
        if self.hint_given:
            return None
        self.hint_given = True
        return selection_hint(seconds_per_epoch, self.trainer, self.settings)


def append_epochs(run: RunFolder, lines: Sequence[dict[str, Any]]) -> None:
    """Append the epochs of a request to history.jsonl, instead of those that a killed process left for it."""
    if not lines:  # a classifier has no epochs
        return
    trainings = {line["training"] for line in lines}
    run.rewind_history(lambda entry: entry.get("stage") != "select" or entry.get("training") not in trainings)
    for line in lines:
        run.append_history({"stage": "select", **line})


def write_selection(
    run: RunFolder, data: LabelledData, selection: Selection, measured: dict[str, float] | None
) -> None:
    """Write the files of a finished selection."""
    shutil.rmtree(run.checkpoints / "networks", ignore_errors=True)  # left by a kill after the last answer
    run.rewind_history(lambda entry: entry.get("stage") != "select" or "epoch" in entry)
    for entry in selection.history:
        run.append_history({"stage": "select", **entry})
    write_suggestions(run / SUGGESTIONS, data, selection)
    run.write_selection(data, selection, measured=measured)


def measure(selected: BoolArray, suspicion: FloatArray, given: IntArray, true: IntArray) -> dict[str, float]:
    """Measure a selection with the true labels of those samples that have one."""
    known = true != NO_TRUE
    selected, given, true = selected[known], given[known], true[known]
    # Rounded as in labels.csv, so that measuring again from that file gives the same numbers.
    suspicion = np.array([float(f"{value:.6g}") for value in suspicion[known]])
    found = {
        "noise_ratio": metrics.noise_ratio(given, true),
        "label_precision": metrics.label_precision(selected, given, true),
        "label_recall": metrics.label_recall(selected, given, true),
        "auroc": metrics.auroc(given != true, np.nan_to_num(suspicion, nan=0.5)),
    }
    return found if known.all() else found | {"samples": len(true)}


def measure_again(run: RunFolder, data: LabelledData, true: IntArray | None) -> bool:
    """Measure a finished selection with the current true labels; return whether the numbers changed."""
    summary = run.read_summary()
    kept = {name: value for name, value in summary.items() if not name.startswith("measured_")}
    found: dict[str, float | None] = {}
    if true is not None:
        columns = run.columns_of(data)
        values = measure(columns.verdict == SELECTED, columns.suspicion, data.y, true)
        found = {f"measured_{name}": float(value) if np.isfinite(value) else None for name, value in values.items()}
    if kept | found == summary:
        return False
    run.write_summary(kept | found)
    return True


def read_stored_predictions(path: Path, data: LabelledData, progress: Progress) -> StoredPredictions:
    """Return the trainer that answers with the probabilities of a file."""
    try:
        return StoredPredictions(score_probabilities(data.y, read_predictions(path, data, progress)))
    except InputError as problem:
        raise InputError(f"--predictions {path}: {problem}") from None


def check_disk(folder: Path, factory: Any, *, networks: int) -> None:
    """Raise FailedError if the checkpoints and the model do not fit on the volume of the run."""
    parameters = sum(parameter.numel() for parameter in factory().parameters())
    needed = networks * parameters * BYTES_PER_WEIGHT * COPIES_OF_WEIGHTS
    free = free_disk(folder)
    if needed > free:
        raise FailedError(
            f"{folder} needs {format_bytes(needed)} for checkpoints, {format_bytes(free)} are free; make room there or "
            "give another --out"
        )


def selection_hint(seconds_per_epoch: float, trainer: Trainer, settings: INCVSettings) -> Note | None:
    """Return a note on how to be faster if the selection would take long on a CPU."""
    each = seconds_per_epoch * trainer.epochs
    rounds = settings.n_iterations + (settings.protocol == "auto")  # one more to estimate the noise
    if each * rounds < PATIENCE_SECONDS or trainer.on_gpu:
        return None
    return Note.of(NoteKind.SLOW_SELECTION, each=format_duration(each), count=rounds)


def training_hint(seconds_per_epoch: float, epochs: int) -> Note | None:
    """Return a note on how to be faster if the robust training would take long."""
    if seconds_per_epoch * epochs < PATIENCE_SECONDS:
        return None
    return Note.of(NoteKind.SLOW_TRAINING, total=format_duration(seconds_per_epoch * epochs))
