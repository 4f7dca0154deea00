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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from labelsieve.engine import OutOfTime
from labelsieve.execute.ray_cluster import RayPool
from labelsieve.experiments import records
from labelsieve.experiments.cells import SELECTION_KINDS, Cell, group_into_locksteps
from labelsieve.experiments.datasets import ExperimentData
from labelsieve.experiments.select_cells import select_cells
from labelsieve.experiments.train_cells import ExperimentContext, train_cells
from labelsieve.files import read_text, write_text


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
            self.data, self.results, self.commit, device=self.device, deadline=deadline, checkpoint_seconds=0.0
        )
        return not context.must_stop() and run_lockstep(cells, context)


def run_cells_on_ray(
    cells: Sequence[Cell], task: LockstepTask, *, executor: str, lockstep: int, say: Callable[[str], None] = print
) -> list[Cell]:
    """Run the cells on the cluster until the deadline. Return the unfinished ones."""
    work = task.results / ".work"
    pool = RayPool(executor, device=task.device, tell=say)
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
                say(f"cells: {len(wave)}, tasks: {len(groups)}, {'GPUs' if pool.gpus else 'CPU cores'}: {slots}")
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
