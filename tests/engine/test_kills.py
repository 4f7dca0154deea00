"""A training that is killed at random moments ends with the same bits as an undisturbed one."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from labelsieve.engine import Plan, Schedule, VectorStore, train
from labelsieve.methods.coteaching import CoTeaching

KILLS = 6


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 4))


def training(folder: Path) -> int:
    """Train in a process of its own, with a checkpoint after every epoch, and write all weights."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(600, 20)), rng.integers(0, 4, 600)
    plans = [Plan(f"p{i}", labels, np.arange(i * 50, 450 + i * 50), seed=i, noise_ratio=0.3) for i in range(2)]
    results = train(
        VectorStore(x, torch.device("cpu")), network, CoTeaching(), plans, batch_size=64,
        schedule=Schedule(30, ((0, 1e-3), (15, 1e-4)), fresh_state=True), checkpoint=folder,
    )  # fmt: skip
    weights = [tensor.numpy().tobytes() for r in results for state in r.states for tensor in state.values()]
    folder.with_suffix(".bytes").write_bytes(b"".join(weights))
    return 0


def test_kills_at_random_moments_change_nothing(tmp_path: Path, forked: Any) -> None:
    begun = tmp_path / "begun"

    def started(name: str) -> int:
        def command() -> int:
            begun.touch()
            return training(tmp_path / name)

        begun.unlink(missing_ok=True)
        child: int = forked(command, tmp_path / f"{name}.txt")
        while not begun.exists():
            time.sleep(0.001)
        return child

    def status(child: int) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    child, began = started("undisturbed"), time.monotonic()
    assert status(child) == 0, (tmp_path / "undisturbed.txt").read_text()
    whole = time.monotonic() - began
    moments = random.Random(0)
    resumed = 0
    for _ in range(KILLS):
        resumed += any((tmp_path / "disturbed").glob("*.safetensors"))
        child = started("disturbed")
        time.sleep(moments.uniform(0, 1.2 * whole / KILLS))
        os.kill(child, signal.SIGKILL)
        assert status(child) == -signal.SIGKILL  # it did not end before the kill
    assert resumed >= 2  # and not from the beginning each time
    assert status(started("disturbed")) == 0, (tmp_path / "disturbed.txt").read_text()
    assert (tmp_path / "undisturbed.bytes").read_bytes() == (tmp_path / "disturbed.bytes").read_bytes()
