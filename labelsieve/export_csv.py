"""A table as CSV, written the way its source is: the same delimiter, mark at the beginning and ends of lines."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterator
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


def write_csv(target: Path, table: Any, *, raw: bool, dialect: Dialect) -> None:
    """Cells that a spreadsheet would run are made harmless, unless `raw`."""
    with atomic_writer(target) as file:
        if dialect.mark:
            file.write("\ufeff")
        writer = csv.writer(file, delimiter=dialect.delimiter, lineterminator=dialect.end)
        writer.writerow(name if raw else neutral(name) for name in table.column_names)
        for batch in table.to_batches(max_chunksize=BATCH):
            writer.writerows(_rows(batch, raw))


def _rows(batch: Any, raw: bool) -> Iterator[tuple[str, ...]]:
    listed = [["" if v is None else v if isinstance(v, str) else str(v) for v in c.to_pylist()] for c in batch.columns]
    if not raw:
        listed = [[neutral(cell) for cell in column] for column in listed]
    return zip(*listed, strict=True)
