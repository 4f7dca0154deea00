"""What `predict --score` says of labels that the model cannot predict."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from labelsieve.cli import run
from labelsieve.commands.predict import about_unknown, compare


def test_labels_of_unknown_classes_are_told_apart() -> None:
    labels = ["yes", "no", "Yes", "Yes", "N o", "maybe"]
    scored = compare(labels, ["yes", "yes", "yes", "no", "no", "no"], ["no", "yes"])
    assert scored.accuracy == pytest.approx(1 / 6) and scored.accuracy_known == 0.5
    assert scored.unknown_labels == {"Yes": 2, "N o": 1, "maybe": 1}
    assert scored.spelled_otherwise == {"Yes": "yes", "N o": "no"}
    counted = "classes that the model does not know ('Yes', 'N o', 'maybe') and count as wrong"
    assert about_unknown(scored, len(labels)) == [
        f"4 of 6 labels are of {counted}; accuracy over the other 2 is 50.0 %",
        "only written otherwise: 'Yes' for 'yes', 'N o' for 'no'; spell them as the run does and score again",
    ]


def test_nothing_is_said_where_all_are_known() -> None:
    scored = compare(["a", "b"], ["a", "a"], ["a", "b", "c"])
    assert (scored.accuracy, scored.accuracy_known) == (0.5, 0.5) and about_unknown(scored, 2) == []


def test_no_label_is_known() -> None:
    scored = compare(["u"] * 3, ["a", "a", "b"], ["a", "b"])
    assert scored.accuracy == 0 and scored.accuracy_known is None
    counted = "classes that the model does not know ('u') and count as wrong"
    assert about_unknown(scored, 3) == [f"3 of 3 labels are of {counted}; no label is of a class it knows"]


def test_a_score_says_how_labels_are_spelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = [f"{rng.normal(9 * (i % 2)):.2f}" for i in range(80)]
    Path("t.csv").write_text("x,label\n" + "".join(f"{v},{('no', 'yes')[i % 2]}\n" for i, v in enumerate(x)))
    assert run("run t.csv --model logistic --iterations 1 --train-epochs 20 --out run --json".split()) == 0
    spelled = ("No", "Yes", "no", "yes")
    cells = [f"{v},{spelled[i % 2 + 2 * (i < 20)]}\n" for i, v in enumerate(x)]
    Path("new.csv").write_text("x,label\n" + "".join(cells))
    capsys.readouterr()
    assert run("predict run new.csv --score".split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("predictions.csv: 80 predictions, accuracy 2")
    assert lines[1].startswith("60 of 80 labels are of classes that the model does not know ('No', 'Yes')")
    assert lines[2].startswith("only written otherwise: 'No' for 'no', 'Yes' for 'yes'; ")
    assert run("predict run new.csv --score --json --force".split()) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["accuracy_known"] > 0.9 and told["unknown_labels"] == {"No": 30, "Yes": 30}
    assert run("predict run new.csv --json --force".split()) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] is None
