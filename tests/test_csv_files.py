"""CSV files can be read back unchanged by every common reader, and exported cells run nothing in a spreadsheet."""

from __future__ import annotations

import codecs
import csv
import io
import re
import tracemalloc
from pathlib import Path

import pyarrow.csv
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import labelsieve
from labelsieve.csv_files import (
    SEPARATORS,
    CsvFormat,
    CsvWriter,
    Row,
    csv_line,
    make_harmless,
    parse_line,
    read_arrow,
    read_csv,
    read_rows,
    restore,
    write_csv,
)
from labelsieve.data.labels import read_label_file
from labelsieve.data.source import load_source
from labelsieve.errors import InputError

ANY_TEXT = st.text(st.one_of(st.sampled_from("\r\n\0\t,;|\"'=+-@ \ufeff1a\u2028\x85"), st.characters(codec="utf-8")))
TABLES = st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(ANY_TEXT, min_size=n, max_size=n), min_size=1))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("csv") / "t.csv"


@settings(deadline=None, max_examples=100)
@given(TABLES)
def test_every_string_is_read_back(path: Path, rows: list[list[str]]) -> None:
    header = [f"c{i}" for i in range(len(rows[0]))]
    write_csv(path, header, rows)
    assert [row.cells for row in read_csv(path, header)] == rows
    with path.open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [header, *rows]
    table = read_arrow(path, types=dict.fromkeys(header, pyarrow.string()))
    assert [list(row.values()) for row in table.to_pylist()] == rows


@settings(deadline=None, max_examples=100)
@given(TABLES)
@example([["\t"]])
@example([[" "]])
def test_pandas_reads_the_same(path: Path, rows: list[list[str]]) -> None:
    pandas = pytest.importorskip("pandas")
    header = [f"c{i}" for i in range(len(rows[0]))]
    write_csv(path, header, rows)
    frame = pandas.read_csv(path, dtype=str, keep_default_na=False)
    assert frame.to_numpy().tolist() == rows


@settings(deadline=None, max_examples=100)
@given(TABLES, st.sampled_from(SEPARATORS), st.sampled_from(["\n", "\r\n"]))
def test_every_delimiter_and_line_end(rows: list[list[str]], delimiter: str, end: str) -> None:
    file = io.StringIO(newline="")
    CsvWriter(file, CsvFormat(delimiter, line_end=end)).rows(rows)
    assert list(csv.reader(io.StringIO(file.getvalue(), newline=""), delimiter=delimiter)) == rows


@given(st.lists(ANY_TEXT.filter(lambda text: not set(text) & set("\r\n")), min_size=1))
def test_one_line(cells: list[str]) -> None:
    assert parse_line(csv_line(cells)) == cells


def test_rows_know_their_lines_and_damage_is_named(path: Path) -> None:
    path.write_text('a,b\n"x\ny",1\n\nz,2\n')
    assert list(read_rows(path)) == [Row(1, ["a", "b"]), Row(2, ["x\ny", "1"]), Row(5, ["z", "2"])]
    with pytest.raises(InputError, match="first line"):
        list(read_csv(path, ("a", "c")))
    path.write_text("a,b\n1,2\n1\n")
    for read in (lambda: list(read_csv(path, ("a", "b"))), lambda: read_arrow(path)):
        with pytest.raises(InputError, match="line 3"):
            read()


@settings(max_examples=300)
@given(st.one_of(ANY_TEXT, st.text(alphabet="=+-@\t\r\n'1.ea, ;|/()%!\uff1d")))
def test_what_was_made_harmless_is_restored(cell: str) -> None:
    assert restore(make_harmless(cell)) == cell


@settings(max_examples=300)
@given(st.text(alphabet="=+@\t\r\n'1.ea, ;|(!"), st.sampled_from(SEPARATORS))
def test_no_separator_turns_a_part_of_a_cell_into_a_formula(cell: str, separator: str) -> None:
    for piece in make_harmless(cell).replace("\r", "\n").replace(separator, "\n").split("\n"):
        assert not piece.startswith(("=", "@"))
        assert not re.match(r"\+.*a.*[(|!]", piece)


@pytest.mark.parametrize("cell", ["", "'", "'quoted'", "'-1.5", "a'=b", "-", "a=b", "x\n- item\n- item", "a;-5,5"])
def test_other_cells_stay(cell: str) -> None:
    assert make_harmless(cell) == restore(cell) == cell


