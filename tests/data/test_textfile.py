"""Tables in the codes that spreadsheets write: read as what they are, and refused with a line where they are none."""

from __future__ import annotations

import codecs
import io
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from labelsieve.data import textfile
from labelsieve.data.columns import Encoding
from labelsieve.data.labels import read_label_file
from labelsieve.data.source import ReadOptions, load_source
from labelsieve.data.textfile import Code, code_of, delimiter_of, top_of
from labelsieve.errors import InputError
from labelsieve.progress import Progress

ROWS = "id;label;größe\r\nä1;Süß;1,5\r\nb2;Grün;2,5 €\r\nc3;Süß;3,5\r\n"
CODES = ["utf-8", "utf-8-sig", "utf-16", "cp1252"]


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", CODES)
def test_a_table_is_the_same_in_every_code(tmp_path: Path, name: str) -> None:
    lines = io.StringIO()
    path = write(tmp_path / "t.csv", ROWS.encode(name))
    data = load_source(str(path), progress=Progress(stream=lines))
    assert data.classes == ("Grün", "Süß") and data.ids.tolist() == ["ä1", "b2", "c3"]
    assert data.x.table.column_names == ["größe"] and data.x.table.column(0).to_pylist()[1] == "2,5 €"
    told = (
        f"{path} is read as Windows-1252: 4 lines are not UTF-8, first line 1; save it as UTF-8 if letters look wrong"
    )
    assert (told in lines.getvalue()) == (told in data.notes) == (name == "cp1252")
    assert ("Windows" in lines.getvalue()) == (name == "cp1252")


@pytest.mark.parametrize("name", CODES)
def test_so_is_a_file_of_labels(tmp_path: Path, name: str) -> None:
    source = write(tmp_path / "t.csv", ROWS.encode())
    labels = write(tmp_path / "labels.csv", "id;label\r\nä1;Grün\r\nb2;Süß\r\nc3;Süß\r\n".encode(name))
    lines = io.StringIO()
    data = load_source(str(source), ReadOptions(labels=read_label_file(labels)), progress=Progress(stream=lines))
    assert [data.classes[code] for code in data.y] == ["Grün", "Süß", "Süß"]
    assert (f"{labels} is read as Windows-1252" in lines.getvalue()) == (name == "cp1252")


def test_both_orders_of_bytes_and_marks(tmp_path: Path) -> None:
    for mark, name in textfile.WIDE.items():
        path = write(tmp_path / "t.csv", mark + ROWS.encode(name))
        assert code_of(path) == Code(name, mark=True) and delimiter_of(path) == ";"
    assert code_of(write(path, b"label\n")) == Code() and code_of(write(path, b"")) == Code()
    assert code_of(write(path, codecs.BOM_UTF8 + b"label\n")) == Code(mark=True)


