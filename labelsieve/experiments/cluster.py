"""A sweep on a Ray cluster: one task a lockstep of cells; checkpoints and records lie on storage all machines share.

A cell that starts from a selection waits until all selections are there. Every epoch is stored, so that a lost node
costs at most the epoch that ran. A task leaves records and says whether it was done in time; its folder is removed by
the caller, since a node that was given up but lives may have a twin that still needs it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from labelsieve.execute.ray_cluster import RayPool
from labelsieve.experiments import records, run
from labelsieve.experiments.bench import Bench
from labelsieve.experiments.cells import Cell, from_selection
from labelsieve.experiments.training import Room
from labelsieve.experiments.webvision_bench import WebVisionBench


@dataclass(frozen=True)
class Sweep:
    """What all tasks share; called with a lockstep's cells, in the task."""

    bench: Bench | WebVisionBench
    results: Path  # absolute, on shared storage
    commit: str
    device: str
    ends: float | None  # by the wall clock: monotonic ones differ between machines

    def __call__(self, cells: list[Cell]) -> bool:
        left = [cell for cell in cells if records.load(self.results, cell.id) is None]
        if not left:  # the node was lost after the last record
            return True
        deadline = None if self.ends is None else time.monotonic() + self.ends - time.time()
        room = Room(
            self.bench, self.results, self.commit, device=self.device, deadline=deadline, checkpoint_seconds=0.0
        )
        return not room.out_of_time() and run.run_lockstep(cells, room)


def sweep_on_ray(
    cells: Sequence[Cell],
    bench: Bench | WebVisionBench,
    *,
    executor: str,
    results: Path,
    commit: str,
    device: str = "auto",
    lockstep: int = 16,
    deadline: float | None = None,
    say: Callable[[str], None] = print,
) -> list[Cell]:
    """Run the cells on the cluster; those still to do when the time is up."""
    results = results.absolute()
    pool = RayPool(executor, device=device, tell=say)
    try:
        pool.check_shared(results / ".work")
        ends = None if deadline is None else time.time() + deadline - time.monotonic()
        task = pool.share(Sweep(bench, results, commit, device, ends))
        places = pool.gpus or max(1, int(pool.ray.cluster_resources().get("CPU", 1)))
        left = {cell.id: cell for cell in cells}
        for needy in (False, True):
            wave = {id: cell for id, cell in left.items() if from_selection(cell.kind, cell.method) == needy}
            if not wave:
                continue
            if needy and len(wave) < len(left):
                break  # out of time before the selections
            groups = run.locksteps(wave, results / ".work", _at_once(wave.values(), places, lockstep))
            where = f"{places} GPU{'s' * (places > 1)}" if pool.gpus else f"{places} CPU core{'s' * (places > 1)}"
            say(f"{len(wave)} cell{'s' * (len(wave) > 1)} as {len(groups)} task{'s' * (len(groups) > 1)} on {where}")
            for group, done in zip(groups, pool.map(task, groups), strict=True):
                if done:
                    shutil.rmtree(run.folder_of(group, results / ".work"), ignore_errors=True)
                    for cell in group:
                        del left[cell.id]
        return list(left.values())
    finally:
        pool.close()


def _at_once(cells: Iterable[Cell], places: int, most: int) -> int:
    """Networks a task trains in lockstep: few enough that every place has work."""
    networks = sum(cell.networks for cell in cells)
    return min(most, max(2, -(-networks // places)))


__all__ = ["Sweep", "sweep_on_ray"]
