"""A folder of class folders: harmless names, each given once, in a place that is free."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelsieve.errors import InputError
from labelsieve.export import export
from labelsieve.export_folder import Names, safe_name

_spec = importlib.util.spec_from_file_location("folder_runs", Path(__file__).parent / "report" / "runs.py")
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
def test_names_are_given_once_whatever_the_case(wanted):
    names = Names()
    taken = [names.take(name).casefold() for name in wanted]
    assert len(set(taken)) == len(taken)


def a_run(tmp_path):
    return runs.pictures(tmp_path, n=8)


def test_hidden_files_do_not_make_a_folder_somebodys(tmp_path):
    run, out = a_run(tmp_path), tmp_path / "out"
    out.mkdir()
    (out / ".gitkeep").write_text("kept")
    (out / ".DS_Store").write_text("")
    assert export(run, to=out, undecided="keep").rows == 8
    assert (out / ".gitkeep").read_text() == "kept" and len(list(out.glob("*/*.png"))) == 8


def test_a_hidden_folder_is_more_than_litter(tmp_path):
    run, out = a_run(tmp_path), tmp_path / "out"
    (out / ".git").mkdir(parents=True)
    with pytest.raises(InputError, match="is there and not empty"):
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
    export(run, to=out, undecided="keep")
    assert not any(folder.exists() for folder in left) and theirs.exists() and all(file.exists() for file in users)


def test_what_could_not_be_read_is_told(tmp_path):
    run = a_run(tmp_path)
    assert "could not be read" not in export(run, to=tmp_path / "whole", undecided="keep").note
    (run / "skipped.csv").write_text("id,reason\ncat/broken.png,cannot be read\n")
    assert (
        "without 1 file that could not be read (skipped.csv)" in export(run, to=tmp_path / "out", undecided="keep").note
    )
