"""Labels with blanks, capitals and gaps; the file that `--labels` names: whole, or the decisions of a review."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from labelsieve.data.labels import read_label_file
from labelsieve.data.source import load_source
from labelsieve.errors import InputError
from labelsieve.progress import Progress


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


def test_blanks_at_the_ends_of_labels_do_not_count(tmp_path: Path) -> None:
    lines = io.StringIO()
    path = tmp_path / "t.csv"
    path.write_text("a,label\n1, login \n2,login\n3,bill\n4,bill\u00a0\n", encoding="utf-8")
    data = load_source(str(path), progress=Progress(stream=lines))
    assert data.classes == ("bill", "login") and data.y.tolist() == [1, 1, 0, 0]
    assert "2 labels had blanks at the ends" in lines.getvalue()
    np.savez(tmp_path / "d.npz", x=np.eye(3), y=np.array(["a", "a ", "b"]))
    assert load_source(str(tmp_path / "d.npz")).classes == ("a", "b")
    (tmp_path / "labels.csv").write_text("id,label,true\n0,x ,x\n1,x,x \n2,y,y\n3,y,y\n")
    file = read_label_file(tmp_path / "labels.csv")
    assert file.true == {"0": "x", "1": "x", "2": "y", "3": "y"}
    assert load_source(str(path), labels=file, progress=Progress(stream=lines)).y.tolist() == [2, 2, 3, 3]
    assert "labels.csv: 1 label had blanks at the ends" in lines.getvalue()


def test_classes_that_differ_only_in_case_are_told_and_kept(tmp_path: Path) -> None:
    lines = io.StringIO()
    path = tmp_path / "t.csv"
    path.write_text("a,label\n1,Gold\n2,gold\n3,tin\n")
    data = load_source(str(path), progress=Progress(stream=lines))
    assert data.classes == ("Gold", "gold", "tin")
    assert "classes 'Gold' and 'gold' differ only in case\n" in lines.getvalue()


def test_missing_labels_are_counted_and_the_first_lines_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,label\n" + "1,x\n2,\n3,y\n" * 7)
    with pytest.raises(InputError, match=r"7 labels are missing \(lines 3, 6, 9, 12, 15, \.\.\.\); fill them in"):
        load_source(str(path))
    path.write_text("a,label\n1,x\n2,  \n")
    with pytest.raises(InputError, match=r"line 3: the label is missing; fill it in or leave the sample out"):
        load_source(str(path))
    (tmp_path / "labels.csv").write_text("id,label\na,\nb,x\nc,\n")
    with pytest.raises(InputError, match=r"2 labels are missing \(lines 2, 4\)"):
        read_label_file(tmp_path / "labels.csv")
