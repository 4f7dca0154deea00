"""Tables in all file formats, with and without good headers."""

from __future__ import annotations

import datetime
import json
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labelsieve.data import table_file
from labelsieve.data.source import ReadOptions, load_source
from labelsieve.data.table_file import READER, TableFile, unique_names
from labelsieve.errors import InputError
from labelsieve.export import export
from labelsieve.progress import Note, NoteKind, Progress
from labelsieve.workflow.run import select_source
from labelsieve.workflow.settings import SelectSettings

ROWS: list[dict[str, Any]] = [
    {"id": f"n{i}", "size": i % 7 + 0.5, "colour": ["red", "blue", None][i % 3], "label": "ab"[i % 2]}
    for i in range(60)
]


def write_xlsx(path: Path, rows: list[list[Any]], sheets: tuple[str, ...] = ("first",)) -> None:
    """A minimal workbook; all sheets have the same rows."""
    cells = []
    for number, row in enumerate(rows, start=1):
        line = ""
        for at, value in enumerate(row):
            place = f'r="{chr(65 + at)}{number}"'
            if isinstance(value, int | float):
                line += f"<c {place}><v>{value}</v></c>"
            elif value is not None:
                line += f'<c {place} t="inlineStr"><is><t>{escape(value)}</t></is></c>'
        cells.append(f'<row r="{number}">{line}</row>')
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006/relationships"
    numbers = range(1, len(sheets) + 1)
    with zipfile.ZipFile(path, "w") as book:
        book.writestr(
            "[Content_Types].xml", '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>'
        )
        top = f'<Relationship Id="r1" Type="{office}/officeDocument" Target="xl/workbook.xml"/>'
        book.writestr("_rels/.rels", f'<Relationships xmlns="{package}">{top}</Relationships>')
        listed = "".join(f'<sheet name="{sheets[n - 1]}" sheetId="{n}" r:id="r{n}"/>' for n in numbers)
        book.writestr(
            "xl/workbook.xml", f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>{listed}</sheets></workbook>'
        )
        related = "".join(
            f'<Relationship Id="r{n}" Type="{office}/worksheet" Target="worksheets/sheet{n}.xml"/>' for n in numbers
        )
        book.writestr("xl/_rels/workbook.xml.rels", f'<Relationships xmlns="{package}">{related}</Relationships>')
        sheet = f'<worksheet xmlns="{main}"><sheetData>{"".join(cells)}</sheetData></worksheet>'
        for n in numbers:
            book.writestr(f"xl/worksheets/sheet{n}.xml", sheet)


def write(path: Path) -> Path:
    if path.suffix == ".jsonl":
        filled = [{name: value for name, value in row.items() if value is not None} for row in ROWS]
        path.write_text("\n".join(map(json.dumps, filled)) + "\n\n")
    else:
        pytest.importorskip("python_calamine")
        write_xlsx(path, [list(ROWS[0]), *(list(row.values()) for row in ROWS)])
    return path


@pytest.mark.parametrize("name", ["t.jsonl", "t.xlsx"])
def test_other_formats_are_read_and_exported(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name)
    data = load_source(str(path))
    assert data.ids.tolist() == [row["id"] for row in ROWS] and data.classes == ("a", "b")
    assert [(column.name, column.kind) for column in data.x.encoding.columns] == [
        ("size", "number"),
        ("colour", "category"),
    ]
    select_source(str(path), tmp_path / "run", SelectSettings(iterations=1), Progress(silent=True))
    exported = export(tmp_path / "run", to=tmp_path / "out.csv")
    lines = exported.path.read_text().splitlines()
    assert lines[0].startswith("id,size,colour,label") and lines[3].startswith("n2,2.5,,a") and exported.rows == 60


