"""--set: a method's settings on the command line, kept in the run folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelsieve import stopping
from labelsieve.cli.app import run
from labelsieve.runfolder import RunFolder

OWN = """
from labelsieve.engine.method import Method, mean_over, sample_losses

class Silent(Method):
    # says nothing of its settings
    def __init__(self, power=1):
        self.power = power
    def loss(self, logits, batch):
        return mean_over(sample_losses(logits, batch) ** self.power, batch.valid[:, None])
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a table, t.csv, and a module with a method."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "own_set.py").write_text(OWN)
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 150)
    given = np.where(rng.random(150) < 0.2, (true + 1) % 3, true)
    rows = [f"{rng.normal(4 * t):.3f},{rng.normal(-3 * t):.3f},{'abc'[g]}" for t, g in zip(true, given, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["x,z,label", *rows]))
    yield tmp_path
    sys.modules.pop("own_set", None)


def answer(capsys: pytest.CaptureFixture[str], line: str) -> dict[str, Any]:
    assert run([*line.split(), "--json"]) == 0, capsys.readouterr().err
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refused(capsys: pytest.CaptureFixture[str], line: str) -> str:
    capsys.readouterr()
    assert run(line.split()) == 2
    *_, message = capsys.readouterr().err.splitlines()
    return message


SELECT = "select t.csv --out run --model logistic --iterations 1"
FORWARD = "train run --method f-correction --train-epochs 4 --device cpu"


def test_a_stopped_training_goes_on_with_them(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(capsys, SELECT)
    line = f"{FORWARD} --set percentile=90 --set estimate_epochs=2"
    whole = answer(capsys, f"{line} --out whole")
    assert whole["settings"]["set"] == "estimate_epochs=2 percentile=90"
    assert whole["settings"]["method_settings"] == {"percentile": 90, "estimate_epochs": 2, "transition": None}
    epochs = [entry["epoch"] for entry in RunFolder("whole").read_history() if entry["stage"] == "train"]
    assert epochs == [1, 2, 3, 4, 5, 6]
    asked = 0

    def third_time() -> bool:
        nonlocal asked
        asked += 1
        return asked >= 3

    with monkeypatch.context() as patched:
        patched.setattr(stopping, "requested", third_time)
        patched.setattr(stopping, "reason", KeyboardInterrupt)
        assert run(line.split()) == 130
    assert RunFolder("run").state("train") == "running"

    before = (here / "run" / "run.json").read_bytes()
    begun = "set was estimate_epochs=2 percentile=90, now not set"
    assert begun in refused(capsys, FORWARD)
    message = refused(capsys, f"{FORWARD} --set estimate_epochs=3 --batch-size 16")
    assert "batch_size was 32, now 16; set was estimate_epochs=2 percentile=90, now estimate_epochs=3." in message
    assert (here / "run" / "run.json").read_bytes() == before

    other_order = f"{FORWARD} --set estimate_epochs=2 --set=percentile=90"
    assert answer(capsys, other_order)["resumed"] == "resumed"
    assert (here / "run" / "model.safetensors").read_bytes() == (here / "whole" / "model.safetensors").read_bytes()
    assert answer(capsys, line)["resumed"] == "done"


def test_a_method_that_keeps_its_settings_to_itself(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(capsys, SELECT)
    line = "train run --method own_set:Silent --train-epochs 3 --device cpu"
    for power, folder in ((1, "one"), (3, "three")):
        assert answer(capsys, f"{line} --set power={power} --out {folder}")["settings"]["set"] == f"power={power}"
    plain = answer(capsys, f"{line} --out plain")
    assert "set" not in plain["settings"] and plain["settings"]["method_settings"] == {}
    models = [(here / name / "model.safetensors").read_bytes() for name in ("plain", "one", "three")]
    assert models[0] == models[1] != models[2]
    assert "set was power=3, now power=2" in refused(capsys, f"{line} --set power=2 --out three")
    assert run([*line.split(), "--set", "power=3", "--out", "three"]) == 0
    assert "own_set:Silent (power=3), mlp: already trained" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "--method d2l --set windows=5",
            "no setting windows; its settings: init_epochs, window, neighbours",
        ),
        ("--method standard --set label_smoothing=much", "label_smoothing"),
        ("--set warmup", "cannot read --set 'warmup': write NAME=VALUE"),
        ("--set warmup=1 --set warmup=2", "--set warmup is given twice"),
        ("--method own_set:Silent --set powers=5", "own_set:Silent has no setting powers; its settings: power"),
    ],
)
@pytest.mark.parametrize("command", ["train nowhere", "run t.csv --out run"])
def test_mistakes_are_told_at_once_with_all_others(
    here: Path, capsys: pytest.CaptureFixture[str], command: str, line: str, said: str
) -> None:
    assert run([*f"{command} {line} --batch-size 1".split()]) == 2
    message = capsys.readouterr().err
    assert said in message and "--batch-size must be at least 2, got 1" in message and message.count("\n") == 1
    assert not (here / "run").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--set warmup=5", "warmup 5 is larger than the number of epochs, 4"),
        ("--method decoupling --set warmup_epochs=5", "warmup_epochs 5 is larger than the number of epochs, 4"),
        ("--method f-correction --set estimate_epochs=0", "estimate_epochs is 0 but no transition matrix is given"),
        ("--method f-correction --set transition=[[1,0],[0,1]]", "the transition matrix has shape (2, 2)"),
    ],
)
@pytest.mark.parametrize("dry", ["", " --dry-run"])
def test_what_the_training_would_refuse_is_told_before_the_selection(
    here: Path, capsys: pytest.CaptureFixture[str], line: str, said: str, dry: str
) -> None:
    assert said in refused(capsys, f"run t.csv --out run --train-epochs 4 {line}{dry}")
    assert not (here / "run").exists()


def test_a_run_from_its_plan_to_its_report(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "run t.csv --out run --model logistic --iterations 1 --train-epochs 4 --device cpu --method f-correction"
    line = f"{line} --set estimate_epochs=1"
    assert run([*line.split(), "--dry-run"]) == 0
    assert "training of mlp, 5 epochs" in capsys.readouterr().out
    planned = answer(capsys, f"{line} --dry-run")
    assert planned["method_settings"] == {"estimate_epochs": 1} and planned["plan"]["wanted"]["training_epochs"] == 5
    assert run(line.split()) == 0
    assert "training mlp with f-correction (estimate_epochs=1): 5 epochs" in capsys.readouterr().err
    assert "estimate_epochs=1" in (here / "run" / "report.html").read_text()
    assert [entry["epoch"] for entry in RunFolder("run").read_history() if entry["stage"] == "train"][-1] == 5
    assert answer(capsys, line)["stages"] == {"select": "done", "train": "done"}
    assert "set was estimate_epochs=1, now estimate_epochs=2" in refused(capsys, line.replace("=1", "=2"))


def test_what_is_set_wins_over_the_papers_choice(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "run t.csv --model logistic --iterations 1 --train-epochs 10 --protocol paper --pattern pair --device cpu"
    for message, warmup in (("", 4), (" --set warmup=7", 7)):
        answer(capsys, f"{line} --out run{warmup}{message}")
        assert RunFolder(f"run{warmup}").record()["settings"]["method_settings"]["warmup"] == warmup
