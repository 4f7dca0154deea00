"""A table as CSV, written the way its source is: the same delimiter, mark at the beginning and ends of lines."""

from __future__ import annotations

import codecs
import csv
import operator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelsieve.data.spreadsheet import neutral
from labelsieve.data.table import delimiter_of
from labelsieve.files import atomic_writer

BATCH = 50_000  # rows at a time


@dataclass(frozen=True)
class Dialect:
    delimiter: str = ","
    end: str = "\n"
    mark: bool = False  # the three bytes by which some programs know UTF-8

    @classmethod
    def of(cls, source: Path) -> Dialect:
        with source.open("rb") as file:
            first = file.readline()
        return cls(delimiter_of(source), "\r\n" if first.endswith(b"\r\n") else "\n", first.startswith(codecs.BOM_UTF8))


def write_csv(target: Path, table: Any, *, raw: bool, dialect: Dialect) -> int:
    """Cells that a spreadsheet would run are made harmless, unless `raw`: how many were."""
    with atomic_writer(target) as file:
        if dialect.mark:
            file.write("\ufeff")
        writer = csv.writer(file, delimiter=dialect.delimiter, lineterminator=dialect.end)
        header, count = _harmless(table.column_names, raw)
        writer.writerow(header)
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