@pytest.mark.parametrize(
    ("cell", "written"),
    [("\r=1", "'\r'=1"), ("＝1", "'＝1"), ("'=1", "''=1"), ("hi\r=cmd|' /C calc'!A0", "hi\r'=cmd|' /C calc'!A0"),
     ("t;=cmd|' /C calc'!A0", "t;'=cmd|' /C calc'!A0"), ("a,-2+3+cmd|' /C calc'!A0", "a,'-2+3+cmd|' /C calc'!A0"),
     ("+49 170 1\n=1", "'+49 170 1\n'=1"), ("a|@SUM(A1)", "a|'@SUM(A1)")],
)  # fmt: skip
def test_formulas_after_any_separator(cell: str, written: str) -> None:
    assert make_harmless(cell) == written and restore(written) == cell


@pytest.mark.parametrize(
    "cell",
    ["-1.5", "+3e-7", "-.5", "-0,151", "+0,5", "-,5", "-1.234.567,89", "-1,234,567.89", "-1 234,5", "-1\u00a0234",
     "-1\u202f234,5", "-1'234.50", "-1\u2019234", "-1,5e-3", "+1.5E+10", "-5%", "-5 %", "-0,5\u00a0%", "- 5", "-3/4",
     "+49 170 1", "+49 (0)170/123 45 67", "+1 (555) 010.0000"],
)  # fmt: skip
def test_numbers_stay_as_people_write_them(cell: str) -> None:
    assert make_harmless(cell) == restore(cell) == cell


@pytest.mark.parametrize(
    "cell",
    ["=1+1", "+A1", "-2+3", "@SUM(A1)", "\tx", "=", "--", "-1+1", "+1+1", "+1-2", "-1-1", "=1", "=-1", "@1", "=0,5",
     "@49 170 1", "--5", "+-5", "-(-5)", "-5-", "+", "-()", "-.", "+1-2|cmd", "+1-2-3", "-1*2", "-2^3", "-1&2",
     "-1e5+1", "-1e", "-e5", "-5%%", "-5%+1", "-1%1", "-1:1", "-1!2", "-1;2", "-$5", "-1'2'!A1", "-'1'", "-0,151\n",
     "-1\t2", "\uff0b49 170 1", "-\u0661", "+1234567-1234567", "-1-555-010-0000", "+1-555-010-0000",
     "+49 30-1234567", "+49 170+1234567", "+49-170-1234567|cmd", "+1+cmd|' /C calc'!A0",
     "-2+3+cmd|' /C calc'!A0", "@SUM(1+1)*cmd|' /C calc'!A0", "=cmd|' /C calc'!A0", '=HYPERLINK("http://x","y")',
     "-A1", "+R1C1", "-1 A1", "+SUM(1,2)", "-0x1", "-1E5A"],
)  # fmt: skip
def test_what_only_looks_like_a_number_is_made_harmless(cell: str) -> None:
    assert make_harmless(cell) == "'" + cell
    assert restore("'" + cell) == cell


@given(st.text(alphabet="+-0123456789 .,/()%eE'").map(lambda rest: "+" + rest))
def test_a_cell_that_stays_holds_no_calculation(cell: str) -> None:
    if make_harmless(cell) == cell:
        signs = cell[1:].count("+") + cell[1:].count("-")
        assert signs == 0 or is_exponent(cell)


def is_exponent(cell: str) -> bool:
    _, mark, power = cell.lower().partition("e")
    return bool(mark) and power.lstrip("+-").rstrip("% ").isdigit()


@pytest.mark.parametrize("end", ["x", "-", "e", "%%"])
def test_long_cells_take_linear_time(end: str) -> None:
    cell = "+49 " + "1 " * 100_000 + end
    assert make_harmless(cell) == "'" + cell
    cell = "x" + ",-1;=2" * 25_000
    assert restore(make_harmless(cell)) == cell


# ---------------------------------------------------------------- formats of users' files

ROWS = "id;label;größe\r\nä1;Süß;1,5\r\nb2;Grün;2,5\r\nc3;Süß;3,5\r\n"
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "cp1252"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_tables_and_label_files_in_every_encoding(path: Path, encoding: str) -> None:
    path.write_bytes(ROWS.encode(encoding))
    data = load_source(str(path))
    assert data.classes == ("Grün", "Süß") and data.ids.tolist() == ["ä1", "b2", "c3"]
    assert data.x.table.column_names == ["größe"] and data.x.matrix.ravel().tolist() == [1.5, 2.5, 3.5]
    assert any("Windows-1252" in note for note in data.notes) == (encoding == "cp1252")
    file = read_label_file(path)
    assert file.labels == {"ä1": "Süß", "b2": "Grün", "c3": "Süß"}
    assert ("Windows-1252" in file.note) == (encoding == "cp1252")
    path.write_bytes((ROWS + "ä1;Süß;1,5\r\n").encode(encoding))
    with pytest.raises(InputError, match="line 2 and line 5"):
        load_source(str(path))
    path.write_bytes((ROWS + "d4;Süß\r\n").encode(encoding))
    for read in (load_source, read_label_file):
        with pytest.raises(InputError, match="line 5: 2 cells"):
            read(str(path))


