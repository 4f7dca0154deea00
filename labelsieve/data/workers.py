"""Processes that decode. loky's (it comes with scikit-learn): they start without running the caller's script again."""

from __future__ import annotations

import os
from concurrent.futures import Executor
from typing import cast


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processes(workers: int) -> Executor:
    """A pool of `workers` processes; shut it down when done. A killed process breaks it (BrokenProcessPool)."""
    from joblib.externals.loky import ProcessPoolExecutor

    return cast("Executor", ProcessPoolExecutor(workers))
