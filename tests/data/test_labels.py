"""The file that `--labels` names: whole, or the decisions of a review."""

from __future__ import annotations

from pathlib import Path

import pytest

from labelsieve.data.labels import read_label_file
from labelsieve.data.source import load_source
from labelsieve.errors import InputError


def source(folder: Path) -> str:
    path = folder / "fruit.csv"
    path.write_text("id,weight,label\na,1,apple\nb,2,pear\nc,3,apple\n")
    return str(path)


def test_decisions_change_what_they_name_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "decisions.csv").write_text("id,label,decision,given\nc,plum,class,apple\na,apple,keep,apple\n")
    data = load_source(source(tmp_path), labels=read_label_file(tmp_path / "decisions.csv"))
    assert [data.classes[code] for code in data.y] == ["apple", "pear", "plum"]


def test_a_label_file_without_decisions_must_name_every_sample(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("id,label\nc,plum\n")
    with pytest.raises(InputError, match="no label of the sample 'a'"):
        load_source(source(tmp_path), labels=read_label_file(tmp_path / "labels.csv"))


def test_dropped_samples_are_pointed_to_the_cleaned_export(tmp_path: Path) -> None:
    (tmp_path / "decisions.csv").write_text("id,label,decision\nc,,drop\n")
    with pytest.raises(InputError, match=r"line 2: 'c' was dropped.*--what cleaned"):
        read_label_file(tmp_path / "decisions.csv")
