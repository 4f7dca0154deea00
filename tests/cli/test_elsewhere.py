"""A selection gives the same result in this process, as Ray tasks, and on two processes."""

from __future__ import annotations

import csv
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from labelsieve.cli.app import run as main

Forked = Callable[..., int]
SELECT = ["-m", "labelsieve", "select", "digits", "--model", "mlp", "--epochs", "3", "--iterations", "1"]


def run(arguments: list[str], home: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HOME": str(home), "RAY_USAGE_STATS_ENABLED": "0"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment, timeout=300, check=False
    )


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "labels.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    out = tmp_path_factory.mktemp("here")
    assert main([*SELECT[2:], "--out", str(out / "run")]) == 0
    return rows(out / "run")


def test_as_tasks_of_a_ray_cluster(here: list[dict[str, str]], tmp_path: Path) -> None:
    done = run([*SELECT, "--out", str(tmp_path / "run"), "--executor", "ray"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert rows(tmp_path / "run") == here
    lines = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    epochs = [(line["training"], line["epoch"]) for line in lines if "epoch" in line]
    assert len(epochs) == len(set(epochs)) and {("incv-1-1", 3), ("incv-1-2", 1)} <= set(epochs)


def test_on_two_processes_of_one_training(here: list[dict[str, str]], tmp_path: Path, forked: Forked) -> None:
    """With the environment that torchrun sets; `engine/test_parallel.py` starts torchrun itself."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
    children = []
    for rank in range(2):
        line, ranks = [*SELECT[2:], "--out", str(tmp_path / "run")], {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        children.append(forked(line, tmp_path / f"said-{rank}", **shared, **ranks))
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
    both = list(zip(rows(tmp_path / "run"), here, strict=True))
    assert sum(a["verdict"] != b["verdict"] for a, b in both) <= 2  # sums in another order
    assert max(abs(float(a["probability"]) - float(b["probability"])) for a, b in both) < 0.02
    said = [(tmp_path / f"said-{rank}").read_text() for rank in range(2)]
    assert said[0].count(" selected, ") == 1 and " selected, " not in said[1]  # one process prints


def test_a_cluster_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SELECT[2:], "--out", str(tmp_path / "run"), "--executor", "ray://127.0.0.1:9"]) == 2
    assert "no Ray cluster can be reached at 127.0.0.1:9" in capsys.readouterr().err
