"""Files with a table: CSV, Parquet, JSON Lines and spreadsheets, read as pyarrow tables.

This is the only reader of such files. Cells of Parquet, JSON Lines and spreadsheets have types; cells of CSV files are
text, whose types are inferred.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from labelsieve.csv_files import PROTECTED, CsvFormat, header_of, read_arrow, read_rows, restore
from labelsieve.data.columns import quote_name
from labelsieve.data.limited_reader import BYTES_PER_CELL, TOO_LARGE
from labelsieve.data.resources import check_memory
from labelsieve.errors import InputError, first_line
from labelsieve.files import open_archive, open_file, regular_file, unpacked_limit
from labelsieve.progress import Note, NoteKind, counted, join_names

CSV = (".csv", ".tsv", ".txt")
PARQUET = (".parquet", ".pq")
JSON_LINES = (".jsonl", ".ndjson")
SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods")
TABLES = (*CSV, *PARQUET, *JSON_LINES, *SPREADSHEETS)
TEXT_COLUMNS = ("id", "path", "text", "true")  # stay text in a CSV file, even if all are numbers
MAX_COLUMNS = 100_000  # each takes about a millisecond, because it may have any type (docs/trust.md)

MAX_MISSING_CELLS = 50_000_000  # take a second and 400 MB: a small file with other names in every line has millions

OLD_SPREADSHEET = b"\xd0\xcf\x11\xe0"  # .xls, which is not an archive
READER = Path(__file__).with_name("limited_reader.py")  # reads spreadsheets and Parquet files first
READER_BYTES = 4_000_000_000  # memory of that process


@dataclass(frozen=True)
class TableFile:
    """A file as a pyarrow table whose column names are unique and have no spaces at the start or end."""

    path: Path
    table: Any
    original_names: tuple[str, ...]  # the names of the columns in the file
    style: CsvFormat | None = None  # of a CSV file
    first_row: int = 1  # number of the first row below the header, for other files
    notes: tuple[Note | str, ...] = ()

    @classmethod
    def read(
        cls, path: Path, text_columns: Iterable[str | None] = (), *, header: Sequence[str] = (), as_text: bool = False
    ) -> TableFile:
        """Read a file.

        In a CSV file `text_columns` stay text, or with `as_text` all columns. `header` has the names of the columns if
        the file does not have them.
        """
        kind = path.suffix.lower()
        if path.stat().st_size == 0:
            raise InputError(f"{path} is empty")
        style, first_row = None, 1
        notes: list[Note | str] = []
        if kind in PARQUET:
            table = _read_parquet(path)
        elif kind in JSON_LINES:
            table = _read_json_lines(path)
        elif kind in SPREADSHEETS:
            table, first_row, sheets = _read_spreadsheet(path, header)
            if len(sheets) > 1:
                notes.append(Note.of(NoteKind.FIRST_SHEET, path=path, sheet=sheets[0], others=join_names(sheets[1:])))
        else:
            style = CsvFormat.detect(path)
            table = _read_csv(path, style, text_columns, header, as_text)
            table = _restored(table)
            notes += [style.note] if style.note else []
        original_names = tuple(map(str, table.column_names))
        names = unique_names(original_names)
        numbered = [
            quote_name(name) for name, before in zip(names, original_names, strict=True) if name != before.strip()
        ]
        if numbered:
            notes.append(Note.of(NoteKind.COLUMNS_NUMBERED, path=path, names=join_names(numbered)))
        return cls(path, table.rename_columns(names), tuple(header) or original_names, style, first_row, tuple(notes))

    @property
    def names(self) -> list[str]:
        return [str(name) for name in self.table.column_names]

    def values(self, column: str) -> list[Any] | None:
        return self.table.column(column).to_pylist() if column in self.names else None

    def place(self, row: int) -> str:
        """Where the user finds a row."""
        return f"row {row + self.first_row}" if self.style is None else f"line {self._lines[row]}"

    @cached_property
    def _lines(self) -> list[int]:
        assert self.style is not None
        lines = [row.line for row in read_rows(self.path, self.style)]
        return lines[len(lines) - self.table.num_rows :]  # without the header


def unique_names(original_names: Sequence[str]) -> list[str]:
    """Names without spaces at their ends. Empty names get the number of their column, repeated names are counted."""
    number: dict[str, int] = {}  # of columns with this name so far; a dictionary keeps the order
    for at, name in enumerate(original_names, start=1):
        free = bare = name.strip() or f"column {at}"
        while free in number:
            number[bare] += 1
            free = f"{bare} {number[bare]}"
        number[free] = 1
    return list(number)


def in_any_case(wanted: str, names: Sequence[str]) -> str:
    """The column with this name, or the only one whose name differs in upper and lower case only."""
    matching = [name for name in names if name.casefold() == wanted.casefold()]
    return matching[0] if wanted not in names and len(matching) == 1 else wanted


def _read_csv(
    path: Path, style: CsvFormat, text_columns: Iterable[str | None], header: Sequence[str], as_text: bool
) -> Any:
    import pyarrow as pa

    first = header_of(path, style)
    _check_width(path, len(first))
    _check_header(path, header, len(first))
    names = list(header) or first
    bare = unique_names(list(map(restore, names)))
    text = {*TEXT_COLUMNS, *(in_any_case(name, bare) for name in text_columns if name is not None)}
    types = {name: pa.string() for name, own in zip(names, bare, strict=True) if as_text or own in text}
    return read_arrow(path, style, types=types, header=header)


def _restored(table: Any) -> Any:
    """The table of a CSV file without the apostrophes that an export writes before formulas."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = []
    for column in table.columns:
        if pa.types.is_string(column.type) and pc.any(pc.match_substring_regex(column, PROTECTED)).as_py():
            cells = (cell if cell is None else restore(cell) for cell in column.to_pylist())
            column = pa.array(cells, column.type)
        columns.append(column)
    return pa.Table.from_arrays(columns, names=list(map(restore, table.column_names)))


