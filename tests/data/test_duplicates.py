"""The same sample twice is said, with different labels or as a copy, whatever it is; and nothing else is."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labelsieve.data import duplicates as conflicts
from labelsieve.data import read_pictures
from labelsieve.data.duplicates import MOST_COPIES, copies_among, same_files
from labelsieve.data.labels import read_label_file
from labelsieve.data.source import ReadOptions, load_source
from labelsieve.progress import Progress


def said(source: Path, **options: object) -> str:
    lines = io.StringIO()
    load_source(str(source), ReadOptions(**options), progress=Progress(stream=lines))  # type: ignore[arg-type]
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
    note = said(folder)
    assert "labels: 2, e.g." in note and "circle/2.png (circle) and square/7.png (square)" in note
    (tmp_path / "t.csv").write_text("path,label\ncircle/1.png,x\ncircle/9.png,y\nsquare/0.png,x\n")
    assert "labels: 2, e.g." in said(tmp_path / "t.csv", root=folder)


def test_what_was_seen_while_staging_is_kept(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(folder / "circle" / "2.png", folder / "square" / "7.png")
    first = said(folder, cache_dir=tmp_path / "staged")
    (path,) = (tmp_path / "staged").glob("*.json")
    index = json.loads(path.read_text())
    assert len(index["same"]) == 1 and first
    with monkeypatch.context() as patch:
        patch.setattr(read_pictures, "same_files", None)
        assert said(folder, cache_dir=tmp_path / "staged") == first
    path.write_text(json.dumps({**index, "same": [5]}))
    assert said(folder, cache_dir=tmp_path / "staged") == first


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
    assert "p (x) and r (y)" in said(path) and "20.0 %" in said(path)
    path.write_text("a,label\n1,x\n2,x\n3,y\n,y\n2,x\n")
    assert said(path) == ""


def test_texts_and_arrays(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text,label\nhello,x\n,x\n,y\nhello,y\nbye,x\nhello,x\n")
    assert "labels: 3, e.g." in said(path) and "0 (x) and 3 (y)" in said(path)
    np.savez(tmp_path / "r.npz", x=np.array([[0, 1], [1, 0], [0, 1.0]]), y=np.array([0, 0, 1]))
    assert "e.g. 0 (0) and 2 (1)" in said(tmp_path / "r.npz")
    x = np.zeros((3, 4, 4, 3), np.uint8)
    x[1] = 9
    np.savez(tmp_path / "p.npz", x=x, y=np.array([0, 0, 1]))
    assert "e.g. 0 (0) and 2 (1)" in said(tmp_path / "p.npz")
    assert said(tmp_path / "p.npz", labelled=False) == ""


def test_copies_are_told_and_kept_together(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conflicts, "MIN_DIFFERENT", 1)
    shutil.copy(folder / "circle" / "1.png", folder / "circle" / "9.png")
    lines = io.StringIO()
    data = load_source(str(folder), progress=Progress(stream=lines))
    assert "1 sample is a copy of another" in (lines.getvalue())
    ids = data.ids.tolist()
    assert data.groups is not None
    pairs = {(ids[i], ids[int(code)]) for i, code in enumerate(data.groups) if code != i}
    assert pairs == {("circle/9.png", "circle/1.png")}
    (tmp_path / "t.csv").write_text("text,label\n" + "one two,x\nthree four,y\n" * 3 + "five six,x\n")
    texts = load_source(str(tmp_path / "t.csv"))
    assert texts.groups is not None and texts.groups.tolist() == [0, 1, 0, 1, 0, 1, 6]
    assert any(note.startswith("4 samples are copies of others") for note in texts.notes)


def rows(*values: int) -> np.ndarray:
    return np.array(values, dtype=float)[:, None] * [1.0, 10.0]


def test_the_same_with_labels_of_their_own_are_no_copies() -> None:
    """Rows of few values, or what many people write: each has a label of its own, and labels differ."""
    x = rows(*[i // 2 for i in range(200)])
    y = np.array([i // 2 % 2 for i in range(200)])
    assert copies_among(x, y) is not None
    y[:10:2] = 1 - y[:10:2]  # of a hundred pairs, five with two labels
    assert copies_among(x, y) is not None
    y[10] = 1 - y[10]
    assert copies_among(x, y) is None


def test_what_is_there_very_often_is_no_copy() -> None:
    x = rows(*[0] * (MOST_COPIES + 1), *[1] * MOST_COPIES, *range(2, 12))
    found = copies_among(x, np.zeros(len(x), dtype=np.int64))
    assert found is not None
    assert len(np.unique(found[: MOST_COPIES + 1])) == MOST_COPIES + 1
    assert len(np.unique(found[MOST_COPIES + 1 : -10])) == 1
    assert copies_among(rows(1, 2, 3), np.zeros(3, dtype=np.int64)) is None


def test_a_class_of_few_different_samples_keeps_its_repeats() -> None:
    """Kept together they would be on one side, and the other never saw the class."""
    x = rows(*[0] * 5, *[1] * 5, *range(10, 30), *range(10, 30))
    found = copies_among(x, np.array([0] * 10 + [1] * 40))
    assert found is not None
    assert found[:10].tolist() == list(range(10))
    assert np.array_equal(found[10:30], found[30:])
    assert copies_among(x[:10], np.array([0] * 5 + [1] * 5)) is None


@pytest.mark.parametrize("form", ["array", "frame", "sparse", "objects", "pictures"])
def test_copies_in_any_form(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conflicts, "MIN_DIFFERENT", 2)
    from scipy.sparse import csr_matrix

    x: object = np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 2.0], [1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [2.0, 0.0, 1.0]])
    if form == "frame":
        x = pytest.importorskip("pandas").DataFrame({"a": ["u", "v", "u", None, "u"], "b": [1.5, 1.5, 1.5, 2, 2]})
    elif form == "sparse":
        x = csr_matrix(x)
    elif form == "objects":
        x = np.array([["a", 1], ["b", 1], ["a", 1], ["b", 2], ["a", 2]], dtype=object)
    elif form == "pictures":
        x = np.repeat(np.array([1, 2, 1, 3, 4], np.uint8), 48).reshape(5, 4, 4, 3)
    found = copies_among(x, np.zeros(5, dtype=np.int64))
    assert found is not None and found.tolist() == [0, 1, 0, 3, 4]
