"""CSV files: the only reader and the only writer of the project.

Everything that is written can be read back unchanged, by this module, by pandas and by pyarrow: cells with quotes,
separators, carriage returns or line feeds are quoted. Files of users are read in the format that they have: UTF-8,
UTF-16 with a byte order mark or Windows-1252, with commas, tabs, semicolons or vertical bars between the cells.

`make_harmless` protects people who open an exported file in a spreadsheet: an apostrophe before a formula turns it into
text. `restore` removes these apostrophes again.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from labelsieve.errors import InputError, first_line
from labelsieve.files import atomic_writer, open_file

SEPARATORS = (",", "\t", ";", "|")  # the first one is the delimiter if several fit equally well
ROWS_COMPARED, LOOK_AHEAD = 20, 2**14  # rows, and characters, from which the delimiter is found
UTF16_MARKS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
PYTHON_NAMES = {"utf-8": "utf-8-sig", "cp1252": "cp1252"}  # encodings that skip a byte order mark
BLOCK_BYTES = 2**20  # of a file that pyarrow parses at once; its default
MAX_BLOCK_BYTES = 2**31  # pyarrow's limit
RECODED_GROWTH = 3  # pyarrow parses UTF-8, in which a byte of another encoding takes at most 3 bytes
SAVE_AS_CSV = "save the table as a CSV file with UTF-8 encoding"

csv.field_size_limit(2**31 - 1)  # Python's default, 131,072 characters, is shorter than texts that occur


@dataclass(frozen=True)
class CsvFormat:
    """How a file is written. The default is how labelsieve writes its own files."""

    delimiter: str = ","
    encoding: str = "utf-8"
    bom: bool = False
    line_end: str = "\n"
    note: str = ""  # for the user, if the encoding is a guess

    @classmethod
    def detect(cls, path: Path) -> CsvFormat:
        """The format of a user's file. Raises InputError if the encoding is not supported."""
        encoding, bom, note = _encoding(path)
        with cls(encoding=encoding).open(path) as file:
            lines = [file.readline(), *file.readlines(LOOK_AHEAD)]
        end = "\r\n" if lines[0].endswith("\r\n") else "\n"
        return cls(_delimiter(lines), encoding, bom, end, note)

    def open(self, path: Path) -> IO[str]:
        return io.TextIOWrapper(open_file(path), newline="", encoding=PYTHON_NAMES.get(self.encoding, "utf-16"))


OWN_FORMAT = CsvFormat()


def _delimiter(lines: Sequence[str]) -> str:
    """The separator that splits the first rows into equally many cells, the most if there are several."""
    cells = {}
    for separator in SEPARATORS:
        try:
            rows = islice(csv.reader(lines, delimiter=separator), ROWS_COMPARED)
            counts = [len(row) for row in rows if row]
        except csv.Error:  # a cell that is too long for Python's reader
            counts = [len(lines[0].split(separator))]
        if counts and counts[0] > 1:
            cells[separator] = counts
    equal = [separator for separator, counts in cells.items() if len(set(counts)) == 1]
    return max(equal, key=lambda separator: cells[separator][0], default=next(iter(cells), ","))


class Row(NamedTuple):
    line: int  # where the row starts in the file, from 1
    cells: list[str]


# ---------------------------------------------------------------- writing


