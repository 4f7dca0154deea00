"""How a text file is written: the code of its letters, and what stands between its cells.

UTF-8 comes first, with or without its mark. A mark of UTF-16 decides for that. What is neither is Windows-1252, which
spreadsheets write in western countries; nothing in such a file says so, and the user is told.
"""

from __future__ import annotations

import codecs
import csv
import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

from labelsieve.errors import InputError

CHUNK = 1 << 20  # bytes at a time
SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods")
MARKS = (",", "\t", ";", "|")  # between cells, the likeliest first
MOST_TITLES = 20  # lines above the names of the columns
MOST_LOOKED_AT = 1000  # lines that show whether there are any; a row further down that is longer is refused by itself
_NUMBER = re.compile(r"[+-]?[0-9.,]+")
SEP = re.compile('"?sep=(?P<mark>[^"])"?', re.IGNORECASE)
WIDE = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


@dataclass(frozen=True)
class Code:
    """The code of a file's letters, as Python calls it, and whether a mark of it stands at the beginning."""

    name: str = "utf-8"
    mark: bool = False
    note: str = ""  # what the user should know of it

    @property
    def reading(self) -> str:
        """The same for whoever reads and does not want the mark; any UTF-8 may have one."""
        return {"utf-8": "utf-8-sig", "cp1252": "cp1252"}.get(self.name, "utf-16")

    @property
    def arrow(self) -> str:
        """The same for Arrow, which reads UTF-8 itself, mark and all, and has Python decode the others in pieces."""
        return "utf8" if self.name == "utf-8" else self.reading

    def open(self, path: Path) -> IO[str]:
        """The text with its ends of lines as they are; what changed since and is no letter becomes a mark of that."""
        return path.open(newline="", encoding=self.reading, errors="replace")


def code_of(path: Path) -> Code:
    """The code a whole file is written in, read in pieces; InputError where it is none of those we know."""
    first = _first_bytes(path)
    if (wide := WIDE.get(first[:2])) is not None:
        if not _decodes(path, "utf-16", nul=False):
            raise _about_wide(path)
        return Code(wide, mark=True)
    if first[:1] == b"\0" or first[1:2] == b"\0":  # its letters have two bytes each, and no mark says so
        raise InputError(f"{path} is in UTF-16 without its mark, or is no text: save it as UTF-8")
    marked = first == codecs.BOM_UTF8
    if _decodes(path, "utf-8", nul=True):
        return Code(mark=marked)
    return Code("cp1252", note=_about_windows(path, marked=marked))


@dataclass(frozen=True)
class Top:
    """How a CSV file begins: what stands between its cells, and the lines above the names of its columns."""

    delimiter: str
    declaration: str = ""  # of the delimiter (sep=;), as Excel wants it
    titles: tuple[str, ...] = ()  # what people and programs write above a table

    @property
    def lines(self) -> int:
        return bool(self.declaration) + len(self.titles)


def top_of(path: Path) -> Top:
    """The first line names the delimiter, or has it: the comma, else tab, semicolon or |; unless it is a title."""
    code = "utf-16" if _first_bytes(path)[:2] in WIDE else "utf-8-sig"  # only a mark matters for that
    with path.open(encoding=code, errors="replace") as file:
        first = file.readline()
        if declared := SEP.fullmatch(first.rstrip("\n")):
            return Top(declared["mark"], declaration=first.rstrip("\n"))
        plain = Top(_delimiter(first))
        if _filled(first) != 1:
            return plain
        lines = [first, *islice(file, MOST_LOOKED_AT)]
    return _titled(lines, whole=len(lines) <= MOST_LOOKED_AT) or plain


def _delimiter(line: str) -> str:
    return next((mark for mark in MARKS if mark in line), ",")


def _filled(line: str) -> int:
    """How many cells of a line have something in them; 0 where it is none of a table."""
    try:
        cells: list[str] = next(csv.reader([line], delimiter=_delimiter(line)), [])
    except csv.Error:
        return 0
    return sum(bool(cell.strip()) for cell in cells)


