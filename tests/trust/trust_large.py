"""Very large inputs. Each is read, or refused with one line; the time and the memory of the process are measured."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MOST_SECONDS = 600  # of processor time per command; the kernel ends a command that needs more


@dataclass(frozen=True)
class Measured:
    code: int
    seconds: float  # of processor time, which does not depend on other programs
    megabytes: float  # the most memory that the process had
    file_megabytes: float
    message: str = ""  # the last line, if the file was refused


def columns(count: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        row = ",".join(map(str, np.random.default_rng(0).integers(0, 99, count)))
        with path.open("w") as file:
            file.write(",".join(f"c{i}" for i in range(count)) + ",label\n")
            file.writelines(f"{i},{row[row.index(',') + 1 :]},{'ab'[i % 2]}\n" for i in range(20))

    return make


def array(*, compressed: bool) -> Callable[[Path], None]:
    """320 MB of numbers; zeros are compressed to a thousandth."""

    def make(path: Path) -> None:
        rng = np.random.default_rng(0)
        x = np.zeros((20_000, 4_000), np.float32) if compressed else rng.random((20_000, 4_000), np.float32)
        (np.savez_compressed if compressed else np.savez)(path, x=x, y=np.arange(20_000) % 2)

    return make


def thousand_classes(path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(5000) % 1000
    centres = rng.normal(size=(1000, 8)) * 5
    np.savez(path, x=(centres[y] + rng.normal(size=(5000, 8))).astype(np.float32), y=y)


def long_cell(path: Path) -> None:
    with path.open("w") as file:
        file.write("text,label\n")
        for i in range(40):
            file.write(f"{('good fine nice', 'bad poor ugly')[i % 2]} {i},{'ab'[i % 2]}\n")
        file.write(f"{'a' * 200_000_000},a\n")


# The file, and the model that selects.
CASES: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "a table of 1,000,000 columns": ("t.csv", columns(999_999), "nearest"),
    "a table of 100,000 columns": ("t.csv", columns(99_999), "nearest"),
    "an `.npz` of 320 MB": ("t.npz", array(compressed=False), "nearest"),
    "an `.npz` that unpacks to 320 MB": ("t.npz", array(compressed=True), "nearest"),
    "1,000 classes of 5 samples": ("t.npz", thousand_classes, "nearest"),
    "a cell of 200 MB": ("t.csv", long_cell, "tfidf"),
}


def measure(name: str) -> Measured:
    """Run `select`, and `report` and `export` of its result, in new processes. AssertionError if one fails."""
    file, make, model = CASES[name]
    with tempfile.TemporaryDirectory(prefix="labelsieve-large-") as folder:
        path = Path(folder, file)
        make(path)
        done = _run(f"select {file} --out run --model {model} --iterations 1", path)
        if done.code == 0:
            for line in ("report run", "export run --what suspects --to s.csv"):
                assert _run(line, path).code == 0
        return done


def _run(line: str, path: Path) -> Measured:
    command = [sys.executable, "-m", "labelsieve", *line.split()]
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(command, cwd=path.parent, stdout=said, stderr=said)
        resource.prlimit(child.pid, resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
        try:
            _, status, usage = os.wait4(child.pid, 0)
        except BaseException:  # the test was stopped: its process must not outlive it
            child.kill()
            child.wait()
            raise
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read().decode(errors="replace")
    assert child.returncode in (0, 2) and "Traceback" not in text, f"{line}: {child.returncode} {text[-2000:]}"
    last = text.splitlines()[-1] if child.returncode else ""
    assert not last or (last.startswith("labelsieve: ") and len(last) < 1000), text[-2000:]
    return Measured(
        child.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000, path.stat().st_size / 1e6, last
    )
