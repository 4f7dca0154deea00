"""A run's source found again, and its table with every cell as it was written."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labelsieve.csv_files import CsvFormat, header_of, read_arrow
from labelsieve.data.cells import is_text
from labelsieve.data.labels import id_texts
from labelsieve.data.source import is_path
from labelsieve.data.table import in_any_case
from labelsieve.errors import InputError
from labelsieve.labels_csv import LabelColumns, index_in
from labelsieve.runfolder import RunFolder
from labelsieve.types import IntArray


def find_source(run: RunFolder, source: str) -> Path | None:
    """The source's file or folder: as it was named, or from where the run folder lies. None where it is gone, or never
    was one; never the run folder, which may well be called as its source is."""
    if not source or not is_path(source):
        return None
    own = run.path.resolve()
    for base in (Path(), own.parent):
        if os.path.exists(base / source) and (base / source).resolve() != own:  # noqa: PTH110 - raises at no name
            return base / source
    return None


@dataclass(frozen=True)
class SourceTable:
    """A source's table with every cell as it was written, and which column is what.

    The names of its columns have no blanks at their ends, as a run reads them; `written` has them.
    """

    path: Path
    table: Any  # pyarrow; strings where the file is CSV
    label: str
    root: Path
    text: str = "text"
    id: str = "id"
    written: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path, settings: dict[str, Any], *, typed: bool = False) -> SourceTable:
        """With `typed`, columns of numbers are numbers; without, every cell is the text that was written."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        root = Path(settings["root"]) if settings.get("root") else path.parent
        label, text, id = (str(settings.get(f"{name}_column") or name).strip() for name in ("label", "text", "id"))

        def made(table: Any) -> SourceTable:
            names = [name.strip() for name in table.column_names]
            names = names if len(set(names)) == len(names) else table.column_names
            called = in_any_case(label, names)
            return cls(path, table.rename_columns(names), called, root, text, id, tuple(table.column_names))

        if path.suffix.lower() in (".parquet", ".pq"):
            try:
                return made(pq.read_table(path))
            except (pa.ArrowInvalid, OSError) as problem:
                raise InputError(f"{path} cannot be read any more ({str(problem).splitlines()[0]})") from None
        style = CsvFormat.detect(path)
        names = header_of(path, style)
        if typed:
            bare = [name.strip() for name in names]
            texts = {"id", "path", "text", "true", in_any_case(label, bare), text, id}
            names = [name for name in names if name.strip() in texts]
        return made(read_arrow(path, style, types=dict.fromkeys(names, pa.string())))

    @property
    def names(self) -> list[str]:
        return [str(name) for name in self.table.column_names]

    @property
    def named(self) -> str | None:
        """The column that names the samples; None where a row's number does."""
        wanted = (self.id, "path") if self.text == "text" else (self.id,)  # named texts win over paths
        return next((name for name in wanted if name in self.names), None)

    def row_ids(self) -> Any:
        """What each row is called: its id, its path, else its number."""
        import pyarrow as pa

        named = self.named
        if named is None:
            own: Any = pa.array(np.arange(self.table.num_rows)).cast(pa.string())
        else:
            column = self.table.column(named)
            # Arrow writes texts and whole numbers as Python does, only faster.
            fast = not column.null_count and (pa.types.is_integer(column.type) or is_text(column.type))
            own = column.cast(pa.string()).combine_chunks() if fast else pa.array(id_texts(column.to_pylist()))
        return own

    def rows_of(self, columns: LabelColumns) -> IntArray:
        """The table's row of each sample: -1 where the row is gone."""
        own = self.row_ids()
        if len(own) == len(columns) and own.equals(columns.ids):
            return np.arange(len(columns))
        return index_in(columns.ids, own)
