"""`labelsieve plan` and `labelsieve run --dry-run`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelsieve.cli.app import run
from labelsieve.data.source import load_source
from labelsieve.workflow.plan import plan_run
from labelsieve.workflow.settings import PlanRequest, RunSettings

QUICK = "--seconds 0.2 --device cpu"


def planned(line: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run([*line.split(), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"plan digits {QUICK}".split()) == 0
    text = capsys.readouterr().out
    for part in ("1,797 samples", "forest", "memory", "total"):
        assert part in text
    found = planned(f"plan digits {QUICK} --samples 1000000000", capsys)
    assert found["wanted"]["samples"] == 1_000_000_000 and found["total_seconds"] > 86_400


def test_plan_and_dry_run_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a CPU a run selects few pictures with `edges` and trains it again; a network has 20 to 60 epochs."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 255, (40, 32, 32, 3), dtype=np.uint8), np.arange(40) % 2
    np.savez(tmp_path / "p.npz", x=x, y=y)
    plan = planned(f"plan {tmp_path}/p.npz {QUICK} --method incv-coteaching", capsys)
    line = f"run {tmp_path}/p.npz --device cpu --method incv-coteaching --dry-run --out {tmp_path}/run"
    dry = planned(line, capsys)
    assert dry["stages"] == dict.fromkeys(("select", "train", "report"), "not started")
    assert not (tmp_path / "run").exists()
    for name in ("selector", "model", "wanted", "disk_bytes", "data"):
        assert plan[name] == dry["plan"][name]
    assert plan["host_bytes"] == pytest.approx(dry["plan"]["host_bytes"], rel=0.5)
    assert (plan["selector"], plan["model"], plan["wanted"]["training_epochs"]) == ("edges", "small-cnn", 60)
    few = planned(f"plan {tmp_path}/p.npz {QUICK}", capsys)
    assert few["selector"] == few["model"] == "edges" and few["pictures"] == "memory"
    assert planned(f"plan {tmp_path}/p.npz {QUICK} --samples 5001", capsys)["model"] == "small-cnn"
    line = f"plan {tmp_path}/p.npz --model resnet20 --network resnet20 --epochs 3 --train-epochs 4 {QUICK}"
    found = planned(line, capsys)
    assert found["selector"] == found["model"] == "resnet20"
    workload = found["wanted"]
    assert (workload["selection_passes"], workload["selection_epochs"], workload["training_epochs"]) == (7, 3, 4)


def test_texts_are_planned_as_a_run_reads_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("text,label\n" + "good and fine,a\nbad and sad,b\n" * 20)
    found = planned(f"plan {tmp_path}/t.csv {QUICK}", capsys)
    assert found["selector"] == found["model"] == "tfidf"
    assert found["total_seconds"] > found["selection_seconds"] == found["seconds"]["selection"] > 0
    found = planned(f"plan {tmp_path}/t.csv {QUICK} --network mlp", capsys)
    assert found["selector"] == "tfidf" and found["model"] == "mlp"


def test_the_growth_of_a_classifier_is_measured() -> None:
    data = load_source("digits")
    settings = RunSettings(model="sklearn.dummy:DummyClassifier", device="cpu", method="classifier")
    few, many = (plan_run(data, settings, PlanRequest(samples=samples)) for samples in (None, 1_000_000))
    assert 0 < few["selection_seconds"] < many["selection_seconds"]
    assert few["model"] == "forest"  # a classifier of the user's own is not stored


def test_all_mistakes_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan nowhere --gpus 0 --model resnet7 --seconds 0".split()) == 2
    message = capsys.readouterr().err
    for part in ("--gpus must be at least 1, got 0", "resnet7", "--seconds must be above 0, got 0"):
        assert part in message
