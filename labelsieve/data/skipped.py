"""Samples that a run leaves out, each with its reason, as it does with pictures that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from labelsieve.data.duplicates import Same
from labelsieve.errors import InputError
from labelsieve.types import IntArray, LabelledData, Skipped

FEW = 5  # examples in one line
NO_LABEL, EMPTY_TEXT, DROPPED = "no label", "empty text", "dropped"
NO_CLASS, NO_FILE = "in no class folder", "the file is not there"


def too_many(missing: Sequence[int], samples: int) -> bool:
    """Where half of the labels, or of the files, are missing, they are probably somewhere else."""
    return 2 * len(missing) >= samples


def about_left_out(what: str, rows: Sequence[int], place: Callable[[int], str]) -> str:
    """How many rows are left out for want of `what`, and where the first few are (`place` names one)."""
    named, _, number = place(rows[0]).partition(" ")
    if len(rows) == 1:
        what = what.replace(" in them", " in it")
        return f"1 row without {what} is left out: {named} {number}"
    few = ", ".join(place(row).partition(" ")[2] for row in rows[:FEW]) + ", ..." * (len(rows) > FEW)
    return f"{len(rows):,} rows without {what} are left out: {named}s {few}"


def about_lost(samples: int, rows: Sequence[int], place: Callable[[int], str]) -> str:
    """How many rows are left out because their file is not there, and the first of them."""
    if len(rows) == 1:
        return f"1 of {samples:,} files is not there and is left out: {place(rows[0])}"
    return f"{len(rows):,} of {samples:,} files are not there and are left out, the first in {place(rows[0])}"


def about_loose(ids: Sequence[str]) -> str:
    """How many pictures lie beside the class folders, and the first of them."""
    if len(ids) == 1:
        return f"1 picture lies in no class folder and is left out: {ids[0]}"
    return f"{len(ids):,} pictures lie in no class folder and are left out, such as {ids[0]}"


def blank(texts: Iterable[Any]) -> list[int]:
    """Where nothing is written: nobody can say what that is."""
    return [row for row, text in enumerate(texts) if not str(text).strip()]


def without_blank(data: LabelledData, place: Callable[[int], str], note: Callable[[str], None]) -> LabelledData:
    """Texts without the empty ones, which nobody can judge."""
    rows = blank(data.x) if data.kind == "text" else []
    if rows:
        note(about_left_out("a text", rows, place))
    return leave_out(data, dict.fromkeys(rows, EMPTY_TEXT))


def without_label(data: LabelledData, note: Callable[[str], None]) -> LabelledData:
    """Without the samples whose label is missing (-1)."""
    rows = np.flatnonzero(data.y < 0).tolist()
    if rows:
        note(about_left_out("a label", rows, lambda row: f"id {data.ids[row]}"))
    return leave_out(data, dict.fromkeys(rows, NO_LABEL))


def some_of(x: Any, rows: IntArray) -> Any:
    """Samples of any kind, fewer of them."""
    return x.subset(rows) if hasattr(x, "subset") else x[rows]


def leave_out(
    data: LabelledData, reasons: Mapping[int, str], same: Same | None = None, *, none: str = "samples is left"
) -> LabelledData:
    """The data without the rows that `reasons` names; they go to `skipped`. `none` of all is an error's words."""
    if not reasons:
        return data
    kept = np.setdiff1d(np.arange(len(data)), np.fromiter(reasons, np.int64, len(reasons)))
    if not len(kept):
        first = min(reasons)
        raise InputError(f"{data.name}: none of its {len(data):,} {none} ({data.ids[first]}: {reasons[first]})")
    if same is not None and same.groups is not None:
        place = {row: at for at, row in enumerate(kept.tolist())}
        same.groups = [[place[row] for row in group if row in place] for group in same.groups]
    told = tuple(Skipped(str(data.ids[row]), reasons[row]) for row in sorted(reasons))
    return replace(
        data, x=some_of(data.x, kept), y=data.y[kept], ids=data.ids[kept], skipped=(*data.skipped, *told)
    )  # fmt: skip
