"""What an export says of itself: apostrophes, rows that the run skipped, and why nothing was changed."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
from pathlib import Path

from PIL import Image

from labelsieve.cli.common import Common
from labelsieve.cli.results import export as command
from labelsieve.data.source import load_source
from labelsieve.export import ExportSettings, export
from labelsieve.report import write_report

_spec = importlib.util.spec_from_file_location("export_notes_runs", Path(__file__).parents[1] / "report" / "runs.py")
assert _spec is not None and _spec.loader is not None
runs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(runs)


def a_run(folder, cells, *, header="note"):
    """A table of numbers with one column of these cells, in turn."""
    source = folder / "t.csv"
    with source.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=";", lineterminator="\n")
        writer.writerow(["x", header, "label"])
        writer.writerows([i % 2, cells[i % len(cells)], "ab"[i % 2]] for i in range(12))
    data = load_source(str(source))
    return runs.write_run(folder / "run", data, data.y, str(source))


def test_a_table_of_signed_numbers_comes_back_as_it_was(tmp_path):
    run = a_run(tmp_path, ["-0,151", "+49 170 1", "-1.234,5", "-5 %", "-1e-3", "+1 (555) 010.0000"])
    done = export(run, to=tmp_path / "c.csv")
    assert done.path.read_bytes() == (tmp_path / "t.csv").read_bytes()
    assert done.apostrophes == 0 and "apostrophe" not in done.note


def test_apostrophes_are_counted_and_told(tmp_path, capsys):
    run = a_run(tmp_path, ["=1+1", "-2+3", "-0,151", "fine"], header="=note")
    message = "7 cells got an apostrophe"
    done = export(run, to=tmp_path / "c.csv")
    assert done.apostrophes == 7 and message in done.note  # the name of the column is a cell as well
    command(run.path, settings=ExportSettings(to=tmp_path / "d.csv"))
    assert message in capsys.readouterr().out
    command(run.path, settings=ExportSettings(to=tmp_path / "e.csv"), common=Common(json=True))
    assert json.loads(capsys.readouterr().out)["apostrophes"] == 7
    raw = export(run, to=tmp_path / "raw.csv", raw=True)
    assert raw.apostrophes == 0 and "apostrophe" not in raw.note
    assert raw.path.read_bytes() == (tmp_path / "t.csv").read_bytes()
    assert export(run, to=tmp_path / "c.parquet").apostrophes == 0  # its cells have types


def test_an_export_is_read_back_without_apostrophes(tmp_path):
    (tmp_path / "t.csv").write_text("id,=x,label\n" + "".join(f"@{i},=rate{i % 3},@{'ab'[i % 2]}\n" for i in range(12)))
    data = load_source(str(tmp_path / "t.csv"))
    done = export(runs.write_run(tmp_path / "run", data, data.y, str(tmp_path / "t.csv")), to=tmp_path / "c.csv")
    assert "'=rate1" in done.path.read_text() and done.apostrophes == 37
    again = load_source(str(done.path))
    assert again.classes == data.classes == ("@a", "@b") and again.ids.tolist() == data.ids.tolist()
    assert again.x.table.equals(data.x.table)
    twice = export(runs.write_run(tmp_path / "run2", again, again.y, str(done.path)), to=tmp_path / "d.csv")
    assert twice.path.read_bytes() == done.path.read_bytes()


def test_one_apostrophe_is_one(tmp_path):
    run = a_run(tmp_path, ["fine"], header="@note")
    done = export(run, to=tmp_path / "c.csv")
    assert "1 cell got an apostrophe" in done.note


def test_rows_whose_picture_could_not_be_seen_stay_as_they_were(tmp_path):
    names = [f"{i}.png" for i in range(6)]
    for i, name in enumerate(names):
        Image.new("RGB", (8, 8), (40 * i, 0, 0)).save(tmp_path / name)
    (tmp_path / "broken.png").write_bytes(b"")
    every = [*names[:3], "gone.png", *names[3:], "broken.png"]
    lines = [f"{name},{'ab'[i % 2]}" for i, name in enumerate(every)]
    source = tmp_path / "t.csv"
    source.write_text("\n".join(["path,label", *lines]) + "\n")
    data = load_source(str(source))
    run = runs.write_run(tmp_path / "run", data, data.y, str(source))
    assert (run / "skipped.csv").read_text().splitlines()[1].startswith("gone.png,the file is not there")
    done = export(run, to=tmp_path / "c.csv")
    assert "2 rows that the run skipped" in done.note
    assert (tmp_path / "c.csv").read_text().split() == source.read_text().split()
    os.utime(source)  # looked at again, as it may be another one
    assert export(run, to=tmp_path / "d.csv").rows == 6
    assert "listed in skipped.csv" in write_report(run).read_text(encoding="utf-8")
