"""A case: files that somebody makes, the command that reads them, and what has to be true afterwards.

It is survived where no payload left its `marker`, the command ends in time and memory, and says at most one line for
each thing that is wrong.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Case:
    name: str
    kind: str  # the row of the table it counts in
    make: Callable[[Path], None]
    command: str
    code: int | None = 2  # None: any of 0 and 2
    message: str = ""  # what the message must say
    check: Callable[[Path], None] = lambda folder: None


CASES: list[Case] = []
MOST_SECONDS = 20  # of processor time, the import of torch included
MOST_MEMORY = 700_000  # kilobytes more than before, pillow, pyarrow and torch included


def survive(case: Case, folder: Path, said: Callable[[], str]) -> None:
    """Make the files in `folder`, the working one, and read them. `said` returns what went to stderr since it was asked
    last. AssertionError where the promise is broken."""
    from labelsieve.cli.app import run

    case.make(folder)
    said()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    code = run(case.command.split())
    seconds = time.process_time() - began
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    message = said()
    assert not (folder / "marker").exists(), "the payload ran"
    assert code == case.code or (case.code is None and code in (0, 2)), message
    assert case.message in message and "Traceback" not in message, message
    lines = message.splitlines()
    assert code == 0 or (lines[-1].startswith("labelsieve: ") and len(lines[-1]) < 1000), message
    assert grown < MOST_MEMORY, f"{grown / 1e6:.1f} GB more memory"
    assert seconds < MOST_SECONDS, f"{seconds:.0f} seconds"
    case.check(folder)


def case(kind: str, command: str, **options: Any) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    def add(make: Callable[[Path], None]) -> Callable[[Path], None]:
        CASES.append(Case(make.__name__.replace("_", " "), kind, make, command, **options))
        return make

    return add