def _titled(lines: list[str], *, whole: bool) -> Top | None:
    """Titles, where there is no doubt: lines with one filled cell each, then names, and then rows that all are as long.

    A column of texts may have as many commas in each, and no quotes: there nothing could be read before. Of the other
    marks each text would have two or more.
    """
    at = next((at for at, line in enumerate(lines[: MOST_TITLES + 1]) if _filled(line) > 1), 0)
    if not at or any(line.count('"') % 2 for line in lines[:at]):
        return None
    delimiter = _delimiter(lines[at])
    try:
        above = [next(csv.reader([line], delimiter=delimiter), []) for line in lines[:at]]
        names, *rows = [row for row in csv.reader(lines[at:], delimiter=delimiter) if row]
    except csv.Error:
        return None
    rows = rows if whole else rows[:-1]  # which may have been cut off
    bare, width = {name.strip() for name in names}, len(names)
    if len(bare) < width or "" in bare or any(_NUMBER.fullmatch(name) for name in bare):
        return None
    if not rows or any(len(row) != width for row in rows) or any(sum(map(bool, row)) > 1 for row in above):
        return None
    padded = any(len(row) >= width for row in above)
    if any(len(row) > width for row in above) or (width < 3 and (padded or delimiter != ",")):
        return None
    return Top(delimiter, titles=tuple(line.rstrip("\n") for line in lines[:at]))


def delimiter_of(path: Path) -> str:
    return top_of(path).delimiter


def declaration_of(path: Path) -> str:
    """The line above the names of the columns that says what stands between cells (sep=;); "" where there is none."""
    return top_of(path).declaration


def csv_rows(path: Path, file: IO[str]) -> Any:
    """A csv.reader of the open file at the line with the names of the columns."""
    top = top_of(path)
    rows = csv.reader(file, delimiter=top.delimiter)
    for _ in range(top.lines):
        next(rows)
    return rows


def about_titles(top: Top) -> str:
    """What to say of the lines above the names; "" where there are none."""
    if not top.titles:
        return ""
    first = " ".join(top.titles[0].strip(top.delimiter + '" ').split())[:60]
    told = f"line 1 ({first!r}) stands" if len(top.titles) == 1 else f"lines 1 to {len(top.titles)} ({first!r}) stand"
    return f"{told} above the names of the columns and {'is' if len(top.titles) == 1 else 'are'} left out"


def check_no_spreadsheet(path: Path) -> None:
    """A spreadsheet's own file holds sheets, formulas and colours: which of it are the samples only its owner knows."""
    if path.suffix.lower() in SPREADSHEETS:
        raise InputError(f"{path} is a spreadsheet, which cannot be read: save it as CSV and give that file")


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(codecs.BOM_UTF8))


def _decodes(path: Path, code: str, *, nul: bool) -> bool:
    """Is the whole file in this code, and, unless `nul`, without the character 0?"""
    decoder = codecs.getincrementaldecoder(code)()
    with path.open("rb") as file:
        try:
            while part := file.read(CHUNK):
                text = decoder.decode(part)
                if not nul and "\0" in text:
                    return False
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def _about_windows(path: Path, *, marked: bool) -> str:
    """What to say of a file that is read as Windows-1252; InputError where it is not in that either.

    Where a mark says UTF-8, or most of the lines with letters beyond ASCII do, the file is that and damaged: nearly all
    of its letters would be read wrongly.
    """
    in_utf8 = others = first = strange = 0
    # Latin-1 has a letter for every byte, so that lines are counted and their bytes can be had back.
    with path.open(encoding="latin-1") as file:
        for number, line in enumerate(file, start=1):
            if not strange and ("\0" in line or not _is_in(line, "cp1252")):
                strange = number
            if _is_in(line, "utf-8"):
                in_utf8 += not line.isascii()
            else:
                others, first = others + 1, first or number
    if strange or marked or in_utf8 > others:
        nor = f", nor in Windows-1252, first in line {strange}" if strange else ""
        raise InputError(f"{path} is not in UTF-8, first in line {first}{nor}: save it as UTF-8")
    told = f"line {first} is not UTF-8" if others == 1 else f"{others:,} lines are not UTF-8, first line {first}"
    return f"{path} is read as Windows-1252: {told}; save it as UTF-8 if letters look wrong"


def _is_in(line: str, code: str) -> bool:
    if line.isascii():
        return True
    try:
        line.encode("latin-1").decode(code)
    except UnicodeDecodeError:
        return False
    return True


def _about_wide(path: Path) -> InputError:
    """UTF-16 by its mark and not by what follows: damaged, or a wider code whose mark begins the same way."""
    content = path.read_bytes()
    try:
        before = content.decode("utf-16").partition("\0")[0]
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-16", "replace")
    line = 1 + before.count("\n") + before.count("\r") - before.count("\r\n")
    return InputError(f"{path} is marked as UTF-16 and is not, first in line {line}: save it as UTF-8")