def test_json_lines_of_several_types(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": 1, "b": [1, 2]}\n{"a": "x", "c": true}\n')
    assert TableFile.read(path).table.to_pylist() == [
        {"a": "1", "b": "[1, 2]", "c": None},
        {"a": "x", "b": None, "c": True},
    ]
    for text, line in (('{"a": 1}\n{"a"\n', "line 2"), ("[1]\n", "line 1")):
        path.write_text(text)
        with pytest.raises(InputError, match=line):
            TableFile.read(path)


def test_the_first_sheet_is_read_and_others_are_named(tmp_path: Path) -> None:
    pytest.importorskip("python_calamine")
    write_xlsx(tmp_path / "t.xlsx", [["n", "label"], [1, "a"], [2, "b"]], ("data", "notes"))
    file = TableFile.read(tmp_path / "t.xlsx")
    assert file.table.to_pydict() == {"n": [1, 2], "label": ["a", "b"]} and file.place(0) == "row 2"
    (note,) = file.notes
    assert isinstance(note, Note) and note.kind is NoteKind.FIRST_SHEET and note.values["others"] == "notes"
    with (tmp_path / "t.xlsx").open("rb") as source:  # the administrator may have set a limit already
        reader = shlex.join([sys.executable, "-P", str(READER), "spreadsheet", "4_000_000_000", "0"])
        limited = f"ulimit -v 3000000; exec {reader}"
        assert subprocess.run(["bash", "-c", limited], stdin=source).returncode == 0
    (tmp_path / "bad.xlsx").write_bytes(b"PK\3\4 no workbook")
    with pytest.raises(InputError, match=r"bad\.xlsx"):
        TableFile.read(tmp_path / "bad.xlsx")


def test_empty_and_repeated_names_are_numbered(tmp_path: Path) -> None:
    assert unique_names(["v1", " ", "a", "a ", "a", "a 2"]) == ["v1", "column 2", "a", "a 2", "a 3", "a 2 2"]
    path = tmp_path / "spam.csv"  # as Kaggle has it: Windows-1252, and three columns without a name
    lines = [f'{"spam" if i % 2 else "ham"},"caf\xe9 number {i} is open now, call us",,,' for i in range(60)]
    path.write_bytes(("v1,v2,,,\n" + "\n".join(lines) + "\n").encode("cp1252"))
    with pytest.raises(InputError, match=r"v1, v2, 'column 3'"):
        load_source(str(path))
    data = load_source(str(path), ReadOptions(label_column="v1", text_column="v2"))
    assert data.kind == "text" and data.classes == ("ham", "spam") and "caf\xe9" in data.x[0]
    assert NoteKind.COLUMNS_NUMBERED in [note.kind for note in TableFile.read(path).notes if isinstance(note, Note)]
    settings = SelectSettings(iterations=1, label_column="v1", text_column="v2")
    select_source(str(path), tmp_path / "run", settings, Progress(silent=True))
    export(tmp_path / "run", to=tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_bytes().startswith(b"v1,v2,,,")


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.jsonl"])
def test_the_number_of_columns_is_limited(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"a": [1], "b": [2], "label": ["x"]})
    path = tmp_path / name
    if name == "t.parquet":
        pq.write_table(table, path)
    else:
        path.write_text("a,b,label\n1,2,x\n" if name == "t.csv" else json.dumps(table.to_pylist()[0]))
    monkeypatch.setattr("labelsieve.data.table_file.MAX_COLUMNS", 3)
    assert TableFile.read(path).table.equals(table)
    monkeypatch.setattr("labelsieve.data.table_file.MAX_COLUMNS", 2)
    with pytest.raises(InputError, match=f"{name} has 3 columns"):
        TableFile.read(path)


def test_a_file_without_header(tmp_path: Path) -> None:
    path = tmp_path / "iris.csv"
    path.write_text("".join(f"{i % 5}.5,{i % 3},{'ab'[i % 2]}\n" for i in range(40)))
    with pytest.raises(InputError, match="--header"):
        load_source(str(path))
    data = load_source(str(path), ReadOptions(header=("width", "petals", "label")))
    assert len(data) == 40 and [column.name for column in data.x.encoding.columns] == ["width", "petals"]
    with pytest.raises(InputError, match="--header names 2 columns"):
        load_source(str(path), ReadOptions(header=("width", "label")))
    settings = SelectSettings(iterations=1, header="width,petals,label")
    select_source(str(path), tmp_path / "run", settings, Progress(silent=True))
    export(tmp_path / "run", to=tmp_path / "out.csv")
    header, first, *_ = (tmp_path / "out.csv").read_text().splitlines()
    assert header.startswith("width,petals,label") and first.startswith("0.5,0,a")


def test_dates_of_spreadsheets_are_dates() -> None:
    from labelsieve.data.table_file import _from_columns

    table = _from_columns(["day"], [[datetime.date(2024, 1, 1), None]])
    assert str(table.column("day").type).startswith("date")


def test_parquet_text_in_a_column_with_a_dot_stays_text(tmp_path: Path) -> None:
    table = pa.table({"review.text": ["good film", "bad film"], "label": ["x", "y"]})
    pq.write_table(table, tmp_path / "t.parquet")
    assert TableFile.read(tmp_path / "t.parquet").table.equals(table)


def test_a_column_may_have_the_name_of_a_field(tmp_path: Path) -> None:
    table = pa.table({"s": [{"t": "a", "u": 1}, {"t": "b", "u": 2}], "s.t": ["c", "d"], "label": ["x", "y"]})
    pq.write_table(table, tmp_path / "t.parquet")
    assert TableFile.read(tmp_path / "t.parquet").table.to_pydict() == table.to_pydict()


def test_nested_parquet_columns_of_all_types_are_read(tmp_path: Path) -> None:
    values = pa.array(["a", "b", "c", "d"]).dictionary_encode()
    columns = {
        "map": pa.MapArray.from_arrays([0, 2, 4], ["k", "l", "k", "m"], values),
        "pairs": pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, 4]), 2),
        "lists": pa.array([[[1], None], None], pa.large_list(pa.list_(pa.int64()))),
        "nothing": pa.nulls(2),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    assert TableFile.read(tmp_path / "t.parquet").table.to_pydict() == pa.table(columns).to_pydict()


