"""Cells in, records out: INCV (section 5.2), the selections of many settings and seeds side by side."""

from __future__ import annotations

import functools
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.engine import Schedule
from labelsieve.execute.fast import FastTrainer
from labelsieve.execute.lockstep import EngineTrainer
from labelsieve.experiments import evaluate, records
from labelsieve.experiments.bench import Bench
from labelsieve.experiments.cells import Cell
from labelsieve.experiments.settings import TOLD_NOTHING, WEBVISION_REMOVE_RATIO, scale_of
from labelsieve.experiments.training import (
    Room,
    factory_of,
    headline,
    new_record,
    seconds_spent,
    write_seconds,
)
from labelsieve.experiments.webvision_bench import WebVisionBench
from labelsieve.files import atomic_path
from labelsieve.models.fast_cnn import WIDTHS
from labelsieve.selection.incv import incv_steps
from labelsieve.selection.run_selection import drive_together
from labelsieve.selection.settings import INCVSettings
from labelsieve.selection.state import INCVState
from labelsieve.types import IntArray, Selection


def settings_of(cell: Cell) -> INCVSettings:
    """The authors' protocol, told the pattern as their code is; or nothing at all."""
    if cell.kind == TOLD_NOTHING:
        return INCVSettings(n_iterations=cell.iterations).for_fast_network()
    pattern = "symmetric" if cell.noise.pattern == "none" else cell.noise.pattern
    if cell.kind == "webvision-selection":
        return INCVSettings(
            protocol="paper", pattern=pattern, n_iterations=cell.iterations, remove_ratio=WEBVISION_REMOVE_RATIO
        )
    return INCVSettings(protocol="paper", pattern=pattern, n_iterations=cell.iterations)


def select_cells(cells: list[Cell], room: Room, folder: Path) -> None:
    """INCV for every cell at once; writes a record a cell. Raises OutOfTime; what is done is in `folder`."""
    trainer = trainer_of(cells, room, folder)
    schedule = trainer.schedule
    given = [room.bench.given(cell) for cell in cells]
    steps = []
    for cell, labels in zip(cells, given, strict=True):
        path = folder / f"{cell.name}.npz"
        steps.append(
            incv_steps(
                labels,
                room.bench.classes,
                settings=settings_of(cell),
                seed=cell.seed,
                state=_load_state(path),
                on_iteration=functools.partial(_save_state, path),
                name=cell.name,
            )
        )
    began, spent = time.monotonic(), seconds_spent(folder)
    try:
        selections = drive_together(steps, trainer)
    finally:
        seconds = spent + time.monotonic() - began
        write_seconds(folder, seconds)
    for cell, labels, selection in zip(cells, given, selections, strict=True):
        arrays, results = _evaluated(cell, room, labels, selection)
        settings = settings_of(cell)
        record = new_record(
            cell,
            room,
            given=labels,
            arrays=arrays,
            results=results,
            schedule=schedule.settings(),
            method={"name": "incv", "settings": {**vars(settings)}, "networks": 2, "noise_ratio_told": None},
            seconds=seconds / len(cells),
            lockstep={"cells": len(cells), "networks": 2 * len(cells), "seconds": seconds},
        )
        room.say(f"finished {cell.id}: {headline(results)}")
        records.save(room.results, record, arrays)


def trainer_of(cells: list[Cell], room: Room, folder: Path) -> EngineTrainer:
    first, classes = cells[0], room.bench.classes
    options: dict[str, Any] = {
        "classes": classes, "batch_size": first.batch_size, "checkpoint": folder / "engine",
        "checkpoint_seconds": room.checkpoint_seconds, "stop": room.out_of_time, "capture": room.capture,
        "progress": room.teller(f"INCV, {len(cells)} cells from {first.id} on"),
    }  # fmt: skip
    if first.kind == TOLD_NOTHING:
        assert isinstance(room.bench, Bench)
        widths = (24, 32) if first.network == "fast-small" else WIDTHS
        return FastTrainer(room.bench.pictures, epochs=first.epochs, widths=widths, device=room.device, **options)
    webvision = first.kind == "webvision-selection"
    schedule = Schedule.webvision_incv_50(first.epochs) if webvision else Schedule.incv_50(first.epochs)
    return EngineTrainer(room.store, factory_of(first.network, classes), schedule=schedule, **options)


def _evaluated(
    cell: Cell, room: Room, given: IntArray, selection: Selection
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    # 255 stands for "never asked about": a sample selected before it was held out has no prediction.
    arrays: dict[str, NDArray[Any]] = {
        "verdict": selection.verdict.astype(np.int8),
        "iteration": selection.iteration.astype(np.int8),
        "predicted": np.where(selection.predicted < 0, 255, selection.predicted).astype(np.uint8),
    }
    results = evaluate.selection_results(room.bench, given, selection.verdict, selection.iteration, cell.iterations)
    results |= {
        "noise_ratio_estimate": selection.noise_ratio,
        "expected_precision": selection.expected_precision,
        "expected_recall": selection.expected_recall,
        "verdicts": np.bincount(selection.verdict, minlength=3).tolist(),
        "history": list(selection.history),
        "notes": list(selection.notes),
    }
    if cell.kind in ("errors", "webvision-selection"):
        count = scale_of(cell.kind, cell.scale).suspects
        ranked = np.argsort(-np.nan_to_num(selection.suspicion, nan=-1.0), kind="stable")
        worst = ranked[(selection.predicted != given)[ranked]][:count]
        arrays["suspects"] = worst.astype(np.int64)
        arrays["suspect_pictures"] = room.bench.thumbnails(worst)
        results["suspects"] = [
            {
                "index": int(i),
                "given": room.bench.class_names[given[i]],
                "suggested": room.bench.class_names[selection.predicted[i]],
                "suspicion": float(selection.suspicion[i]),
                "probability": float(selection.probability[i]),
                "loss": float(selection.loss[i]),
            }
            for i in worst
        ]
        if isinstance(room.bench, WebVisionBench):
            for suspect in results["suspects"]:
                suspect["id"] = str(room.bench.training.ids[suspect["index"]])
            results |= evaluate.suspects_results(room.bench, given, selection.suspicion, worst)
            results["pictures"] = room.bench.counts()
    return arrays, results


def _save_state(path: Path, state: INCVState) -> None:
    arrays, meta = state.to_arrays()
    with atomic_path(path) as partial, partial.open("wb") as file:
        np.savez(file, meta=np.array(json.dumps(meta)), **arrays)  # type: ignore[arg-type]


def _load_state(path: Path) -> INCVState | None:
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as stored:
        arrays = {key: stored[key] for key in stored.files}
    meta = json.loads(str(arrays.pop("meta")))
    return INCVState.from_arrays(arrays, meta)
