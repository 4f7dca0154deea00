"""The runner: cells that are finished are skipped, the rest run in lockstep, a budget stops them where they can go on.

    python3 -m labelsieve.experiments.run accuracy --data DIR --results results --budget 540 --seeds 0-4

Imports torch and numpy alone, so that it runs on a bare GPU machine; figures need matplotlib, and are left out without.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from labelsieve import stopping
from labelsieve.engine import OutOfTime
from labelsieve.errors import InputError
from labelsieve.execute.ray_cluster import is_ray
from labelsieve.experiments import records
from labelsieve.experiments.bench import Bench, open_bench
from labelsieve.experiments.cells import Cell, Wish, in_locksteps
from labelsieve.experiments.cli_args import check_asked, check_executor
from labelsieve.experiments.items import ITEMS, ON_CIFAR10, Item, find
from labelsieve.experiments.selecting import select_cells
from labelsieve.experiments.settings import SCALES, TOLD_NOTHING, WITHOUT_DECAY, Scale
from labelsieve.experiments.summary import by_cell
from labelsieve.experiments.training import Room, train_cells
from labelsieve.experiments.webvision_bench import WebVisionBench, open_webvision
from labelsieve.files import write_text
from labelsieve.progress import Progress

RUNNERS: dict[str, Callable[[list[Cell], Room, Path], None]] = {
    "theory": train_cells,
    WITHOUT_DECAY: train_cells,
    "accuracy": train_cells,
    "selection": select_cells,
    TOLD_NOTHING: select_cells,
    "errors": select_cells,
    "webvision": train_cells,
    "webvision-selection": select_cells,
}
SMOKE_RESULTS = Path("runs/reproduce-smoke")


def reproduce(
    item: str,
    *,
    data: Path | None = None,
    results: Path | None = None,
    scale: str = "paper",
    wish: Wish | None = None,
    budget: float | None = None,
    device: str = "auto",
    lockstep: int = 16,
    executor: str = "local",
    commit: str | None = None,
    draw: bool = True,
    say: Callable[[str], None] = print,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run what is missing of an item, here or on a Ray cluster, then draw it; says how many cells are done and left.

    `say` is told about cells, `progress` about pictures that are read from files, which are many.
    """
    check_executor(executor)
    chosen, wish = find(item), wish or Wish()
    protocol = chosen.scales[_scale(scale).name]
    results = default_results(scale) if results is None else results
    deadline = None if budget is None else time.monotonic() + budget
    wanted = {cell.id: cell for cell in chosen.cells(protocol, wish)}
    left = [cell for cell in wanted.values() if not finished(cell, results)]
    check_scale(results, protocol)
    if wanted:
        say(f"{item}: {len(wanted)} cell{'s' * (len(wanted) > 1)}, {len(wanted) - len(left)} finished")
    if left:
        stamp, at_once = records.commit(commit), min(lockstep, protocol.at_once)
        if is_ray(executor):  # a task's working directory is another one
            results, data = results.absolute(), None if data is None else Path(data).absolute()
        on_webvision = protocol.data.startswith("webvision")
        bench: Bench | WebVisionBench
        if on_webvision:
            bench = open_webvision(protocol, data, results / ".work", progress)
        else:
            bench = open_bench(protocol.data, data)
        if isinstance(bench, WebVisionBench) and (missing := bench.counts()["missing"]):
            first = f"; the first: {bench.training.skipped[0].id}" if bench.training.skipped else ""
            say(f"{item}: {missing:,} listed pictures cannot be read and are left out{first}")
        if is_ray(executor):
            from labelsieve.experiments.cluster import sweep_on_ray

            left = sweep_on_ray(
                left, bench, executor=executor, results=results, commit=stamp, device=device, lockstep=at_once,
                deadline=deadline, say=say,
            )  # fmt: skip
        else:
            room = Room(
                bench, results, stamp, device=device, lockstep=at_once, deadline=deadline, say=say, progress=progress
            )
            with stopping.safe_points():
                left = run_cells(left, room)
                if stopping.requested():
                    say(f"{item}: stopped with {len(left)} left; the same command goes on")
                    raise stopping.reason()
    drawn = draw_item(chosen, results, protocol, say=say) if draw else []
    if draw and (hidden := not_drawn(chosen, results, protocol, wanted)):
        more = f" and {len(hidden) - 1:,} more" if len(hidden) > 1 else ""
        say(f"{item}: not in the table, which prefers the protocol's own settings and lengths: {hidden[0]}{more}")
    if left:
        say(f"{item}: stopped with {len(left)} cell{'s' * (len(left) > 1)} left; the same command goes on")
    return {
        "item": item,
        "cells": len(wanted),
        "finished": len(wanted) - len(left),
        "left": [cell.id for cell in left],
        "files": [str(path) for path in drawn],
    }