def test_different_texts_in_one_row_group_take_little_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [*map(bytes, rng.integers(97, 123, (40_000, 400), dtype=np.uint8))]
    table = pa.table({"text": pa.array(texts).cast("string")})
    pq.write_table(table, tmp_path / "t.parquet", compression="none")
    pool, default = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        assert TableFile.read(tmp_path / "t.parquet").table.equals(table)
    finally:
        pa.set_memory_pool(default)
    # The file and the table. With a dictionary of all texts: 4 times the table.
    assert pool.max_memory() < 3 * table.nbytes


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_parquet_text_in_delta_encodings_is_read(tmp_path: Path, encoding: str) -> None:
    table = pa.table({"x": ["good", "bad", None], "y": [["a", "b"], [], ["c"]], "label": ["x", "y", "x"]})
    encodings = {"x": encoding, "y.list.element": encoding, "label": "PLAIN"}
    pq.write_table(table, tmp_path / "t.parquet", use_dictionary=False, column_encoding=encodings)
    assert TableFile.read(tmp_path / "t.parquet").table.equals(table)


def encoded(encoding: str) -> dict[str, Any]:
    return {"use_dictionary": False, "column_encoding": {"x": encoding, "x.list.element": encoding}}


REPEATED = pa.DictionaryArray.from_arrays([0] * 1000, ["a" * 10_000])


@pytest.mark.parametrize(
    ("cells", "options"),
    [
        (pa.array([[0.0] * 500_000]), encoded("PLAIN")),  # one row with many numbers
        (pa.array(["a" * 10_000] * 500), encoded("DELTA_BYTE_ARRAY")),  # every text repeats the one before
        (REPEATED, {}),
        (pa.StructArray.from_arrays([REPEATED], ["field"]), {}),
        (pa.ListArray.from_arrays(range(1001), REPEATED), {}),
        (pa.MapArray.from_arrays(range(1001), ["key"] * 1000, REPEATED), {}),
        (pa.ExtensionArray.from_storage(pa.opaque(REPEATED.type, "type", "vendor"), REPEATED), {}),
        (pa.array([letter * 500_000 for letter in "abcdefghij"]).dictionary_encode(), {"row_group_size": 1}),
    ],
)
def test_small_parquet_files_with_large_content_are_refused(
    tmp_path: Path, cells: pa.Array, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": cells}), path, compression="zstd", write_statistics=False, **options)
    monkeypatch.setattr("labelsieve.data.resources.available_memory", lambda: 2_000_000)
    assert path.stat().st_size < 10_000
    with pytest.raises(InputError, match=r"t\.parquet needs"):
        TableFile.read(path)


def test_every_column_of_a_wide_parquet_file_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"c{i}" for i in range(1200)]
    fields = pa.array([dict.fromkeys(names[:450], 1)] * 3)
    columns = [*([pa.array([1, 2, 3])] * len(names)), fields, pa.array(["a" * 50] * 3), pa.array([[1], [2], [3, 4]])]
    table = pa.Table.from_arrays(columns, names=[*names, "s", "s.c0", "c0"])
    pq.write_table(table, path := tmp_path / "t.parquet")
    needed = pq.ParquetFile(path).read().nbytes
    monkeypatch.setattr("labelsieve.data.resources.available_memory", lambda: needed)
    assert TableFile.read(path).table.num_columns == len(columns)
    monkeypatch.setattr("labelsieve.data.resources.available_memory", lambda: needed - 1)
    with pytest.raises(InputError, match=r"t\.parquet needs"):
        TableFile.read(path)


def test_wide_parquet_files_are_checked_in_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that opens all columns at once needs more than 1 GB for this file."""
    zeros = pa.array(np.zeros(20_000))
    table = pa.table({f"c{i}": zeros for i in range(3000)})
    pq.write_table(table, path := tmp_path / "t.parquet", use_dictionary=False, compression="zstd")
    monkeypatch.setattr(table_file, "READER_BYTES", 800_000_000)
    assert table_file._try_to_read(path, "parquet", 10**12).returncode == 0


def test_damaged_parquet_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": ["a", "b"], "y": [[1, 2], []]}), path, store_schema=False)
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    refused = 0
    for at in range(footer, len(content) - 8, 10):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
        try:
            TableFile.read(path)
        except InputError:
            refused += 1
    assert refused > 5
    path.write_bytes(content)  # some damage ends the process that reads it
    (tmp_path / "aborts.py").write_text("import os; os.abort()")
    monkeypatch.setattr("labelsieve.data.table_file.READER", tmp_path / "aborts.py")
    with pytest.raises(InputError, match=r"t\.parquet is not a readable"):
        TableFile.read(path)
