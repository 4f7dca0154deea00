"""A run's samples, to be looked at again: pictures from their files, texts and rows as they were written.

Nothing is read before it is shown, and nothing shown is the original bytes: a picture is decoded and encoded anew.
"""

from __future__ import annotations

import csv
import io
import os
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.source import TABLES
from labelsieve.errors import InputError
from labelsieve.report.columns import Columns
from labelsieve.runfolder import RunFolder
from labelsieve.types import IntArray, Kind

TINY = 64  # pictures up to this side keep every pixel
NOT_SHOWN = ("id", "true")  # `true` is for metrics alone


@dataclass(frozen=True)
class Picture:
    data: bytes
    media: str
    width: int
    height: int


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Row:
    cells: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Missing:
    reason: str


Sample = Picture | Text | Row | Missing


@dataclass(frozen=True)
class Samples:
    """`look(row)` gives a PIL picture, a str, a dict of cells, or raises; everything else is made from that."""

    kind: Kind
    look: Callable[[int], Any]

    def show(self, row: int, *, side: int = 1000) -> Sample:
        try:
            seen = self.look(row)
            if isinstance(seen, str):
                return Text(seen)
            if isinstance(seen, dict):
                return Row(tuple((str(name), _cell(value)) for name, value in seen.items()))
            with seen:
                return render(seen, side)
        except InputError as problem:
            return Missing(str(problem))
        except Exception as problem:  # a decoder's whatever: one sample that cannot be shown must not stop the page
            return Missing(f"cannot be shown ({type(problem).__name__})")

    def pixels(self, row: int, side: int = 16) -> NDArray[np.float32] | None:
        """A tiny copy of a picture, for comparing; None where it cannot be read."""
        try:
            with self.look(row) as seen:
                seen.draft("RGB", (2 * side, 2 * side))
                small = upright(seen).resize((side, side))
        except Exception:  # as above
            return None
        return np.asarray(small, dtype=np.float32) / np.float32(255)


def upright(picture: Any) -> Any:
    """RGB, turned as EXIF says, white where it was transparent."""
    from PIL import Image, ImageOps

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        picture = ImageOps.exif_transpose(picture)
        if picture.mode.startswith("I") or picture.mode == "F":
            values = np.asarray(picture, dtype=np.float64)
            top = 65535.0 if values.max(initial=0) > 255 else 255.0
            picture = Image.fromarray(np.clip(values * (255.0 / top), 0, 255).astype(np.uint8))
        if "A" in picture.mode or "a" in picture.mode or "transparency" in picture.info:
            picture = picture.convert("RGBA")
            picture = Image.alpha_composite(Image.new("RGBA", picture.size, (255, 255, 255, 255)), picture)
        return picture.convert("RGB")


def render(picture: Any, side: int) -> Picture:
    """At most `side` pixels wide and high; tiny pictures as they are, without loss."""
    if max(picture.size) > side:
        picture.draft("RGB", (side, side))
    picture = upright(picture)
    if max(picture.size) > side:
        picture.thumbnail((side, side))
    out = io.BytesIO()
    if max(picture.size) <= TINY:
        picture.save(out, "PNG", optimize=True)
        return Picture(out.getvalue(), "image/png", *picture.size)
    picture.save(out, "WEBP", quality=80 if side > 400 else 72, method=2)
    return Picture(out.getvalue(), "image/webp", *picture.size)


def open_samples(run: RunFolder, columns: Columns) -> Samples:
    """The samples behind a run's rows. A source that is gone is said at each sample."""
    data = run.record().get("data") or {}
    settings = run.record().get("settings") or {}
    source, kind = str(data.get("source") or ""), data.get("kind", "table")
    path = find_source(run, source)
    if path is not None and path.is_dir() and ":" not in source:
        return Samples("pictures", _from_files(path, columns.id))
    if path is not None and path.suffix.lower() in TABLES:
        return _from_table(SourceTable.read(path, settings), columns)
    if source == "digits":
        kind = "pictures"
    return Samples(kind, _from_loader(source if path is None or ":" in source else str(path), settings))


def find_source(run: RunFolder, source: str) -> Path | None:
    """The source's file or folder: as it was named, or from where the run folder lies."""
    if not source:
        return None
    for base in (Path(), run.path.resolve().parent):
        if os.path.exists(base / source):  # noqa: PTH110 - unlike Path's, it raises at no name
            return base / source
    return None


