"""Methods compared on one selection: each in a run folder of its own, scored on samples with right labels."""

from __future__ import annotations

import csv
import importlib
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from labelsieve import stopping
from labelsieve.cli.app import run
from labelsieve.decisions import append_decision
from labelsieve.runfolder import RunFolder
from labelsieve.workflow.selection_files import decisions_note

QUICK = "--iterations 1 --model logistic --train-epochs 1".split()


def answer(capsys: pytest.CaptureFixture[str], line: str | list[str]) -> dict:
    words = line.split() if isinstance(line, str) else line
    assert run([*words, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def table(path: Path, *, n: int, seed: int, wrong: float) -> None:
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 3, n)
    given = np.where(rng.random(n) < wrong, (true + 1) % 3, true)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [
                ["a", "b", "c", "d", "label"],
                *([*rng.normal(4 * t, 1, 4), "xyz"[g]] for t, g in zip(true, given, strict=True)),
            ]
        )


def test_methods_on_one_selection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "t.csv", n=150, seed=0, wrong=0.2)
    table(tmp_path / "clean.csv", n=60, seed=1, wrong=0.0)
    assert run("train nowhere --out other".split()) == 2
    assert "nowhere is not a run folder" in capsys.readouterr().err and not (tmp_path / "other").exists()
    answer(capsys, "select t.csv --out run --model logistic --iterations 2")
    answer(capsys, "train run --train-epochs 4")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.is_file()}

    assert run("train run --method standard --train-epochs 4".split()) == 2
    assert "--out run-standard" in capsys.readouterr().err
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

    answer(capsys, "select t.csv --out second --model logistic --seed 1 --iterations 1")
    assert run("train run --method d2l --out second".split()) == 2
    assert "second holds a run with another selection" in capsys.readouterr().err

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


def test_a_run_that_was_moved_with_its_source_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a").mkdir()
    table(Path("a/t.csv"), n=90, seed=0, wrong=0.2)
    answer(capsys, "select a/t.csv --out a/run --iterations 1 --model logistic")
    Path("a").rename("b")
    assert answer(capsys, "train b/run --train-epochs 1")["resumed"] == "new"


def test_decisions_are_said_to_play_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "t.csv", n=90, seed=0, wrong=0.2)
    (tmp_path / "t.csv").write_text((tmp_path / "t.csv").read_text().replace("label", "my kind", 1))
    line = "select t.csv --out run --iterations 1 --model logistic --ignore-columns b --label-column"
    answer(capsys, [*line.split(), "my kind"])
    assert answer(capsys, "train run --train-epochs 1")["notes"] == []
    folder = RunFolder("run")
    append_decision(folder / "decisions.csv", "3", "drop")
    append_decision(folder / "decisions.csv", "5", "relabel", "x")
    append_decision(folder / "decisions.csv", "3", "undo")
    assert run("train run --train-epochs 1".split()) == 0
    expected = capsys.readouterr().err.strip()
    commands = "labelsieve export run, then labelsieve run t-cleaned.csv --label-column 'my kind' --ignore-columns b"
    assert "run/decisions.csv that are not used: 1." in expected and expected.endswith(commands)
    append_decision(folder / "decisions.csv", "7", "drop")
    found = answer(capsys, "train run --method standard --train-epochs 1 --out other")
    assert found["notes"] == [expected.replace("not used: 1.", "not used: 2.")]
    # The commands in the note work.
    assert run(["export", "run"]) == 0
    assert run([*shlex.split(expected.partition("then labelsieve ")[2]), *QUICK]) == 0
    assert RunFolder("runs/t-cleaned").read_summary()["samples"] == 89


def test_corrected_labels_of_what_is_no_table_are_a_file_of_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savez("a.npz", x=rng.normal(size=(60, 2)) + 5 * (np.arange(60) % 2)[:, None], y=np.arange(60) % 2)
    assert run("select a.npz --out run --iterations 1 --model logistic".split()) == 0
    append_decision(RunFolder("run") / "decisions.csv", "3", "relabel", "0")
    expected = str(decisions_note(RunFolder("run")))
    assert expected.endswith(f"labelsieve export run, then labelsieve run {tmp_path}/a.npz --labels a-cleaned.csv")
    assert run(["export", "run"]) == 0
    assert run([*shlex.split(expected.partition("then labelsieve ")[2]), *QUICK]) == 0


