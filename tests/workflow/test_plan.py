"""Plans: the arithmetic, and short measurements."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelsieve.cli.app import run
from labelsieve.data.make_webvision import make
from labelsieve.data.stage import stage
from labelsieve.data.webvision import training
from labelsieve.engine import train
from labelsieve.progress import NoteKind
from labelsieve.selection.settings import INCVSettings
from labelsieve.types import Job, LabelledData, Scores, Trainer
from labelsieve.workflow import plan
from labelsieve.workflow.plan import (
    HOST_BYTES,
    Measured,
    Workload,
    estimate,
    plan_run,
    take_evenly,
)
from labelsieve.workflow.select import selection_hint, training_hint
from labelsieve.workflow.settings import PlanRequest, RunSettings


def vectors(n: int = 60) -> LabelledData:
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    ids = np.array([str(i) for i in range(n)])
    return LabelledData(rng.normal(size=(n, 5)) + y[:, None], y, ("a", "b", "c"), ids, "table")


def test_the_arithmetic_by_hand() -> None:
    wanted = Workload(1_000, selection_passes=2, selection_epochs=10, training_epochs=30, networks=2, gpus=2)
    measured = Measured(trained=100, scored=500, read=50, sample_bytes=2_000, parameters=1_000, working_bytes=10_000)
    found = estimate(wanted, measured, free=10_000_000)
    assert found["seconds"] == {
        "decode once": 20.0,  # 1,000 / 50
        "selection, training": 100.0,  # 2 x 10 x 1,000 / 100 / 2
        "selection, scoring": 20.0,  # ... / 500 / 2
        "robust training": 300.0,  # 2 x 30 x 1,000 / 100 / 2
    }
    assert found["total_seconds"] == 440.0 and found["bottleneck"] == "robust training"
    assert found["data"] == "on the device" and found["device_bytes"] == 2_010_000
    assert found["disk_bytes"] == {"staged pictures": 2_000_000, "checkpoints": 2 * 4 * 3 * 1_000 * 2}
    assert found["host_bytes"] == 1_000 * HOST_BYTES
    tight = estimate(wanted, measured, free=1_000_000)
    assert tight["data"] == "streams" and tight["device_bytes"] == 10_000
    assert tight["seconds_without_cache"] == 1_000 * (2 * 10 + 30) / 50 and found["seconds_without_cache"] is None
    assert tight["total_seconds"] == 440.0
    unknown = estimate(wanted, replace(measured, working_bytes=0), free=10_000_000)
    assert unknown["device_bytes"] == 2_000_000 + 2 * 1_000 * 4 * 4  # weights, gradient and two moments of two networks


def test_the_network_that_selects_has_its_own_speed() -> None:
    wanted = Workload(1_000, selection_passes=2, selection_epochs=10, training_epochs=30)
    slow = Measured(trained=100, scored=500, read=None, sample_bytes=2_000, parameters=1_000, working_bytes=0)
    fast = replace(slow, trained=1_000, scored=5_000, parameters=10)
    found = estimate(wanted, slow, selecting=fast, free=10_000_000)
    assert found["seconds"]["selection, training"] == 20.0 and found["seconds"]["selection, scoring"] == 4.0
    assert found["seconds"]["robust training"] == 600.0
    assert estimate(wanted, fast, selecting=slow, free=10_000_000)["disk_bytes"] == found["disk_bytes"]
    # three splits: six networks at once, whose checkpoints are gone before the next round and the training
    many = estimate(replace(wanted, selecting=6), slow, selecting=slow, free=10_000_000)
    assert many["disk_bytes"]["checkpoints"] == 2 * 4 * 3 * 1_000 * 6
    alone = estimate(replace(wanted, selecting=6, selection_passes=0), slow, free=10_000_000)
    assert alone["disk_bytes"] == found["disk_bytes"]
    nothing = estimate(replace(wanted, selection_passes=0), slow, free=10_000_000)
    assert nothing["total_seconds"] == 600.0


def test_ten_times_the_samples_take_ten_times_as_long() -> None:
    measured = Measured(1e3, 4e3, None, 3072, 464_154, 0)
    small, large = (estimate(Workload(n), measured, free=10**12) for n in (10_000, 100_000))
    assert large["total_seconds"] == pytest.approx(10 * small["total_seconds"])
    assert large["disk_bytes"] == small["disk_bytes"]  # nothing to stage, and networks do not grow


def test_measured_on_rows_of_numbers() -> None:
    settings = RunSettings(device="cpu", method="standard")
    found = plan_run(vectors(), settings, PlanRequest(samples=1_000_000, gpus=4, seconds=0.2))
    assert found["model"] == "mlp" and found["shape"] == [5]
    assert found["measured"]["trained"] > 0 and found["measured"]["scored"] > 0  # their ratio depends on the load
    assert found["measured"]["read"] is None and found["measured"]["sample_bytes"] == 20
    assert found["wanted"]["samples"] == 1_000_000
    assert found["measured"]["host_bytes"] == HOST_BYTES + 2 * 4  # ids of two characters, four bytes each


def test_measured_on_pictures_from_files_and_staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "made", classes=2, train=10, validation=1, side=32)
    data = training(tmp_path / "made", side=24)
    settings, request = RunSettings(network="small-cnn", device="cpu"), PlanRequest(seconds=0.2)
    found = plan_run(data, settings, replace(request, samples=65_944))
    assert found["shape"] == [3, 24, 24] and found["measured"]["samples"] == 20
    assert found["measured"]["read"] > 10
    assert 24 * 24 * 3 <= found["measured"]["sample_bytes"] <= 2 * 24 * 24 * 3
    assert found["disk_bytes"]["staged pictures"] == round(65_944 * found["measured"]["sample_bytes"])
    staged = LabelledData(stage(data.x, tmp_path / "stage", workers=1), data.y, data.classes, data.ids, "pictures")
    again = plan_run(staged, settings, request)
    assert again["seconds"]["decode once"] == 0 and again["measured"]["read"] is None
    assert again["shape"] == [3, 24, 24]
    assert again["measured"]["sample_bytes"] == staged.x.nbytes / 20
    assert again["data"] == "on the device" and again["disk_bytes"]["staged pictures"] == staged.x.nbytes
    # mapped from disk: the host holds none of them
    assert again["measured"]["host_bytes"] == HOST_BYTES + data.ids.dtype.itemsize
    json.dumps(again, allow_nan=False)  # what --json prints is JSON
    monkeypatch.setattr("labelsieve.workflow.plan.free_memory", lambda device: 1_000)
    tight = plan_run(staged, settings, request)
    assert tight["data"] == "streams" and tight["device_bytes"] == again["device_bytes"] - staged.x.nbytes


def test_what_fits_but_leaves_too_little_room_streams_as_in_a_run() -> None:
    measured = Measured(trained=100, scored=500, read=50, sample_bytes=2_000, parameters=10, working_bytes=10_000)
    message = [estimate(Workload(1_000), measured, free=free)["data"] for free in (6_600_000, 6_700_000)]
    assert message == ["streams", "on the device"]  # 2 MB are at most 0.3 of what is free
    held = [estimate(Workload(1_000), replace(measured, read=None), free=free)["data"] for free in (1, 6_600_000)]
    assert held == ["on the device", "on the device"]  # an array does not stream


def test_some_of_is_spread_and_in_order() -> None:
    data = vectors(100)
    some = take_evenly(data, 10)
    assert len(some) == 10 and some.ids[0] == "0" and some.ids[-1] == "99"
    np.testing.assert_array_equal(some.x[3], data.x[int(some.ids[3])])
    assert len(take_evenly(data, 1_000)) == 100


class Slow(Trainer):
    """A trainer of networks that is never asked to train."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def train_and_score(self, jobs: Sequence[Job]) -> list[Scores]:
        raise NotImplementedError


