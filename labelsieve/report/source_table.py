"""The source of a run, found again, and its table with every cell as it is written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labelsieve.data.cells import is_text
from labelsieve.data.labels import id_texts
from labelsieve.data.source import is_path
from labelsieve.data.table_file import TableFile, in_any_case
from labelsieve.errors import InputError
from labelsieve.labels_csv import LabelColumns, index_in
from labelsieve.runfolder import RunFolder
from labelsieve.types import IntArray


def find_source(run: RunFolder, source: str) -> Path | None:
    """The file or folder of a source, relative to the current folder or to the parent of the run folder.

    None if it does not exist or is not a path. It is never the run folder, which may have the name of the source.
    """
    if not source or not is_path(source):
        return None
    own = run.path.resolve()
    for base in (Path(), own.parent):
        if os.path.exists(base / source) and (base / source).resolve() != own:  # noqa: PTH110 - Path.exists may raise
            return base / source
    return None


@dataclass(frozen=True)
class SourceTable:
    """A table with every cell as it is written, and the roles of its columns.

    Column names are those of a `TableFile`; `written` has the names of the file.
    """

    path: Path
    table: Any  # pyarrow; all columns are strings if the file is CSV
    label: str
    root: Path
    text: str = "text"
    id: str = "id"
    written: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path, settings: Mapping[str, Any], *, typed: bool = False) -> SourceTable:
        """Read the table. With `typed`, columns of numbers become numbers; else every cell is text."""
        label, text, id = (str(settings.get(f"{name}_column") or name).strip() for name in ("label", "text", "id"))
        header = tuple(map(str, settings.get("header") or ()))
        file = TableFile.read(path, (label, text, id), header=header, as_text=not typed)
        root = Path(settings["root"]) if settings.get("root") else path.parent
        return cls(path, file.table, in_any_case(label, file.names), root, text, id, file.written)

    @property
    def names(self) -> list[str]:
        return [str(name) for name in self.table.column_names]

    @property
    def id_column(self) -> str | None:
        """The column that identifies the samples; None if their row number does."""
        wanted = (self.id, "path") if self.text == "text" else (self.id,)  # a named text column comes first
        return next((name for name in wanted if name in self.names), None)

    def cell(self, name: str, row: int) -> Any:
        if row < 0:
            raise InputError("the source does not have this row any more")
        return self.table.column(name)[int(row)].as_py()

    def row_ids(self) -> Any:
        """The id of each row: its id, its path or its number."""
        import pyarrow as pa

        if self.id_column is None:
            return pa.array(np.arange(self.table.num_rows)).cast(pa.string())
        column = self.table.column(self.id_column)
        # Arrow formats texts and integers as Python does, only faster.
        fast = not column.null_count and (pa.types.is_integer(column.type) or is_text(column.type))
        return column.cast(pa.string()).combine_chunks() if fast else pa.array(id_texts(column.to_pylist()))

    def rows_of(self, columns: LabelColumns) -> IntArray:
        """Row of each sample in the table, -1 if it is not there."""
        own = self.row_ids()
        if len(own) == len(columns) and own.equals(columns.ids):
            return np.arange(len(columns))
        return index_in(columns.ids, own)
