"""A table of numbers and categories with gaps, as the finite float32 matrix that every model can read.

A number column is kept, its gaps filled with the median, and a column of 0 and 1 says where they were. A category
column becomes one column a level (the rarest beyond `MOST_LEVELS` share one), a gap being a level of its own. Labels
play no part. What was learnt from one table (`Encoding`) is plain JSON and reads the next one the same way.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labelsieve.errors import InputError

MOST_LEVELS = 50


@dataclass(frozen=True)
class Column:
    name: str
    kind: Literal["number", "category"]
    median: float = 0.0
    gaps: bool = False  # were there any: then a column says where
    levels: tuple[str, ...] = ()
    others: bool = False  # does a column stand for every other level

    @property
    def width(self) -> int:
        return 1 + self.gaps if self.kind == "number" else len(self.levels) + self.others


@dataclass(frozen=True)
class Encoding:
    columns: tuple[Column, ...] = field(default=())

    @property
    def width(self) -> int:
        return sum(column.width for column in self.columns)

    def to_json(self) -> list[dict[str, Any]]:
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_json(cls, content: list[dict[str, Any]]) -> Encoding:
        return cls(tuple(Column(**{**entry, "levels": tuple(entry["levels"])}) for entry in content))


class TableX:
    """The encoded matrix, which is what indexing and numpy see, beside the rows as the user wrote them."""

    ndim = 2

    def __init__(self, matrix: NDArray[np.float32], encoding: Encoding, table: Any) -> None:
        self.matrix, self.encoding, self.table = matrix, encoding, table

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]

    @property
    def dtype(self) -> np.dtype[np.float32]:
        return self.matrix.dtype

    def __len__(self) -> int:
        return len(self.matrix)

    def __getitem__(self, index: Any) -> Any:
        return self.matrix[index]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.matrix, dtype=dtype, copy=copy)

    def row(self, i: int) -> dict[str, Any]:
        """One sample as it was written, for a person to look at."""
        return {name: self.table.column(name)[i].as_py() for name in self.table.column_names}


def encode_table(table: Any, *, where: str, encoding: Encoding | None = None) -> TableX:
    """A pyarrow table of feature columns to `TableX`; with `encoding`, as another table was read."""
    if encoding is None:
        encoding = Encoding(tuple(_learn(name, table.column(name), where) for name in table.column_names))
    lacking = [column.name for column in encoding.columns if column.name not in table.column_names]
    if lacking:
        raise InputError(f"{where} lacks the columns {', '.join(lacking)} that the model was trained with")
    matrix = np.zeros((table.num_rows, encoding.width), dtype=np.float32)
    at = 0
    for column in encoding.columns:
        _fill(matrix[:, at : at + column.width], column, table.column(column.name), where)
        at += column.width
    return TableX(matrix, encoding, table.select([column.name for column in encoding.columns]))


def _is_number(values: Any) -> bool:
    import pyarrow as pa

    kind = values.type
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _numbers(values: Any, name: str, where: str) -> NDArray[np.float64]:
    """Float64 with nan for gaps; infinite values are refused."""
    import pyarrow as pa

    numbers = np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
    if np.isinf(numbers).any():
        row = int(np.isinf(numbers).argmax())
        raise InputError(f"{where}: column {name!r} is infinite in row {row + 1}")
    return numbers


def _texts(values: Any) -> list[str]:
    # A gap and an empty cell are the same to whoever wrote the file.
    return ["" if value is None else str(value) for value in values.to_pylist()]


def _learn(name: str, values: Any, where: str) -> Column:
    if _is_number(values):
        numbers = _numbers(values, name, where)
        known = numbers[~np.isnan(numbers)]
        return Column(
            name, "number", median=float(np.median(known)) if len(known) else 0.0, gaps=len(known) < len(numbers)
        )
    levels, counts = np.unique(_texts(values), return_counts=True)
    if len(levels) <= MOST_LEVELS:
        return Column(name, "category", levels=tuple(levels.tolist()))
    # Ties by name, so that the choice does not hang on the order of the rows.
    kept = np.lexsort((levels, -counts))[: MOST_LEVELS - 1]
    return Column(name, "category", levels=tuple(sorted(levels[kept].tolist())), others=True)


def _fill(out: NDArray[np.float32], column: Column, values: Any, where: str) -> None:
    if column.kind == "number":
        if not _is_number(values) and values.null_count < len(values):
            raise InputError(f"{where}: column {column.name!r} holds text where the model was trained with numbers")
        numbers = _numbers(values, column.name, where)
        gaps = np.isnan(numbers)
        out[:, 0] = np.where(gaps, column.median, numbers)
        if column.gaps:
            out[:, 1] = gaps
        return
    position = {level: i for i, level in enumerate(column.levels)}
    elsewhere = len(column.levels) if column.others else -1
    at = np.array([position.get(text, elsewhere) for text in _texts(values)], dtype=np.int64)
    known = np.flatnonzero(at >= 0)
    out[known, at[known]] = 1
