"""What users see of draws.py: estimators and the command line give the same answer twice, with dropout too."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification
from torch import nn

from labelsieve import INCV, RobustClassifier
from labelsieve.cli.app import run

OWN = """
from torch import nn
def network(classes):
    first = nn.LazyLinear(32)
    return nn.Sequential(first, nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, classes))
"""


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 3))


@pytest.fixture(scope="module")
def samples():
    x, y = make_classification(240, 10, n_informative=6, n_classes=3, random_state=0)
    rng = np.random.default_rng(0)
    return x, np.where(rng.random(240) < 0.2, rng.integers(0, 3, 240), y)


def test_selecting_with_dropout_twice_selects_the_same(samples):
    before = torch.get_rng_state()
    first = INCV(network, epochs=5, random_state=0).fit(*samples)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(7)
    second = INCV(network, epochs=5, random_state=0).fit(*samples)
    assert np.array_equal(first.suspicion_, second.suspicion_)
    assert np.array_equal(first.selected_, second.selected_)


def test_training_with_dropout_twice_predicts_the_same(samples):
    found = []
    for _ in range(2):
        torch.rand(7)
        model = RobustClassifier(network, method="standard", epochs=5, random_state=0).fit(*samples)
        found.append(model.predict_proba(samples[0]))
    assert np.array_equal(*found)


def test_the_command_line_trains_the_same_model_twice(samples, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_dropping.py").write_text(OWN)
    np.savez(tmp_path / "t.npz", x=samples[0], y=samples[1])
    assert run(["select", "t.npz", "--out", "r", "--model", "logistic"]) == 0
    models = []
    for out in ("first", "second"):
        torch.rand(7)
        line = f"train r --network own_dropping:network --method standard --train-epochs 3 --seed 4 --out {out}"
        code = run(line.split())
        assert code == 0, capsys.readouterr().err
        models.append((tmp_path / out / "model.safetensors").read_bytes())
    sys.modules.pop("own_dropping", None)
    assert models[0] == models[1]
