from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path

import pytest

from labelsieve.cli.app import run
from labelsieve.errors import InputError
from labelsieve.workflow.edit_labels import parse_renames

MAKES_THEM_ONE = "labelsieve data classes t.csv --label-column kind --alike --merge refnud=refund --to labels.csv"
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


def test_classes_are_listed_and_the_command_that_makes_them_one_does(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["data", "classes", "t.csv", "--label-column", "kind"]) == 0
    listed = capsys.readouterr().out
    assert listed.splitlines() == [
        "class      samples",
        "bill, old       41",
        "refund          40",
        "Refund           2  written otherwise: 'refund'",
        "refnud           2  perhaps 'refund'",
        "Bill, old        1  written otherwise: 'bill, old'",
        f"to change that: {MAKES_THEM_ONE}",
        "what names under --merge and --leave-out mean is yours to say: strike those that are classes",
    ]
    command = MAKES_THEM_ONE.split()[1:]
    assert run(command) == 0
    assert "labelsieve run t.csv --label-column kind --labels labels.csv" in capsys.readouterr().out
    assert _labels(Path("labels.csv")) == ["refund"] * 44 + ["bill, old"] * 42
    assert run(command) == 2  # what is there is not written over
    assert run([*command, "--force"]) == 0


def test_the_command_that_is_hinted_at_reads_the_source_in_the_same_way(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("run t.csv --label-column kind --dry-run".split()) == 0
    hinted = capsys.readouterr().err.partition("They count as they are: `")[2].partition("`")[0]
    assert hinted == "labelsieve data classes t.csv --label-column kind"
    assert run(shlex.split(hinted)[1:]) == 0
    assert "They count" not in capsys.readouterr().out  # the list says it


def test_a_run_takes_the_file_and_exports_its_labels(source: Path) -> None:
    assert run(["data", "classes", "t.csv", "--label-column", "kind", "--alike", "--to", "labels.csv"]) == 0
    assert run(["select", "t.csv", "--label-column", "kind", "--labels", "labels.csv", "--out", "r"]) == 0
    assert run(["export", "r", "--what", "cleaned", "--to", "out.csv", "--undecided", "keep"]) == 0
    with Path("out.csv").open(newline="") as file:
        kinds = [row["kind"] for row in csv.DictReader(file)]
    assert kinds == ["refund"] * 42 + ["refnud"] * 2 + ["bill, old"] * 42


def test_merging_is_followed_and_told(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["data", "classes", "t.csv", "--label-column", "kind", "--alike", "--merge"]
    assert run([*arguments, '"bill, old=billing", refnud=refund', "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["classes"] == {"billing": 42, "refund": 44}
    assert found["merged"]["Bill, old"] == "billing"  # what it was alike went on
    assert found["alike"] == found["perhaps"] == {} and found["to"] is None
    assert run([*arguments, "refnud=refund"]) == 0
    assert capsys.readouterr().out.endswith("nothing was written: --to labels.csv writes these labels\n")
    assert run([*arguments, "refand=refund"]) == 2
    assert "--merge refand: t has no class 'refand'" in capsys.readouterr().err


def test_what_is_no_label_is_left_out(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source.write_text(source.read_text().replace("refnud", "n/a"))
    assert run(["data", "classes", "t.csv", "--label-column", "kind"]) == 0
    listed = capsys.readouterr().out
    assert "n/a              2  no label?" in listed
    command = listed.partition("to change that: labelsieve ")[2].splitlines()[0].split()
    assert command[-4:] == ["--leave-out", "n/a", "--to", "labels.csv"] and run(command) == 0
    assert len(_labels(Path("labels.csv"))) == len(LABELS) - 2
    assert run(["select", "t.csv", "--label-column", "kind", "--labels", "labels.csv", "--out", "r"]) == 0
    assert "t: 84 samples of 2 classes" in capsys.readouterr().err
    assert run(["data", "classes", "t.csv", "--label-column", "kind", "--leave-out", "nothing"]) == 2


def test_renames_as_they_are_written() -> None:
    assert parse_renames('Y = yes, "a, b=c",') == {"Y": "yes", "a, b": "c"}
    for wrong in ("Y", "=yes", "Y=", "a=b=c"):
        with pytest.raises(InputError, match="write OLD=NEW"):
            parse_renames(wrong)
    with pytest.raises(InputError, match="'Y' cannot become both 'yes' and 'no'"):
        parse_renames("Y=yes,Y=no")
