"""The same sample twice with different labels is said, whatever it is; and nothing else is."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labelsieve.data import pictures
from labelsieve.data.conflicts import same_files
from labelsieve.data.labels import read_label_file
from labelsieve.data.source import load_source
from labelsieve.progress import Progress


def said(source: Path, **options: object) -> str:
    lines = io.StringIO()
    load_source(str(source), progress=Progress(stream=lines), **options)  # type: ignore[arg-type]
    return "".join(line for line in lines.getvalue().splitlines(keepends=True) if "more than once" in line)


def test_files_of_the_same_bytes(tmp_path: Path) -> None:
    for name, content in (("a", b"one"), ("b", b"two"), ("c", b"one"), ("d", b"three"), ("e", b"two")):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "f").write_bytes(b"x" * 5000 + b"1")
    (tmp_path / "g").write_bytes(b"x" * 5000 + b"2")
    (tmp_path / "h").write_bytes(b"x" * 5000 + b"1")
    files = [*sorted(tmp_path.iterdir()), tmp_path / "gone", 7]
    assert same_files(files) == [[0, 2], [1, 4], [5, 7]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    rng = np.random.default_rng(0)
    for name in ("circle", "square"):
        (root / name).mkdir(parents=True)
        for i in range(3):
            Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(root / name / f"{i}.png")
    (root / "circle" / "0a.png").write_text("no picture")  # the places shift by one
    return root


def test_a_picture_in_two_class_folders(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "circle" / "1.png", folder / "circle" / "9.png")
    assert said(folder) == ""  # twice, but with one label
    shutil.copy(folder / "circle" / "2.png", folder / "square" / "7.png")
    note = (
        "2 samples occur more than once with different labels, e.g. circle/2.png (circle) and square/7.png (square)\n"
    )
    assert said(folder) == note
    (tmp_path / "t.csv").write_text("path,label\ncircle/1.png,x\ncircle/9.png,y\nsquare/0.png,x\n")
    assert "2 samples" in said(tmp_path / "t.csv", root=folder)


def test_what_was_seen_while_staging_is_kept(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(folder / "circle" / "2.png", folder / "square" / "7.png")
    first = said(folder, staging=tmp_path / "staged")
    (path,) = (tmp_path / "staged").glob("*.json")
    index = json.loads(path.read_text())
    assert len(index["same"]) == 1 and first
    with monkeypatch.context() as patch:
        patch.setattr(pictures, "same_files", None)
        assert said(folder, staging=tmp_path / "staged") == first
    path.write_text(json.dumps({**index, "same": [5]}))
    assert said(folder, staging=tmp_path / "staged") == first


def test_the_labels_of_a_file_count(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "circle" / "2.png", folder / "square" / "7.png")
    ids = load_source(str(folder)).ids.tolist()
    same = "".join(f"{id},{'a' if id in ('circle/2.png', 'square/7.png') else 'b'}\n" for id in ids)
    (tmp_path / "labels.csv").write_text("id,label\n" + same)
    assert said(folder, labels=read_label_file(tmp_path / "labels.csv")) == ""


def test_rows_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,a,b,label\np,1,u,x\nq,2,,y\nr,1,u,y\ns,2,v,x\nt,,u,x\n")
    # A gap is filled with the median, 1.5, and still is no 1.5.
    assert said(path) == "2 samples occur more than once with different labels, e.g. p (x) and r (y)\n"
    path.write_text("a,label\n1,x\n2,x\n3,y\n,y\n2,x\n")
    assert said(path) == ""


def test_texts_and_arrays(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text,label\nhello,x\n,x\n,y\nhello,y\nbye,x\nhello,x\n")
    assert said(path) == "3 samples occur more than once with different labels, e.g. 0 (x) and 3 (y)\n"
    np.savez(tmp_path / "r.npz", x=np.array([[0, 1], [1, 0], [0, 1.0]]), y=np.array([0, 0, 1]))
    assert "e.g. 0 (0) and 2 (1)" in said(tmp_path / "r.npz")
    x = np.zeros((3, 4, 4, 3), np.uint8)
    x[1] = 9
    np.savez(tmp_path / "p.npz", x=x, y=np.array([0, 0, 1]))
    assert "e.g. 0 (0) and 2 (1)" in said(tmp_path / "p.npz")
    assert said(tmp_path / "p.npz", labelled=False) == ""
