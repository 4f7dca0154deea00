"""`labelsieve plan`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from labelsieve.workflow.planning import Asked, not_measured, plan_run

from labelsieve.cli.common import Common
from labelsieve.cli.plan import plan
from labelsieve.data.source import load_source
from labelsieve.errors import InputError


def test_for_people_and_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    plan("digits", seconds=0.2, gpus=2, device="cpu")
    words = capsys.readouterr().out
    assert "1,797 samples, 2 such devices, at most:" in words
    for part in (
        "selection with forest",
        "robust training of mlp",
        "memory, device",
        "disk, checkpoints",
        "Takes longest",
    ):
        assert part in words
    assert "at least" in next(line for line in words.splitlines() if line.startswith("memory, device"))
    plan("digits", seconds=0.2, samples=1_000_000_000, device="cpu", common=Common(json=True))
    found = json.loads(capsys.readouterr().out)
    assert found["wanted"]["samples"] == 1_000_000_000
    assert found["total_seconds"] > 86_400


def test_what_a_run_would_use_is_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a CPU a run looks at pictures with `edges` and trains small-cnn, 20 to 60 epochs, not resnet32 for 200."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 255, (40, 32, 32, 3), dtype=np.uint8), np.arange(40) % 2
    np.savez(tmp_path / "p.npz", x=x, y=y)
    plan(str(tmp_path / "p.npz"), seconds=0.2, device="cpu")
    words = capsys.readouterr().out
    assert "selection with edges" in words
    assert "robust training of small-cnn, 60 epochs: " in words
    plan(str(tmp_path / "p.npz"), model="resnet20", epochs=3, train_epochs=4, seconds=0.2, device="cpu",
         common=Common(json=True))  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    assert found["selector"] == found["model"] == "resnet20"
    wanted = found["wanted"]
    assert (wanted["iterations"], wanted["selection_epochs"], wanted["training_epochs"]) == (5, 3, 4)


def test_texts_are_planned_as_a_run_reads_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("text,label\n" + "good and fine,a\nbad and sad,b\n" * 20)
    plan(str(tmp_path / "t.csv"), seconds=0.2, device="cpu", common=Common(json=True))
    found = json.loads(capsys.readouterr().out)
    assert found["selector"] == "tfidf" and found["model"] == "mlp"
    assert found["total_seconds"] > found["selection_seconds"] == found["seconds"]["selection"] > 0


def test_a_classifier_whose_growth_nobody_knows_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    data = load_source("digits")
    name = "sklearn.dummy:DummyClassifier"
    known = plan_run(data, Asked(name, seconds=0.2), device="cpu")
    assert known["selection_seconds"] > 0 and not not_measured(known)
    unknown = plan_run(data, Asked(name, samples=100_000, seconds=0.2), device="cpu")
    assert unknown["selection_seconds"] is None and name in not_measured(unknown)
    assert list(unknown["seconds"]) == ["decode once", "robust training"]


def test_all_mistakes_at_once() -> None:
    with pytest.raises(InputError) as caught:
        plan("nowhere", gpus=0, model="resnet7", seconds=0)
    for part in ("--gpus 0", "--model 'resnet7'", "--seconds 0", "nowhere is not there"):
        assert part in str(caught.value)
