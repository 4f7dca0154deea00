"""A column of a table that says which samples belong together: pictures of one patient, lines of one film."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labelsieve.data.labels import id_texts, is_empty, stripped
from labelsieve.errors import InputError
from labelsieve.types import IntArray, LabelledData


@dataclass(frozen=True)
class GroupColumn:
    name: str
    values: list[Any]
    ids: list[str] | None  # of the rows, where the table has any
    paths: list[str] | None

    @staticmethod
    def read(source: str, name: str, *, id_column: str) -> GroupColumn:
        from labelsieve.data.source import TABLES
        from labelsieve.data.table import read_table

        path = Path(source)
        if not path.is_file() or path.suffix.lower() not in TABLES:
            raise InputError(f"--group-column is for tables in CSV or Parquet, {source} is none: leave it out")
        table = read_table(path, (name, id_column))
        names = table.column_names
        if name not in names:
            raise InputError(
                f"{path} has no column {name!r} for --group-column: its columns are {', '.join(names)[:300]}"
            )
        ids, paths = (
            id_texts(table.column(column).to_pylist()) if column in names else None for column in (id_column, "path")
        )
        return GroupColumn(name, stripped(table.column(name).to_pylist())[0], ids, paths)

    def codes(self, data: LabelledData) -> IntArray:
        """One a sample, the same for samples of one group; an empty cell is a group of its own."""
        keys = self.ids or (self.paths if data.kind == "pictures" else None) or id_texts(range(len(self.values)))
        value_of = dict(zip(keys, self.values, strict=True))
        found = [(id, None) if is_empty(value := value_of.get(id)) else (value,) for id in data.ids.tolist()]
        number: dict[Any, int] = {}
        codes = np.array([number.setdefault(value, len(number)) for value in found], dtype=np.int64)
        if len(number) < 2:
            raise InputError(f"--group-column {self.name}: all samples are of one group, two or more are needed")
        return codes

    def about(self, data: LabelledData) -> str:
        return f"{len(np.unique(data.groups)):,} groups by {self.name}: samples of one are searched together"  # type: ignore[arg-type]
