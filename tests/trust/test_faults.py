"""Kills, signals, full disks, two processes, changes under a resume: nothing is lost and nothing is half."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
import trust_chaos as chaos


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    before = Path.cwd()
    chaos.load_everything()
    chaos.prepare(folder)
    yield folder
    os.chdir(before)


@pytest.fixture(scope="module")
def whole(here: Path) -> dict:
    child = chaos.fork(f"{chaos.SCENARIOS['network']} --out whole")
    assert child.wait() == 0, child.stderr
    assert chaos.check(Path("whole"), samples=90) >= 6
    return chaos.result(Path("whole"))


@pytest.mark.parametrize(
    ("scenario", "kills"), [("network", 6), ("scikit-learn", 4), ("pictures", 3)]
)  # `make trust` has more
def test_killed_again_and_again_it_ends_the_same(here: Path, scenario: str, kills: int) -> None:
    tally = chaos.chaos(scenario, kills, seed=3)
    assert tally.kills == kills and tally.files > kills


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_at_the_next_safe_point_and_keeps_everything(
    here: Path, whole: dict, number: signal.Signals, code: int
) -> None:
    run = Path(f"stopped-{code}")
    line = f"{chaos.SCENARIOS['network']} --out {run}"
    stops = 0
    while stops < 4:
        child = chaos.fork(line, often=False)
        # Wait for a training to have begun: before it there is nothing to keep. A resumed run may have none left.
        ended = None
        while ended is None and not (seen := child.said.exists() and "training" in child.stderr):
            ended = child.wait_at_most(0.01)
        if ended is None:
            time.sleep(0.05)
            child.send(number)
            ended = child.wait_at_most(60)
        assert ended in (code, 0), child.stderr
        assert "Traceback" not in child.stderr
        chaos.check(run)
        if ended == 0:
            break
        assert "resume" in child.stderr and seen
        assert list(run.rglob("checkpoints/**/*.*")), "nothing was kept"
        stops += 1
    assert chaos.fork(line).wait() == 0
    assert chaos.result(run) == whole and stops >= 1


def test_a_second_ctrl_c_stops_at_once(here: Path) -> None:
    child = chaos.fork("select t.csv --out slow --model trust_models:Slow")
    while not (child.said.exists() and "fitting" in child.stderr):
        time.sleep(0.01)
    child.send(signal.SIGINT)
    assert child.wait_at_most(1.0) is None and "repeat to stop" in child.stderr
    began = time.monotonic()
    child.send(signal.SIGINT)
    assert child.wait_at_most(10.0) == 130 and time.monotonic() - began < 5
    assert "Traceback" not in child.stderr
    chaos.check(Path("slow"))


@pytest.mark.parametrize("call", [1, 3, 8, 21, 55])
def test_a_full_disk_is_one_line_and_the_next_start_goes_on(here: Path, whole: dict, call: int) -> None:
    run = Path(f"full-{call}")
    line = f"{chaos.SCENARIOS['network']} --out {run}"
    child = chaos.fork(line, prelude=chaos.at_call(call, chaos.full_disk))
    code = child.wait()
    assert code in (0, 1), child.stderr  # 0: the refused call was one that a run can do without
    assert code == 0 or "No space left on device" in child.stderr.splitlines()[-1]
    assert "Traceback" not in child.stderr
    chaos.check(run)
    if call in (8, 55):
        assert chaos.fork(line).wait() == 0
        assert chaos.result(run) == whole


@pytest.mark.parametrize("size", [0, 400, 12_000])
def test_files_that_may_not_grow(here: Path, whole: dict, size: int) -> None:
    run = Path(f"limit-{size}")
    child = chaos.fork(f"{chaos.SCENARIOS['network']} --out {run}", prelude=chaos.limit_files(size))
    assert child.wait() == 1
    # With no byte allowed nothing can be said either.
    assert size < 400 or "File too large" in child.stderr, child.stderr
    chaos.check(run)
    if size == 12_000:
        assert chaos.fork(f"{chaos.SCENARIOS['network']} --out {run}").wait() == 0
        assert chaos.result(run) == whole


@pytest.mark.parametrize(
    ("out", "code", "message"),
    [("t.csv", 2, "is a file"), ("t.csv/run", 1, "Not a directory"), ("/proc/nowhere/run", 1, "No such file")],
)
def test_an_output_that_cannot_be_written(here: Path, out: str, code: int, message: str) -> None:
    before = Path("t.csv").read_bytes()
    child = chaos.fork(f"run t.csv --out {out}")
    assert child.wait() == code
    assert message in child.stderr and len(child.stderr.splitlines()) == 1
    assert Path("t.csv").read_bytes() == before


def test_two_processes_and_a_stale_lock(here: Path) -> None:
    run = Path("two")
    first = chaos.fork(f"select t.csv --out {run} --model trust_models:Slow")
    while not (first.said.exists() and "fitting" in first.stderr):
        time.sleep(0.01)
    before = (run / "run.json").read_bytes()
    for command in (f"select t.csv --out {run} --model logistic", f"train {run}"):
        second = chaos.fork(command)
        assert second.wait() == 2
        assert f"in use by process {first.pid}" in second.stderr
    assert (run / "run.json").read_bytes() == before
    first.send(signal.SIGKILL)
    first.wait()
    assert json.loads((run / "run.lock").read_text())["pid"] == first.pid  # stale, and recognised as such:
    third = chaos.fork(f"select t.csv --out {run} --model logistic")
    assert third.wait() == 2 and "model was" in third.stderr
    (run / "run.lock").write_text("{half a lock")
    shutil.rmtree(run / "checkpoints", ignore_errors=True)
    assert chaos.fork("select t.csv --out two-again --model logistic").wait() == 0


def test_a_killed_run_leaves_its_lock_to_a_child_for_a_moment_only(here: Path) -> None:
    """As when it was killed while it started another process."""
    run = Path("orphan")

    def with_a_child() -> None:
        from labelsieve import files

        acquire = files._acquire

        def then_fork(path: Path, *message: str) -> int:
            descriptor = acquire(path, *message)
            if os.fork() == 0:
                time.sleep(1.0)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
            return descriptor

        files._acquire = then_fork

    line = f"select t.csv --out {run} --model nearest --iterations 1"
    assert chaos.fork(line, prelude=with_a_child).wait() == -signal.SIGKILL
    child = chaos.fork(line)
    assert child.wait() == 0, child.stderr


def test_no_process_is_started(here: Path) -> None:
    """What a run starts besides itself could outlive it."""

    def watch() -> None:
        import sys

        def hook(event: str, arguments: tuple) -> None:
            if event in ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.system", "os.exec"):
                os.write(2, f"STARTED {event} {arguments!r}\n".encode())
                os._exit(77)

        sys.addaudithook(hook)

    child = chaos.fork("run t.csv --out alone --model nearest --iterations 1 --train-epochs 1", prelude=watch)
    assert child.wait() == 0, child.stderr


def test_what_changed_under_a_resume_is_noticed(here: Path, whole: dict) -> None:
    run = Path("resumed")
    line = f"{chaos.SCENARIOS['network'].replace('t.csv', 'u.csv')} --out {run}"
    chaos.table(Path("u.csv"), n=600)
    child = chaos.fork(line, prelude=chaos.at_call(12, chaos.die))
    assert child.wait() == -signal.SIGKILL

    def refused(message: str, command: str = line, prelude=None) -> None:
        child = chaos.fork(command, prelude=prelude)
        assert child.wait() == 2, child.stderr
        assert message in child.stderr, child.stderr

    refused("seed was 0, now 1", line + " --seed 1")
    refused("iterations was 2, now 3", line.replace("--iterations 2", "--iterations 3"))

    def newer() -> None:
        import labelsieve.runfolder

        now = {**labelsieve.runfolder.versions(), "torch": "9.9"}
        labelsieve.runfolder.versions = lambda: now

    refused("version of torch was", prelude=newer)
    original = Path("u.csv").read_text()
    rows = original.splitlines()
    # One digit of one number of one sample among many, a label, a sample less.
    changed = rows[302][:-4] + ("1" if rows[302][-4] != "1" else "2") + rows[302][-3:]
    assert changed != rows[302]
    others = "samples or their labels"
    for lines, message in (
        ([*rows[:302], changed, *rows[303:]], others),
        ([*rows[:-1], rows[-1][:-1] + ("c" if rows[-1][-1] != "c" else "a")], others),
        (rows[:-1], "the number of samples was 600, now 599"),
    ):
        assert lines != rows
        Path("u.csv").write_text("\n".join(lines) + "\n")
        refused(message)
    Path("u.csv").write_text(original)
    assert chaos.fork(line).wait() == 0


def test_a_damaged_checkpoint_is_passed_over_aloud(here: Path, whole: dict) -> None:
    run = Path("damaged")
    line = f"{chaos.SCENARIOS['network']} --out {run}"
    call = 60
    while not list(run.glob("checkpoints/train/*.safetensors")):
        assert chaos.fork(line, prelude=chaos.at_call(call, chaos.die)).wait() in (-signal.SIGKILL, 0)
        call += 20
    for path in run.rglob("checkpoints/**/*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-7] + b"\0" * 7)
    child = chaos.fork(line)
    assert child.wait() == 0, child.stderr
    assert "damaged" in child.stderr
    assert chaos.result(run) == whole
