"""Lines of decisions.csv, as labelsieve writes them and as a spreadsheet saves them.

A spreadsheet may put semicolons or tabs between cells, a mark before the first and blanks around them; somebody who
writes the file by hand may leave out the time, and the line break at the end. What is a decision is read as one; a line
that is none is known by its number, so that nobody's decision is lost without a word.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple


class Decision(NamedTuple):
    """One line of decisions.csv."""

    id: str
    decision: str  # keep, relabel, drop or undo
    label: str  # the label decided on; empty for drop and undo
    time: str


class Line(NamedTuple):
    number: int  # from 1, as an editor counts
    made: Decision | None  # None: its cells are not those of a decision


def read_lines(lines: Sequence[str]) -> list[Line]:
    """Every line that is filled, but the one with the names of the columns."""
    delimiter = ","
    columns: tuple[str, ...] = Decision._fields
    found = []
    for number, line in enumerate(lines, start=1):
        text = line.rstrip("\r")
        if number == 1 and (names := _names(text.removeprefix("\ufeff"))) is not None:
            delimiter, columns = names
        elif text.strip(",;\t "):
            found.append(Line(number, _decision(text, delimiter, columns)))
    return found


def is_whole(lines: Sequence[str], last: str) -> bool:
    """Is `last`, which no line break ends, a decision nevertheless?

    It is where its time is there to the end, or where the lines before it were written by hand, without times. Else it
    may be the first half of "relabel, catfish" when it says "relabel, cat".
    """
    *before, made = [line.made for line in read_lines([*lines, last])] or [None]
    if made is None or not lines:
        return False
    by_hand = own_form(lines) != list(lines) or any(other is not None and not other.time for other in before)
    return by_hand or _is_time(made.time)


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def own_form(lines: Sequence[str]) -> list[str]:
    """The same lines as labelsieve writes them, so that it can add to them. What is no decision stays as it is."""
    names = _names(lines[0].rstrip("\r").removeprefix("\ufeff")) if lines else None
    if names is None or (lines[0], names) == (",".join(Decision._fields), (",", Decision._fields)):
        return list(lines)
    made = {line.number: line.made for line in read_lines(lines)}
    rest = [csv_line(found) if (found := made.get(i)) else line for i, line in enumerate(lines[1:], start=2)]
    return [",".join(Decision._fields), *rest]


def _names(text: str) -> tuple[str, tuple[str, ...]] | None:
    """What stands between the cells, and their names, where this line has them."""
    for delimiter in ",;\t":
        names = tuple(name.strip().lower() for name in _cells(text, delimiter))
        if {"id", "decision"} <= set(names):
            return delimiter, names
    return None


def _decision(text: str, delimiter: str, columns: tuple[str, ...]) -> Decision | None:
    cells = _cells(text, delimiter)
    needed = 1 + max(columns.index("id"), columns.index("decision"))
    if not needed <= len(cells) <= len(columns):
        return None
    told = dict(zip(columns, cells, strict=False))
    made = told["decision"].strip().lower()
    return Decision(told["id"], made, told.get("label", ""), told.get("time", ""))


def csv_line(cells: Iterable[str]) -> str:
    """One decision stays one line of the file, whatever a class or a file is called."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(one_line(cell) for cell in cells)
    return line.getvalue()


def one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")


def _cells(text: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([text], delimiter=delimiter), [])
    except csv.Error:  # a cell longer than any id
        return []
