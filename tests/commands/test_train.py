"""Methods compared on one selection: each in a run folder of its own, scored on samples with right labels."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from labelsieve.cli import run
from labelsieve.runfolder import RunFolder


def answer(capsys: pytest.CaptureFixture[str], line: str) -> dict:
    assert run([*line.split(), "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def table(path: Path, *, n: int, seed: int, wrong: float) -> None:
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 3, n)
    given = np.where(rng.random(n) < wrong, (true + 1) % 3, true)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [["a", "b", "label"], *([*rng.normal(4 * t, 1, 2), "xyz"[g]] for t, g in zip(true, given, strict=True))]
        )


def test_methods_on_one_selection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "t.csv", n=150, seed=0, wrong=0.2)
    table(tmp_path / "clean.csv", n=60, seed=1, wrong=0.0)
    assert run("train nowhere --out other".split()) == 2
    assert "nowhere is not a run folder" in capsys.readouterr().err and not (tmp_path / "other").exists()
    answer(capsys, "select t.csv --out run --iterations 2")
    answer(capsys, "train run --train-epochs 4")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.is_file()}

    assert run("train run --method standard --train-epochs 4".split()) == 2
    assert "holds a network of incv-coteaching already: give --out run-standard" in capsys.readouterr().err
    found = answer(capsys, "train run --method standard --train-epochs 4 --out run-standard")
    assert found["run"] == "run-standard" and found["resumed"] == "new"
    assert answer(capsys, "train run --method standard --train-epochs 4 --out run-standard")["resumed"] == "done"
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    one, other = RunFolder("run"), RunFolder("run-standard")
    assert (one / "labels.csv").read_bytes() == (other / "labels.csv").read_bytes()
    assert one.record()["data"] == other.record()["data"]
    assert other.record()["settings"]["train_method"] == "standard" and len(other.record()["stages"]) == 2
    stages = [[entry["stage"] for entry in folder.read_history()] for folder in (one, other)]
    assert stages[0] == stages[1]

    answer(capsys, "select t.csv --out second --seed 1 --iterations 1")
    assert run("train run --method d2l --out second".split()) == 2
    assert "second holds a run with another selection than run" in capsys.readouterr().err

    scored = answer(capsys, "predict run-standard clean.csv --score")
    with open("predictions.csv", newline="") as file, open("clean.csv", newline="") as labels:
        right = [
            a["predicted"] == b["label"] for a, b in zip(csv.DictReader(file), csv.DictReader(labels), strict=True)
        ]
    assert (
        scored["to"] == "predictions.csv"
        and scored["accuracy"] == pytest.approx(np.mean(right))
        and np.mean(right) > 0.8
    )
    assert run("predict run clean.csv --score --to p.csv".split()) == 0
    assert "60 predictions, accuracy " in capsys.readouterr().out
    assert answer(capsys, "predict run clean.csv --to q.csv")["accuracy"] is None