class CsvWriter:
    """Writes rows to an open text file (opened with `newline=""`)."""

    def __init__(self, file: IO[str], style: CsvFormat = OWN_FORMAT) -> None:
        self._file, self._end, self._delimiter = file, style.line_end, style.delimiter
        # Python quotes the characters of the line terminator: with "\r\n", a carriage return is always quoted.
        self._csv = csv.writer(self, delimiter=style.delimiter, lineterminator="\r\n")
        if style.bom:
            file.write("\ufeff")

    def write(self, line: str) -> None:
        """Called by Python's writer with one complete row."""
        line = line.removesuffix("\r\n")
        if line.isspace() and self._delimiter not in line:  # pandas skips an unquoted line of spaces and tabs
            line = f'"{line}"'
        self._file.write(line + self._end)

    def row(self, cells: Iterable[Any]) -> None:
        self._csv.writerow(cells)

    def rows(self, rows: Iterable[Iterable[Any]]) -> None:
        self._csv.writerows(rows)


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a file in our own format. The file appears when it is complete."""
    with atomic_writer(path) as file:
        writer = CsvWriter(file)
        writer.row(header)
        writer.rows(rows)


def csv_line(cells: Iterable[str]) -> str:
    """One row without its line end, as for an option that takes several names."""
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue().removesuffix("\r\n")


# ---------------------------------------------------------------- reading


def read_rows(path: Path, style: CsvFormat = OWN_FORMAT) -> Iterator[Row]:
    """All rows that are not blank, with the header. Raises InputError at text that is not CSV."""
    with style.open(path) as file:
        reader = csv.reader(file, delimiter=style.delimiter)
        start = 1
        try:
            for cells in reader:
                if cells:
                    yield Row(start, cells)
                start = reader.line_num + 1
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(f"{path}, line {reader.line_num}: {error}") from None


def header_of(path: Path, style: CsvFormat) -> list[str]:
    """The names of the columns as they are written; empty if the file is empty."""
    return next(read_rows(path, style), Row(1, [])).cells


def read_csv(path: Path, header: Sequence[str]) -> Iterator[Row]:
    """The rows below the header of a file that labelsieve wrote. Raises InputError if the file is damaged."""
    rows = read_rows(path)
    first = next(rows, None)
    if first is None or tuple(first.cells) != tuple(header):
        raise InputError(f"{path}: the first line must be {','.join(header)}")
    for row in rows:
        if len(row.cells) != len(header):
            raise InputError(
                f"{path}, line {row.line}: {len(row.cells)} cells instead of {len(header)}; correct this line"
            )
        yield row


def read_records(path: Path) -> list[dict[str, str]]:
    """The rows of a file as dictionaries; missing cells are left out."""
    rows = read_rows(path)
    header = next(rows, Row(1, [])).cells
    return [dict(zip(header, row.cells, strict=False)) for row in rows]


def parse_line(text: str, delimiter: str = ",", *, skip_spaces: bool = False) -> list[str] | None:
    """The cells of a single line; None if it is not CSV."""
    try:
        return next(csv.reader([text], delimiter=delimiter, skipinitialspace=skip_spaces), [])
    except csv.Error:
        return None


def parse_names(text: str, option: str) -> list[str]:
    """The names in the value of an option, separated by commas. A name with a comma is in quotes."""
    cells = parse_line(text, skip_spaces=True)
    if cells is None:
        raise InputError(f"{option} {text!r}: separate names with commas, and put a name with a comma in quotes")
    return [cell.strip() for cell in cells if cell.strip()]


def read_arrow(
    path: Path,
    style: CsvFormat = OWN_FORMAT,
    *,
    types: Mapping[str, Any] | None = None,
    columns: Sequence[str] | None = None,
    header: Sequence[str] = (),
) -> Any:
    """A file as a pyarrow table. Columns that are not in `types` get the type that pyarrow infers.

    `header` has the names of the columns if the file does not have them.
    """
    import pyarrow as pa
    import pyarrow.csv as pc

    encoding = "utf8" if style.encoding == "utf-8" else PYTHON_NAMES.get(style.encoding, "utf-16")

    def read(block: int) -> Any:
        with open_file(path) as file:
            return pc.read_csv(
                file,
                read_options=pc.ReadOptions(
                    encoding=encoding, column_names=list(header) or None, block_size=block
                ),
                parse_options=pc.ParseOptions(delimiter=style.delimiter, newlines_in_values=True),
                convert_options=pc.ConvertOptions(
                    column_types=types, include_columns=columns, strings_can_be_null=False
                ),
            )  # fmt: skip

    try:
        try:
            return read(BLOCK_BYTES)
        except pa.ArrowInvalid:
            whole = path.stat().st_size * (1 if encoding == "utf8" else RECODED_GROWTH)
            if not BLOCK_BYTES < whole < MAX_BLOCK_BYTES:
                raise
            return read(whole)  # a row must fit into a block
    except KeyError:
        names = header_of(path, style)
        missing = ", ".join(name for name in columns or () if name not in names)
        raise InputError(f"{path} has no column {missing}") from None
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise InputError(_explain(path, style, error)) from None


@cache
def missing_values() -> frozenset[str]:
    """The texts that pyarrow reads as an empty cell: "", NA, NULL and similar."""
    import pyarrow.csv as pc

    return frozenset(pc.ConvertOptions().null_values)


def _explain(path: Path, style: CsvFormat, error: Exception) -> str:
    """Why pyarrow cannot read a file. Its own messages count rows; people count lines."""
    rows = read_rows(path, style)
    width = len(next(rows, Row(1, [])).cells)
    empty = True
    for row in rows:
        empty = False
        if len(row.cells) != width:
            title = "; if there is a title above the header, delete it" if width < len(row.cells) else ""
            cells = f"{len(row.cells)} cell{'s' * (len(row.cells) > 1)}"
            hint = title or "; correct this line: a separator or a quotation mark may be missing"
            return f"{path}, line {row.line}: {cells}, but the header has {width}{hint}"
    if empty:
        return f"{path} has no rows or is not a text file; {SAVE_AS_CSV}"
    return f"{path} cannot be read as CSV ({first_line(error)}); {SAVE_AS_CSV}"


# ---------------------------------------------------------------- encodings


def _encoding(path: Path) -> tuple[str, bool, str]:
    """The encoding of a file, whether it starts with a byte order mark, and a note for the user."""
    with open_file(path) as file:
        first = file.read(4)
    utf16 = UTF16_MARKS.get(first[:2])
    if first == codecs.BOM_UTF32_LE or (utf16 is None and b"\0" in first[:2]):
        raise InputError(f"{path} is not UTF-8, UTF-16 with a byte order mark or Windows-1252: save it as UTF-8")
    if utf16 is not None:
        _check_utf16(path)
        return utf16, True, ""
    bom = first.startswith(codecs.BOM_UTF8)
    valid = invalid = first_invalid = 0
    with open_file(path) as file:
        for number, line in enumerate(file, start=1):
            if line.isascii() or _decodes(line, "utf-8"):
                valid += not line.isascii()
                continue
            invalid, first_invalid = invalid + 1, first_invalid or number
    if not invalid:
        return "utf-8", bom, ""
    # If most lines are UTF-8, the file is damaged UTF-8: read as Windows-1252, nearly all its letters would be wrong.
    with open_file(path) as file:
        windows = True
        for number, line in enumerate(file, start=1):
            if b"\0" in line:
                raise InputError(f"{path} is not a text file (line {number}); {SAVE_AS_CSV}")
            windows = windows and _decodes(line, "cp1252")
    if bom or not windows or valid > invalid:
        raise InputError(f"{path}, line {first_invalid}: not UTF-8; save the file as UTF-8")
    return "cp1252", False, (
        f"{path} is read as Windows-1252, because line {first_invalid} is not UTF-8; save it as UTF-8 if letters "
        "look wrong"
    )  # fmt: skip


def _check_utf16(path: Path) -> None:
    number = 0
    try:
        with io.TextIOWrapper(open_file(path), encoding="utf-16") as file:
            for number, line in enumerate(file, start=1):
                if "\0" in line:
                    raise InputError(f"{path}, line {number}: not UTF-16 text; save the file as UTF-8")
    except UnicodeDecodeError:
        raise InputError(f"{path}, after line {number}: not UTF-16 text; save the file as UTF-8") from None


def _decodes(line: bytes, encoding: str) -> bool:
    try:
        line.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


# ---------------------------------------------------------------- formulas

FORMULA_STARTS = "=+-@\uff1d\uff0b\uff0d\uff20"  # the last four are full-width forms, which spreadsheets accept
CELL_STARTS = FORMULA_STARTS + "\t\r\n"  # white space that spreadsheets remove before they look for a formula
# Where a formula can start: in the cell, or where a spreadsheet that uses another separator would split it.
_START = re.compile(rf"(?:\A|(?<=[\r\n{''.join(map(re.escape, SEPARATORS))}]))'*(?=[{re.escape(CELL_STARTS)}])")
_ANY_START = re.compile(f"[{re.escape(CELL_STARTS)}]")
PROTECTED = f"'[{re.escape(CELL_STARTS)}]"  # in every cell that `restore` changes
_SIGNS = "+-\uff0b\uff0d"
_CALL = re.compile(r"[(|!]")  # needed by functions, by other programs (DDE) and by other sheets
SPACES = " \u00a0\u2009\u202f"  # the last three stand between groups of digits
# Numbers start like a formula and must stay as they are: -0,151   -1 234.5   -1,5e-3   -5 %   -3/4   +49 (170) 1
_NUMBER = re.compile(rf"[+-][{SPACES}.,(]*[0-9][0-9{SPACES}.,/()'\u2019]*([eE][+-]?[0-9]+)?[{SPACES}]?%?")


def make_harmless(cell: str) -> str:
    """The cell with an apostrophe before everything that a spreadsheet could run as a formula."""
    if not _ANY_START.search(cell):  # the fast answer for most cells
        return cell
    return _START.sub(lambda start: "'" * _is_formula(cell, start) + start[0], cell)


def restore(cell: str) -> str:
    """The cell before `make_harmless`."""
    return _START.sub(lambda start: start[0][_is_formula(cell, start) :], cell)


def _is_formula(cell: str, start: re.Match[str]) -> bool:
    """Whether a spreadsheet could run the text after `start`."""
    rest = cell[start.end() :] if not start.start() else _until_next(cell, start)
    if not rest or rest == "-" or _NUMBER.fullmatch(rest):
        return False
    if not start.start():
        return True
    # Inside a text, "- item" is a list and not a formula.
    return rest[0] in FORMULA_STARTS and (rest[0] not in _SIGNS or _CALL.search(rest) is not None)


def _until_next(cell: str, start: re.Match[str]) -> str:
    """The text from `start` to the next line break or separator, if the file is split at the separator before it."""
    before = cell[start.start() - 1]
    end = re.compile(f"[\r\n{'' if before in chr(13) + chr(10) else re.escape(before)}]").search(cell, start.end())
    return cell[start.end() : end.start() if end else len(cell)]