def _from_files(root: Path, name: Callable[[int], str]) -> Callable[[int], Any]:
    from labelsieve.data.pictures import open_checked, safe_path

    def look(row: int) -> Any:
        path = safe_path(root, name(row))
        if path is None:
            raise InputError("leads outside the source's folder")
        if not path.is_file():
            raise InputError("the file is no longer there")
        return open_checked(path)

    return look


@dataclass(frozen=True)
class SourceTable:
    """A source's table with every cell as it was written, and which column is what."""

    path: Path
    table: Any  # pyarrow; strings where the file is CSV
    label: str
    root: Path
    text: str = "text"
    id: str = "id"

    @classmethod
    def read(cls, path: Path, settings: dict[str, Any], *, typed: bool = False) -> SourceTable:
        """With `typed`, columns of numbers are numbers; without, every cell is the text that was written."""
        import pyarrow as pa
        import pyarrow.csv as pc
        import pyarrow.parquet as pq

        root = settings.get("root")
        label = str(settings.get("label_column") or "label")
        named = {"text": str(settings.get("text_column") or "text"), "id": str(settings.get("id_column") or "id")}
        if path.suffix.lower() in (".parquet", ".pq"):
            return cls(path, pq.read_table(path), label, Path(root) if root else path.parent, **named)
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
        delimiter = next((mark for mark in (",", "\t", ";") if mark in first), ",")
        parse = pc.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        try:
            names = ("id", "path", "text", "true", label, *named.values()) if typed else _header(path, delimiter)
            table = pc.read_csv(
                path,
                parse_options=parse,
                convert_options=pc.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
                ),
            )
        except pa.ArrowInvalid as problem:
            raise InputError(f"{path} cannot be read any more ({str(problem).splitlines()[0]})") from None
        return cls(path, table, label, Path(root) if root else path.parent, **named)

    @property
    def names(self) -> list[str]:
        return [str(name) for name in self.table.column_names]

    def rows_of(self, columns: Columns) -> IntArray:
        """The table's row of each sample: by id, by path, else by number. -1 where the row is gone."""
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted = (self.id, "path") if self.text == "text" else (self.id,)  # named texts win over paths
        named = next((name for name in wanted if name in self.names), None)
        if named is None:
            own: Any = pa.array(np.arange(self.table.num_rows)).cast(pa.string())
        else:
            own = self.table.column(named).cast(pa.string()).combine_chunks()
        if len(own) == len(columns) and own.equals(columns.ids):
            return np.arange(len(columns))
        found = pc.index_in(columns.ids, value_set=own).fill_null(-1)
        return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int64)


def _header(path: Path, delimiter: str) -> list[str]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        return next(csv.reader(file, delimiter=delimiter), [])


def _from_table(source: SourceTable, columns: Columns) -> Samples:
    table, names = source.table, source.names
    rows = source.rows_of(columns)

    def at(row: int) -> int:
        if rows[row] < 0:
            raise InputError("the source no longer has this row")
        return int(rows[row])

    if "path" in names and source.text == "text":
        return Samples("pictures", _from_files(source.root, lambda row: str(table.column("path")[at(row)].as_py())))
    if source.text in names:
        return Samples("text", lambda row: str(table.column(source.text)[at(row)].as_py() or ""))
    shown = [name for name in names if name not in (source.label, source.id, *NOT_SHOWN)]
    return Samples("table", lambda row: {name: table.column(name)[at(row)].as_py() for name in shown})


def _from_loader(source: str, settings: dict[str, Any]) -> Callable[[int], Any]:
    """Sources that are not plain files: loaded whole at the first look."""
    loaded: list[Any] = []
    lock = threading.Lock()

    def look(row: int) -> Any:
        from PIL import Image

        with lock:
            if not loaded:
                from labelsieve.data.source import load_source

                if not source:
                    raise InputError("this run does not say where its samples came from")
                loaded.append(load_source(source))
        data = loaded[0]
        if row >= len(data):
            raise InputError("the source no longer has this sample")
        if hasattr(data.x, "row"):
            return data.x.row(row)
        if hasattr(data.x, "path") and callable(data.x.path):
            from labelsieve.data.pictures import open_checked

            return open_checked(data.x.path(row))
        value = data.x[row]
        if isinstance(value, str):
            return value
        value = np.asarray(value)
        if source == "digits":
            return Image.fromarray((255 * (1 - value.reshape(8, 8))).round().astype(np.uint8))
        if data.kind == "pictures":
            return Image.fromarray(np.asarray(value, dtype=np.uint8))
        return {f"x{i}": float(number) for i, number in enumerate(value.ravel())}

    return look


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
