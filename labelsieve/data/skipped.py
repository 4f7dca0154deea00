"""Samples that a run leaves out, each with its reason; they never stop a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from labelsieve.data.duplicates import DuplicateFiles
from labelsieve.errors import InputError
from labelsieve.types import LabelledData, Skipped, some_of

EXAMPLES = 5  # rows that a message names
NO_LABEL, EMPTY_TEXT, DROPPED = "no label", "empty text", "dropped"
NO_CLASS = "in no class folder"


def too_many(missing: Sequence[int], samples: int) -> bool:
    """Return whether half of the labels or files are missing: then the wrong column or folder was given."""
    return 2 * len(missing) >= samples


def about_left_out(what: str, rows: Sequence[int], place: Callable[[int], str]) -> str:
    """Say that rows without `what` are left out; `place` names a row ("line 4")."""
    unit, _, number = place(rows[0]).partition(" ")
    if len(rows) == 1:
        what = what.replace(" in them", " in it")
        return f"1 row without {what} is left out: {unit} {number}"
    some = ", ".join(place(row).partition(" ")[2] for row in rows[:EXAMPLES]) + ", ..." * (len(rows) > EXAMPLES)
    return f"{len(rows):,} rows without {what} are left out: {unit}s {some}"


def about_lost(samples: int, rows: Sequence[int], place: Callable[[int], str]) -> str:
    """Say that rows whose file does not exist are left out."""
    if len(rows) == 1:
        return f"1 of {samples:,} files does not exist and is left out: {place(rows[0])}"
    return f"{len(rows):,} of {samples:,} files do not exist and are left out, the first in {place(rows[0])}"


def about_loose(ids: Sequence[str]) -> str:
    """Say that pictures outside all class folders are left out."""
    if len(ids) == 1:
        return f"1 picture is in no class folder and is left out: {ids[0]}"
    return f"{len(ids):,} pictures are in no class folder and are left out, such as {ids[0]}"


def blank(texts: Iterable[Any]) -> list[int]:
    """Return the rows of empty texts."""
    return [row for row, text in enumerate(texts) if not str(text).strip()]


def without_blank(data: LabelledData, place: Callable[[int], str], note: Callable[[str], None]) -> LabelledData:
    """Leave out empty texts."""
    rows = blank(data.x) if data.kind == "text" else []
    if rows:
        note(about_left_out("a text", rows, place))
    return leave_out(data, dict.fromkeys(rows, EMPTY_TEXT))


def without_label(data: LabelledData, note: Callable[[str], None]) -> LabelledData:
    """Leave out samples whose label is missing (-1)."""
    rows = np.flatnonzero(data.y < 0).tolist()
    if rows:
        note(about_left_out("a label", rows, lambda row: f"id {data.ids[row]}"))
    return leave_out(data, dict.fromkeys(rows, NO_LABEL))


def leave_out(data: LabelledData, reasons: Mapping[int, str], same: DuplicateFiles | None = None) -> LabelledData:
    """Leave out the rows in `reasons` and add them to `skipped`."""
    if not reasons:
        return data
    kept = np.setdiff1d(np.arange(len(data)), np.fromiter(reasons, np.int64, len(reasons)))
    if not len(kept):
        first = min(reasons)
        raise InputError(
            f"{data.name}: none of its {len(data):,} samples is left ({data.ids[first]}: {reasons[first]})"
        )
    if same is not None:
        same.keep(kept)
    skipped = tuple(Skipped(str(data.ids[row]), reasons[row]) for row in sorted(reasons))
    return replace(
        data, x=some_of(data.x, kept), y=data.y[kept], ids=data.ids[kept], skipped=(*data.skipped, *skipped)
    )  # fmt: skip