def test_hints_only_if_it_takes_long() -> None:
    assert selection_hint(1.0, Slow(50), INCVSettings()) is None  # 5 trainings of 50 s
    for settings, trainings in ((INCVSettings(), 5), (INCVSettings(n_iterations=1, protocol="paper"), 1)):
        note = selection_hint(6.0, Slow(50), settings)
        assert note is not None and note.kind is NoteKind.SLOW_SELECTION and note.values["count"] == trainings
    assert training_hint(1.0, 60) is None
    note = training_hint(10.0, 60)
    assert note is not None and note.kind is NoteKind.SLOW_TRAINING


@pytest.mark.parametrize(("line", "trainings"), [("--iterations 2", 3), ("--method ncv", 2)])
def test_a_slow_selection_shows_progress_and_one_hint(
    line: str, trainings: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("labelsieve.workflow.select.PATIENCE_SECONDS", 0.0)
    x, y = np.random.default_rng(0).integers(0, 255, (40, 8, 8, 3), dtype=np.uint8), np.arange(40) % 2
    np.savez(tmp_path / "p.npz", x=x, y=y)
    command = ["select", str(tmp_path / "p.npz"), *line.split(), "--epochs", "2", "--device", "cpu"]
    assert run([*command, "--out", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().err
    assert shown.count("another --model") == 1 and f"up to {trainings} of them" in shown
    assert "iteration 1: 2/2 epochs" in shown


@pytest.mark.parametrize("method", ["standard", "incv-posterior", "d2l"])
def test_the_training_is_timed_with_its_method(
    method: str, short_measurement: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[str] = []

    def spy(store: Any, factory: Any, chosen: Any, plans: Any, **options: Any) -> Any:
        timed.append(chosen.name)
        return train(store, factory, chosen, plans, **options)

    monkeypatch.setattr(plan, "train", spy)
    found = plan_run(vectors(200), RunSettings(method=method, model="mlp"), PlanRequest())
    assert timed == [method, "standard"]  # the selection trains without a robust method
    assert found["seconds"]["robust training"] > 0
