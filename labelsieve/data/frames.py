"""Data frames of pandas and polars as pyarrow tables. Neither library is imported here."""

from __future__ import annotations

import sys
from typing import Any

from labelsieve.errors import InputError


def is_frame(x: Any) -> bool:
    """Whether x is a data frame of pandas or polars."""
    return is_pandas(x) or _is_from("polars", x)


def is_pandas(x: Any) -> bool:
    """Whether x is a data frame of pandas."""
    return _is_from("pandas", x)


def _is_from(library: str, x: Any) -> bool:
    module = sys.modules.get(library)
    return module is not None and isinstance(x, module.DataFrame)


def check_names(frame: Any) -> None:
    """Raise InputError if two columns of a data frame have the same name."""
    names = list(map(str, frame.columns))
    if repeated := [name for name in names if names.count(name) > 1]:
        raise InputError(f"X: several columns are called {repeated[0]!r}; rename all but one")


def frame_table(frame: Any) -> Any:
    """A data frame as a pyarrow table. A column with values of several types becomes text."""
    import pyarrow as pa

    names = list(map(str, frame.columns))
    if not is_pandas(frame):
        table = frame.to_arrow()
        plain = [_plain_text(field) for field in table.schema]
        return table.cast(pa.schema(plain))
    return pa.Table.from_arrays([_column(frame.iloc[:, at]) for at in range(len(names))], names=names)


def _plain_text(field: Any) -> Any:
    """A column of polars whose texts are views, which few functions of pyarrow accept, as one of plain texts."""
    import pyarrow as pa

    return field.with_type(pa.large_string()) if pa.types.is_string_view(field.type) else field


def _column(series: Any) -> Any:
    import pyarrow as pa

    if series.dtype.kind == "c":
        raise InputError(f"X: column {series.name!r} holds complex numbers; turn them into plain numbers, or drop it")
    try:
        return pa.array(series, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        missing = series.isna()
        return pa.array([None if gap else str(value) for value, gap in zip(series, missing, strict=True)], pa.string())
