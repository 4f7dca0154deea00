"""A folder of class folders: harmless names, each given once, in a place that is free."""

from __future__ import annotations

import importlib.util
import os
import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from labelsieve.data.source import load_source
from labelsieve.decisions import append_decision
from labelsieve.errors import InputError
from labelsieve.export import export
from labelsieve.export.class_folders import Folder, FolderExport, safe_name
from labelsieve.labels_csv import read_labels
from labelsieve.report.samples import Samples

_spec = importlib.util.spec_from_file_location("folder_runs", Path(__file__).parents[1] / "report" / "runs.py")
assert _spec is not None and _spec.loader is not None
runs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(runs)


@given(st.text())
def test_any_name_is_one_harmless_part_of_a_path(name):
    safe = safe_name(name)
    assert safe and safe not in (".", "..") and not set(safe) & set('/\\:*?"<>|\0\n\r\t') and not safe.startswith(".")
    assert len(safe.encode()) <= 151 and Path("x", safe).name == safe
    assert safe_name("con.txt") == "_con.txt" and safe_name("NUL") == "_NUL"


def test_a_picture_with_a_long_name_stays_one():
    safe = safe_name("\u6587" * 60 + ".JPG")
    assert safe == "\u6587" * 48 + ".JPG"
    assert safe_name("a" * 300) == "a" * 150 and safe_name("Dr. " + "x" * 200) == "Dr. " + "x" * 146


@given(st.lists(st.sampled_from(["a.png", "A.PNG", "a/.png", "b", "B", "b-2", ""]), max_size=12))
def test_names_are_given_once_whatever_the_case(tmp_path_factory, wanted):
    folder = Folder(tmp_path_factory.mktemp("x") / "new")
    taken = [folder.file(name).name.casefold() for name in wanted]
    assert len(set(taken)) == len(taken)


def a_run(tmp_path):
    return runs.pictures(tmp_path, n=8)


def test_hidden_files_do_not_make_a_folder_somebodys(tmp_path):
    run, out = a_run(tmp_path), tmp_path / "out"
    out.mkdir()
    (out / ".gitkeep").write_text("kept")
    (out / ".DS_Store").write_text("")
    assert export(run, to=out).rows == 8
    assert (out / ".gitkeep").read_text() == "kept" and len(list(out.glob("*/*.png"))) == 8


def test_a_hidden_folder_is_more_than_litter(tmp_path):
    run, out = a_run(tmp_path), tmp_path / "out"
    (out / ".git").mkdir(parents=True)
    with pytest.raises(InputError, match="not empty"):
        export(run, to=out)
    assert (out / ".git").is_dir()


def test_what_killed_exports_left_is_swept_up(tmp_path):
    run, out = a_run(tmp_path), tmp_path / "out"
    left = [tmp_path / f".out.labelsieve.999999999.{kind}" for kind in ("partial", "old")]
    theirs = tmp_path / f".out.labelsieve.{os.getppid()}.partial"
    users = [tmp_path / name for name in (".out.backup.old", ".out.2019.old", ".out.mine.partial")]
    for file in users:
        file.write_text("mine")
    for folder in (*left, theirs):
        (folder / "cat").mkdir(parents=True)
    export(run, to=out)
    assert not any(folder.exists() for folder in left) and theirs.exists() and all(file.exists() for file in users)


def test_files_that_the_run_skipped_are_counted(tmp_path):
    run = a_run(tmp_path)
    assert "skipped.csv" not in export(run, to=tmp_path / "whole").note
    (run / "skipped.csv").write_text("id,reason\na,no label\nb,dropped\nc,the file is not there\n")
    assert "skipped (skipped.csv): 3" in export(run, to=tmp_path / "out").note


def deeper(tmp_path, place):
    """A run on a folder in whose class folders each picture lies at `place(number)`, and its pictures' ids."""
    run = a_run(tmp_path)
    text, ids = (run / "labels.csv").read_text(), []
    for i, file in enumerate(sorted((tmp_path / "shapes").glob("*/*.png"))):
        goal = file.parent / place(i)
        goal.parent.mkdir(parents=True, exist_ok=True)
        file.rename(goal)
        id, new = (path.relative_to(tmp_path / "shapes").as_posix() for path in (file, goal))
        assert f"\n{id}," in text
        text = text.replace(f"\n{id},", f'\n"{new}",')
        ids.append(new)
    (run / "labels.csv").write_text(text)
    return run, sorted(ids)


