"""Run cells in lockstep, on this machine or as tasks of a Ray cluster. Stopped locksteps continue later.

On a cluster each lockstep is one task; checkpoints and records are on storage that all machines share. Trainings that
start from a selection wait until all selections are finished. Every epoch is stored, so a lost node costs at most one
epoch. The caller removes the folder of a finished task: a node that was given up may still run a copy that needs it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labelsieve.engine import OutOfTime, Schedule
from labelsieve.execute.network_trainer import EngineTrainer, FastTrainer
from labelsieve.execute.ray_cluster import RayPool
from labelsieve.experiments import evaluate, records
from labelsieve.experiments.cells import FAST_KINDS, FINISH_SELECTION, SELECTION_KINDS, Cell, group_into_locksteps
from labelsieve.experiments.datasets import ExperimentData, PictureArrays, WebVisionFiles
from labelsieve.experiments.paper import WEBVISION_REMOVE_RATIO
from labelsieve.experiments.train_cells import (
    JUDGED_ARRAYS,
    Arrays,
    ExperimentContext,
    Results,
    Stopwatch,
    save_record,
    train_cells,
)
from labelsieve.files import read_text, write_text
from labelsieve.models.choose import create_network
from labelsieve.models.fast_cnn import WIDTHS
from labelsieve.progress import SILENT, Progress
from labelsieve.selection.incv import drive_together, incv_steps
from labelsieve.selection.settings import INCVSettings
from labelsieve.types import IntArray, Selection
from labelsieve.workflow.select import StoredAnswers


def run_cells(cells: Sequence[Cell], context: ExperimentContext, lockstep: int) -> list[Cell]:
    """Run the cells on this machine until the deadline. Return the unfinished ones."""
    left = {cell.id: cell for cell in cells}
    for group in plan_locksteps(left, context.work, lockstep):
        if context.must_stop() or not run_lockstep(group, context):
            break
        shutil.rmtree(lockstep_folder(group, context.work))
        for cell in group:
            del left[cell.id]
    return list(left.values())


def run_lockstep(cells: list[Cell], context: ExperimentContext) -> bool:
    """Run the cells together and write their records. Return False if the time was up; the folder is kept."""
    folder = lockstep_folder(cells, context.work)
    write_text(folder / "cells.json", json.dumps([cell.id for cell in cells]))
    run = select_cells if cells[0].kind in SELECTION_KINDS else train_cells
    try:
        run(cells, context, folder)
    except OutOfTime:
        return False
    return True


def plan_locksteps(wanted: Mapping[str, Cell], work: Path, networks: int) -> list[list[Cell]]:
    """Return stopped locksteps whose cells are all wanted, then new ones for the other cells."""
    left, stopped = dict(wanted), []
    for path in sorted(work.glob("*/cells.json")):
        ids = json.loads(read_text(path))
        if all(id in left for id in ids):
            stopped.append([left.pop(id) for id in ids])
    return stopped + group_into_locksteps(left.values(), networks)


def lockstep_folder(cells: Sequence[Cell], work: Path) -> Path:
    """Return the folder of a lockstep; the same cells have the same folder."""
    return work / hashlib.sha256("\n".join(cell.id for cell in cells).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class LockstepTask:
    """Runs one lockstep on a node of the cluster. Returns whether it finished in time."""

    data: ExperimentData
    results: Path  # absolute, on shared storage
    commit: str
    device: str
    end: float | None  # wall-clock time: monotonic clocks differ between machines

    def __call__(self, cells: list[Cell]) -> bool:
        if all(records.load(self.results, cell.id) is not None for cell in cells):
            return True  # the node was lost after the last record
        deadline = None if self.end is None else time.monotonic() + self.end - time.time()
        context = ExperimentContext(
            self.data, self.results, self.commit, device=self.device, deadline=deadline, progress=Progress(),
            checkpoint_seconds=0.0,
        )  # fmt: skip
        return not context.must_stop() and run_lockstep(cells, context)


def run_cells_on_ray(
    cells: Sequence[Cell], task: LockstepTask, *, executor: str, lockstep: int, progress: Progress = SILENT
) -> list[Cell]:
    """Run the cells on the cluster until the deadline. Return the unfinished ones."""
    work = task.results / ".work"
    pool = RayPool(executor, device=task.device, note=progress.note)
    try:
        pool.check_shared(work)
        shared = pool.share(task)
        slots = pool.gpus or max(1, int(pool.ray.cluster_resources().get("CPU", 1)))
        left = {cell.id: cell for cell in cells}
        for after_selection in (False, True):
            wave = {id: cell for id, cell in left.items() if cell.starts_from_selection == after_selection}
            if after_selection and len(wave) < len(left):
                break  # some selections are unfinished
            groups = plan_locksteps(wave, work, networks_per_task(wave.values(), slots, lockstep))
            if groups:
                where = "GPUs" if pool.gpus else "CPU cores"
                progress.note(f"cells: {len(wave)}, tasks: {len(groups)}, {where}: {slots}")
            for group, finished in zip(groups, pool.map(shared, groups), strict=True):
                if finished:
                    shutil.rmtree(lockstep_folder(group, work), ignore_errors=True)
                    for cell in group:
                        del left[cell.id]
        return list(left.values())
    finally:
        pool.close()


def networks_per_task(cells: Iterable[Cell], slots: int, maximum: int) -> int:
    """Return the number of networks per lockstep that gives every GPU or core work."""
    networks = sum(cell.networks for cell in cells)
    return min(maximum, max(2, -(-networks // slots)))


NOT_PREDICTED = 255  # a sample that was selected before it was held out has no prediction
SMOKE_WIDTHS = (24, 32)  # of the fast network at smoke scale: seconds on a CPU


def incv_settings(cell: Cell) -> INCVSettings:
    """Return the authors' protocol, which knows the noise pattern, or the defaults for AUTOMATIC."""
    if cell.kind in FAST_KINDS:
        return INCVSettings(n_iterations=cell.iterations).for_fast_network()
    pattern = "symmetric" if cell.noise.pattern == "none" else cell.noise.pattern
    settings: dict[str, Any] = {"protocol": "paper", "pattern": pattern, "n_iterations": cell.iterations}
    if cell.kind == "webvision-selection":
        settings["remove_ratio"] = WEBVISION_REMOVE_RATIO
    return INCVSettings(**settings)


