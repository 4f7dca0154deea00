"""labelsieve bench: how fast it is, beside what people would use instead, in one run."""

from __future__ import annotations

from typing import Literal

from labelsieve.cli.common import Common
from labelsieve.errors import Problems


def bench(
    what: Literal["engine", "select", "io"],
    /,
    *,
    device: str = "auto",
    large: bool = False,
    pictures: int = 3000,
    common: Common = Common(),
) -> None:
    """Measure the training engine, the selection on stored predictions, or reading pictures.

    Parameters
    ----------
    what
        engine: networks in lockstep beside the usual loop. select: beside cleanlab. io: beside a plain pillow loop.
    device
        Of engine: auto, cpu, cuda or mps.
    large
        Of select: also 10 M x 100 from a memory-mapped file (4 GB of disk).
    pictures
        Of io: how many.
    """
    problems = Problems()
    problems.check(pictures >= 10, f"--pictures {pictures}: at least 10 are needed")
    problems.stop_if_any()
    if what == "engine":
        from labelsieve.bench import engine_speed as bench_engine

        bench_engine.run(device=device, as_json=common.json)
    elif what == "select":
        from labelsieve.bench import selection_speed as bench_select

        bench_select.run(json=common.json, large=large)
    else:
        from labelsieve.bench import io_speed as bench_io

        result = bench_io.run(pictures, seed=common.seed)
        common.say(*bench_io.describe(result))
        common.answer(result)
