"""What `predict` says of samples, and of labels to compare with, that are not as the model knows them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from labelsieve.cli.app import run
from labelsieve.cli.runs import describe_unknown
from labelsieve.data.source import ReadOptions, load_source
from labelsieve.errors import InputError
from labelsieve.types import LabelledData
from labelsieve.workflow.model_file import SampleReader
from labelsieve.workflow.predict import compare


def test_labels_of_unknown_classes_are_told_apart() -> None:
    labels = ["yes", "no", "Yes", "Yes", "N o", "maybe"]
    scored = compare(labels, ["yes", "yes", "yes", "no", "no", "no"], ["no", "yes"])
    assert scored.accuracy == pytest.approx(1 / 6) and scored.accuracy_known == 0.5
    assert scored.unknown_labels == {"Yes": 2, "N o": 1, "maybe": 1}
    assert scored.spelled_otherwise == {"Yes": "yes", "N o": "no"}
    first, second = describe_unknown(scored, len(labels))
    assert first.startswith("4 of 6 labels") and "'Yes', 'N o', 'maybe'" in first and "50.0 %" in first
    assert "'Yes' for 'yes', 'N o' for 'no'" in second


def test_nothing_is_said_where_all_are_known() -> None:
    scored = compare(["a", "b"], ["a", "a"], ["a", "b", "c"])
    assert (scored.accuracy, scored.accuracy_known) == (0.5, 0.5) and describe_unknown(scored, 2) == []


def test_no_label_is_known() -> None:
    scored = compare(["u"] * 3, ["a", "a", "b"], ["a", "b"])
    assert scored.accuracy == 0 and scored.accuracy_known is None
    (line,) = describe_unknown(scored, 3)
    assert line.startswith("3 of 3 labels") and "('u')" in line


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
    assert lines[1].startswith("60 of 80 labels") and "('No', 'Yes')" in lines[1]
    assert "'No' for 'no', 'Yes' for 'yes'" in lines[2]
    assert run("predict run new.csv --score --json --force".split()) == 0
    message = json.loads(capsys.readouterr().out)
    assert message["accuracy_known"] > 0.9 and message["unknown_labels"] == {"No": 30, "Yes": 30}
    assert run("predict run new.csv --json --force".split()) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] is None


@pytest.fixture
def cities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = [
        f"{rng.normal(9 * (i % 2)):.2f},{('Rome', 'Oslo')[i % 2]},T{i % 11 * (i % 2)},{('no', 'yes')[i % 2]}\n"
        for i in range(90)
    ]
    Path("t.csv").write_text("x,city,code,label\n" + "".join(rows))
    assert run("run t.csv --model logistic --iterations 1 --train-epochs 20 --out run --json".split()) == 0
    capsys.readouterr()


def test_one_class_or_one_row_is_enough_to_score(cities: None, capsys: pytest.CaptureFixture[str]) -> None:
    Path("same.csv").write_text("x,city,code,label\n0,Rome,T0,no\n0.1,Rome,T0,no\n")
    assert run("predict run same.csv --score".split()) == 0
    assert capsys.readouterr().out == "predictions.csv: 2 predictions, accuracy 100.0 %\n"
    Path("row.csv").write_text("x,city,code,label\n0,Rome,T0,no\n")
    assert run("predict run row.csv --score --force".split()) == 0
    assert capsys.readouterr().out == "predictions.csv: 1 prediction, accuracy 100.0 %\n"
    Path("one.csv").write_text("x,city,code,label\n0,Rome,T1,no\n0.1,Rome,T2,\n9,Oslo,T1,yes\n")
    assert run("predict run one.csv --score --force".split()) == 0
    assert "predictions.csv: 2 predictions, 1 sample skipped, accuracy" in capsys.readouterr().out
    for word in ("select", "run"):
        assert run([word, "same.csv", "--out", "other"]) == 2
        assert "has only one class ('no')" in capsys.readouterr().err


def test_a_folder_with_one_class_is_enough_to_score(tmp_path: Path) -> None:
    folder = tmp_path / "checked" / "cat"
    folder.mkdir(parents=True)
    Image.fromarray(np.zeros((8, 8, 3), dtype=np.uint8)).save(folder / "1.png")
    assert len(load_source(str(tmp_path / "checked"), ReadOptions(allow_one_class=True))) == 1
    with pytest.raises(InputError, match="only one class"):
        load_source(str(tmp_path / "checked"))


def test_new_values_of_a_category_are_named(cities: None, capsys: pytest.CaptureFixture[str]) -> None:
    Path("new.csv").write_text("id,x,city,code\na,0,Bern,T1\nb,9,Rome,T77\nc,9,Bonn,T1\nd,9,,T1\n")
    assert run("predict run new.csv --json".split()) == 0
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert any("column city" in note and "'Bern', 'Bonn'" in note for note in notes)
    assert run("predict run t.csv --force".split()) == 0
    assert "does not know" not in capsys.readouterr().err


def test_what_a_table_lacks_or_is_not(cities: None, capsys: pytest.CaptureFixture[str]) -> None:
    Path("new.csv").write_text("x,code\n0,T1\n")
    assert run("predict run new.csv".split()) == 2
    assert "city" in capsys.readouterr().err
    Path("new.csv").write_text("x\n0\n")
    assert run("predict run new.csv".split()) == 2
    assert "city, code" in capsys.readouterr().err
    Path("predictions.csv").write_text("of an earlier run")
    for source, said in (
        ("nowhere.csv", "nowhere.csv does not exist"),
        ("new.csv", "city, code"),
        ("t.csv", "--force"),
    ):
        assert run(["predict", "run", source]) == 2
        assert said in capsys.readouterr().err
    assert Path("predictions.csv").read_text() == "of an earlier run"
    texts = LabelledData(np.array(["a"]), np.zeros(1, dtype=np.int64), ("n",), np.array(["0"]), "text", name="words")
    with pytest.raises(InputError, match="words holds texts, the model was trained on rows"):
        SampleReader("table", (2,)).store(texts, torch.device("cpu"))
