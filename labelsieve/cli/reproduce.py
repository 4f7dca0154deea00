"""`labelsieve reproduce ITEM`: a figure or table of the paper, with the paper's values beside ours."""

from __future__ import annotations

import json as json_format
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from labelsieve.cli.common import Flag


def reproduce(
    item: str,
    /,
    *,
    data: Path | None = None,
    results: Path | None = None,
    scale: Literal["smoke", "paper"] = "paper",
    seeds: str | None = None,
    seed: int = 0,
    methods: str | None = None,
    settings: str | None = None,
    epochs: int | None = None,
    selection_epochs: int | None = None,
    iterations: int | None = None,
    changed: Annotated[tuple[str, ...], Parameter(name="--set")] = (),
    budget: float | None = None,
    lockstep: int = 16,
    device: str = "auto",
    executor: str = "local",
    commit: str | None = None,
    json: Flag = False,
) -> int:
    """Run what is missing of a figure or table of the paper, then draw it from the records.

    Parameters
    ----------
    item
        Which one; `list` names them.
    data
        Folder with CIFAR-10 (`labelsieve data fetch cifar10 --to DIR`); for webvision and webvision-errors one with
        WebVision 1.0, and ILSVRC12's validation set in its folder ilsvrc12. Smoke needs none.
    results
        Folder of the records; `results`, or `runs/reproduce-smoke` for smoke.
    scale
        `paper` is the paper's protocol, `smoke` a small one that any CPU runs in seconds.
    seeds
        `0-4`, `0,2` or `3`.
    seed
        The one seed to run where `seeds` is not given.
    methods
        Of tables 1 and 2, separated by commas, in the order they shall run.
    settings
        Noise settings, e.g. `symmetric-0.5,pair-0.4`.
    epochs
        Shorter trainings than the protocol's; told beside every number drawn from them.
    selection_epochs
        Likewise, of INCV's trainings.
    iterations
        Likewise, of INCV.
    changed
        A method's setting, METHOD.SETTING=VALUE, e.g. `f-correction.estimate_epochs=50`; told likewise.
    budget
        Seconds after which it stops cleanly; the same command goes on.
    lockstep
        Networks that train at once.
    device
        `auto`, `cpu`, `cuda` or `mps`.
    executor
        `local`; `ray` (this machine, or $RAY_ADDRESS) or `ray://HEAD:6379`: the trainings as tasks of a Ray cluster, a
        GPU each where it has any. DIR of `--results`, and of `--data` for WebVision, must be on storage that all of its
        machines share.
    commit
        Commit of the code for the records, where git cannot tell it.
    json
        One JSON object on stdout instead of words.
    """
    from labelsieve.experiments.cli_args import check_asked
    from labelsieve.experiments.run import listing
    from labelsieve.experiments.run import reproduce as run
    from labelsieve.progress import Progress

    if item == "list":
        if json:
            print(json_format.dumps([{"item": name, "title": title} for name, title in listing()]))
        else:
            print("\n".join(f"{name:26}{title}" for name, title in listing()))
        return 0

    def say(line: str) -> None:
        if not json:
            print(line, file=sys.stderr, flush=True)

    wish = check_asked(
        [item], scale=scale, budget=budget, lockstep=lockstep, device=device, executor=executor,
        seeds=str(seed) if seeds is None else seeds, methods=methods, settings=settings, epochs=epochs,
        selection_epochs=selection_epochs, iterations=iterations, method_settings=changed,
    )  # fmt: skip
    done = run(
        item,
        data=data,
        results=results,
        scale=scale,
        wish=wish,
        budget=budget,
        device=device,
        lockstep=lockstep,
        executor=executor,
        commit=commit,
        say=say,
        progress=Progress(silent=json),
    )
    if json:
        print(json_format.dumps(done))
    else:
        print("\n".join(done["files"]))
    return 0