def select_cells(cells: list[Cell], context: ExperimentContext, folder: Path) -> None:
    """Run INCV for all cells together and write a record for each.

    Raises OutOfTime; the scores of finished trainings are stored in `folder`.
    """
    trainer = build_trainer(cells[0], context, folder / "engine")
    given = [context.data.given(cell) for cell in cells]
    steps = [
        incv_steps(labels, context.data.classes, settings=incv_settings(cell), seed=cell.seed, name=cell.name)
        for cell, labels in zip(cells, given, strict=True)
    ]
    with Stopwatch(folder) as watch:
        selections = drive_together(
            steps, StoredAnswers(trainer, folder / "answers", folder / "engine", context.progress)
        )
    for cell, labels, selection in zip(cells, given, selections, strict=True):
        arrays, results = _evaluate(cell, context, labels, selection)
        settings = dict(vars(incv_settings(cell)))
        record = {
            "method": {"name": "incv", "settings": settings, "networks": 2, "noise_ratio_told": None},
            "schedule": trainer.schedule.settings(),
            "seconds": watch.seconds / len(cells),
            "lockstep": {"cells": len(cells), "networks": 2 * len(cells), "seconds": watch.seconds},
            "results": results,
        }
        save_record(cell, context, labels, arrays, record)


def build_trainer(first: Cell, context: ExperimentContext, checkpoints: Path) -> EngineTrainer:
    """Return the trainer of a lockstep, whose cells have the network and the schedule of the first one."""
    data = context.data
    options: dict[str, Any] = {
        "classes": data.classes,
        "batch_size": first.batch_size,
        "checkpoint": checkpoints,
        "checkpoint_seconds": context.checkpoint_seconds,
        "stop": context.must_stop,
    }
    if first.kind in FAST_KINDS:
        assert isinstance(data, PictureArrays)
        widths = SMOKE_WIDTHS if first.network == "fast-small" else WIDTHS
        return FastTrainer(data.pictures, epochs=first.epochs, widths=widths, device=context.device, **options)
    webvision = first.kind == "webvision-selection"
    schedule = Schedule.webvision_incv_50(first.epochs) if webvision else Schedule.incv_50(first.epochs)
    factory = create_network(first.network, context.store.shape, data.classes)
    return EngineTrainer(context.store, factory, schedule=schedule, **options)


def _evaluate(cell: Cell, context: ExperimentContext, given: IntArray, selection: Selection) -> tuple[Arrays, Results]:
    data = context.data
    predicted = np.where(selection.predicted < 0, NOT_PREDICTED, selection.predicted)
    arrays: Arrays = {
        "verdict": selection.verdict.astype(np.int8),
        "iteration": selection.iteration.astype(np.int8),
        "predicted": predicted.astype(np.uint8),
    }
    results = evaluate.selection_results(data.true, given, selection, cell.iterations)
    results |= {
        "noise_ratio_estimate": selection.noise_ratio,
        "expected_precision": selection.expected_precision,
        "expected_recall": selection.expected_recall,
        "verdicts": np.bincount(selection.verdict, minlength=3).tolist(),
        "history": list(selection.history),
        "notes": list(selection.notes),
    }
    if cell.kind == FINISH_SELECTION and data.true is not None:
        results["transition_matrix"] = selection.transition_matrix.tolist()
        results |= evaluate.judgement_results(given != data.true, selection.suspicion)
        results["noise_ratio"] = selection.noise_ratio
        stored = {name: getattr(selection, name) for name in JUDGED_ARRAYS}
        arrays |= {name: values.astype(np.float32) for name, values in stored.items()}
    if cell.kind in ("errors", "webvision-selection"):
        ranked = np.argsort(-np.nan_to_num(selection.suspicion, nan=-1.0), kind="stable")
        worst = ranked[(selection.predicted != given)[ranked]][: cell.protocol.suspects]
        arrays |= {"suspects": worst.astype(np.int64), "suspect_pictures": data.thumbnails(worst)}
        results["suspects"] = [
            {
                "index": int(i),
                "given": data.class_names[given[i]],
                "suggested": data.class_names[selection.predicted[i]],
                "suspicion": float(selection.suspicion[i]),
                "probability": float(selection.probability[i]),
                "loss": float(selection.loss[i]),
            }
            for i in worst
        ]
        if isinstance(data, WebVisionFiles):
            for suspect in results["suspects"]:
                suspect["id"] = str(data.training.ids[suspect["index"]])
            results |= evaluate.suspects_results(data.true, given, selection.suspicion, worst)
            results["pictures"] = data.counts()
    return arrays, results
