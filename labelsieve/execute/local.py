"""Where the trainings of one request run on this machine.

An executor is None or "serial", "threads", "processes", a number of workers, or any object with a `map`
(`concurrent.futures`, `multiprocessing.Pool`). Answers come back in the order of the requests, and each request
carries its own seed, so that the result is the same on any number of workers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from labelsieve.errors import InputError

Item = TypeVar("Item")
Answer = TypeVar("Answer")

NAMES = ("serial", "threads", "processes")


def check_executor(executor: Any) -> None:
    """Raise InputError where `executor` is none of the known kinds."""
    if executor is None or executor in NAMES or callable(getattr(executor, "map", None)):
        return
    if isinstance(executor, int) and not isinstance(executor, bool) and executor >= 1:
        return
    raise InputError(
        f"executor: {executor!r} is not known; use None, {', '.join(NAMES)}, a number of workers, or an object with map"
    )


def run_all(task: Callable[[Item], Answer], items: Sequence[Item], executor: Any = None) -> list[Answer]:
    """`[task(item) for item in items]`, where `executor` says."""
    check_executor(executor)
    if executor is None or executor == "serial" or len(items) < 2 or executor == 1:
        return [task(item) for item in items]
    if callable(getattr(executor, "map", None)):
        return list(executor.map(task, items))

    from joblib import Parallel, delayed

    workers = executor if isinstance(executor, int) else (os.cpu_count() or 1)
    parallel = Parallel(n_jobs=min(workers, len(items)), prefer="threads" if executor == "threads" else "processes")
    return list(parallel(delayed(task)(item) for item in items))
