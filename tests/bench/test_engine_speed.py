from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from labelsieve.bench import engine_speed as bench_engine
from labelsieve.bench.engine_speed import in_turns, take_turns
from labelsieve.errors import FailedError

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "engine_agreement.py"


def accuracies(tmp_path: Path, *options: str) -> dict:
    out = tmp_path / "out.json"
    command = [sys.executable, SCRIPT, "--small", "--seeds", "2", "--out", out, *options]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return json.loads(out.read_text())


@pytest.mark.slow  # of a benchmark
def test_fast_and_plain_accuracies_are_compared_with_their_spread(tmp_path):
    found = accuracies(tmp_path, "--epochs", "4")
    assert found["fast"]["path"] == "fast" and found["plain"]["path"] == "plain"
    assert found["fast"]["accuracy"] == found["plain"]["accuracy"]  # on a CPU both are the same float32 steps
    first, second = found["fast"]["accuracy"]
    assert found["comparison"]["spread_fast"] == pytest.approx(abs(first - second) / 2**0.5)
    assert found["comparison"]["difference"] == 0
    assert found["fast"]["mean"] > 0.3  # ten classes: it learned


@pytest.mark.slow  # of a benchmark
def test_a_recipe_that_was_done_is_read_from_its_checkpoint(tmp_path):
    options = ("--recipe", "sgd", "--epochs", "2", "--checkpoint", str(tmp_path / "saved"))
    first = accuracies(tmp_path, *options)
    assert first["schedule"]["optimizer"] == "sgd" and first["schedule"]["steps"] == [[0, 0.1]]
    assert accuracies(tmp_path, *options) == first


@pytest.mark.slow  # of a benchmark: two processes import torch
def test_loops_take_turns_in_processes_of_their_own(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    rates = in_turns(torch.device("cpu"), (0, 1), seconds=0.01, rounds=1, depth=8)
    assert rates.shape == (2, 1, 2)
    time, processor = rates[..., 0], rates[..., 1]
    assert (time > 1).all() and (processor > 0.8 * time).all()  # one thread works no longer than time passes


def test_a_loop_that_ends_at_its_start_is_an_error_with_its_exit_code(monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$PYTHONPATH" > {tmp_path}/path\nexit 3\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.syspath_prepend(str(tmp_path / "checkout"))
    with pytest.raises(FailedError, match="exit code 3"):
        in_turns(torch.device("cpu"), (0,), seconds=0.01, rounds=1)
    assert str(tmp_path / "checkout") in (tmp_path / "path").read_text().split(os.pathsep)


def test_a_loop_that_ends_in_a_turn_is_an_error_with_its_exit_code(monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho warm\nexit 4\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(FailedError, match="exit code 4"):
        in_turns(torch.device("cpu"), (0,), seconds=0.01, rounds=1)


def test_a_loop_leaves_an_interrupt_to_its_parent(monkeypatch, capfd):
    before = signal.getsignal(signal.SIGINT)
    steps = []
    monkeypatch.setattr(bench_engine, "plain_loop", lambda device, *, depth: steps.append)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    try:
        take_turns(torch.device("cpu"), 0, 8)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert steps == [3] and capfd.readouterr().out == "warm\n"  # three steps before it is ready


def test_a_measurement_says_on_stderr_how_far_it_is_and_its_numbers_on_stdout(monkeypatch, capsys):
    def turns(device, networks, *, seconds, rounds, stage):
        for _ in range(len(networks) * (1 + rounds)):
            stage.advance()
        return np.ones((len(networks), rounds, 2))

    monkeypatch.setattr(bench_engine, "in_turns", turns)
    bench_engine.run(device="cpu")
    found = capsys.readouterr()
    assert "3 loops in 25 rounds" in found.err and "bench engine: 78/78 turns" in found.err
    assert len(found.out.splitlines()) == 3
    bench_engine.run(device="cpu", as_json=True)
    found = capsys.readouterr()
    assert found.err == "" and len(json.loads(found.out)["rows"]) == 3


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_a_stopped_measurement_does_not_say_that_it_is_kept(number, code):
    command = [sys.executable, "-m", "labelsieve", "bench", "engine", "--device", "cpu"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None and child.stderr.readline().startswith("measuring 3 loops")
    child.send_signal(number)
    out, said = child.communicate(timeout=60)
    assert child.returncode == code and out == "" and "Traceback" not in said
    assert said.strip().splitlines()[-1].endswith("not saved")


def test_a_loop_whose_parent_is_killed_while_it_starts_ends_without_a_traceback():
    command = [sys.executable, "-m", "labelsieve", "bench", "engine", "--device", "cpu"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None and child.stderr.readline().startswith("measuring 3 loops")
    child.kill()
    out, said = child.communicate(timeout=120)  # until the loop has closed its end of stderr
    assert out == "" and "Traceback" not in said


def test_the_step_of_the_recipe_for_pictures_runs() -> None:
    take = bench_engine.finish_loop(torch.device("cpu"), capture=False)
    assert take(0) is None
