"""Results as a data frame, and as the HTML table that a notebook shows."""

from __future__ import annotations

import base64
import html
import io
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from labelsieve.errors import InputError

SHOWN_SUSPECTS = 10  # fit on one screen
THUMBNAIL_SIDE = 96  # pixels
SMALLEST_SIDE = 48  # pixels; smaller pictures are enlarged
MAX_TEXT = 200  # characters of a sample
CELL = "text-align:left;padding:2px 12px 2px 0"


class Suspect(NamedTuple):
    """One row of the table: id or row number, the sample as HTML, and its labels."""

    id: Any
    sample: str
    label: Any
    suggested: Any
    suspicion: float


def installed_frame(columns: Any) -> Any:
    """Return an arrow table, or arrays by name, as a data frame of pandas, else of polars, else as an arrow table."""
    import pyarrow as pa

    table = pa.table(dict(columns)) if isinstance(columns, Mapping) else columns
    try:
        return table.to_pandas()
    except ImportError:
        pass
    try:
        import polars
    except ImportError:
        return table
    return polars.from_arrow(table)


def sample_html(sample: Any) -> str:
    """Return a text, a row (numbers, or cells by column) or a picture (uint8 [height, width, channels]) as HTML."""
    if isinstance(sample, Mapping):
        sample = ", ".join(f"{name}: {cell}" for name, cell in sample.items() if cell is not None)
    if isinstance(sample, np.ndarray) and sample.ndim == 3 and sample.dtype == np.uint8:
        from PIL import Image

        picture = Image.fromarray(sample[..., 0] if sample.shape[2] == 1 else sample[..., :3])
        picture.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
        out = io.BytesIO()
        picture.save(out, "PNG")
        return picture_html(out.getvalue(), "image/png")
    text = sample if isinstance(sample, str) else np.array2string(np.asarray(sample), threshold=12, precision=4)
    return html.escape(text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}\u2026")


def picture_html(content: bytes, media: str) -> str:
    """Return an encoded picture as HTML."""
    data = base64.b64encode(content).decode("ascii")
    style = f"min-height:{SMALLEST_SIDE}px;max-height:{THUMBNAIL_SIDE}px;image-rendering:pixelated"
    return f'<img alt="" style="{style}" src="data:{media};base64,{data}">'


def suspects_html(title: str, suspects: Iterable[Suspect]) -> str:
    """Return a heading and a table of suspects as HTML."""
    heads = "".join(f'<th style="{CELL}">{name}</th>' for name in ("id", "sample", "label", "suggested", "suspicion"))
    rows = []
    for suspect in suspects:
        named = [html.escape(str(value)) for value in (suspect.label, suspect.suggested)]
        cells = (html.escape(str(suspect.id)), suspect.sample, *named, f"{suspect.suspicion:.2f}")
        rows.append("<tr>" + "".join(f'<td style="{CELL}">{cell}</td>' for cell in cells) + "</tr>")
    body = f"<table><tr>{heads}</tr>{''.join(rows)}</table>" if rows else "<p>No suspects.</p>"
    return f"<div><p><b>{html.escape(title)}</b></p>{body}</div>"


def is_frame(x: Any) -> bool:
    """Whether x is a data frame of pandas or polars."""
    modules = (sys.modules.get(name) for name in ("pandas", "polars"))
    return any(module is not None and isinstance(x, module.DataFrame) for module in modules)


def is_pandas(x: Any) -> bool:
    """Whether x is a data frame or a series of pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(x, pandas.DataFrame | pandas.Series)


def check_columns(frame: Any) -> None:
    """Raise InputError if two columns of a data frame have the same name, or one holds complex numbers."""
    names = list(map(str, frame.columns))
    if repeated := [name for name in names if names.count(name) > 1]:
        raise InputError(f"X: several columns are called {repeated[0]!r}; rename all but one")
    for name, dtype in zip(names, frame.dtypes, strict=True):
        if isinstance(dtype, np.dtype) and dtype.kind == "c":  # polars has no complex numbers
            raise InputError(f"X: column {name!r} holds complex numbers; turn them into plain numbers, or drop it")


def frame_table(frame: Any) -> Any:
    """A data frame as a pyarrow table. A column with values of several types, periods or intervals becomes text."""
    import pyarrow as pa

    names = list(map(str, frame.columns))
    if not is_pandas(frame):
        table = frame.to_arrow()
        # Few functions of pyarrow accept the text views of polars.
        views = {field.name for field in table.schema if pa.types.is_string_view(field.type)}
        plain = [field.with_type(pa.large_string()) if field.name in views else field for field in table.schema]
        return table.cast(pa.schema(plain))
    return pa.Table.from_arrays([_column(frame.iloc[:, at]) for at in range(len(names))], names=names)


def _column(series: Any) -> Any:
    import pyarrow as pa

    try:
        array = pa.array(series, from_pandas=True)
        type = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
        if not isinstance(type, pa.BaseExtensionType):  # periods and intervals have types that few functions accept
            return array
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        pass
    missing = series.isna()
    return pa.array([None if gap else str(value) for value, gap in zip(series, missing, strict=True)], pa.string())
