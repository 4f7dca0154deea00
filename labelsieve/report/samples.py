"""The samples of a run, to be shown: pictures from their files, texts and rows as they are written in the source.

A sample is read when it is shown. Pictures are decoded and encoded again, so that no original bytes reach a page.
"""

from __future__ import annotations

import io
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.columns import TableX
from labelsieve.data.decode import open_checked, turn_upright
from labelsieve.data.pictures import PictureSequence
from labelsieve.errors import InputError
from labelsieve.files import safe_path
from labelsieve.labels_csv import LabelColumns
from labelsieve.report.source_state import UNCHANGED, RunSource, SourceState, SourceStatus, SourceTable, check_source
from labelsieve.runfolder import RunFolder
from labelsieve.types import Kind, LabelledData

MAX_TINY_SIDE = 64  # smaller pictures keep every pixel
COMPARED_SIDE = 16  # pixels of the copies that pictures are compared by
HIDDEN_COLUMNS = ("id", "true")  # `true` is for metrics only

Cells = tuple[tuple[str, str], ...]  # column names and cells


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
    cells: Cells


@dataclass(frozen=True)
class Missing:
    reason: str
    all_samples: bool = False  # the reason holds for every sample, and the page says so at the top


Sample = Picture | Text | Row | Missing


class Samples:
    """The samples behind the rows of labels.csv."""

    kind: Kind
    state: SourceState = UNCHANGED

    def read(self, row: int) -> Any:
        """A PIL picture, a str or a dict of cells; InputError if the sample cannot be read."""
        raise NotImplementedError

    def path(self, row: int) -> Path | None:
        """The file of a picture; None if it does not have one."""
        return None

    def other_cells(self, row: int) -> dict[str, Any]:
        """The other columns in the row of a text."""
        return {}

    def show(self, row: int, *, side: int = 1000) -> Sample:
        try:
            sample = self.read(row)
            if isinstance(sample, str):
                return Text(sample)
            if isinstance(sample, dict):
                return Row(_cells(sample))
            with sample:
                return render(sample, side)
        except InputError as problem:
            return Missing(str(problem), all_samples=not self.state.readable)
        except Exception as problem:  # decoders raise any error, and one sample must not stop the page
            return Missing(f"cannot be shown ({type(problem).__name__})")

    def cells(self, row: int) -> Cells:
        """`other_cells` as text."""
        try:
            return _cells(self.other_cells(row))
        except Exception:  # the text is shown without them
            return ()

    def pixels(self, row: int) -> NDArray[np.float32] | None:
        """A tiny copy of a picture for comparisons; None if it cannot be read."""
        try:
            with self.read(row) as picture:
                picture.draft("RGB", (2 * COMPARED_SIDE, 2 * COMPARED_SIDE))
                small = turn_upright(picture).resize((COMPARED_SIDE, COMPARED_SIDE))
        except Exception:  # as in `show`
            return None
        return np.asarray(small, dtype=np.float32) / np.float32(255)


def render(picture: Any, side: int) -> Picture:
    """Encode a picture with at most `side` pixels per side; tiny pictures without loss."""
    if max(picture.size) > side:
        picture.draft("RGB", (side, side))
    picture = turn_upright(picture)
    if max(picture.size) > side:
        picture.thumbnail((side, side))
    out = io.BytesIO()
    if max(picture.size) <= MAX_TINY_SIDE:
        picture.save(out, "PNG", optimize=True)
        return Picture(out.getvalue(), "image/png", *picture.size)
    picture.save(out, "WEBP", quality=80 if side > 400 else 72, method=2)
    return Picture(out.getvalue(), "image/webp", *picture.size)


def open_samples(run: RunFolder, columns: LabelColumns, state: SourceState | None = None) -> Samples:
    """The samples behind the rows of a run. A sample that may be another one by now is not shown."""
    state = state or check_source(run, columns)
    source = RunSource.of(run)
    samples: Samples
    if not state.readable:
        samples = NoSamples(source.kind, state)
    elif source.path is not None and source.path.is_dir():
        samples = FolderSamples(source.path, columns)
    elif source.is_table:
        table = source.table()
        if "path" in table.names and table.text == "text":
            samples = ListedPictures(table, columns)
        else:
            cls = TextSamples if table.text in table.names else RowSamples
            samples = cls(table, columns)
    else:
        samples = LoadedSamples(source, columns)
    samples.state = state
    return samples