def test_lines_are_named_in_every_code(tmp_path: Path) -> None:
    for name in CODES:
        path = write(tmp_path / "t.csv", (ROWS + "ä1;Süß;1,5\r\n").encode(name))
        with pytest.raises(InputError, match=r"the id 'ä1' is there twice \(lines 2 and 5\)"):
            load_source(str(path))
        write(path, (ROWS + "d4;Süß\r\n").encode(name))
        with pytest.raises(InputError, match=r"line 5: 2 cells where the first line has 3"):
            load_source(str(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"label,a\nv\xe9t,1\nw\x81,2\n",
            "is not in UTF-8, first in line 2, nor in Windows-1252, first in line 3: save",
        ),
        (b"label,a\r\nv\xe9t,1\r\nw\0,2\r\n", "first in line 2, nor in Windows-1252, first in line 3: save"),
        (b"label,a\rx,1\rw\x9d,2\r", "is not in UTF-8, first in line 3, nor in Windows-1252, first in line 3: save"),
        (codecs.BOM_UTF8 + b"label,a\nv\xe9t,1\n", "is not in UTF-8, first in line 2: save it as UTF-8"),
        ("label,a\nä,1\nö,1\n".encode() + b"\xfc,2\n", "is not in UTF-8, first in line 4: save it as UTF-8"),
        ("label,a\nä,1\nö,1\nü".encode()[:-1], "is not in UTF-8, first in line 4: save it as UTF-8"),
        ("label,a\r\nä,1\r\nö,1\r\n".encode("utf-16") + b"\n", "is marked as UTF-16 and is not, first in line 4: save"),
        ("label,a\nä,1\n".encode("utf-16") + b"\0\xd8a\0\n\0", "is marked as UTF-16 and is not, first in line 3: save"),
        ("label,a\nx,1\n".encode("utf-16-le"), "is in UTF-16 without its mark, or is no text: save it as UTF-8"),
        ("label,a\nx,1\n".encode("utf-16-be"), "is in UTF-16 without its mark, or is no text: save it as UTF-8"),
        ("label,a\n".encode("utf-16") + b"a\0\0\0\n\0", "is marked as UTF-16 and is not, first in line 2: save"),
        (
            codecs.BOM_UTF32_LE + "label,a\n".encode("utf-32-le"),
            "is marked as UTF-16 and is not, first in line 1: save",
        ),
    ],
)
def test_what_is_in_no_code(tmp_path: Path, content: bytes, message: str) -> None:
    path = write(tmp_path / "t.csv", content)
    for read in (load_source, read_label_file):
        with pytest.raises(InputError, match=message):
            read(str(path))


def test_letters_cut_in_two_by_the_pieces_that_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textfile, "CHUNK", 3)
    for name, found in (("utf-8", "utf-8"), ("utf-16-le", "utf-16-le"), ("cp1252", "cp1252")):
        mark = codecs.BOM_UTF16_LE if found == "utf-16-le" else b""
        letters = "xäöü€ß\n" + ("𝄞\n" if found != "cp1252" else "")
        assert code_of(write(tmp_path / "t.csv", mark + letters.encode(name))).name == found


def test_a_large_file_is_looked_at_in_pieces(tmp_path: Path) -> None:
    for name in ("utf-8", "utf-16", "cp1252"):
        path = write(tmp_path / "t.csv", ("ä;1;some words\r\n" * 1_000_000).encode(name))
        tracemalloc.start()
        code_of(path)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # Of Windows-1252 the numbers of the lines that are not UTF-8 must not be kept either.
        assert peak < 12 * textfile.CHUNK < path.stat().st_size


@pytest.mark.parametrize("suffix", [".xlsx", ".xls", ".ods", ".XLSX"])
def test_a_spreadsheet_is_to_be_saved_as_csv(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"t{suffix}", b"PK\x03\x04")
    for read in (load_source, read_label_file):
        with pytest.raises(InputError, match=rf"t\{suffix} is a spreadsheet, which cannot be read: save it as CSV"):
            read(str(path))


@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "SEP=;"])
def test_a_first_line_that_names_the_delimiter(tmp_path: Path, first: str) -> None:
    path = tmp_path / "t.csv"
    for code in ("utf-8", "utf-16"):
        path.write_text(f"{first}\na, b;label\n1;x\n2;y\n3;\n4;y\n", encoding=code)
        data = load_source(str(path))
        assert data.x.encoding.columns[0].name == "a, b" and data.y.tolist() == [0, 1, 1]
        assert "line 5" in data.notes[0]
    path.write_text(f"{first}\na;label\n1;x\n2;y;3\n")
    with pytest.raises(InputError, match="line 4: 3 cells where the first line has 2"):
        load_source(str(path))
    path.write_text(f"{first}\na;a ;label\n1;x;1\n")
    with pytest.raises(InputError, match="line 2: the column 'a' is there twice"):
        load_source(str(path))
    (tmp_path / "labels.csv").write_text(f"{first}\nid; label\n0;p\n1;q\n")
    assert read_label_file(tmp_path / "labels.csv").labels == {"0": "p", "1": "q"}