MINE = """
from labelsieve.engine.method import Method, mean_over, sample_losses

class Squared(Method):
    networks = 2
    def settings(self):
        return {"power": 2}
    def loss(self, logits, batch):
        return mean_over(sample_losses(logits, batch) ** 2, batch.valid[:, None])

class OnSelected(Squared):
    def needs(self):
        return "selection"
    def check(self, plan, epochs):
        if len(plan.train) + len(plan.candidates) >= 150:
            raise AssertionError("the removed are among them")

class Silent(Method):
    pass
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module with methods in the folder one is in; what importing it leaves behind goes again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "own_methods.py").write_text(MINE)
    table(tmp_path / "t.csv", n=150, seed=0, wrong=0.2)
    yield tmp_path
    sys.modules.pop("own_methods", None)


def test_a_method_of_ones_own(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "--method own_methods:Squared --train-epochs 4"
    plan = answer(capsys, f"run t.csv --out run {line} --model logistic --iterations 1 --dry-run")
    assert plan["method"] == "own_methods:Squared" and not (mine / "run").exists()
    assert answer(capsys, f"run t.csv --out run {line} --model logistic --iterations 2")["stages"]["train"] == "new"
    settings = RunFolder("run").record()["stages"]["train"]["settings"]
    assert settings["train_method"] == "own_methods:Squared" and settings["method_settings"] == {"power": 2}
    assert answer(capsys, f"train run {line}")["resumed"] == "done"
    assert run("train run --train-epochs 4 --method own_methods:OnSelected".split()) == 2
    expected = capsys.readouterr().err
    assert "--out run-OnSelected" in expected
    found = answer(capsys, "train run --train-epochs 4 --method own_methods:OnSelected --out run-OnSelected")
    assert found["resumed"] == "new" and "noise_ratio" in found["settings"]

    (mine / "own_methods.py").unlink()
    del sys.modules["own_methods"]
    importlib.invalidate_caches()
    assert answer(capsys, "predict run t.csv --score")["accuracy"] > 0.6  # without the module of the method
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("own_methods")


def test_its_training_goes_on_where_it_was_stopped(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(capsys, "select t.csv --out run --model logistic --iterations 1")
    line = "train run --method own_methods:Squared --train-epochs 6"
    whole = RunFolder(answer(capsys, f"{line} --out whole")["run"])
    asked = 0

    def third_time() -> bool:
        nonlocal asked
        asked += 1
        return asked >= 3

    with monkeypatch.context() as patched:
        patched.setattr(stopping, "requested", third_time)
        patched.setattr(stopping, "reason", KeyboardInterrupt)
        assert run(line.split()) == 130
    capsys.readouterr()
    assert answer(capsys, line)["resumed"] == "resumed"
    assert (mine / "run" / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_what_is_no_method_is_said_with_everything_else(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, message in (
        ("own_methods:Silent", "method own_methods:Silent has no loss"),
        ("own_methods:Path", "method own_methods:Path: module 'own_methods' has no attribute 'Path'"),
        ("json:dumps", "json:dumps is not a method"),
        ("nowhere_at_all:Name", "method nowhere_at_all:Name: No module named 'nowhere_at_all'"),
    ):
        for command in ("train nowhere", "run t.csv --out run"):
            assert run([*command.split(), "--method", name, "--batch-size", "1"]) == 2
            expected = capsys.readouterr().err
            assert (
                message in expected
                and "--batch-size must be at least 2, got 1" in expected
                and expected.count("\n") == 1
            )
    assert run("select t.csv --out bare --iterations 1".split()) == 0
    (mine / "bare" / "labels.csv").unlink()
    assert run("train bare --method own_methods:OnSelected".split()) == 2
    assert "no selection" in capsys.readouterr().err
