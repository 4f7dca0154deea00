"""A table that is written looks like its source, and runs nothing in a spreadsheet."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labelsieve.csv_files import CsvFormat
from labelsieve.data.labels import NO_LABEL
from labelsieve.data.source import ReadOptions, load_source
from labelsieve.errors import InputError
from labelsieve.export import default_target, export
from labelsieve.export.tables import write_table
from labelsieve.labels_csv import read_labels
from labelsieve.report.source_state import SourceStatus, check_source

_spec = importlib.util.spec_from_file_location("export_csv_runs", Path(__file__).parents[1] / "report" / "runs.py")
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
    runs.keep_all(run)
    done = export(run, to=tmp_path / f"out{source.suffix}")
    assert done.path.read_bytes() == source.read_bytes()
    assert default_target(run.record(), source, "cleaned").suffix == source.suffix
    if delimiter == "\t":
        export(run, to=tmp_path / "out.csv")
        assert rows_of(tmp_path / "out.csv")[0]["id"] == "mail-0000"
    else:
        with pytest.raises(InputError, match=r"a \.csv or \.parquet file"):
            export(run, to=tmp_path / "out.tsv")


@pytest.mark.parametrize("code", ["utf-16", "cp1252"])
def test_a_run_of_a_source_in_another_code(tmp_path, code):
    """Looked at again, shown and written as it was; empty rows of a spreadsheet stay between the others."""
    run, source = runs.text(tmp_path, classes=("Süßes", "payment", "praise")), tmp_path / "mails.csv"
    head, *rest = source.read_text(encoding="utf-8").splitlines()
    empty = "," * head.count(",")
    text = "\n".join([head, empty, *rest[:5], empty, *rest[5:], ""])
    source.write_bytes(text.encode(code))
    (run / "skipped.csv").write_text(f"id,reason\n,{NO_LABEL}\n,{NO_LABEL}\n")
    run.update(data={**run.record()["data"], "skipped": 2})
    runs.as_read(run)
    columns = read_labels(run / "labels.csv")
    assert check_source(run, columns).status is SourceStatus.UNCHANGED
    runs.keep_all(run)
    done = export(run, to=tmp_path / "out.csv")
    assert done.path.read_bytes() == source.read_bytes() and "2 rows that the run skipped" in done.note
    source.write_bytes(text.encode("utf-8"))  # the same rows
    assert check_source(run, columns).status is SourceStatus.UNCHANGED


@pytest.mark.parametrize("code", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "cp1252"])
def test_letters_are_written_in_the_code_of_the_source(tmp_path, code):
    source = tmp_path / "t.csv"
    mark = "\ufeff" if code == "utf-16-be" else ""  # Python writes those of the others itself
    source.write_bytes(f"{mark}id;label\r\nä;Süß\r\nb;€\r\n".encode(code))
    table = pa.table({"id": ["ä", "b"], "label": ["Süß", "€"]})
    assert write_table(tmp_path / "out.csv", table, raw=False, style=CsvFormat.detect(source)) == 0
    assert (tmp_path / "out.csv").read_bytes() == source.read_bytes()


def test_a_letter_that_the_code_of_the_source_lacks(tmp_path):
    (tmp_path / "t.csv").write_bytes("id,label\na,ä\n".encode("cp1252"))
    (tmp_path / "out.csv").write_text("before")
    table = pa.table({"id": ["a"], "label": ["čaj"]})
    with pytest.raises(InputError, match=r"Windows-1252.*'č'"):
        write_table(tmp_path / "out.csv", table, raw=False, style=CsvFormat.detect(tmp_path / "t.csv"))
    assert (tmp_path / "out.csv").read_text() == "before" and len(list(tmp_path.iterdir())) == 2


def test_odd_headers_and_whole_decimals_are_written_back(tmp_path):
    """What a person would not see in a spreadsheet stays: blanks in names, 1.0 for 1."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 60)
    given = runs.noisy(true, 3, 0.2, rng)
    cells = [f"{label}.0" for label in given]
    cells[7] = ""
    rows = "".join(f"{t + i / 100};x{i:02};{cell}\r\n" for i, (t, cell) in enumerate(zip(true, cells, strict=True)))
    source = tmp_path / "t.csv"
    source.write_bytes(f" a ;Nr. ;Label \r\n{rows}".encode())
    data = load_source(str(source), ReadOptions(id_column="Nr."))
    assert data.classes == (0, 1, 2) and len(data) == 59
    settings = {"label_column": "label", "id_column": "Nr."}
    run = runs.write_run(tmp_path / "run", data, np.delete(true, 7), str(source), **settings)
    assert check_source(run, read_labels(run / "labels.csv")).status is SourceStatus.UNCHANGED
    runs.write_suggestions(run, lambda place: 0.95)
    export(run, to=tmp_path / "out.csv", apply="suggested")
    runs.keep_all(run)
    kept = export(run, to=tmp_path / "kept.csv")
    assert kept.path.read_bytes() == source.read_bytes()
    lines = (tmp_path / "out.csv").read_text().splitlines()[1:]
    labels = [line.split(";")[2] for line in lines]
    assert set(labels) == {"0.0", "1.0", "2.0", ""} and 0 < sum(a != b for a, b in zip(labels, cells, strict=True)) < 30
    done = export(run, what="suspects", to=tmp_path / "suspects.csv")
    header = next(line for line in done.path.read_text().splitlines() if "suspicion" in line)
    assert header.startswith(" a ;Nr. ;Label ;suspicion;")
    source.write_bytes(source.read_bytes().replace(b";x05;", b";x05;7"))
    assert "the label of 'x05' was" in str(check_source(run, read_labels(run / "labels.csv")))


def test_decimals_of_parquet_stay_what_they_are(tmp_path):
    labels = [1.0, 2.0] * 15
    table = pa.table({"a": [label + i / 100 for i, label in enumerate(labels)], "label": [*labels[:-1], None]})
    pq.write_table(table, tmp_path / "t.parquet")
    data = load_source(str(tmp_path / "t.parquet"))
    run = runs.write_run(tmp_path / "run", data, data.y, str(tmp_path / "t.parquet"))
    assert check_source(run, read_labels(run / "labels.csv")).status is SourceStatus.UNCHANGED
    runs.keep_all(run)
    export(run, to=tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").equals(table)