def test_bars_between_cells(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a|label\n1,5|x\n2,5|y\n")
    assert np.asarray(load_source(str(path)).x).ravel().tolist() == [1.5, 2.5]


def test_names_of_columns_with_blanks_and_in_another_case(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(" a ,b, id ,label \n1,2,p,x\n3,4,q,y\n")
    data = load_source(str(path))
    assert [column.name for column in data.x.encoding.columns] == ["a", "b"] and data.ids.tolist() == ["p", "q"]
    old = Encoding(tuple(replace(column, name=f" {column.name}") for column in data.x.encoding.columns))
    assert load_source(str(path), ReadOptions(labelled=False, encoding=old)).x.shape == (
        2,
        2,
    )  # of a model of earlier versions
    assert load_source(str(path), ReadOptions(label_column="label ")).y.tolist() == [0, 1]
    path.write_text("a,LABEL\n1,01\n2,1\n")
    data = load_source(str(path))
    assert data.classes == ("01", "1") and "the labels are in column LABEL; --label-column names another" in data.notes
    path.write_text("a,LABEL,Label,the text\n1,x,y,z\n2,y,x,z\n")
    with pytest.raises(InputError, match="no column 'label': its columns are a, LABEL, Label, 'the text'; name it"):
        load_source(str(path))


TABLE = ["id,width,label", "a,1.5,x", "b,2.5,y", '"c\nc",3.5,x']


@pytest.mark.parametrize(
    ("titles", "rows", "told"),
    [
        (["Survey 2024"], TABLE, "line 1 ('Survey 2024') stands above the names of the columns and is left out"),
        (["Survey 2024", "", "by us"], TABLE, "lines 1 to 3 ('Survey 2024') stand above"),
        (["Survey 2024,,"], TABLE, "line 1 ('Survey 2024') stands"),
        (['"Survey, 2024"'], TABLE, "line 1 ('Survey, 2024') stands"),
        (["Survey 2024"], [row.replace(",", ";") for row in TABLE], "line 1 ('Survey 2024') stands"),
        (["Survey 2024\t\t"], [row.replace(",", "\t") for row in TABLE], "line 1 ('Survey 2024') stands"),
    ],
)
@pytest.mark.parametrize("code", ["utf-8-sig", "utf-16"])
def test_titles_above_a_table_are_left_out(
    tmp_path: Path, titles: list[str], rows: list[str], told: str, code: str
) -> None:
    path = write(tmp_path / "t.csv", "\r\n".join([*titles, *rows, ""]).encode(code))
    lines = io.StringIO()
    data = load_source(str(path), progress=Progress(stream=lines))
    assert data.ids.tolist() == ["a", "b", "c\nc"] and data.classes == ("x", "y")
    assert np.asarray(data.x).ravel().tolist() == [1.5, 2.5, 3.5]
    assert f"{path}: {told}" in lines.getvalue()
    labels = read_label_file(path)
    assert labels.labels == {"a": "x", "b": "y", "c\nc": "x"} and told in labels.note
    write(path, "\r\n".join([*titles, *rows, rows[1], ""]).encode(code))
    with pytest.raises(InputError, match=f"lines {len(titles) + 2} and {len(titles) + 6}"):
        load_source(str(path))


@pytest.mark.parametrize(
    "rows",
    [
        ["text", "hello; world", "good; bye"],  # texts, and no table of two columns
        ["text", "hello, world", "good bye"],
        ["label,", "x,1", "y,2"],  # a column without a name
        ["Survey", "1,2,x", "3,4,y"],  # there are no names below it
        ["Survey", "a,a,label", "3,4,y"],
        ["Survey", "a,b,label"],  # nothing below these
        ["Survey, 2024", *TABLE],  # names, for all we know
        ['"two', 'lines",label', "a,x"],
    ],
)
def test_what_is_no_title_stays_what_it_was(tmp_path: Path, rows: list[str]) -> None:
    path = write(tmp_path / "t.csv", "\n".join([*rows, ""]).encode())
    assert top_of(path).lines == 0 and delimiter_of(path) == ","


def test_a_row_of_another_length_far_below_a_title_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "\n".join(["Survey", *TABLE[:3], *["z,1,x"] * 2000, "a,1", ""]).encode())
    with pytest.raises(InputError, match="line 2005: 2 cells where"):
        load_source(str(path))
