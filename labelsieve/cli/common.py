"""What the commands share: --json, --seed, printing of results, and checks of options."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from labelsieve.errors import Problems
from labelsieve.progress import Progress, format_share

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
"""An option without a value and without a --no-... form."""


def _shown_default(value: Any) -> str | None:
    """A default as the help shows it; None and an empty tuple are not shown."""
    return None if value is None or value == () else str(value)


Flat = Parameter(name="*", negative="", show_default=_shown_default)
"""The fields of a dataclass as options of a command."""


@Parameter(name="*")
@dataclass(frozen=True)
class Output:
    """How results are printed.

    Parameters
    ----------
    json
        Print one JSON object and nothing else.
    """

    json: Flag = False

    def progress(self) -> Progress:
        return Progress(silent=self.json)

    def say(self, *lines: str) -> None:
        """Print lines for a person."""
        if not self.json:
            print(*lines, sep="\n", flush=True)

    def answer(self, result: Mapping[str, Any] | Sequence[Any]) -> None:
        """Print the result as JSON."""
        if self.json:
            json.dump(result, sys.stdout, indent=2, default=_plain)
            print(flush=True)


@Parameter(name="*")
@dataclass(frozen=True)
class Common(Output):
    """Options of commands that have no settings of their own.

    Parameters
    ----------
    seed
        Random seed. Commands that use no random numbers ignore it.
    """

    seed: int = 0


def check_target(problems: Problems, option: str, target: Path, *, source: str, force: bool, example: str) -> None:
    """Check a file that a command writes: it must not be the source, and --force is needed to overwrite it."""
    if target.is_dir():
        problems.check(False, f"{option} {target} is a folder; give a file, such as {target / example}")
    elif target.is_file() and Path(source).exists() and target.samefile(source):
        problems.check(False, f"{option} {target} is the source, which is never changed; give another file")
    elif not force:
        problems.check(not target.exists(), f"{target} exists; give another {option}, or --force to overwrite it")


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align columns: the first one left, the others right."""
    left, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = []
    for name, *cells in rows:
        numbers = (cell.rjust(width) for cell, width in zip(cells, others, strict=True))
        lines.append("  ".join([name.ljust(left), *numbers]).rstrip())
    return lines


def percent(value: float | None) -> str:
    return "-" if value is None else format_share(value)


def _plain(value: Any) -> Any:
    import numpy as np

    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)
