"""decisions.csv of a run: the decisions made in the review, one line per decision.

The last line of a reviewer on a sample counts. If reviewers disagree on a sample, it is a conflict: nothing is decided.

labelsieve appends and syncs single decisions. Several decisions at once (and their undo) replace the file atomically:
a crash leaves all of them or none. Spreadsheets and editors may save the file in another form: with semicolons or
tabs, without times, with columns in another order, or without the last line break.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelsieve.csv_files import csv_line, parse_line
from labelsieve.errors import InputError
from labelsieve.files import append_line, atomic_writer, open_file, read_lines
from labelsieve.labels_csv import LabelColumns, index_in
from labelsieve.types import BoolArray, IntArray

MAX_UNDO = 1000  # actions per window that can be undone
MAX_WINDOWS = 64  # windows with undo; the oldest one loses its undo first
MICROSECONDS = len("2020-01-01T00:00:00.000000+00:00")


class Choice(IntEnum):
    """Decision on a sample; the values are the codes in `DecisionLog.state`."""

    UNDECIDED = 0
    KEEP = 1
    RELABEL = 2
    DROP = 3
    CONFLICT = 4  # reviewers disagree

    @property
    def word(self) -> str:
        """The word in decisions.csv; "undo" takes a decision back."""
        return "undo" if self is Choice.UNDECIDED else self.name.lower()


ACCEPT = "accept"  # in decisions.csv: a suggestion that was accepted without a look, see `Resolution.unseen`
CHOICES = {choice.word: choice for choice in Choice if choice != Choice.CONFLICT} | {ACCEPT: Choice.RELABEL}


class Decision(NamedTuple):
    """One line of decisions.csv."""

    id: str
    decision: str  # keep, relabel, accept, drop or undo
    label: str  # new label; empty for drop and undo
    reviewer: str  # name of the person; empty if no name was given
    time: str  # last: a line with a complete time is complete


class Resolution(NamedTuple):
    """The decision in force for a sample: the choice and the class code (-1: no label)."""

    choice: Choice
    label: int
    unseen: bool = False  # a suggestion that was accepted together with others, without a look at the sample


NO_DECISION, DISAGREEMENT = Resolution(Choice.UNDECIDED, -1), Resolution(Choice.CONFLICT, -1)
HEADER = ",".join(Decision._fields)


def decision_line(cells: Iterable[str]) -> str:
    """Cells as one CSV line; line breaks in cells become spaces."""
    return csv_line(map(one_line, cells))


def one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")


@dataclass(frozen=True)
class DecisionFile:
    """decisions.csv as it was read."""

    lines: list[str]
    decisions: list[tuple[int, Decision | None]]  # line number, and None if the line is not a decision
    unfinished: str = ""  # text after the last line break that may be a part of a decision
    foreign: bool = False  # saved by another program: to be rewritten before anything is appended

    @classmethod
    def read(cls, path: Path) -> DecisionFile:
        lines, rest = read_lines(path)
        named = Columns.of(lines[0]) if lines else None
        columns, foreign = named or Columns(), named is not None and lines[0] != HEADER
        decisions = columns.parse(lines, header=named is not None)
        if rest and lines:
            (_, last), *_ = columns.parse([rest]) or [(0, None)]
            by_hand = "time" not in columns.names or any(made is not None and not made.time for _, made in decisions)
            # Without a complete time, "relabel, cat" may be the first half of "relabel, catfish".
            if last is not None and (by_hand or _is_time(last.time)):
                decisions.append((len(lines) + 1, last))
                lines, rest, foreign = [*lines, rest], "", True
        return cls(lines, decisions, rest, foreign)

    def native_lines(self) -> list[str]:
        """The same lines in the form that labelsieve writes. Lines that are not decisions stay as they are."""
        if not self.foreign:
            return list(self.lines) or [HEADER]
        made = dict(self.decisions)
        first = 2 if Columns.of(self.lines[0]) else 1
        rest = enumerate(self.lines[first - 1 :], start=first)
        return [HEADER, *(decision_line(found) if (found := made.get(i)) else line for i, line in rest)]


@dataclass(frozen=True)
class Columns:
    """Delimiter and column names of a decisions.csv."""

    delimiter: str = ","
    names: tuple[str, ...] = Decision._fields

    @classmethod
    def of(cls, header: str) -> Columns | None:
        """From the first line; None if it does not name the columns."""
        text = header.rstrip("\r").removeprefix("\ufeff")
        for delimiter in ",;\t":
            names = tuple(name.strip().lower() for name in _cells(text, delimiter))
            if {"id", "decision"} <= set(names):
                return cls(delimiter, names)
        return None

    def parse(self, lines: Sequence[str], *, header: bool = False) -> list[tuple[int, Decision | None]]:
        """Every line with content, by its number."""
        numbered = enumerate((line.rstrip("\r") for line in lines), start=1)
        return [
            (number, self._decision(line))
            for number, line in numbered
            if line.strip(",;\t ") and not (header and number == 1)
        ]

    def _decision(self, line: str) -> Decision | None:
        cells = _cells(line, self.delimiter)
        required = 1 + max(self.names.index("id"), self.names.index("decision"))
        if not required <= len(cells) <= len(self.names):
            return None
        named = dict(zip(self.names, cells, strict=False))
        others = (named.get(name, "") for name in ("label", "reviewer", "time"))
        return Decision(named["id"], named["decision"].strip().lower(), *others)


def _cells(text: str, delimiter: str) -> list[str]:
    return parse_line(text, delimiter) or []


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def read_decisions(path: Path) -> list[Decision]:
    """Every decision in the order it was made."""
    return [made for _, made in DecisionFile.read(path).decisions if made is not None]


def decided_ids(path: Path) -> set[str]:
    """Ids of the samples that have a decision."""
    last = {(made.id, made.reviewer): made.decision for made in read_decisions(path)}
    return {id for (id, _), decision in last.items() if decision != Choice.UNDECIDED.word}


def append_decision(path: Path, id: str, decision: str, label: str = "", reviewer: str = "") -> Decision:
    made = Decision(id, decision, label, reviewer, datetime.now(UTC).isoformat(timespec="milliseconds"))
    if not _has_header(path):  # no file yet, or a full disk accepted only its name
        append_line(path, HEADER)
    append_line(path, decision_line(made))
    return made


def _has_header(path: Path) -> bool:
    if not path.exists():
        return False
    with open_file(path) as file:
        return file.readline().endswith(b"\n")


class Change(NamedTuple):
    row: int
    reviewer: str
    before: Resolution
    after: Resolution

    def reversed(self) -> Change:
        return self._replace(before=self.after, after=self.before)


Action = list[Change]  # the changes that one key press made


@dataclass
class UndoHistory:
    """What one window did, to undo and redo."""

    done: list[Action] = field(default_factory=list)
    undone: list[Action] = field(default_factory=list)


class ConflictError(Exception):
    """Another window of the same reviewer decided on the sample in the meantime."""

    def __init__(self, row: int, reviewer: str) -> None:
        super().__init__("another window has decided on this sample in the meantime")
        self.row, self.reviewer = row, reviewer


class DecisionLog:
    """The decisions on the samples of a run, in memory and in decisions.csv.

    `state` and `label` are what all reviewers together decided; `votes` has the decisions of each one.
    """

    def __init__(self, path: Path, columns: LabelColumns) -> None:
        self.path, self.columns = path, columns
        self.state: NDArray[np.int8] = np.zeros(len(columns), dtype=np.int8)
        self.label: NDArray[np.int32] = np.full(len(columns), -1, dtype=np.int32)
        self.decided: BoolArray = np.zeros(len(columns), dtype=bool)
        self.reviewed: BoolArray = np.zeros(len(columns), dtype=bool)  # decided by a person who looked at the sample
        self.times: dict[int, str] = {}
        self.votes: dict[int, dict[str, Resolution]] = {}
        self.versions: dict[tuple[int, str], int] = {}
        self.windows: dict[str, UndoHistory] = {}
        self.not_understood: list[str] = []  # reasons, with the number of the line
        self._foreign = False
        self._before_restart: dict[str, list[Action]] = {}  # by reviewer
        self._lock = threading.RLock()
        names = list(enumerate(columns.classes))
        # Class codes by the names in the file; a name without line breaks belongs to the class that is called so.
        self._codes = {one_line(name): i for i, name in names} | {name: i for i, name in names}
        self._read()

    def problem(self) -> str:
        """The first line that is not a valid decision, and the number of others; empty if all are valid."""
        first, *more = self.not_understood or [""]
        return first + (f" (and {len(more):,} more line{'s' * (len(more) > 1)})" if more else "")

    def check(self) -> None:
        """Raise InputError if a line cannot be applied: exporting without it would lose a decision."""
        if self.not_understood:
            raise InputError(f"{self.path}, {self.problem()}; correct or remove these lines")

    def resolution(self, row: int) -> Resolution:
        """The decision of all reviewers together."""
        return Resolution(Choice(int(self.state[row])), int(self.label[row]))

    def vote(self, row: int, reviewer: str = "") -> Resolution:
        """The decision of one reviewer."""
        return self.votes.get(row, {}).get(reviewer, NO_DECISION)

    def version(self, row: int, reviewer: str = "") -> int:
        return self.versions.get((row, reviewer), 0)

    def decide(self, decisions: Sequence[tuple[int, Resolution, int]], *, window: str, reviewer: str = "") -> None:
        """Save decisions (row, resolution, seen) as one action: all of them, or none.

        `seen` is the version of the sample that the window showed.
        """
        with self._lock:
            for row, resolution, seen in decisions:
                self._check(row, resolution)
                if self.version(row, reviewer) != seen:
                    raise ConflictError(row, reviewer)
            self._act([Change(row, reviewer, self.vote(row, reviewer), made) for row, made, _ in decisions], window)

    def accept(self, rows: IntArray, *, window: str, reviewer: str = "") -> list[int]:
        """Accept the suggestion for all undecided `rows` that have one. All of them are saved, or none."""
        with self._lock:
            chosen: list[int] = rows[~self.decided[rows] & self.columns.with_suggestion(rows)].tolist()
            accepted = [Resolution(Choice.RELABEL, int(self.columns.suggested[row]), True) for row in chosen]
            for row, resolution in zip(chosen, accepted, strict=True):
                self._check_unique(row, resolution.label)
            action = [Change(row, reviewer, NO_DECISION, made) for row, made in zip(chosen, accepted, strict=True)]
            if action:
                self._act(action, window)
            return chosen

    def undo(self, window: str, reviewer: str = "") -> list[int]:
        """Undo the last action of this window, or the last one of the reviewer before a restart. Returns the rows."""
        with self._lock:
            mine = self._history(window)
            return self._move(mine.done or self._before_restart.get(reviewer, []), mine.undone)

    def redo(self, window: str) -> list[int]:
        with self._lock:
            mine = self._history(window)
            return self._move(mine.undone, mine.done)

    def _act(self, action: Action, window: str) -> None:
        self._save(action)
        mine = self._history(window)
        mine.done.append(action)
        mine.undone.clear()
        del mine.done[:-MAX_UNDO]

    def _move(self, source: list[Action], target: list[Action]) -> list[int]:
        """Reverse the last action of one stack and push it on the other. If saving fails it stays where it was."""
        if not source:
            return []
        # Decisions that another window changed since then stay.
        reverse = [change.reversed() for change in source[-1] if self.vote(change.row, change.reviewer) == change.after]
        if not reverse:
            raise ConflictError(*source.pop()[0][:2])
        self._save(reverse)
        source.pop()
        target.append(reverse)
        return [change.row for change in reverse]

    def _save(self, action: Action) -> None:
        """Write to the disk first, then to memory."""
        if self._foreign:
            self._rewrite(())
            self._foreign = False
        if len(action) == 1:
            append_decision(self.path, *self._cells(action[0]))
        else:
            now = datetime.now(UTC).isoformat(timespec="microseconds")  # marks one action, see _read
            self._rewrite([decision_line((*self._cells(change), now)) for change in action])
        for change in action:
            self._set(change)

    def _rewrite(self, more: Iterable[str]) -> None:
        lines = DecisionFile.read(self.path).native_lines()
        with atomic_writer(self.path) as file:
            file.writelines(f"{line}\n" for line in (*lines, *more))

    def _cells(self, change: Change) -> tuple[str, str, str, str]:
        choice, label, unseen = change.after
        word = ACCEPT if unseen else choice.word
        return self.columns.id(change.row), word, self.columns.name(label) or "", change.reviewer

    def _set(self, change: Change, time: str = "") -> None:
        row, reviewer, _, made = change
        votes = self.votes.setdefault(row, {})
        votes[reviewer] = made
        if made.choice == Choice.UNDECIDED:
            del votes[reviewer]
        different = {vote[:2] for vote in votes.values()} or {NO_DECISION[:2]}
        self.state[row], self.label[row] = different.pop() if len(different) == 1 else DISAGREEMENT[:2]
        self.decided[row], self.reviewed[row] = bool(votes), not all(vote.unseen for vote in votes.values())
        self.times[row] = time
        self.versions[row, reviewer] = self.version(row, reviewer) + 1

    def _check(self, row: int, resolution: Resolution) -> None:
        if not 0 <= row < len(self.columns):
            raise InputError(f"there is no sample {row}")
        needs_label = resolution.choice in (Choice.KEEP, Choice.RELABEL)
        if needs_label != (0 <= resolution.label < len(self.columns.classes)):
            raise InputError("this is not a valid decision")
        if resolution.choice == Choice.KEEP and resolution.label != self.columns.label[row]:
            raise InputError("keep is only possible with the given label")
        self._check_unique(row, resolution.label)

    def _check_unique(self, row: int, label: int) -> None:
        """Raise InputError if the line of a decision would be read as that of another sample or class."""
        id, name = self.columns.id(row), self.columns.name(label) or ""
        if one_line(id) != id and self._rows([one_line(id)])[0] != row:
            raise InputError(f"{id!r} and the id of another sample differ only in line breaks; rename one of them")
        if label >= 0 and self._codes[one_line(name)] != label:
            raise InputError(f"{name!r} and another class differ only in line breaks; rename one of them")

    def _history(self, window: str) -> UndoHistory:
        if window not in self.windows and len(self.windows) >= MAX_WINDOWS:
            del self.windows[next(iter(self.windows))]
        return self.windows.setdefault(window, UndoHistory())

    def _read(self) -> None:
        """Read decisions.csv and what can be undone."""
        file = DecisionFile.read(self.path)
        self._foreign = file.foreign
        rows = self._rows(["" if made is None else made.id for _, made in file.decisions])
        entries: list[tuple[Decision, int, Resolution]] = []
        for (number, made), row in zip(file.decisions, rows.tolist(), strict=True):
            resolution = self._understand(made, row)
            if isinstance(resolution, Resolution) and made is not None:
                entries.append((made, row, resolution))
            else:
                self.not_understood.append(f"line {number}: {resolution}"[:300])
        if file.unfinished and not HEADER.startswith(file.unfinished):
            self.not_understood.append(f"line {len(file.lines) + 1}: incomplete, it does not end with a line break")

        def action_of(entry: tuple[int, tuple[Decision, int, Resolution]]) -> str:
            number, (made, _, _) = entry
            return made.time if len(made.time) == MICROSECONDS else str(number)  # single decisions have milliseconds

        for _, group in groupby(enumerate(entries), key=action_of):
            action = []
            for _, (made, row, resolution) in group:
                action.append(Change(row, made.reviewer, self.vote(row, made.reviewer), resolution))
                self._set(action[-1], made.time)
            mine = self._before_restart.setdefault(action[0].reviewer, [])
            if mine and mine[-1] == [change.reversed() for change in action]:
                mine.pop()  # this action undid the last one
            else:
                mine.append(action)
            del mine[:-MAX_UNDO]

    def _understand(self, line: Decision | None, row: int) -> Resolution | str:
        """The decision, or why it is not one."""
        if line is None:
            return f"expected {', '.join(Decision._fields)}"
        if row < 0:
            return f"the run has no sample {line.id!r}"
        choice = CHOICES.get(line.decision)
        if choice is None:
            return f"{line.decision!r} is not one of {', '.join(CHOICES)}"
        if choice in (Choice.UNDECIDED, Choice.DROP):
            return Resolution(choice, -1)
        label = self._codes.get(line.label, self._codes.get(line.label.strip(), -1))
        given = int(self.columns.label[row])
        if choice == Choice.RELABEL and label < 0:
            return f"the run has no class {line.label!r}"
        if choice == Choice.KEEP and line.label.strip() and label != given:
            return f"keep with the label {line.label!r}, but the given label is {self.columns.name(given)!r}"
        return Resolution(choice, label if choice == Choice.RELABEL else given, line.decision == ACCEPT)

    def _rows(self, ids: list[str]) -> IntArray:
        """Row of each id, -1 if there is none. An id with a line break is found by its one-line form."""
        import pyarrow as pa
        import pyarrow.compute as pc

        found = self.columns.find(ids)
        if (found < 0).any():
            flat = pc.replace_substring_regex(self.columns.ids, pattern="[\r\n]", replacement=" ")
            found = np.where(found < 0, index_in(pa.array(ids, pa.string()), flat), found)
        return found
