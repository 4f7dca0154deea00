"""A run's samples, to be looked at again: pictures from their files, texts and rows as they were written.

Nothing is read before it is shown, and nothing shown is the original bytes: a picture is decoded and encoded anew.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.columns import TableX
from labelsieve.data.decode import open_checked
from labelsieve.data.decode import upright as upright
from labelsieve.data.duplicates import DuplicateFiles, Groups, conflicting, same_files
from labelsieve.data.pictures import PictureFiles, PictureSequence
from labelsieve.data.source import TABLES
from labelsieve.errors import InputError
from labelsieve.labels_csv import LabelColumns, index_in
from labelsieve.report.source_table import SourceTable, find_source
from labelsieve.report.unchanged import trouble
from labelsieve.runfolder import RunFolder
from labelsieve.types import Kind, LabelledData

TINY = 64  # pictures up to this side keep every pixel
GONE, CHANGED = "the source is not there", "the source changed: another sample may have this number now"
NOT_SHOWN = ("id", "true")  # `true` is for metrics alone

Cells = tuple[tuple[str, str], ...]  # names and what is written there


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


Sample = Picture | Text | Row | Missing


@dataclass(frozen=True)
class Samples:
    """`look(row)` gives a PIL picture, a str, a dict of cells, or raises; everything else is made from that."""

    kind: Kind
    look: Callable[[int], Any]
    notice: str = ""  # what is wrong with all of them, to be said once
    beside: Callable[[int], dict[str, Any]] | None = None  # the other columns of a text's row
    same: Callable[[], Groups] | None = None  # rows whose samples are exactly the same; takes a while

    def show(self, row: int, *, side: int = 1000) -> Sample:
        try:
            seen = self.look(row)
            if isinstance(seen, str):
                return Text(seen)
            if isinstance(seen, dict):
                return Row(_cells(seen))
            with seen:
                return render(seen, side)
        except InputError as problem:
            return Missing(str(problem))
        except Exception as problem:  # a decoder's whatever: one sample that cannot be shown must not stop the page
            return Missing(f"cannot be shown ({type(problem).__name__})")

    def cells(self, row: int) -> Cells:
        """What else the row of a text says."""
        try:
            return _cells(self.beside(row)) if self.beside is not None else ()
        except Exception:  # the text itself is missing then, which is said; or one cell is odd, and not worth the text
            return ()

    def pixels(self, row: int, side: int = 16) -> NDArray[np.float32] | None:
        """A tiny copy of a picture, for comparing; None where it cannot be read."""
        try:
            with self.look(row) as seen:
                seen.draft("RGB", (2 * side, 2 * side))
                small = upright(seen).resize((side, side))
        except Exception:  # as above
            return None
        return np.asarray(small, dtype=np.float32) / np.float32(255)


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


def open_samples(run: RunFolder, columns: LabelColumns) -> Samples:
    """The samples behind a run's rows. That the source is gone or changed is in `notice`; a sample that may be another
    one by now is not shown."""
    found = trouble(run, columns)
    if found is None:
        return _open(run, columns)
    if found.gone or found.numbered:
        kind = (run.record().get("data") or {}).get("kind", "table")
        return Samples(kind, _nothing(GONE if found.gone else CHANGED), notice=found.told)
    return replace(_open(run, columns), notice=found.told)


def _nothing(reason: str) -> Callable[[int], Any]:
    def look(row: int) -> Any:
        raise InputError(reason)

    return look


def _open(run: RunFolder, columns: LabelColumns) -> Samples:
    data = run.record().get("data") or {}
    settings = run.record().get("settings") or {}
    source, kind = str(data.get("source") or ""), data.get("kind", "table")
    path = find_source(run, source)
    if path is not None and path.is_dir():
        return _of_files(path, columns.id, len(columns))
    loaded = Loaded(source if path is None else str(path), settings, columns)
    if path is not None and path.suffix.lower() in TABLES:
        return _from_table(SourceTable.read(path, settings), columns, loaded)
    if source == "digits":
        kind = "pictures"
    return Samples(kind, loaded.look, same=loaded.same)


def _of_files(root: Path, name: Callable[[int], str], n: int) -> Samples:
    from labelsieve.data.pictures import safe_path

    def look(row: int) -> Any:
        path = safe_path(root, name(row))
        if path is None:
            raise InputError("leads outside the source's folder")
        if not path.is_file():
            raise InputError("the file is no longer there")
        return open_checked(path)

    def named(row: int) -> Path | None:
        try:
            return safe_path(root, name(row))
        except InputError:
            return None

    return Samples("pictures", look, same=lambda: same_files([named(row) for row in range(n)]))


def _from_table(source: SourceTable, columns: LabelColumns, loaded: Loaded) -> Samples:
    table, names = source.table, source.names
    rows = source.rows_of(columns)

    def at(row: int) -> int:
        if rows[row] < 0:
            raise InputError("the source no longer has this row")
        return int(rows[row])

    if "path" in names and source.text == "text":
        return _of_files(source.root, lambda row: str(table.column("path")[at(row)].as_py()), len(columns))
    shown = [name for name in names if name not in (source.label, source.id, *NOT_SHOWN)]
    if source.text not in names:
        return Samples(
            "table", lambda row: {name: table.column(name)[at(row)].as_py() for name in shown}, same=loaded.same
        )
    shown = [name for name in shown if name != source.text]

    def same() -> Groups:
        texts = table.column(source.text).to_pylist()
        return _equal([texts[i] or "" if i >= 0 else "" for i in rows.tolist()], "text")

    return Samples(
        "text",
        lambda row: str(table.column(source.text)[at(row)].as_py() or ""),
        beside=lambda row: {name: table.column(name)[at(row)].as_py() for name in shown},
        same=same,
    )


def _equal(x: Any, kind: Kind) -> Groups:
    """Samples that are there more than once: as if every one had a label of its own, which conflicts then."""
    return conflicting(LabelledData(x, np.arange(len(x)), (), np.zeros(0, dtype=str), kind), DuplicateFiles())


class Loaded:
    """Sources that are not plain files: loaded whole at the first look, as the run read them, labels aside."""

    def __init__(self, source: str, settings: dict[str, Any], columns: LabelColumns) -> None:
        self.source, self.settings, self.columns = source, settings, columns
        self._data: LabelledData | None = None
        self._place: dict[str, int] = {}  # a run may have left some samples out
        self._lock = threading.Lock()

    def data(self) -> LabelledData:
        with self._lock:
            if self._data is None:
                from labelsieve.data.source import ReadOptions, load_source

                if not self.source:
                    raise InputError("this run does not say where its samples came from")
                self._data = load_source(self.source, ReadOptions.of_run(self.settings, labelled=False))
                self._place.update((id, i) for i, id in enumerate(self._data.ids.tolist()))
        return self._data

    def look(self, row: int) -> Any:
        from PIL import Image

        data = self.data()
        name, place = self.columns.id, self._place
        named = name(0) in place  # else the source has other names for its samples by now, in the order they had
        if row >= len(data) if not named else name(row) not in place:
            raise InputError("the source no longer has this sample")
        row = place[name(row)] if named else row
        if isinstance(data.x, TableX):
            return data.x.row(row)
        if isinstance(data.x, PictureSequence) and (path := data.x.path(row)) is not None:
            return open_checked(path)
        value = data.x[row]
        if isinstance(value, str):
            return value
        value = np.asarray(value)
        if self.source == "digits":
            return Image.fromarray((255 * (1 - value.reshape(8, 8))).round().astype(np.uint8))
        if data.kind == "pictures":
            return Image.fromarray(np.asarray(value, dtype=np.uint8))
        return {f"x{i}": float(number) for i, number in enumerate(value.ravel())}

    def same(self) -> Groups:
        import pyarrow as pa

        data = self.data()
        if isinstance(data.x, PictureFiles):
            groups = same_files([data.x.path(i) for i in range(len(data))])
        else:
            groups = _equal(data.x, data.kind)
        # From the source's rows to the run's, which may have left some out.
        own = index_in(pa.array(data.ids.tolist(), pa.string()), self.columns.ids)
        found = ([row for row in own[group].tolist() if row >= 0] for group in groups)
        return [group for group in found if len(group) > 1]


def _cells(seen: dict[str, Any]) -> Cells:
    return tuple((str(name), _cell(value)) for name, value in seen.items())


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
