from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from labelsieve.workflow.choose_model import make_trainer
from labelsieve.workflow.time_hints import selection_hint, training_hint

from labelsieve.cli.app import run
from labelsieve.execute.lockstep import EngineTrainer
from labelsieve.progress import Progress
from labelsieve.selection.settings import INCVSettings
from labelsieve.types import Job, LabelledData


def test_a_hint_only_where_it_takes_long() -> None:
    usual = INCVSettings()
    assert selection_hint(1.0, 50, side=64, settings=usual) is None  # 5 trainings of 50 s
    told = selection_hint(6.0, 50, side=64, settings=usual)
    assert told is not None and "about 5 min" in told and "--size 32 (the pictures have 64 pixels now)" in told
    assert "--epochs 16" in told and "--iterations 2" in told and "up to 5 of them" in told and "\n" not in told
    assert "less exact" in told
    for side in (28, None):
        assert "--size" not in str(selection_hint(6.0, 50, side=side, settings=usual))
    assert training_hint(1.0, 60, side=64) is None
    told = training_hint(10.0, 60, side=64)
    assert told is not None and "a smaller --size" in told and "--train-epochs 20" in told and "less exact" in told
    assert "--size" not in str(training_hint(10.0, 60, side=32)) and "--size" not in str(
        training_hint(10.0, 60, side=None)
    )


def test_what_was_asked_already_is_not_advised() -> None:
    told = selection_hint(60.0, 10, side=32, settings=INCVSettings(n_iterations=2))
    assert told is not None and "up to 3 of them" in told and told.count("--") == 2  # --model and --out
    assert "up to 1 of them" in str(
        selection_hint(60.0, 10, side=None, settings=INCVSettings(n_iterations=1, protocol="paper"))
    )
    assert "--train-epochs" not in str(training_hint(60.0, 12, side=None))


@pytest.mark.parametrize(("line", "trainings"), [("--iterations 2", 3), ("--method ncv", 2)])
def test_a_selection_says_how_many_trainings_it_has(
    line: str,
    trainings: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("labelsieve.workflow.time_hints.PATIENCE", 0.0)
    x, y = np.random.default_rng(0).integers(0, 255, (40, 8, 8, 3), dtype=np.uint8), np.arange(40) % 2
    np.savez(tmp_path / "p.npz", x=x, y=y)
    out = tmp_path / "run"
    assert (
        run(["select", str(tmp_path / "p.npz"), *line.split(), "--epochs", "2", "--device", "cpu", "--out", str(out)])
        == 0
    )
    assert f"up to {trainings} of them; quicker, but less exact: --model edges" in capsys.readouterr().err


def test_each_training_of_a_selection_is_a_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelsieve.workflow.time_hints.PATIENCE", 0.0)
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 255, (40, 8, 8, 3), dtype=np.uint8), np.arange(40) % 2
    data = LabelledData(x, y, ("a", "b"), np.arange(40).astype(str), "pictures")
    stream = io.StringIO()
    trainer = make_trainer(data, "small-cnn", epochs=3, device="cpu", progress=Progress(stream=stream, every=0.0))
    assert isinstance(trainer, EngineTrainer)
    halves = [np.arange(20), np.arange(20, 40)]
    jobs = [Job("1", y, *halves, seed=0), Job("2", y, *halves[::-1], seed=1)]
    assert all(len(scores.predicted) == 20 for scores in trainer.train_and_score(jobs))
    trainer.train_and_score(jobs[:1])
    told = stream.getvalue()
    assert told.startswith("training 2 networks: 1/3 epochs")
    assert re.search(r"training a network: 3/3 epochs(, [\d.]+/s)?, done in", told)  # how fast where it took a while
    assert told.count("a selection has up to 5 of them") == 1