def finished(cell: Cell, results: Path) -> bool:
    """Whether its record is there. One of another protocol under the same name is refused."""
    record = records.load(results, cell.id)
    if record is not None and (other := cell.differs_from(record)):
        raise InputError(f"{records.path_of(results, cell.id)} is of other settings ({other}): give another --results")
    return record is not None


def check_scale(results: Path, scale: Scale) -> None:
    """Small trials would take the place of what is drawn from real ones: they do not lie in the same folder."""
    other = next((r["cell"]["scale"] for r in records.walk(results) if r["cell"]["scale"] != scale.name), None)
    if other is not None:
        raise InputError(f"{results} holds records of scale {other!r}: give another --results for {scale.name!r}")


def run_cells(cells: Sequence[Cell], room: Room) -> list[Cell]:
    """Run locksteps until the cells or the time are used up; the cells still to do."""
    left = {cell.id: cell for cell in cells}
    for group in locksteps(left, room.work, room.lockstep):
        if room.out_of_time() or not run_lockstep(group, room):
            break
        shutil.rmtree(folder_of(group, room.work))
        for cell in group:
            del left[cell.id]
    return list(left.values())


def run_lockstep(cells: list[Cell], room: Room) -> bool:
    """Train the cells together and write their records; False: out of time, the next run goes on from its folder."""
    folder = folder_of(cells, room.work)
    write_text(folder / "cells.json", json.dumps([cell.id for cell in cells]))
    try:
        RUNNERS[cells[0].kind](cells, room, folder)
    except OutOfTime:
        return False
    return True


def locksteps(wanted: Mapping[str, Cell], work: Path, networks: int) -> list[list[Cell]]:
    """Those stopped in the middle that hold nothing but what is wanted go on first; the rest in new ones."""
    left, found = dict(wanted), []
    for path in sorted(work.glob("*/cells.json")):
        ids = json.loads(path.read_text())
        if all(id in left for id in ids):
            found.append([left.pop(id) for id in ids])
    return found + in_locksteps(left.values(), networks)


def folder_of(cells: Sequence[Cell], work: Path) -> Path:
    """Where a lockstep waits: the same cells have the same folder."""
    return work / hashlib.sha256("\n".join(cell.id for cell in cells).encode()).hexdigest()[:16]


def draw_item(item: Item, results: Path, scale: Scale, *, say: Callable[[str], None] = print) -> list[Path]:
    """The item's table, and its figure where matplotlib is installed, from records alone."""
    scale = item.scales[scale.name]
    found = records.read_all(results, item.kind, scale=scale.name) if item.kind else []
    table = results / "tables" / f"{item.name}.md"
    table.parent.mkdir(parents=True, exist_ok=True)
    text = item.table(found, scale)
    if found and scale.note and scale.note not in text:
        text = f"{scale.note}\n\n{text}"
    table.write_text(text + "\n", encoding="utf-8")
    drawn = [table]
    if item.figure is not None and (found or not item.kind):
        if importlib.util.find_spec("matplotlib") is None:
            say("matplotlib is not installed: the figure is not drawn")
        else:
            path = results / "figures" / f"{item.name}.svg"
            item.figure(found, scale, results, path)
            drawn += [path, path.with_suffix(".png")]
    return drawn