def test_detected_formats(path: Path) -> None:
    for mark, encoding in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        path.write_bytes(mark + ROWS.encode(encoding))
        assert CsvFormat.detect(path) == CsvFormat(";", encoding, bom=True, line_end="\r\n")
    for content in (b"", b"label\n"):
        path.write_bytes(content)
        assert CsvFormat.detect(path) == CsvFormat()
    path.write_bytes(codecs.BOM_UTF8 + b"a|label\n")
    assert CsvFormat.detect(path) == CsvFormat("|", bom=True)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"label,a\nv\xe9t,1\nw\x81,2\n", "line 2"),
        (b"label,a\r\nv\xe9t\0,1\r\n", "line 2"),
        (codecs.BOM_UTF8 + b"label,a\nv\xe9t,1\n", "line 2"),
        ("label,a\nä,1\nö,1\n".encode() + b"\xfc,2\n", "line 4"),  # damaged UTF-8
        ("label,a\nä,1\nö,1\nü".encode()[:-1], "line 4"),
        ("label,a\r\nä,1\r\n".encode("utf-16") + b"\n", "line"),
        ("label,a\n".encode("utf-16") + b"a\0\0\0\n\0", "line 2"),
        ("label,a\nx,1\n".encode("utf-16-le"), "UTF-8"),
        ("label,a\nx,1\n".encode("utf-16-be"), "UTF-8"),
        (codecs.BOM_UTF32_LE + "label,a\n".encode("utf-32-le"), "UTF-8"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "not a text file"),
        (codecs.BOM_UTF16_LE + b"\0bad", "not a text file"),  # two letters without a line end
    ],
)
def test_unsupported_encodings(path: Path, content: bytes, line: str) -> None:
    path.write_bytes(content)
    for read in (load_source, read_label_file):
        with pytest.raises(InputError, match=line):
            read(str(path))


def test_a_large_file_is_not_read_into_memory(path: Path) -> None:
    for encoding in ("utf-8", "utf-16", "cp1252"):
        path.write_bytes(("ä;1;some words\r\n" * 40_000).encode(encoding))
        tracemalloc.start()
        CsvFormat.detect(path)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert 4 * peak < path.stat().st_size


@pytest.mark.parametrize("suffix", [".xlsx", ".xls", ".ods", ".XLSX"])
def test_damaged_spreadsheets_are_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(InputError, match="spreadsheet"):
        load_source(str(path))
    with pytest.raises(InputError, match="spreadsheet"):
        read_label_file(str(path))


def test_a_title_above_the_header_is_refused(path: Path) -> None:
    path.write_text("Survey 2024\nid,a,label\na,1.5,x\nb,2.5,y\n")
    with pytest.raises(InputError, match=r"line 2: 3 cells.*title"):
        load_source(str(path))


def test_no_other_module_reads_or_writes_csv() -> None:
    package = Path(labelsieve.__file__).parent
    uses = re.compile(r"^\s*(import csv\b|from csv import|import pyarrow\.csv|from pyarrow import csv)", re.MULTILINE)
    found = {path.name for path in package.rglob("*.py") if uses.search(path.read_text(encoding="utf-8"))}
    assert found == {"csv_files.py"}


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("a,b\n1,2\n", ","),
        ("weight, kg;size;label\n1,5;2;x\n2;3;y\n", ";"),
        ('"a, mm"\t"b"\n1\t2\n', "\t"),
        ("well, it works\tgood\nno\tbad\na, b, c\tgood\n", "\t"),
        ('a,b\n"x\n;y;z",2\n', ","),
        ("a,b\n1,2,3\n", ","),  # not a table: the message names the line
        ("a;b\n1;2\n1;2;3\n", ";"),
        ("label\nx\n", ","),
    ],
)
def test_the_delimiter_splits_all_rows_alike(text: str, delimiter: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    assert CsvFormat.detect(path).delimiter == delimiter
