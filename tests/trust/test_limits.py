"""Other users, read-only folders, clocks, kills during an export, full disks and very large inputs."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trust_chaos as chaos
import trust_generated as generated
import trust_large as large

QUICK = "--model nearest --iterations 1"
root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@pytest.fixture(scope="module")
def here() -> Iterator[Path]:
    """A folder that other users can enter, with a run of pictures."""
    before = Path.cwd()
    chaos.load_everything()
    folder = Path(tempfile.mkdtemp(prefix="labelsieve-limits-"))
    folder.chmod(0o755)
    chaos.prepare(folder)
    for line in (
        f"run shapes --out done {QUICK} --network small-cnn --train-epochs 1 --device cpu",
        "predict done shapes --to p.csv",
        "export done --to out-before",
    ):
        from labelsieve.cli.app import run

        assert run(line.split()) == 0  # in this process, which imports what another user cannot
    yield folder
    os.chdir(before)
    shutil.rmtree(folder)


def as_nobody(line: str, folder: Path) -> tuple[int, str]:
    """Run a command as a user without rights and without a home; its messages go to a folder of its own."""
    folder.mkdir(exist_ok=True)
    os.chown(folder, generated.NOBODY, generated.NOBODY)
    source = Path.cwd()
    os.chdir(folder)
    try:
        child = chaos.fork(line.replace("HERE", str(source)), prelude=generated.become_nobody)
        code = child.wait()
        return code, child.stderr
    finally:
        os.chdir(source)


@root_only
def test_a_home_and_an_output_that_cannot_be_written(here: Path) -> None:
    code, said = as_nobody(f"select HERE/shapes --out HERE/new {QUICK}", here / "theirs")
    assert code == 1 and "Permission denied" in said.splitlines()[-1] and "Traceback" not in said
    code, said = as_nobody(f"select HERE/shapes --out mine {QUICK}", here / "theirs")
    assert code == 0, said
    code, said = as_nobody("export mine --to HERE/exported", here / "theirs")
    assert code == 1 and "cannot write" in said.splitlines()[-1] and not Path("exported").exists()


@root_only
def test_a_run_of_another_user(here: Path) -> None:
    before = generated.snapshot(here / "done")
    for line, codes in (
        ("export HERE/done --to exported", (0,)),
        ("predict HERE/done HERE/shapes --to p.csv", (0,)),
        ("report HERE/done", (1, 2)),
        ("review HERE/done --port 0", (1, 2)),
        ("train HERE/done --method standard --train-epochs 2", (1, 2)),
        (f"select HERE/shapes --out HERE/done {QUICK} --seed 5", (1, 2)),
    ):
        code, said = as_nobody(line, here / "theirs")
        assert code in codes and "Traceback" not in said, f"{line}: {code} {said}"
        assert code == 0 or said.splitlines()[-1].startswith("labelsieve: "), said
    assert generated.snapshot(here / "done") == before


def test_a_clock_that_goes_backwards(here: Path) -> None:
    def backwards() -> None:
        began = time.time()
        ticks = iter(range(10**9))
        time.time = lambda: began - 3600 * next(ticks)

    shutil.copytree("shapes", "future")
    for path in Path("future").rglob("*.png"):
        os.utime(path, (time.time() + 10**7,) * 2)
    line = f"run future --out clock {QUICK} --network small-cnn --train-epochs 1 --device cpu"
    child = chaos.fork(line, prelude=backwards)
    assert child.wait() == 0, child.stderr
    Path("clock/decisions.csv").write_text(
        "id,decision,label,time\n"
        "bright/001.png,drop,,2026-01-02T00:00:00.000+00:00\nbright/001.png,keep,bright,1999-01-01T00:00:00.000+00:00\n"
    )
    child = chaos.fork("export clock --to clock-out", prelude=backwards)
    assert child.wait() == 0, child.stderr
    assert list(Path("clock-out").rglob("001.png")), "the last line counts, not the latest time"


def test_killed_while_it_exports(here: Path) -> None:
    """The old folder or the new one; the next export ends and leaves nothing behind."""
    originals = generated.snapshot(here / "shapes")
    expected = len(list(Path("out-before").rglob("*.png")))
    kills = 0
    for call in (1, 2, 3, 5, 8):
        shutil.copytree("out-before", "out")
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
    assert generated.snapshot(here / "shapes") == originals


@pytest.mark.slow
def test_a_disk_that_is_full_after_half_of_a_large_export(here: Path) -> None:
    with Path("wide.csv").open("w") as file:
        file.write("x,z,note,label\n")
        for i in range(2000):
            file.write(f"{i % 2 + i / 9000},{i % 7},{'n' * 50_000},{'ab'[i % 2]}\n")
    line = f"select wide.csv --ignore-columns note --out wide {QUICK}"
    child = chaos.fork(line)
    assert child.wait() == 0, child.stderr
    child = chaos.fork("export wide --what cleaned --to full.csv", prelude=chaos.limit_files(50_000_000))
    assert child.wait() == 1 and "File too large" in child.stderr.splitlines()[-1], child.stderr
    assert not Path("full.csv").exists() and not list(Path().glob(".full*"))
    child = chaos.fork("export wide --what cleaned --to full.csv")
    assert child.wait() == 0 and Path("full.csv").stat().st_size > 100_000_000


@pytest.mark.slow
@pytest.mark.parametrize("name", large.CASES)
def test_very_large_inputs(name: str) -> None:
    """They are read, or refused with one line; report and export of the result work."""
    assert large.measure(name).code == (2 if "1,000,000" in name else 0)