def not_drawn(item: Item, results: Path, scale: Scale, wanted: Iterable[str]) -> list[str]:
    """Finished cells among `wanted` that others of the same method and noise keep out of the table."""
    found = records.read_all(results, item.kind, scale=scale.name) if item.kind else []
    shown = {record["id"] for group in by_cell(found).values() for record in group}
    return sorted({record["id"] for record in found} & set(wanted) - shown)


def default_results(scale: str) -> Path:
    """Small trial runs never lie among the results."""
    return SMOKE_RESULTS if scale == "smoke" else Path("results")


def listing() -> list[tuple[str, str]]:
    return [(item.name, item.title) for item in ITEMS.values()]


def _scale(name: str) -> Scale:
    if name not in SCALES:
        raise InputError(f"no scale {name!r}: choose {' or '.join(SCALES)}")
    return SCALES[name]


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python3 -m labelsieve.experiments.run", description=__doc__.split("\n")[0])
    add = found.add_argument
    others = "`all` (those on CIFAR-10), `list`, `draw` (every figure again), `docs` (docs/reproduction.md)"
    add("item", help=f"{', '.join(ITEMS)}; {others}")
    add("--data", type=Path, help="folder with CIFAR-10; with WebVision for its items")
    add("--results", type=Path, help="folder of the records (default: results; runs/reproduce-smoke for smoke)")
    add("--scale", default="paper", choices=list(SCALES))
    add("--seeds", default="0", help="0-4, 0,2 or 3")
    add("--methods", help="of tables 1 and 2, separated by commas; they run in this order")
    add("--settings", help="noise, e.g. symmetric-0.5,pair-0.4")
    add("--epochs", type=int, help="shorter trainings than the protocol's; told beside every number drawn from them")
    add("--selection-epochs", type=int, help="likewise, of INCV's trainings")
    add("--iterations", type=int, help="likewise, of INCV; incv-coteaching starts from what was selected up to there")
    add("--set", action="append", default=[], metavar="METHOD.SETTING=VALUE")
    add("--budget", type=float, help="seconds; what is unfinished goes on next time")
    add("--lockstep", type=int, default=16, help="networks that train at once")
    add("--device", default="auto")
    add("--executor", default="local", help="local, ray or ray://HEAD:PORT")
    add("--commit", help="of the code, where git is not there to tell it")
    add("--no-draw", action="store_true")
    add("--docs", type=Path, default=Path("docs/reproduction.md"), help="file that `docs` writes")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)

    def say(line: str) -> None:
        print(line, flush=True)

    try:
        if options.item == "list":
            for name, title in listing():
                say(f"{name:26}{title}")
            return 0
        results = options.results or default_results(options.scale)
        if options.item == "draw":
            for item in ITEMS.values():
                draw_item(item, results, _scale(options.scale), say=say)
            return 0
        if options.item == "docs":
            from labelsieve.experiments.docs import write_page

            say(f"wrote {write_page(results, options.docs, _scale(options.scale))}")
            return 0
        names = ON_CIFAR10 if options.item == "all" else [options.item]
        wish = check_asked(
            names,
            scale=options.scale,
            budget=options.budget,
            lockstep=options.lockstep,
            device=options.device,
            executor=options.executor,
            seeds=options.seeds,
            methods=options.methods,
            settings=options.settings,
            epochs=options.epochs,
            selection_epochs=options.selection_epochs,
            iterations=options.iterations,
            method_settings=options.set,
        )
        ends = None if options.budget is None else time.monotonic() + options.budget
        for name in names:
            reproduce(
                name,
                data=options.data,
                results=results,
                scale=options.scale,
                wish=wish,
                budget=None if ends is None else ends - time.monotonic(),
                device=options.device,
                lockstep=options.lockstep,
                executor=options.executor,
                commit=options.commit,
                draw=not options.no_draw,
                say=say,
                progress=Progress(silent=sys.stderr.isatty() and importlib.util.find_spec("rich") is None),
            )
        return 0
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; finished cells are kept", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
