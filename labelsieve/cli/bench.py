"""labelsieve bench: measure speed."""

from __future__ import annotations

from typing import Literal

from labelsieve.cli.common import Common
from labelsieve.errors import Problems

MIN_PICTURES = 10  # fewer take no measurable time


def bench(
    what: Literal["engine", "select", "io"],
    /,
    *,
    device: str = "auto",
    large: bool = False,
    pictures: int = 3000,
    common: Common = Common(),
) -> None:
    """Measure the training engine, the selection on stored predictions, or the reading of pictures.

    Parameters
    ----------
    what
        engine: networks in lockstep against a plain training loop. select: against cleanlab. io: against a plain
        pillow loop.
    device
        Device of engine: auto, cpu, cuda or mps.
    large
        For select: also measure 10 M x 100 probabilities in a memory-mapped file (4 GB of disk).
    pictures
        For io: number of pictures.
    """
    problems = Problems()
    problems.check(pictures >= MIN_PICTURES, f"--pictures {pictures}: give at least {MIN_PICTURES}")
    problems.stop_if_any()
    if what == "engine":
        from labelsieve.bench import engine_speed

        engine_speed.run(device=device, as_json=common.json)
    elif what == "select":
        from labelsieve.bench import selection_speed

        selection_speed.run(json=common.json, large=large)
    else:
        from labelsieve.bench import io_speed

        result = io_speed.run(pictures, seed=common.seed)
        common.say(*io_speed.describe(result))
        common.answer(result)
