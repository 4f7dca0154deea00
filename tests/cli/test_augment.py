"""--augment of run and train; networks of one's own that do not fit; pictures that do not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from labelsieve.cli.app import run
from labelsieve.data.source import load_source
from labelsieve.runfolder import RunFolder
from labelsieve.workflow import model_file


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 120)
    x = rng.integers(0, 80, (120, 16, 16, 1), dtype=np.uint8)
    for picture, side in zip(x, y, strict=True):
        picture[:, 8 * side : 8 * side + 8] += 120
    np.savez(tmp_path / "sides.npz", x=x, y=y)
    return tmp_path


def settings(folder: str) -> dict:
    found: dict = RunFolder(folder).record()["stages"]["train"]["settings"]
    return found


def test_sides_are_learnt_and_mirrored_ones_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    select = "select sides.npz --model svm --iterations 1 --device cpu --out"
    assert run(f"{select} auto".split()) == 0
    line = "train auto --method standard --train-epochs 8 --device cpu"
    capsys.readouterr()
    assert run(line.split()) == 0
    said = capsys.readouterr().err
    assert "does not mirror" in said and "100.0 %" in said
    assert settings("auto")["augment"] == "shift" and "learned little" not in said
    assert run([*line.split(), "--json"]) == 0  # the same again
    assert json.loads(capsys.readouterr().out)["resumed"] == "done"
    assert run(f"{line} --augment mirror".split()) == 2
    assert "augment" in capsys.readouterr().err

    assert run(f"{line} --augment mirror --out mirrored".split()) == 0
    said = capsys.readouterr().err
    assert settings("mirrored")["augment"] == "mirror"
    assert "the network learned little" in said and "--augment shift (or none)" in said
    # `auto` goes on as it was begun, whatever it would choose.
    assert run([*line.split(), "--out", "mirrored", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["resumed"] == "done"


def test_predictions_average_over_the_views_of_the_training(here: Path) -> None:
    """Of a picture that is mirrored in training, its mirror image gets nearly the same prediction."""
    line = "sides.npz --model svm --iterations 1 --device cpu --method standard --train-epochs 2"
    assert run(f"run {line} --augment mirror --out mirrored".split()) == 0
    assert run(f"run {line} --augment none --out none".split()) == 0
    data = load_source("sides.npz")
    mirrored = replace(data, x=data.x[:, :, ::-1].copy())
    difference = {}
    for name in ("mirrored", "none"):
        model = model_file.load(Path(name) / "model.safetensors")
        difference[name] = np.abs(model.probabilities(data, device="cpu") - model.probabilities(mirrored, device="cpu"))
        plain = replace(model, augment="none").probabilities(data, device="cpu")
        assert (np.abs(plain - model.probabilities(data, device="cpu")).max() > 1e-4) == (name == "mirrored")
    assert difference["mirrored"].mean() < 0.5 * difference["none"].mean()


def test_the_papers_protocol_mirrors(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "sides.npz --model svm --iterations 1 --device cpu --protocol paper --out paper"
    assert run(f"run {line} --method standard --train-epochs 1".split()) == 0
    assert settings("paper")["augment"] == "mirror"
    assert model_file.load(here / "paper" / "model.safetensors").augment == "none"  # predicts the picture alone


def test_what_cannot_be(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run sides.npz --augment flip --out a".split()) == 2
    assert "--augment 'flip'" in capsys.readouterr().err
    (here / "t.csv").write_text("a,label\n" + "\n".join(f"{i % 9},{'xy'[i % 2]}" for i in range(60)))
    capsys.readouterr()
    assert run("run t.csv --augment shift --out c".split()) == 2
    assert "--augment shift is for pictures" in capsys.readouterr().err


def test_networks_of_ones_own_that_do_not_fit(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "misfits.py").write_text(
        "from torch import nn\n"
        "def few(classes): return nn.Sequential(nn.Flatten(), nn.Linear(768, 1))\n"
        "def many(classes): return nn.Sequential(nn.Flatten(), nn.Linear(768, 7))\n"
        "def needy(classes, width): return nn.Linear(width, classes)\n"
        "def nothing(classes): return None\n"
        "def alone(): return nn.Linear(768, 2)\n"
        "itself = nn.Linear(768, 2)\n"
    )
    message = {
        "few": "misfits:few",
        "many": "misfits:many",
        "needy": "misfits:needy",
        "alone": "misfits:alone",
        "nothing": "misfits:nothing",
        "itself": "misfits:itself",
    }
    assert run("select sides.npz --model svm --iterations 1 --out done".split()) == 0
    for name, words in message.items():
        for line in (f"select sides.npz --out s-{name} --model", "train done --network", "run sides.npz --network"):
            capsys.readouterr()
            assert run([*line.split(), f"misfits:{name}"]) == 2
            said = capsys.readouterr().err
            assert words in said and "Traceback" not in said
    assert RunFolder("done").state("train") is None


def test_predicting_pictures_of_another_size(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "run sides.npz --model svm --iterations 1 --method standard --train-epochs 1 --device cpu --out done"
    assert run(line.split()) == 0
    for number, shape in enumerate([(8, 16, 1), (16, 8, 3)]):
        np.savez(here / "new.npz", x=np.zeros((4, *shape), np.uint8), y=np.zeros(4, int))
        capsys.readouterr()
        assert run(f"predict done new.npz --to p{number}.csv --device cpu".split()) == 2
        said = capsys.readouterr().err
        assert "trained on 16 x 16 pixels and 3" in said and "Traceback" not in said