class NoSamples(Samples):
    """A source that is missing or changed."""

    def __init__(self, kind: Kind, state: SourceState) -> None:
        self.kind = kind
        missing = state.status is SourceStatus.MISSING
        self.reason = "the source does not exist" if missing else "the source has changed"

    def read(self, row: int) -> Any:
        raise InputError(self.reason)


class FolderSamples(Samples):
    """Pictures in a folder; the ids are their names."""

    kind = "pictures"

    def __init__(self, root: Path, columns: LabelColumns) -> None:
        self.root, self.columns = root, columns

    def name(self, row: int) -> str:
        return self.columns.id(row)

    def read(self, row: int) -> Any:
        path = self.path(row)
        if path is None:
            raise InputError("outside the folder of the source")
        if not path.exists():
            raise InputError("the file is missing")
        return open_checked(path)

    def path(self, row: int) -> Path | None:
        return safe_path(self.root, self.name(row))


class ListedPictures(FolderSamples):
    """Pictures whose names are in a table."""

    def __init__(self, table: SourceTable, columns: LabelColumns) -> None:
        super().__init__(table.root, columns)
        self.table = table
        self.rows = table.rows_of(columns)

    def name(self, row: int) -> str:
        return str(self.table.cell("path", self.rows[row]))


class RowSamples(Samples):
    """Rows of a table, with every cell as it is written."""

    kind: Kind = "table"

    def __init__(self, table: SourceTable, columns: LabelColumns) -> None:
        self.table = table
        self.rows = table.rows_of(columns)
        hidden = (table.label, table.id, table.text, *HIDDEN_COLUMNS)
        self.shown = [name for name in table.names if name not in hidden]

    def read(self, row: int) -> Any:
        return {name: self.table.cell(name, self.rows[row]) for name in self.shown}


class TextSamples(RowSamples):
    """Texts in a table."""

    kind = "text"

    def read(self, row: int) -> Any:
        return str(self.table.cell(self.table.text, self.rows[row]) or "")

    def other_cells(self, row: int) -> dict[str, Any]:
        return dict(super().read(row))


class LoadedSamples(Samples):
    """Other sources: loaded completely at the first access, as the run read them."""

    def __init__(self, source: RunSource, columns: LabelColumns) -> None:
        self.source, self.columns = source, columns
        self.kind = "pictures" if source.name == "digits" else source.kind
        self._data: LabelledData | None = None
        self._index: dict[str, int] = {}  # the run may have skipped some samples
        self._lock = threading.Lock()

    def data(self) -> LabelledData:
        with self._lock:
            if self._data is None:
                self._data = self.source.load(labelled=False)
                self._index.update((id, i) for i, id in enumerate(self._data.ids.tolist()))
        return self._data

    def _position(self, row: int) -> int:
        """Position of a row of the run in the source."""
        n = len(self.data())
        by_id = self.columns.id(0) in self._index  # else the source has other ids now, in the same order
        i = self._index.get(self.columns.id(row), n) if by_id else row
        if i >= n:
            raise InputError("the source does not have this sample any more")
        return i

    def path(self, row: int) -> Path | None:
        x = self.data().x
        path = x.path(self._position(row)) if isinstance(x, PictureSequence) else None
        return None if path is None else Path(path).resolve()

    def read(self, row: int) -> Any:
        from PIL import Image

        data = self.data()
        i = self._position(row)
        if isinstance(data.x, TableX):
            return data.x.row(i)
        if (path := self.path(row)) is not None:
            return open_checked(path)
        value = data.x[i]
        if isinstance(value, str):
            return value
        value = np.asarray(value)
        if self.source.name == "digits":
            return Image.fromarray((255 * (1 - value.reshape(8, 8))).round().astype(np.uint8))
        if data.kind == "pictures":
            return Image.fromarray(np.asarray(value, dtype=np.uint8))
        return {f"x{j}": float(number) for j, number in enumerate(value.ravel())}


def _cells(row: dict[str, Any]) -> Cells:
    return tuple((str(name), _cell(value)) for name, value in row.items())


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
