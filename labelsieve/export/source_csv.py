"""A table as CSV, written the way its source is: the same code of letters, mark, delimiter and ends of lines."""

from __future__ import annotations

import csv
import operator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from labelsieve.data.spreadsheet import neutral
from labelsieve.data.textfile import code_of, top_of
from labelsieve.errors import InputError
from labelsieve.files import atomic_path

BATCH = 50_000  # rows at a time


@dataclass(frozen=True)
class Dialect:
    delimiter: str = ","
    end: str = "\n"
    code: str = "utf-8"  # of the letters
    mark: bool = False  # the bytes at the beginning by which programs know the code
    declaration: str = ""  # the line that tells a spreadsheet the delimiter
    titles: tuple[tuple[str, ...], ...] = ()  # cells of the lines above the names of the columns

    @classmethod
    def of(cls, source: Path) -> Dialect:
        code = code_of(source)
        with code.open(source) as file:
            first = file.readline()
        end = "\r\n" if first.endswith("\r\n") else "\n"
        top = top_of(source)
        titles = tuple(tuple(row) for row in csv.reader(top.titles, delimiter=top.delimiter))
        return cls(top.delimiter, end, code.name, code.mark, top.declaration, titles)


def write_csv(target: Path, table: Any, *, raw: bool, dialect: Dialect) -> int:
    """Cells that a spreadsheet would run are made harmless, unless `raw`: how many were."""
    try:
        with atomic_path(target) as partial, partial.open("w", encoding=dialect.code, newline="") as file:
            return _write(file, table, raw, dialect)
    except UnicodeEncodeError as error:  # a label from elsewhere: never of the source, which is in this code
        letter = error.object[error.start]
        raise InputError(
            f"{target}: Windows-1252, in which the source is written, has no {letter!r}: save the source as UTF-8 and "
            "export again, or give --to a .parquet file"
        ) from None


def _write(file: IO[str], table: Any, raw: bool, dialect: Dialect) -> int:
    if dialect.mark:
        file.write("\ufeff")
    if dialect.declaration:
        file.write(dialect.declaration + dialect.end)
    writer = csv.writer(file, delimiter=dialect.delimiter, lineterminator=dialect.end)
    above = [_harmless(list(cells), raw) for cells in (*dialect.titles, table.column_names)]
    writer.writerows(cells for cells, _ in above)
    count = sum(changed for _, changed in above)
    for batch in table.to_batches(max_chunksize=BATCH):
        columns = [_harmless(_texts(column), raw) for column in batch.columns]
        writer.writerows(zip(*(cells for cells, _ in columns), strict=True))
        count += sum(changed for _, changed in columns)
    return count


def _texts(column: Any) -> list[str]:
    return ["" if v is None else v if isinstance(v, str) else str(v) for v in column.to_pylist()]


def _harmless(cells: list[str], raw: bool) -> tuple[list[str], int]:
    """The cells, and how many of them are not what they were."""
    if raw:
        return cells, 0
    safe = [neutral(cell) for cell in cells]
    return safe, sum(map(operator.ne, cells, safe))
