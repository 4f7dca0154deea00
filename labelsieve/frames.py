"""Results as a data frame, and as the HTML table that a notebook shows."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

SHOWN_SUSPECTS = 10  # fit on one screen
THUMBNAIL_SIDE = 96  # pixels
MAX_TEXT = 200  # characters of a sample
CELL = "text-align:left;padding:2px 12px 2px 0"


class Suspect(NamedTuple):
    """One row of the table: the sample as HTML, and its labels."""

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
    """Return a text, the cells of a row, or a picture (uint8 [height, width, channels]) as HTML."""
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
    return f'<img alt="" style="max-height:{THUMBNAIL_SIDE}px" src="data:{media};base64,{data}">'


def suspects_html(title: str, suspects: Iterable[Suspect]) -> str:
    """Return a heading and a table of suspects as HTML."""
    heads = "".join(f'<th style="{CELL}">{name}</th>' for name in ("sample", "label", "suggested", "suspicion"))
    rows = []
    for suspect in suspects:
        named = [html.escape(str(value)) for value in (suspect.label, suspect.suggested)]
        cells = (suspect.sample, *named, f"{suspect.suspicion:.2f}")
        rows.append("<tr>" + "".join(f'<td style="{CELL}">{cell}</td>' for cell in cells) + "</tr>")
    body = f"<table><tr>{heads}</tr>{''.join(rows)}</table>" if rows else "<p>No suspects.</p>"
    return f"<div><p><b>{html.escape(title)}</b></p>{body}</div>"
