"""A table that is written looks like its source, and runs nothing in a spreadsheet."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

import pytest

from labelsieve.errors import InputError
from labelsieve.export import default_target, export

_spec = importlib.util.spec_from_file_location("export_csv_runs", Path(__file__).parent / "report" / "runs.py")
assert _spec is not None and _spec.loader is not None
runs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(runs)
rows_of = runs.rows_of


def test_formulas_are_neutralised_unless_raw(tmp_path):
    run = runs.text(tmp_path, classes=("=HYPERLINK(1)", "payment", "praise"))
    export(run, what="cleaned", to=tmp_path / "safe.csv")
    export(run, what="cleaned", to=tmp_path / "raw.csv", raw=True)
    assert {row["label"][0] for row in rows_of(tmp_path / "safe.csv")} == {"'", "p"}
    assert {row["label"][0] for row in rows_of(tmp_path / "raw.csv")} == {"=", "p"}


@pytest.mark.parametrize(("delimiter", "end", "mark"), [(";", "\r\n", "\ufeff"), ("\t", "\n", ""), (",", "\r\n", "")])
def test_what_is_written_looks_like_its_source(tmp_path, delimiter, end, mark):
    run = runs.text(tmp_path)
    source = tmp_path / ("mails.tsv" if delimiter == "\t" else "mails.csv")
    with (tmp_path / "mails.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    (tmp_path / "mails.csv").unlink()
    with source.open("w", newline="", encoding="utf-8") as file:
        file.write(mark)
        csv.writer(file, delimiter=delimiter, lineterminator=end).writerows(rows)
    run.update(data={**run.record()["data"], "source": str(source)})
    runs.as_read(run)
    done = export(run, to=tmp_path / f"out{source.suffix}", undecided="keep")
    assert done.path.read_bytes() == source.read_bytes()
    assert default_target(run.record(), source, "cleaned").suffix == source.suffix
    if delimiter == "\t":
        export(run, to=tmp_path / "out.csv", undecided="keep")
        assert rows_of(tmp_path / "out.csv")[0]["id"] == "mail-0000"
    else:
        with pytest.raises(InputError, match=r"a \.csv or \.parquet file"):
            export(run, to=tmp_path / "out.tsv")
