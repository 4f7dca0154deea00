"""Read a table from stdin in a process with limited memory, before labelsieve itself reads it.

A small file can need any amount of memory, and a damaged one can end the process that reads it. `table_file.py` runs
this file as a script. It imports neither labelsieve nor numpy, so that the process starts in half the time.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any, BinaryIO

TOO_LARGE = 3  # exit status
PIECE_ROWS, PIECE_BYTES = 8192, 2**28  # at most; the bytes are those that the file declares
COLUMN_BUFFER = 2**16  # bytes; without it, a whole column of a row group is read at once
COLUMNS_AT_ONCE = 500  # each open column takes about 1 MB (for a page and its buffers)
BYTES_PER_CELL = 8  # of a number, or of the offset of a text


def limit_memory(limit: int) -> None:
    with suppress(ImportError, ValueError, OSError):  # a lower limit is set already, or this system has none
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def check_spreadsheet(file: BinaryIO) -> None:
    from python_calamine import CalamineError, CalamineWorkbook

    with suppress(CalamineError, OSError, ValueError):  # reported when labelsieve reads the file
        CalamineWorkbook.from_filelike(file).get_sheet_by_index(0)


def check_parquet(file: BinaryIO, free: int) -> None:
    """Raise MemoryError if the cells need more than `free` bytes.

    The content is read in pieces and counted: a Parquet file can store a text once and repeat it in many rows.
    """
    import pyarrow.parquet as pq

    table = pq.ParquetFile(file, pre_buffer=False, buffer_size=COLUMN_BUFFER)
    about, groups = table.metadata, range(table.metadata.num_row_groups)
    size = sum(about.row_group(group).total_byte_size for group in groups)
    row_bytes = max(BYTES_PER_CELL * about.num_columns, size // max(1, about.num_rows), 1)
    rows = max(1, min(PIECE_ROWS, PIECE_BYTES // row_bytes))
    slices: list[list[int]] = [[]]
    last = None
    for at, (name, *_) in enumerate(table.reader.column_paths):
        if len(slices[-1]) >= COLUMNS_AT_ONCE and name != last:  # fields of a column are read together
            slices.append([])
        slices[-1].append(at)
        last = name
    for columns in slices:  # by number: the name `a.b` is also that of the field `b` in the column `a`
        for piece in table.reader.iter_batches(rows, groups, columns, use_threads=False):
            free -= sum(map(decoded_bytes, piece.columns))
            if free < 0:
                raise MemoryError


def decoded_bytes(cells: Any) -> int:
    """Bytes of an array without dictionaries: every use of a cell copies its entry in the dictionary."""
    import pyarrow as pa

    if isinstance(cells, pa.ExtensionArray):
        cells = cells.storage
    if isinstance(cells, pa.DictionaryArray):
        return int(cells.dictionary_decode().nbytes)
    inner = []
    if isinstance(cells, pa.MapArray):
        inner = [cells.keys, cells.items]
    elif pa.types.is_nested(cells.type):
        inner = cells.flatten() if isinstance(cells, pa.StructArray) else [cells.flatten()]
    return max(int(cells.nbytes), sum(map(decoded_bytes, inner)))


def main(kind: str, limit: str, free: str) -> None:
    limit_memory(int(limit))
    sys.modules["numpy"] = None  # type: ignore[assignment] # pyarrow works without it
    try:
        if kind == "parquet":
            check_parquet(sys.stdin.buffer, int(free))
        else:
            check_spreadsheet(sys.stdin.buffer)
    except MemoryError:
        sys.exit(TOO_LARGE)
    except Exception as error:
        sys.exit(" ".join(str(error).split())[:300])


if __name__ == "__main__":
    main(*sys.argv[1:])
