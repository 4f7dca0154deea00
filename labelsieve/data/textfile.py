"""How a text file is written: the code of its letters, and what stands between its cells.

UTF-8 comes first, with or without its mark. A mark of UTF-16 decides for that. What is neither is Windows-1252, which
spreadsheets write in western countries; nothing in such a file says so, and the user is told.
"""

from __future__ import annotations

import codecs
import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from labelsieve.errors import InputError

CHUNK = 1 << 20  # bytes at a time
SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods")
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


def delimiter_of(path: Path) -> str:
    """What the first line names, as Excel wants it; else tab, semicolon or | where it has no comma but those."""
    first = _first_line(path)
    declared = SEP.fullmatch(first)
    return declared["mark"] if declared else next((mark for mark in (",", "\t", ";", "|") if mark in first), ",")


def declaration_of(path: Path) -> str:
    """The line above the names of the columns that says what stands between cells (sep=;); "" where there is none."""
    first = _first_line(path)
    return first if SEP.fullmatch(first) else ""


def csv_rows(path: Path, file: IO[str]) -> Any:
    """A csv.reader of the open file at the line with the names of the columns."""
    rows = csv.reader(file, delimiter=delimiter_of(path))
    if declaration_of(path):
        next(rows)
    return rows


def _first_line(path: Path) -> str:
    """Of the code only a mark matters for that."""
    code = "utf-16" if _first_bytes(path)[:2] in WIDE else "utf-8-sig"
    with path.open(encoding=code, errors="replace") as file:
        return file.readline().rstrip("\n")


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
