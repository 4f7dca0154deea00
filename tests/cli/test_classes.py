from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path

import pytest

from labelsieve.cli.app import run
from labelsieve.errors import InputError
from labelsieve.workflow.edit_labels import parse_renames

MERGE_COMMAND = "labelsieve data classes t.csv --label-column kind --alike --to labels.csv"
QUICK = ["--model", "nearest", "--iterations", "1"]
LABELS = ["refund"] * 40 + ["Refund"] * 2 + ["refnud"] * 2 + ["bill, old"] * 41 + ["Bill, old"]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "t.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [("a", "b", "kind"), *((i * 35 % 89 + 0.5, i % 5, label) for i, label in enumerate(LABELS))]
        )
    return path


def _labels(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return [row["label"] for row in csv.DictReader(file)]


def test_classes_are_listed_with_a_command_that_merges_them(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "classes", "t.csv", "--label-column", "kind"]) == 0
    listed = capsys.readouterr().out
    header, *lines = listed.splitlines()
    assert header == "class      samples"
    assert [line.split("  ")[0] for line in lines[:5]] == ["bill, old", "refund", "Refund", "refnud", "Bill, old"]
    assert "'refund'" in lines[2] and "'bill, old'" in lines[4]
    assert MERGE_COMMAND in lines[5]
    command = MERGE_COMMAND.split()[1:]
    assert run(command) == 0
    assert "labelsieve run t.csv --label-column kind --labels labels.csv" in capsys.readouterr().out
    assert _labels(Path("labels.csv")) == ["refund"] * 42 + ["refnud"] * 2 + ["bill, old"] * 42
    assert run(command) == 2  # an existing file is not overwritten
    assert run([*command, "--force"]) == 0


def test_the_suggested_command_has_the_same_options(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run t.csv --label-column kind --dry-run".split()) == 0
    hinted = capsys.readouterr().err.partition("`")[2].partition("`")[0]
    assert hinted == "labelsieve data classes t.csv --label-column kind"
    assert run(shlex.split(hinted)[1:]) == 0
    assert "`" not in capsys.readouterr().out  # the list shows the spellings; the note would repeat it


def test_a_run_uses_the_file_and_exports_its_labels(source: Path) -> None:
    assert run(["data", "classes", "t.csv", "--label-column", "kind", "--alike", "--to", "labels.csv"]) == 0
    assert run(["select", "t.csv", "--label-column", "kind", "--labels", "labels.csv", *QUICK, "--out", "r"]) == 0
    assert run(["export", "r", "--what", "cleaned", "--to", "out.csv"]) == 0
    with Path("out.csv").open(newline="") as file:
        kinds = [row["kind"] for row in csv.DictReader(file)]
    assert kinds == ["refund"] * 42 + ["refnud"] * 2 + ["bill, old"] * 42


def test_merging(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["data", "classes", "t.csv", "--label-column", "kind", "--alike", "--merge"]
    assert run([*arguments, '"bill, old=billing", refnud=refund', "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["classes"] == {"billing": 42, "refund": 44}
    assert found["merged"]["Bill, old"] == "billing"  # variants follow the renamed class
    assert found["alike"] == {} and found["to"] is None
    assert run([*arguments, "refnud=refund"]) == 0
    assert "--to labels.csv" in capsys.readouterr().out
    assert run([*arguments, "refand=refund"]) == 2
    assert "--merge refand" in capsys.readouterr().err


def test_names_that_are_not_labels_are_left_out(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source.write_text(source.read_text().replace("refnud", "n/a"))
    assert run(["data", "classes", "t.csv", "--label-column", "kind"]) == 0
    listed = capsys.readouterr().out
    assert "n/a              2  " in listed
    command = listed.partition(": labelsieve ")[2].splitlines()[0].split()
    assert command[-4:] == ["--leave-out", "n/a", "--to", "labels.csv"] and run(command) == 0
    assert len(_labels(Path("labels.csv"))) == len(LABELS) - 2
    assert run(["select", "t.csv", "--label-column", "kind", "--labels", "labels.csv", *QUICK, "--out", "r"]) == 0
    assert "t: 84 samples, 2 classes" in capsys.readouterr().err
    assert run(["data", "classes", "t.csv", "--label-column", "kind", "--leave-out", "nothing"]) == 2


def test_parse_renames() -> None:
    assert parse_renames('Y = yes, "a, b=c",') == {"Y": "yes", "a, b": "c"}
    for wrong in ("Y", "=yes", "Y=", "a=b=c"):
        with pytest.raises(InputError, match="OLD=NEW"):
            parse_renames(wrong)
    with pytest.raises(InputError, match="'yes' and 'no'"):
        parse_renames("Y=yes,Y=no")


def test_the_suggested_command_of_a_table_with_groups_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{i},{i // 2},{('cat', 'Cat', 'dog')[i % 3]},{i % 7}" for i in range(60)]
    (tmp_path / "g.csv").write_text("\n".join(["id,patient,label,x", *lines]) + "\n")
    assert run(["run", str(tmp_path / "g.csv"), "--group-column", "patient", "--dry-run"]) == 0
    hinted = capsys.readouterr().err.partition("`")[2].partition("`")[0]
    assert hinted.endswith("--group-column patient") and "--ignore-columns" not in hinted
    assert run(shlex.split(hinted)[1:]) == 0
