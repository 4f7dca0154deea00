from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from labelsieve.commands.models import make_trainer
from labelsieve.commands.told import selection_hint, training_hint
from labelsieve.execute.lockstep import EngineTrainer
from labelsieve.progress import Progress
from labelsieve.types import Job, LabelledData


def test_a_hint_only_where_it_takes_long() -> None:
    assert selection_hint(1.0, 50, side=64) is None  # 5 trainings of 50 s
    told = selection_hint(6.0, 50, side=64)
    assert told is not None and "about 5 min" in told and "--size 32 (the pictures have 64 pixels now)" in told
    assert "--epochs 16" in told and "--iterations 2" in told and "\n" not in told
    assert "--size" not in str(selection_hint(6.0, 50, side=28)) and "--size" not in str(
        selection_hint(9, 50, side=None)
    )
    assert training_hint(1.0, 60, pictures=True) is None
    assert "a smaller --size" in str(training_hint(10.0, 60, pictures=True))
    assert "--size" not in str(training_hint(10.0, 60, pictures=False))


def test_each_training_of_a_selection_is_a_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelsieve.commands.told.PATIENCE", 0.0)
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
    assert told.startswith("training 2 networks: 1/3 epochs") and "training a network: 3/3 epochs, done in" in told
    assert told.count("a selection has up to 5 of them") == 1
