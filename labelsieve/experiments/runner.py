"""Run a figure or table of the paper: finished cells are skipped, stopped ones continue, and the item is drawn.

    python3 -m labelsieve.experiments.runner accuracy --data DIR --seeds 0-4 --budget 540

does the same as `labelsieve reproduce` and imports torch and numpy alone, for GPU machines without other packages.
Figures need matplotlib and are skipped without it.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from labelsieve import stopping
from labelsieve.data.read_options import option
from labelsieve.errors import InputError, Problems
from labelsieve.execute.ray_cluster import is_ray
from labelsieve.experiments import ReproduceOptions, records, result_figures, theory_figures
from labelsieve.experiments.cells import FINISH, Cell, SweepRequest, read_request
from labelsieve.experiments.datasets import open_data
from labelsieve.experiments.paper import SCALES, Scale
from labelsieve.experiments.render import Item
from labelsieve.experiments.run_cells import LockstepTask, run_cells, run_cells_on_ray
from labelsieve.experiments.train_cells import ExperimentContext, build_method
from labelsieve.files import write_text
from labelsieve.progress import SILENT, Progress
from labelsieve.workflow.settings import check_device

ITEMS: dict[str, Item] = {item.name: item for item in (*theory_figures.ITEMS, *result_figures.ITEMS)}
PAPER_ITEMS = {name: item for name, item in ITEMS.items() if item.kind != FINISH}
ON_CIFAR10 = tuple(name for name, item in PAPER_ITEMS.items() if item.scales is SCALES)
ALL = "all"  # every item of the paper on CIFAR-10
DEFAULT_RESULTS = {"paper": Path("results"), "smoke": Path("runs/reproduce-smoke")}


def reproduce(
    item: str, options: ReproduceOptions = ReproduceOptions(), *, progress: Progress = SILENT
) -> dict[str, Any]:
    """Run the missing cells of an item, or of `all`, and draw it. Return the number of cells and the files."""
    request = check_options(item, options)
    deadline = None if options.budget is None else time.monotonic() + options.budget
    results = options.results or DEFAULT_RESULTS[options.scale]
    wanted, left, files = 0, [], []
    for chosen in (ITEMS[name] for name in (ON_CIFAR10 if item == ALL else (item,))):
        scale = chosen.scales[options.scale]
        cells = list({cell.id: cell for cell in chosen.cells(scale, request)}.values())
        missing = [cell for cell in cells if not is_finished(cell, results)]
        check_scale(results, scale)
        if cells:
            count = f"{len(cells)} cell{'s' * (len(cells) > 1)}"
            progress.note(f"{chosen.name}: {count}, {len(cells) - len(missing)} finished")
        if missing and (deadline is None or time.monotonic() < deadline):
            missing = _run(missing, scale, replace(options, results=results), deadline, progress)
        files += [str(path) for path in draw_item(chosen, results, scale, progress)] if options.draw else []
        if missing:
            count = f"{len(missing)} cell{'s' * (len(missing) > 1)}"
            progress.note(f"{chosen.name}: stopped with {count} left; run the same command to continue")
        wanted += len(cells)
        left += [cell.id for cell in missing]
    return {"item": item, "cells": wanted, "finished": wanted - len(left), "left": left, "files": files}


def _run(
    cells: list[Cell], scale: Scale, options: ReproduceOptions, deadline: float | None, progress: Progress
) -> list[Cell]:
    """Run cells here or on a Ray cluster. Return the unfinished ones."""
    commit, lockstep = records.commit(options.commit), min(options.lockstep, scale.max_lockstep)
    results, folder = options.results, options.data
    assert results is not None
    if is_ray(options.executor):  # tasks have another working directory
        results, folder = results.absolute(), None if folder is None else Path(folder).absolute()
    data = open_data(scale, folder, results / ".work", cells, progress)
    if missing := data.missing():
        progress.note(missing)
    if is_ray(options.executor):
        end = None if deadline is None else time.time() + deadline - time.monotonic()
        task = LockstepTask(data, results, commit, options.device, end)
        return run_cells_on_ray(cells, task, executor=options.executor, lockstep=lockstep, progress=progress)
    context = ExperimentContext(data, results, commit, device=options.device, deadline=deadline, progress=progress)
    with stopping.safe_points():
        left = run_cells(cells, context, lockstep)
        if stopping.requested():
            progress.note(f"stopped with {len(left)} left; run the same command to continue")
            raise stopping.reason()
    return left


def is_finished(cell: Cell, results: Path) -> bool:
    """Return whether the record exists. A record of the same name with other settings is an error."""
    record = records.load(results, cell.id)
    if record is not None and (differences := cell.differences(record)):
        path = records.path_of(results, cell.id)
        raise InputError(f"{path} has other settings ({', '.join(differences)}); choose another --results")
    return record is not None


def check_scale(results: Path, scale: Scale) -> None:
    """Refuse a folder with records of another scale: tables would mix smoke runs and results."""
    other = next((r["cell"]["scale"] for r in records.walk(results) if r["cell"]["scale"] != scale.name), None)
    if other is not None:
        raise InputError(f"{results} has records of scale {other!r}; choose another --results for {scale.name!r}")


# ---------------------------------------------------------------- options


def check_options(item: str, options: ReproduceOptions) -> SweepRequest:
    """Return the requested cells, or raise one InputError that names everything that is wrong."""
    problems = Problems()
    request = read_request(problems, options)
    problems.check(options.scale in SCALES, f"--scale {options.scale!r}: choose {' or '.join(SCALES)}")
    problems.check(item == ALL or item in ITEMS, f"no item {item!r}: choose one of {', '.join(ITEMS)}, {ALL} or list")
    cells: list[Cell] = []
    for name in ON_CIFAR10 if item == ALL else (item,):
        if name in ITEMS and options.scale in SCALES:
            chosen = ITEMS[name]
            cells += problems.attempt(chosen.cells, chosen.scales[options.scale], request) or []
    if cells:
        _check_used(problems, request, cells, named_methods=bool(options.methods))
    problems.check(options.budget is None or options.budget >= 0, f"--budget {options.budget}: must be at least 0")
    problems.check(options.lockstep >= 1, f"--lockstep {options.lockstep}: must be at least 1")
    check_device(problems, options.device)
    known_executor = options.executor == "local" or is_ray(options.executor)
    problems.check(known_executor, f"unknown executor {options.executor!r}; choose local, ray or ray://HEAD:PORT")
    problems.stop_if_any()
    return request


def _check_used(problems: Problems, request: SweepRequest, cells: Sequence[Cell], *, named_methods: bool) -> None:
    """Refuse options that no cell uses, and settings that a method does not have."""
    methods = dict.fromkeys(cell.method for cell in cells)
    available = f"this item has {', '.join(methods)}"
    for name in request.methods if named_methods else ():
        problems.check(name in methods, f"--methods {name}: {available}")
    for name, key, _ in request.settings:
        problems.check(name in methods, f"--set {name}.{key}: {available}")
    if request.networks is not None:
        used = {cell.network for cell in cells}
        problems.check(
            used >= {*request.networks}, f"--networks {','.join(request.networks)}: this item does not use it"
        )
    if request.iterations and not any(cell.iterations for cell in cells):
        problems.check(False, f"--iterations {request.iterations}: this item does not use INCV")
    for cell in {(cell.method, cell.settings): cell for cell in cells if cell.settings}.values():
        problems.attempt(build_method, cell)


# ---------------------------------------------------------------- drawing


def draw_item(item: Item, results: Path, scale: Scale, progress: Progress) -> list[Path]:
    """Write the item's table, and its figure if matplotlib is installed, from the records."""
    found = records.read_all(results, item.kind, scale=scale.name) if item.kind else []
    table = results / "tables" / f"{item.name}.md"
    write_text(table, item.text(found, scale, results) + "\n")
    files = [table]
    if item.figure is not None and (found or not item.kind):
        if importlib.util.find_spec("matplotlib") is None:
            progress.note("matplotlib is not installed: the figure is not drawn")
        else:
            path = results / "figures" / f"{item.name}.svg"
            item.figure(found, scale, results, path)
            files += [path, path.with_suffix(".png")]
    return files


def list_items() -> list[tuple[str, str]]:
    """Return the names and titles of all items."""
    return [(item.name, item.title) for item in ITEMS.values()]


# ---------------------------------------------------------------- without the command line's packages

_TYPES = {"int": int, "int | None": int, "float | None": float, "Path | None": Path}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m labelsieve.experiments.runner", epilog="`labelsieve reproduce --help` describes the options."
    )
    parser.add_argument("item", help=f"{', '.join(ITEMS)}, {ALL}, or `list`")
    for field in fields(ReproduceOptions):
        name = option(field.name)
        if isinstance(field.default, bool):
            parser.add_argument(name, action=argparse.BooleanOptionalAction, default=field.default)
        elif isinstance(field.default, tuple):
            parser.add_argument(name, action="append", default=[])
        else:
            parser.add_argument(name, type=_TYPES.get(str(field.type), str), default=field.default)
    values = vars(parser.parse_args(arguments))
    item, values["set"] = values.pop("item"), tuple(values["set"])
    try:
        if item == "list":
            print("\n".join(f"{name:26}{title}" for name, title in list_items()))
            return 0
        reproduce(item, ReproduceOptions(**values), progress=Progress(stream=sys.stdout))
        return 0
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; finished cells are kept", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
