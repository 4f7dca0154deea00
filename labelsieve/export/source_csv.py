"""Write a table as CSV in the format of its source: the same encoding, delimiter and line ends."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

from labelsieve.csv_files import CsvFormat, CsvWriter, make_harmless
from labelsieve.errors import InputError
from labelsieve.files import atomic_path

BATCH_ROWS = 50_000  # rows that are converted to text at a time


def write_table(target: Path, table: Any, *, raw: bool, style: CsvFormat) -> int:
    """Write a pyarrow table. Unless `raw`, formulas become text; the result is the number of cells changed."""
    try:
        with atomic_path(target) as partial, partial.open("w", encoding=style.encoding, newline="") as file:
            writer = CsvWriter(file, style)
            header, changed = _cells(table.column_names, raw)
            writer.row(header)
            for batch in table.to_batches(max_chunksize=BATCH_ROWS):
                columns = [_cells(column.to_pylist(), raw) for column in batch.columns]
                writer.rows(zip(*(cells for cells, _ in columns), strict=True))
                changed += sum(count for _, count in columns)
            return changed
    except UnicodeEncodeError as error:  # a new label: the source itself has only letters of its encoding
        letter = error.object[error.start]
        raise InputError(
            f"{target}: the source is in Windows-1252, which has no {letter!r}: save the source as UTF-8 and export "
            "again, or export to a .parquet file"
        ) from None


def _cells(values: list[Any], raw: bool) -> tuple[list[str], int]:
    """The values as text, and how many of them were formulas."""
    texts = ["" if value is None else str(value) for value in values]
    if raw:
        return texts, 0
    safe = [make_harmless(text) for text in texts]
    return safe, sum(map(operator.ne, texts, safe))
