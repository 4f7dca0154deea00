"""select and run --predictions: a run folder like any other, from predictions that were made elsewhere."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from labelsieve import find_wrong_labels
from labelsieve.cli.app import run


@pytest.fixture
def noisy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """digits with pair noise, and a logistic regression's out-of-sample probabilities."""
    monkeypatch.chdir(tmp_path)
    assert run("corrupt digits --pattern pair --ratio 0.3 --seed 0 --out labels.csv".split()) == 0
    x, _ = load_digits(return_X_y=True)
    with Path("labels.csv").open(newline="") as file:
        given = np.array([int(row["label"]) for row in csv.DictReader(file)])
    model = LogisticRegression(max_iter=300, C=0.1)
    np.save("p.npy", cross_val_predict(model, x / 16, given, method="predict_proba", cv=3))
    capsys.readouterr()
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], line: str) -> dict:
    assert run([*line.split(), "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_select_report_export_and_train_from_predictions(noisy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "select digits --labels labels.csv --predictions p.npy --out r")
    assert found["model"] == "predictions" and found["counts"]["removed"] == 0
    assert abs(found["noise_ratio"] - found["measured_noise_ratio"]) < 0.08
    assert found["measured_label_precision"] > 0.9 and found["measured_auroc"] > 0.9
    with Path("r/labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    given = np.array([int(row["label"]) for row in rows])
    in_python = find_wrong_labels(given, np.load("p.npy"))
    np.testing.assert_allclose([float(row["suspicion"]) for row in rows], in_python.suspicion, atol=1e-5)
    assert not any("epoch" in line for line in Path("r/history.jsonl").read_text().splitlines())
    assert run("report r".split()) == 0 and Path("r/report.html").is_file()
    assert run("export r --what suspects --to s.csv".split()) == 0
    assert run("train r --train-epochs 2 --out t".split()) == 0
    capsys.readouterr()
    assert answer(capsys, "select digits --labels labels.csv --predictions p.npy --out r")["resumed"] == "done"


def test_other_predictions_are_another_run(noisy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(capsys, "select digits --labels labels.csv --predictions p.npy --out r")
    probs = np.load("p.npy")
    np.save("p.npy", 0.9 * probs + 0.1 / probs.shape[1])
    assert run("select digits --labels labels.csv --predictions p.npy --out r".split()) == 2
    assert "predictions_sha256" in capsys.readouterr().err


def test_a_dry_run_counts_no_trainings_of_the_selection(noisy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "run digits --labels labels.csv --predictions p.npy --out r --dry-run")
    assert found["model"] == "predictions" and found["plan"]["selection_seconds"] == 0
    assert not Path("r").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--predictions p.npy --model svm --epochs 3", "leave out --model, --epochs"),
        ("--predictions none.npy", "none.npy"),
        ("--predictions labels.csv", "labels.csv"),
        ("--predictions scores.npy", "row 0 sums to 10"),
    ],
)
def test_what_is_refused(noisy: Path, capsys: pytest.CaptureFixture[str], line: str, said: str) -> None:
    np.save("scores.npy", np.ones((1797, 10)))
    assert run(f"select digits --labels labels.csv --out r {line}".split()) == 2
    assert said in capsys.readouterr().err
    assert not Path("r/labels.csv").exists()
