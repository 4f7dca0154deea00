"""The book of decisions: what a person said of each sample, saved before it is answered.

decisions.csv is a journal: a line a decision, appended and synced, the last line of a sample counts. Many decisions at
once (and their undoing) are written beside the file and renamed over it, so a crash leaves all of them or none.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelsieve.decisions import Decision, csv_line, one_line, own_form, read_lines
from labelsieve.errors import InputError
from labelsieve.files import atomic_writer, lines_of
from labelsieve.report.columns import Columns
from labelsieve.runfolder import RunFolder
from labelsieve.types import BoolArray, IntArray

DECISIONS = ("undo", "keep", "relabel", "drop")  # codes of Book.state; "undo" is undecided
UNDECIDED, KEEP, RELABEL, DROP = range(4)
REMEMBERED = 1000
MICROSECONDS = len("2020-01-01T00:00:00.000000+00:00")


class Made(NamedTuple):
    """What stands for a sample: a code of DECISIONS and the class code that goes with it (-1: none)."""

    state: int
    label: int


NOTHING = Made(UNDECIDED, -1)


class Change(NamedTuple):
    row: int
    before: Made
    after: Made


@dataclass
class Window:
    """What one window did, to take back and do again."""

    done: list[list[Change]] = field(default_factory=list)
    undone: list[list[Change]] = field(default_factory=list)


class ConflictError(Exception):
    """Another window decided on the sample in the meantime."""

    def __init__(self, row: int) -> None:
        super().__init__("another window decided on this sample in the meantime")
        self.row = row


class Book:
    def __init__(self, run: RunFolder, columns: Columns) -> None:
        self.run, self.columns = run, columns
        self.state: NDArray[np.int8] = np.zeros(len(columns), dtype=np.int8)
        self.label: NDArray[np.int32] = np.full(len(columns), -1, dtype=np.int32)
        self.decided: BoolArray = np.zeros(len(columns), dtype=bool)  # kept, not computed: it is asked at every key
        self.versions: dict[int, int] = {}
        self.windows: dict[str, Window] = {}
        self.not_understood: list[str] = []  # lines of decisions.csv that are no decision on a sample of this run
        self._foreign = False  # the file was saved by another program, in another form or without its last line break
        self._earlier: list[list[Change]] = []
        self._lock = threading.RLock()
        self._read()

    def passed_over(self) -> str:
        """The first line that is no decision, and how many more; empty where all are."""
        first, *more = self.not_understood or [""]
        return first + (f" (and {len(more):,} more line{'s' * (len(more) > 1)})" if more else "")

    def made(self, row: int) -> Made:
        return Made(int(self.state[row]), int(self.label[row]))

    def version(self, row: int) -> int:
        return self.versions.get(row, 0)

    def decide(self, row: int, made: Made, *, seen: int, window: str) -> None:
        """Save one decision. `seen` is the version the window looked at."""
        with self._lock:
            self._check(row, made)
            if self.version(row) != seen:
                raise ConflictError(row)
            before = self.made(row)
            self._save([(row, made)])
            mine = self._window(window)
            mine.done.append([Change(row, before, made)])
            mine.undone.clear()
            del mine.done[:-REMEMBERED]

    def accept(self, rows: IntArray, *, window: str) -> list[int]:
        """Take the suggestion for every one of `rows` that is undecided and has one; all are saved or none."""
        with self._lock:
            suggested = self.columns.suggested[rows]
            open_rows = rows[~self.decided[rows] & (suggested >= 0) & (suggested != self.columns.label[rows])]
            saved = [(int(row), Made(RELABEL, int(self.columns.suggested[row]))) for row in open_rows]
            if saved:
                self._save(saved)
                mine = self._window(window)
                mine.done.append([Change(row, NOTHING, made) for row, made in saved])
                mine.undone.clear()
            return [row for row, _ in saved]

    def undo(self, window: str) -> list[int]:
        """Take back what this window did last (before a restart: what was done last). Returns the rows."""
        with self._lock:
            mine = self._window(window)
            return self._move(mine.done or self._earlier, mine.undone)

    def redo(self, window: str) -> list[int]:
        with self._lock:
            mine = self._window(window)
            return self._move(mine.undone, mine.done)

    def _move(self, source: list[list[Change]], target: list[list[Change]]) -> list[int]:
        """Turn the last action of one stack and put it on the other. What the disk refused stays, to be tried again."""
        if not source:
            return []
        try:
            turned = self._turn(source[-1])
        except ConflictError:
            source.pop()  # others overruled it: it would be in the way of all before it
            raise
        source.pop()
        target.append(turned)
        return [change.row for change in turned]

    def _turn(self, action: list[Change]) -> list[Change]:
        """Save the opposite of an action. What others decided since stays; if that is all of it, say so."""
        still = [change for change in action if self.made(change.row) == change.after]
        if not still:
            raise ConflictError(action[0].row)
        self._save([(change.row, change.before) for change in still])
        return [Change(c.row, c.after, c.before) for c in still]

    def _save(self, changes: list[tuple[int, Made]]) -> None:
        """To the disk first, then to memory."""
        path = self.run / "decisions.csv"
        if self._foreign:
            with atomic_writer(path) as file:
                file.writelines(f"{line}\n" for line in own_form(self.run.decision_lines()[0]))
            self._foreign = False
        if len(changes) == 1:
            row, made = changes[0]
            self.run.append_decision(self.columns.id(row), DECISIONS[made.state], self._label_of(made))
        else:
            now = datetime.now(UTC).isoformat(timespec="microseconds")  # tells them from single ones, see _read
            before = lines_of(path) or [csv_line(Decision._fields)]
            added = [
                csv_line((self.columns.id(row), DECISIONS[made.state], self._label_of(made), now))
                for row, made in changes
            ]
            with atomic_writer(path) as file:
                file.writelines(f"{line}\n" for line in (*before, *added))
        for row, made in changes:
            self._set(row, made)

    def _set(self, row: int, made: Made) -> None:
        self.state[row], self.label[row] = made
        self.decided[row] = made.state != UNDECIDED
        self.versions[row] = self.version(row) + 1

    def _label_of(self, made: Made) -> str:
        return self.columns.classes[made.label] if made.label >= 0 else ""

    def _check(self, row: int, made: Made) -> None:
        if not 0 <= row < len(self.columns):
            raise InputError(f"there is no sample {row}")
        labelled = made.state in (KEEP, RELABEL)
        if not UNDECIDED <= made.state <= DROP or (labelled != (0 <= made.label < len(self.columns.classes))):
            raise InputError("this is not a decision")
        if made.state == KEEP and made.label != self.columns.label[row]:
            raise InputError("keep stands for the given label")

    def _window(self, window: str) -> Window:
        if window not in self.windows and len(self.windows) >= 64:
            del self.windows[next(iter(self.windows))]
        return self.windows.setdefault(window, Window())

    def _read(self) -> None:
        """Take up decisions.csv where it was left, with what can be undone."""
        written, half = self.run.decision_lines()
        self._foreign = own_form(written) != written or len(written) > len(lines_of(self.run / "decisions.csv"))
        lines = read_lines(written)
        rows = rows_of(self.columns, ["" if line.made is None else line.made.id for line in lines])
        code = {one_line(str(name)): i for i, name in enumerate(self.columns.classes)}
        told: list[tuple[str, int, Made]] = []
        for line, row in zip(lines, rows.tolist(), strict=True):
            made = self._understood(line.made, row, code)
            if isinstance(made, Made) and line.made is not None:
                told.append((line.made.time, row, made))
            else:
                self.not_understood.append(f"line {line.number}: {made}")
        if half and not csv_line(Decision._fields).startswith(half):
            self.not_understood.append(f"line {len(written) + 1}: no line break ends it, it may be half a decision")
        # Lines of one microsecond are one action; single decisions have times in milliseconds.
        numbered = [
            (time if len(time) == MICROSECONDS else str(i), row, made) for i, (time, row, made) in enumerate(told)
        ]
        for _, group in groupby(numbered, key=lambda entry: entry[0]):
            action = []
            for _, row, made in group:
                before = self.made(row)
                self._set(row, made)
                action.append(Change(row, before, made))
            last = self._earlier[-1] if self._earlier else []
            if [(c.row, c.after, c.before) for c in last] == [(c.row, c.before, c.after) for c in action]:
                self._earlier.pop()  # it took the last one back
            else:
                self._earlier.append(action)
        del self._earlier[:-REMEMBERED]

    def _understood(self, line: Decision | None, row: int, code: dict[str, int]) -> Made | str:
        """The decision, or why it is none."""
        if line is None:
            return f"expected {', '.join(Decision._fields)}"
        if row < 0:
            return f"the run has no sample {line.id!r}"
        if line.decision not in DECISIONS:
            return f"{line.decision!r} is none of {', '.join(DECISIONS)}"
        state = DECISIONS.index(line.decision)
        if state not in (KEEP, RELABEL):
            return Made(state, -1)
        label, given = code.get(line.label, code.get(line.label.strip(), -1)), int(self.columns.label[row])
        if state == RELABEL and label < 0:
            return f"the run has no class {line.label!r}"
        if state == KEEP and line.label.strip() and label != given:  # which of the two was meant only they know
            kept = self.columns.name(given)
            return f"keep stands for the given label, {kept!r}, and not for {line.label!r}: write relabel, or no label"
        return Made(state, label if state == RELABEL else given)


def latest(run: RunFolder, columns: Columns) -> tuple[NDArray[np.int8], NDArray[np.int32], list[Decision | None]]:
    """What stands for each sample: state, class code, and the line that says so. None may be lost on the way."""
    book = Book(run, columns)
    if book.not_understood:
        raise InputError(f"{run / 'decisions.csv'}, {book.passed_over()}; correct or remove what is no decision")
    lines: list[Decision | None] = [None] * len(columns)
    made = run.read_decisions()
    for line, row in zip(made, rows_of(columns, [line.id for line in made]).tolist(), strict=True):
        if row >= 0:
            lines[row] = line
    return book.state, book.label, lines


def rows_of(columns: Columns, ids: list[str]) -> IntArray:
    """The row of each id, -1 where there is none. An id with a line break is found by its one-line form."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not ids:
        return np.zeros(0, dtype=np.int64)
    wanted = pa.array(ids, pa.string())
    found: Any = pc.index_in(wanted, value_set=columns.ids).fill_null(-1).to_numpy(zero_copy_only=False)
    if (found < 0).any():
        flat = pc.replace_substring_regex(columns.ids, pattern="[\r\n]", replacement=" ")
        again = pc.index_in(wanted, value_set=flat).fill_null(-1).to_numpy(zero_copy_only=False)
        found = np.where(found < 0, again, found)
    return np.asarray(found, dtype=np.int64)
