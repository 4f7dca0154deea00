"""Decoding processes: from any script, and gone without harm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor
from pathlib import Path

import numpy as np
import pytest

from labelsieve.data import pictures as sequences
from labelsieve.data import resources
from labelsieve.data.make_webvision import make
from labelsieve.data.resources import available_memory, usable_cores, worker_processes
from labelsieve.data.stage import stage
from labelsieve.data.webvision import training

SCRIPT = """
import sys
from labelsieve.data.stage import stage
from labelsieve.data.webvision import training
print("running")
staged = stage(training(sys.argv[1], side=16).x, sys.argv[2], workers=2, shard_size=4)
print(len(staged))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "webvision"
    make(folder, classes=2, train=35, validation=1, side=20, seed=4)
    return folder


def test_a_script_needs_no_guard_and_is_not_run_again(made: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-", str(made), str(tmp_path / "stage")],
        input=SCRIPT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["running", "70"]


def test_killed_workers_leave_the_work_to_the_caller(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = training(made, side=16).x
    whole = [np.array(picture) for picture in stage(pictures, tmp_path / "whole", workers=1, shard_size=8)]

    def doomed(workers: int):  # type: ignore[no-untyped-def]
        pool = worker_processes(workers)
        real = pool.submit
        pool.submit = lambda work, *args: real(os._exit, 1)  # type: ignore[method-assign, assignment]
        return pool

    monkeypatch.setattr(sequences, "worker_processes", doomed)
    monkeypatch.setattr(sequences, "FEW_PICTURES", 0)
    staged = stage(pictures, tmp_path / "killed", workers=2, shard_size=8)
    decoded = list(sequences.decoded(pictures, 2))
    for expected, one, other in zip(whole, staged, decoded, strict=True):
        np.testing.assert_array_equal(one, expected)
        np.testing.assert_array_equal(other, expected)


def test_workers_killed_between_two_rounds_leave_the_rest_to_the_caller(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools: list[Executor] = []
    monkeypatch.setattr(sequences, "worker_processes", lambda n: pools.append(worker_processes(n)) or pools[0])
    monkeypatch.setattr(sequences, "CHUNK", 4)
    monkeypatch.setattr(sequences, "FEW_PICTURES", 0)
    pictures = training(made, side=16).x
    decoding = sequences.decoded(pictures, 2)
    found = [next(decoding) for _ in range(4 * 2 * 4)]  # the first round: four chunks a worker
    for pid in list(pools[0]._processes):  # type: ignore[attr-defined]
        os.kill(pid, signal.SIGKILL)
    time.sleep(1.5)  # until the pool has noticed: it refuses work from then on
    found += list(decoding)
    assert len(found) == 70
    for picture, expected in zip(found, pictures, strict=True):
        np.testing.assert_array_equal(picture, expected)


def test_cores() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)


def test_memory_is_what_the_system_and_the_container_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 2**20 < available_memory() < 2**50
    monkeypatch.setattr(resources, "CGROUP", tmp_path)
    free = available_memory()
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert available_memory() == pytest.approx(free, rel=0.1)
    (tmp_path / "memory.max").write_text("5000\n")
    assert available_memory() == 4000