def _check_width(path: Path, width: int) -> None:
    if width > MAX_COLUMNS:
        raise InputError(
            f"{path} has {width:,} columns, more than the {MAX_COLUMNS:,} of a table: save the numbers as an .npz file "
            "with x and y"
        )


def _check_header(path: Path, header: Sequence[str], width: int) -> None:
    if header and len(header) != width:
        named, cells = counted(len(header), "column"), counted(width, "cell")
        raise InputError(f"--header names {named}, but the first row of {path} has {cells}")


def _read_parquet(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        about = pq.read_metadata(regular_file(path))
        _check_width(path, about.num_columns)
        free = check_memory(path, BYTES_PER_CELL * about.num_rows * about.num_columns)
        trial = _try_to_read(path, "parquet", free)
        if trial.returncode == TOO_LARGE:
            raise InputError(
                f"{path} needs more than the {free / 1e9:.1f} GB of memory that are available, or a part of its rows "
                f"and columns needs more than {READER_BYTES / 1e9:.0f} GB"
            )
        if trial.returncode:
            raise OSError(trial.stderr or "damaged")
        with pq.ParquetFile(regular_file(path)) as file:
            table = file.read()
        table.validate(full=True)  # a damaged file may have text that is not UTF-8
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a readable Parquet file ({first_line(error)})") from None
    return table


def _try_to_read(path: Path, kind: str, free: int = 0) -> subprocess.CompletedProcess[str]:
    """Read a file in another process."""
    with open_file(path) as file:
        return subprocess.run(
            [sys.executable, "-P", str(READER), kind, str(READER_BYTES), str(free)],
            stdin=file, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip


def _read_json_lines(path: Path) -> Any:
    """A file with one JSON object per line. Keys that a line lacks are missing values."""
    columns: dict[str, list[Any]] = {}
    rows = missing = 0
    with open_file(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
                if b"\\u" in line:  # half of a surrogate pair is valid JSON, but not text
                    json.dumps(entry, ensure_ascii=False).encode()
            except (ValueError, RecursionError) as error:
                raise InputError(f"{path}, line {number}: not readable JSON ({first_line(error)})") from None
            if not isinstance(entry, dict):
                raise InputError(f'{path}, line {number}: expected an object, such as {{"label": "cat"}}')
            for name, value in entry.items():
                cells = columns.setdefault(name, [])
                missing += rows - len(cells)
                if missing <= MAX_MISSING_CELLS:
                    cells += [None] * (rows - len(cells))
                cells.append(json.dumps(value) if isinstance(value, dict | list) else value)
            rows += 1
    _check_width(path, len(columns))
    if missing + sum(rows - len(cells) for cells in columns.values()) > MAX_MISSING_CELLS:
        raise InputError(
            f"{path}: {len(columns):,} different names in {rows:,} lines; as a table, nearly all cells would be "
            "missing: use the same names in all lines"
        )
    for cells in columns.values():
        cells += [None] * (rows - len(cells))
    return _from_columns(list(columns), columns.values())


def _read_spreadsheet(path: Path, header: Sequence[str]) -> tuple[Any, int, list[str]]:
    """The first sheet of a spreadsheet, the number of its first row below the header, and the names of the sheets."""
    try:
        from python_calamine import CalamineError, CalamineWorkbook
    except ImportError:
        raise InputError(f"{path} is a spreadsheet, which needs an extra: pip install 'labelsieve[xlsx]'") from None

    with open_file(path) as file:
        try:
            if not file.read(4).startswith(OLD_SPREADSHEET) or zipfile.is_zipfile(file):
                open_archive(file, unpacked_limit(path.stat().st_size), count=True)
        except Exception as error:  # a damaged archive can raise nearly any exception
            raise InputError(f"{path} is not a readable spreadsheet ({first_line(error)})") from None
    if _try_to_read(path, "spreadsheet").returncode:
        raise InputError(
            f"{path} is damaged, or its first sheet needs more than {READER_BYTES / 1e9:.0f} GB: delete the rows "
            "and columns after the data, or save it as .csv"
        )
    try:
        with open_file(path) as file:
            book = CalamineWorkbook.from_filelike(file)
            sheet = book.get_sheet_by_index(0)
            rows, start = sheet.to_python(skip_empty_area=True), sheet.start
    except (CalamineError, OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable spreadsheet ({first_line(error)})") from None
    if not rows or start is None:
        raise InputError(f"{path}: the first sheet is empty")
    _check_header(path, header, len(rows[0]))
    names = list(header) or [str(cell) for cell in rows[0]]
    body = rows if header else rows[1:]
    cells = [[_spreadsheet_cell(row[at]) for row in body] for at in range(len(names))]
    return _from_columns(names, cells), start[0] + (1 if header else 2), list(book.sheet_names)


def _spreadsheet_cell(cell: Any) -> Any:
    """Empty cells are missing, and integers are stored as decimals."""
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)
    return None if cell == "" else cell


def _from_columns(names: Sequence[str], columns: Iterable[list[Any]]) -> Any:
    """A pyarrow table. A column with values of several types becomes text."""
    import pyarrow as pa

    arrays = []
    for cells in columns:
        try:
            arrays.append(pa.array(cells))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            arrays.append(pa.array([None if cell is None else str(cell) for cell in cells], pa.string()))
    return pa.Table.from_arrays(arrays, names=list(names))
