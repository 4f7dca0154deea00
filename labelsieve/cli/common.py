"""What every command shares: --json, --seed, how results are said, how mistakes are gathered."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from labelsieve.errors import Problems
from labelsieve.progress import Progress

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
"""An option that is given or not: no --no-... beside it."""


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """Options of every command."""

    json: Flag = False
    """Print one JSON object and nothing else."""

    seed: int = 0
    """The same seed gives the same answer."""

    def progress(self) -> Progress:
        return Progress(silent=self.json)

    def say(self, *lines: str) -> None:
        """Lines for a person, on stdout."""
        if not self.json:
            print(*lines, sep="\n", flush=True)

    def answer(self, result: Mapping[str, Any]) -> None:
        """The result for a machine."""
        if self.json:
            json.dump(result, sys.stdout, indent=2, default=_plain)
            print(flush=True)


def check_seed(problems: Problems, common: Common) -> None:
    problems.check(0 <= common.seed < 2**32, f"--seed {common.seed} is outside 0..2^32-1")


def check_target(problems: Problems, option: str, target: Path, *, source: str, force: bool, usual: str) -> None:
    """A file to write: nothing that is there is written over unless --force says so, and the source never."""
    if target.is_dir():
        problems.check(False, f"{option} {target} is a folder: give a file, such as {target / usual}")
    elif target.is_file() and Path(source).exists() and target.samefile(source):
        problems.check(False, f"{option} {target} is the source, which is never changed: give another file")
    elif not force:
        fine = not target.exists()
        problems.check(fine, f"{target} is there already: give another {option}, or --force to write over it")


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned lines: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def counted(count: int, one: str) -> str:
    """1 sample, 2 samples."""
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return value.tolist() if hasattr(value, "tolist") else str(value)


def folder_for(source: str, out: Path | None) -> Path:
    """Where a run of this source lies: as told, or runs/ and the source's own name."""
    if out is not None:
        return out
    name = Path(source.partition("?")[0].rpartition(":")[2]).resolve()
    kept = re.sub(r"[^\w.-]+", "-", name.name if name.is_dir() else name.stem).strip("-.")
    return Path("runs") / (kept or "run")


def beside_others(out: Path, device: str) -> Path:
    """Under torchrun: join the other processes. The first writes `out` and speaks, the others have a scratch copy."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return out
    from labelsieve.engine import parallel

    world = parallel.start(device)
    if world.rank:
        sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - for the rest of the process
    return world.folder(out)


def one_first() -> AbstractContextManager[None]:
    """Under torchrun: the first process of each machine reads and stages the data, then the others find it staged."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return nullcontext()
    from labelsieve.engine import parallel

    return parallel.current().one_first()