def below(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.png"))


@pytest.mark.parametrize("link", [False, True])
def test_folders_in_class_folders_stay(tmp_path, link):
    run, ids = deeper(tmp_path, lambda i: f"batch{i}/M\u00e4rz 1/00.png")
    out = tmp_path / "out"
    done = export(run, to=out, link=link)
    assert below(out) == ids and "name" not in done.note
    if not link:  # links lead outside, and are never followed there
        assert load_source(str(out)).ids.tolist() == ids
    again = export(run, to=out, force=True)
    assert again.rows == 8 and below(out) == ids
    (out / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes\.txt"):
        export(run, to=out, force=True)


def test_names_that_are_taken_or_not_safe_are_counted(tmp_path):
    run, ids = deeper(tmp_path, lambda i: f"batch/{i}.png" if i else "batch/a:b.png")
    done = export(run, to=tmp_path / "one")
    assert "not safe: 1" in done.note
    assert len(below(tmp_path / "one")) == 8 and any(id.endswith("/batch/a_b.png") for id in below(tmp_path / "one"))
    # Two classes become one, whose pictures have the same names.
    (tmp_path / "two").mkdir()
    run, ids = deeper(tmp_path / "two", lambda i: f"batch/{'Aa'[i % 2]}{i // 2}.png" if i < 6 else "batch/A0.png")
    classes = sorted({id.partition("/")[0] for id in ids})
    for id in ids:
        append_decision(run / "decisions.csv", id, "relabel", classes[0])
    done = export(run, to=tmp_path / "joined")
    there = below(tmp_path / "joined")
    assert len(there) == len({name.casefold() for name in there}) == 8
    renamed = set(there).difference(classes[0] + "/" + id.partition("/")[2] for id in ids)
    assert f"not safe: {len(renamed)}" in done.note


class Plain(Samples):
    kind = "pictures"

    def read(self, row):
        return Image.new("RGB", (8, 8))


def test_ids_that_lead_outside_write_nothing_there(tmp_path):
    run = a_run(tmp_path)
    columns = read_labels(run / "labels.csv")
    ids = ["cat/../../../x.png", "cat/..", "/etc/y.png", "cat/a/./b/../z.png", "..", "cat/.hidden/h.png"]
    columns = replace(columns, ids=pa.array([*ids, *columns.ids.to_pylist()[len(ids) :]]))
    samples = Plain()
    (tmp_path / "here").mkdir()
    target = tmp_path / "here" / "out"
    FolderExport(samples, columns, np.arange(len(columns)), columns.label, depth=1, link=False).write(
        target, force=False
    )
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["out"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "run", "shapes"]
    written = [path for path in target.rglob("*") if path.is_file() and path.name != ".labelsieve-export"]
    assert len(written) == len(columns) and not any(part.startswith(".") for path in written for part in path.parts)


def a_list(tmp_path):
    """A table of pictures in two folders, whose run dropped one folder and skipped a damaged file in a third one."""
    rows = ["path,label"]
    for i in range(12):
        file = tmp_path / f"batch{1 + i % 2}" / "ab"[i // 6] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (20 * i, 0, 0)).save(file)
        rows.append(f"{file.relative_to(tmp_path).as_posix()},{'xy'[i % 3 % 2]}")
    damaged = tmp_path / "batch3" / "a" / "damaged.png"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"damaged")
    (tmp_path / "list.csv").write_text("\n".join([*rows, "batch3/a/damaged.png,x"]) + "\n")
    data = load_source(str(tmp_path / "list.csv"))
    run = runs.write_run(tmp_path / "run", data, data.y, str(tmp_path / "list.csv"))
    run.write_skipped(data)
    for id in data.ids.tolist():
        if id.startswith("batch1"):
            append_decision(run / "decisions.csv", id, "drop")
    return run


@pytest.mark.parametrize("target", ["batch1", "batch3", "batch2/a", "linked", ".", "list.csv"])
def test_no_file_of_the_source_is_replaced_whether_exported_or_not(tmp_path, target):
    run = a_list(tmp_path)
    (tmp_path / "linked").symlink_to(tmp_path / "batch1")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for force in (False, True):
        with pytest.raises(InputError):
            export(run, to=tmp_path / target, force=force)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_folder_that_contains_the_source_is_not_replaced(tmp_path):
    (tmp_path / "all").mkdir()
    run = runs.pictures(tmp_path / "all", n=8)
    (tmp_path / "all" / "run").rename(tmp_path / "run")
    before = below(tmp_path / "all")
    with pytest.raises(InputError, match="belongs to the source"):
        export(type(run)(tmp_path / "run"), to=tmp_path / "all", force=True)
    assert below(tmp_path / "all") == before


def test_the_file_of_labels_is_not_replaced(tmp_path):
    run = a_list(tmp_path)
    run.update(settings={"labels": str(tmp_path / "mine.csv")})
    (tmp_path / "mine.csv").write_text("id,label\n")
    with pytest.raises(InputError, match="belongs to the source"):
        export(run, what="decisions", to=tmp_path / "mine.csv", force=True)


@pytest.mark.parametrize("names", [("CAT", "cat"), ("Caf\u00e9", "Cafe\u0301")])
def test_classes_that_collide_on_other_systems_are_listed(tmp_path, names):
    run = runs.pictures(tmp_path, n=8, classes=("p", "q"), ratio=0.0)
    text = (run / "labels.csv").read_text()
    for plain, name in zip("pq", names, strict=True):
        text = text.replace(f",{plain},", f",{name},")
    (run / "labels.csv").write_text(text)
    run.write_summary({**run.read_summary(), "classes": list(names)})
    done = export(run, to=tmp_path / "out")
    folders = [path.name for path in (tmp_path / "out").iterdir() if path.is_dir()]
    assert len({unicodedata.normalize("NFC", name).casefold() for name in folders}) == len(folders) == 2
    listed = runs.rows_of(tmp_path / "out-classes.csv")
    assert listed and all(row["class"] in names and row["folder"] in folders for row in listed)
    assert f"{len(listed)}, listed in" in done.note and "out-classes.csv" in done.note
    (tmp_path / "other-classes.csv").write_text("mine")
    with pytest.raises(InputError, match=r"other-classes\.csv exists"):
        export(run, to=tmp_path / "other")
    assert not (tmp_path / "other").exists() and (tmp_path / "other-classes.csv").read_text() == "mine"
