"""Other users, read-only folders, clocks, kills during an export and full disks.

Each case works in a folder with a finished run of pictures, raises AssertionError if a guarantee is broken, and returns
one line with the result for the trust page.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import trust_chaos as chaos
import trust_generated as generated

QUICK = "--model nearest --iterations 1"
NETWORK = "--network small-cnn --train-epochs 1 --device cpu"
DISK_BYTES = 50_000_000  # half of what the large export needs


@contextmanager
def finished_run() -> Iterator[Path]:
    """A folder that other users can enter, with a run of pictures `done`, its predictions and an export of it."""
    from labelsieve.cli.app import run

    before = Path.cwd()
    chaos.load_everything()
    folder = Path(tempfile.mkdtemp(prefix="labelsieve-limits-"))
    folder.chmod(0o755)
    try:
        chaos.prepare(folder)
        lines = (
            f"run shapes --out done {QUICK} {NETWORK}",
            "predict done shapes --to p.csv",
            "export done --to before",
        )
        for line in lines:  # in this process, which imports what another user cannot
            assert run(line.split()) == 0
        yield folder
    finally:
        os.chdir(before)
        shutil.rmtree(folder)


def run(name: str) -> str:
    with finished_run() as folder:
        return CASES[name](folder)


def as_nobody(line: str, folder: Path) -> tuple[int, str]:
    """Run a command as a user without rights and without a home; its messages go to a folder of its own."""
    theirs = folder / "theirs"
    theirs.mkdir(exist_ok=True)
    os.chown(theirs, generated.NOBODY, generated.NOBODY)
    os.chdir(theirs)
    try:
        child = chaos.fork(line.replace("HERE", str(folder)), prelude=generated.become_nobody)
        code = child.wait()
        assert code in (0, 1, 2) and "Traceback" not in child.stderr, f"{line}: {code} {child.stderr}"
        assert code == 0 or child.stderr.splitlines()[-1].startswith("labelsieve: "), child.stderr
        return code, child.stderr
    finally:
        os.chdir(folder)


def read_only(folder: Path) -> str:
    code, said = as_nobody(f"select HERE/shapes --out HERE/new {QUICK}", folder)
    assert code == 1 and "Permission denied" in said.splitlines()[-1]
    code, said = as_nobody(f"select HERE/shapes --out mine {QUICK}", folder)
    assert code == 0, said
    code, said = as_nobody("export mine --to HERE/exported", folder)
    assert code == 1 and "cannot write" in said.splitlines()[-1] and not Path("exported").exists()
    return "without a home, `select` works; an output that cannot be written is refused with one line"


def other_user(folder: Path) -> str:
    before = generated.snapshot(folder / "done")
    allowed = ("export HERE/done --to exported", "predict HERE/done HERE/shapes --to p.csv")
    refused = (
        "report HERE/done",
        "review HERE/done --port 0",
        "train HERE/done --method standard --train-epochs 2",
        f"select HERE/shapes --out HERE/done {QUICK} --seed 5",
    )
    for line in (*allowed, *refused):
        code, said = as_nobody(line, folder)
        assert (code == 0) == (line in allowed), f"{line}: {code} {said}"
    assert generated.snapshot(folder / "done") == before
    return (
        f"{len(allowed)} commands read it; {len(refused)} that write are refused with one line; the run does not change"
    )


def clock_backwards(folder: Path) -> str:
    def backwards() -> None:
        began = time.time()
        ticks = iter(range(10**9))
        time.time = lambda: began - 3600 * next(ticks)

    shutil.copytree("shapes", "future")
    for path in Path("future").rglob("*.png"):
        os.utime(path, (time.time() + 10**7,) * 2)
    child = chaos.fork(f"run future --out clock {QUICK} {NETWORK}", prelude=backwards)
    assert child.wait() == 0, child.stderr
    Path("clock/decisions.csv").write_text(
        "id,decision,label,time\n"
        "bright/001.png,drop,,2026-01-02T00:00:00.000+00:00\nbright/001.png,keep,bright,1999-01-01T00:00:00.000+00:00\n"
    )
    child = chaos.fork("export clock --to clock-out", prelude=backwards)
    assert child.wait() == 0, child.stderr
    assert list(Path("clock-out").rglob("001.png")), "the last line counts, not the latest time"
    return "`run` and `export` work; the last decision in the file counts"


def killed_export(folder: Path) -> str:
    """The old folder or the new one; the next export ends and leaves nothing behind."""
    originals = generated.snapshot(folder / "shapes")
    expected = len(list(Path("before").rglob("*.png")))
    kills = 0
    for call in (1, 2, 3, 4, 5, 6, 8):
        shutil.copytree("before", "out")
        child = chaos.fork("export done --to out --force", prelude=chaos.at_call(call, chaos.die))
        code = child.wait()
        assert code in (-signal.SIGKILL, 0), child.stderr
        kills += code != 0
        left = Path("out") if Path("out").exists() else next(Path().glob(".out.labelsieve.*.old"))
        assert len(list(left.rglob("*.png"))) == expected
        child = chaos.fork("export done --to out --force")
        assert child.wait() == 0, child.stderr
        assert len(list(Path("out").rglob("*.png"))) == expected and not list(Path().glob(".out*"))
        shutil.rmtree("out")
    assert kills >= 3
    assert generated.snapshot(folder / "shapes") == originals
    return f"{kills} kills: the old export or the new one is complete, and the next export works"


@contextmanager
def small_disk(size: int) -> Iterator[tuple[Path, Callable[[], None] | None]]:
    """A folder on a disk of `size` bytes; for a user who cannot mount one, a limit of the file size."""
    disk = Path("disk")
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
    mounted = subprocess.run(mount, capture_output=True).returncode == 0
    try:
        yield disk, None if mounted else chaos.limit_files(size)
    finally:
        if mounted:
            subprocess.run(["umount", str(disk)], check=True)


def full_disk(folder: Path) -> str:
    with Path("wide.csv").open("w") as file:
        file.write("x,z,note,label\n")
        for i in range(2000):
            file.write(f"{i % 2 + i / 9000},{i % 7},{'n' * 50_000},{'ab'[i % 2]}\n")
    child = chaos.fork(f"select wide.csv --ignore-columns note --out wide {QUICK}")
    assert child.wait() == 0, child.stderr
    line = "export wide --what cleaned --to disk/full.csv"
    with small_disk(DISK_BYTES) as (disk, prelude):
        (disk / "full.csv").write_text("an older file\n")
        child = chaos.fork(f"{line} --force", prelude=prelude)
        code, said = child.wait(), child.stderr
        assert code == 1 and "full.csv" in said.splitlines()[-1] and "Traceback" not in said, said
        assert [path.name for path in disk.iterdir()] == ["full.csv"]
        assert (disk / "full.csv").read_text() == "an older file\n"
        reason = said.splitlines()[-1].rpartition(": ")[2]
    shutil.rmtree(disk)
    disk.mkdir()
    child = chaos.fork(line)
    assert child.wait() == 0 and Path("disk/full.csv").stat().st_size > 2 * DISK_BYTES, child.stderr
    return f'exit code 1, one line ("{reason}"); the older file is unchanged, no partial file; the next export works'


CASES: dict[str, Callable[[Path], str]] = {
    "a home and an output that cannot be written, as a user without rights": read_only,
    "the run folder of another user, as a user without rights": other_user,
    "a clock that goes backwards, files from the future": clock_backwards,
    "`export --force`, killed at its writes": killed_export,
    "a disk of 50 MB, full in the middle of an export of 100 MB over an older file": full_disk,
}
NEEDS_ROOT = {read_only, other_user}
SLOW = {full_disk}
