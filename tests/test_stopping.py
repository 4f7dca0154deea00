"""A reader that goes away (`| head -1`) silences a command and does not end it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from labelsieve import stopping
from labelsieve.runfolder import RunFolder

BROKEN = """
import os, sys
from labelsieve import stopping
with stopping.unbroken():
    sys.{name}.flush()
    print("first", file=sys.{name}, flush=True)
    os.read(0, 1)  # until the reader is gone
    for _ in range(3):
        print("x" * 100_000, file=sys.{name})
    print("still here", file=sys.{other})
"""


@pytest.mark.parametrize(("name", "other"), [("stdout", "stderr"), ("stderr", "stdout")])
def test_what_is_said_into_a_broken_pipe_is_lost_and_nothing_else(name: str, other: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", BROKEN.format(name=name, other=other)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None and child.stderr is not None
    broken, whole = (child.stdout, child.stderr) if name == "stdout" else (child.stderr, child.stdout)
    assert broken.readline() == b"first\n"
    broken.close()
    child.stdin.write(b"go")
    child.stdin.close()
    assert whole.read() == b"still here\n"
    whole.close()
    assert child.wait(120) == 0


def test_streams_are_put_back(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    with pytest.raises(RuntimeError), stopping.unbroken():
        assert sys.stdout is not before[0]
        print("said")
        raise RuntimeError
    assert (sys.stdout, sys.stderr) == before and capsys.readouterr().out == "said\n"


def test_a_selection_whose_reader_left_is_a_whole_one(tmp_path: Path) -> None:
    rows = "".join(f"{i % 2 * 5 + i % 7 / 10},{i % 3},{'ab'[i % 2]}\n" for i in range(60))
    (tmp_path / "t.csv").write_text("x,z,label\n" + rows)
    line = f"{sys.executable} -m labelsieve select t.csv --model logistic --iterations 2 --out run"
    done = subprocess.run(
        ["bash", "-c", f"{line} 2>&1 | head -1; exit ${{PIPESTATUS[0]}}"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.count("\n") == 1 and done.stderr == ""
    assert RunFolder(tmp_path / "run").state("select") == "done"
    assert len(list(RunFolder(tmp_path / "run").read_labels())) == 60


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("line", ["theory", "--help", "theory --json"])
def test_a_full_disk_is_a_failure_in_one_line(line: str) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "labelsieve", *line.split()]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "No space left on device" in done.stderr
