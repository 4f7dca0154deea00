"""The selection stage of a run: asks a trainer, remembers every answer, writes labels.csv and summary.json."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labelsieve import metrics, stopping
from labelsieve.data.labels import NO_TRUE
from labelsieve.errors import InputError
from labelsieve.files import atomic_path
from labelsieve.types import BoolArray, FloatArray, IntArray, Job, LabelledData, Scores, Trainer

if TYPE_CHECKING:
    from labelsieve.progress import Progress
    from labelsieve.runfolder import RunFolder
    from labelsieve.selection.finalize import JudgedSelection
    from labelsieve.selection.settings import INCVSettings


@dataclass(frozen=True)
class Remembering(Trainer):
    """A trainer whose answers are kept: a selection taken up again trains only what it has not yet been answered.

    An answer is known by everything it depends on, so that a file of another question is never taken for it. Once it
    is kept, the networks it came from are not needed any more: `networks`, where their checkpoints lie, is emptied.
    """

    trainer: Trainer
    folder: Path
    progress: Progress
    networks: Path | None = None

    def train_and_score(self, jobs: Sequence[Job]) -> list[Scores]:
        answers = [self._recall(job) for job in jobs]
        missing = [i for i, answer in enumerate(answers) if answer is None]
        if missing:
            self.progress.note(_told(jobs[missing[0]].name, len(missing)))
            for i, scores in zip(missing, self.trainer.train_and_score([jobs[i] for i in missing]), strict=True):
                self._keep(jobs[i], scores)
                answers[i] = scores
            self.forget_networks()
        return [answer for answer in answers if answer is not None]

    def forget_networks(self) -> None:
        if self.networks is not None:
            shutil.rmtree(self.networks, ignore_errors=True)

    def _path(self, job: Job) -> Path:
        digest = hashlib.sha256(json.dumps([job.name, job.seed, job.keep_best]).encode())
        for indices in (job.labels, job.train, job.score):
            digest.update(np.ascontiguousarray(indices, dtype="<i8").tobytes())
        return self.folder / f"{job.name.replace('/', '-')}-{digest.hexdigest()[:16]}.npz"

    def _keep(self, job: Job, scores: Scores) -> None:
        with atomic_path(self._path(job)) as partial, partial.open("wb") as file:
            np.savez(file, **scores.arrays())

    def _recall(self, job: Job) -> Scores | None:
        path = self._path(job)
        if not path.is_file():
            return None
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
                return Scores(**{name: kept[name] for name in kept.files})
        except (OSError, ValueError, TypeError, KeyError, zipfile.BadZipFile):
            self.progress.note(f"{path.name} is damaged: training again")
            return None


def _told(name: str, trainings: int) -> str:
    """`incv-2-1` and its like in words."""
    part = name.split("-")[1] if "-" in name else ""
    what = f"iteration {part}" if part.isdigit() else "the noise estimate" if part == "estimate" else name
    return f"{what}: {trainings} trainings, each on one part of the samples and asked about the others"


def measure(selected: BoolArray, suspicion: FloatArray, given: IntArray, true: IntArray) -> dict[str, float]:
    """What the true labels say of a selection, and of how many samples where some have none."""
    known = true != NO_TRUE
    selected, given, true = selected[known], given[known], true[known]
    # As labels.csv has it, which is all that is left of a selection: measured again, it is the same.
    suspicion = np.array([float(f"{value:.6g}") for value in suspicion[known]])
    found = {
        "noise_ratio": metrics.noise_ratio(given, true),
        "label_precision": metrics.label_precision(selected, given, true),
        "label_recall": metrics.label_recall(selected, given, true),
        "auroc": metrics.auroc(given != true, np.nan_to_num(suspicion, nan=0.5)),
    }
    return found if known.all() else found | {"samples": len(true)}


def measure_again(run: RunFolder, data: LabelledData, true: IntArray | None) -> bool:
    """The measured values of a selection that is done, by the true labels as they are now; whether they changed."""
    summary = run.read_summary()
    kept = {name: value for name, value in summary.items() if not name.startswith("measured_")}
    found: dict[str, float | None] = {}
    if true is not None:
        rows = list(run.read_labels())
        if [row.id for row in rows] != data.ids.tolist():
            raise InputError(f"{run.path}/labels.csv is of other samples than its source holds now: select again")
        selected = np.array([row.verdict == "selected" for row in rows])
        values = measure(selected, np.array([row.suspicion for row in rows]), data.y, true)
        found = {f"measured_{name}": float(value) if np.isfinite(value) else None for name, value in values.items()}
    if kept | found == summary:
        return False
    run.write_summary(kept | found)
    return True


def run_selection(
    run: RunFolder,
    data: LabelledData,
    trainer: Trainer,
    *,
    method: str,
    settings: INCVSettings,
    seed: int,
    progress: Progress,
    true: IntArray | None = None,
) -> JudgedSelection:
    """Select, from where it was stopped, and write what was found. `true` is shown to `metrics` alone."""
    from labelsieve.selection.incv import incv_steps
    from labelsieve.selection.ncv import ncv_settings, ncv_steps
    from labelsieve.selection.run_selection import drive
    from labelsieve.selection.suggestions import NAME, write_suggestions

    began = time.monotonic()
    steps: Any = incv_steps if method == "incv" else ncv_steps
    trainer.describe_selection(settings if method == "incv" else ncv_settings(settings))
    trainer.on_history = partial(tell_epochs, run)
    remembering = Remembering(trainer, run.checkpoints / "select", progress, run.checkpoints / "networks")
    with stopping.safe_points():
        try:
            selection: JudgedSelection = drive(
                steps(data.y, len(data.classes), settings=settings, seed=seed, names=data.classes, groups=data.groups),
                _Stoppable(trainer if settings.stored else remembering),
            )
        except Exception as problem:
            # The engine stops by itself where it can go on; its own exception says so.
            if stopping.requested():
                raise stopping.reason() from None
            run.fail("select", str(problem))
            raise
        remembering.forget_networks()  # what a kill just after the last answer left
        run.rewind_history(lambda entry: entry.get("stage") != "select" or "epoch" in entry)
        for entry in selection.history:
            run.append_history({"stage": "select", **entry})
        write_suggestions(run / NAME, data, selection)
        measured = None if true is None else measure(selection.selected, selection.suspicion, data.y, true)
        run.write_selection(data, selection, measured=measured)
        run.finish("select", seconds=round(time.monotonic() - began, 3))
        if stopping.requested():  # during the last trainings: what follows the selection is not begun
            raise stopping.reason()
    return selection


def tell_epochs(run: RunFolder, lines: Sequence[dict[str, Any]]) -> None:
    """The epochs of a request's networks to history.jsonl. What a killed process told of the same ones goes first."""
    if not lines:  # a classifier has none
        return
    trainings = {line["training"] for line in lines}
    run.rewind_history(lambda entry: entry.get("stage") != "select" or entry.get("training") not in trainings)
    for line in lines:
        run.append_history({"stage": "select", **line})


@dataclass(frozen=True)
class _Stoppable(Trainer):
    """Between two requests is a safe point."""

    trainer: Trainer

    def train_and_score(self, jobs: Sequence[Job]) -> list[Scores]:
        if stopping.requested():
            raise stopping.reason()
        return self.trainer.train_and_score(jobs)
