"""The desk where a run is reviewed: questions in, plain dicts out. It knows nothing of HTTP."""

from __future__ import annotations

import math
import shlex
from typing import Any

import numpy as np

from labelsieve.decisions import Choice, DecisionLog, Resolution
from labelsieve.errors import InputError
from labelsieve.labels_csv import most_confused, pair_counts, read_labels
from labelsieve.report.facts import UNGRADED, ignorance, unjudged
from labelsieve.report.samples import Cells, Missing, Picture, Row, Sample, Text, open_samples
from labelsieve.review.duplicate_samples import Twins
from labelsieve.review.neighbours import Neighbours
from labelsieve.review.queue import Filter, Queues
from labelsieve.runfolder import DECISIONS, RunFolder
from labelsieve.selection.estimate import WEAK
from labelsieve.selection.suggestions import NAME, read_suggestions
from labelsieve.types import VERDICTS

MOST_ITEMS = 50
MOST_CLASSES = 24  # of the matrix on the page
MOST_TEXT = 20_000
MOST_CELLS, MOST_CELL = 200, 2000
LARGE, SMALL = 1000, 160
PATIENCE = 2.0  # seconds to wait for what is the same, before the page asks again


class Desk:
    def __init__(self, run: RunFolder) -> None:
        self.run = run
        summary = run.read_summary()
        classes = summary.get("classes")
        self.columns = read_labels(run / "labels.csv", classes if isinstance(classes, list) else ())
        if not len(self.columns):
            raise InputError(f"{run.path} has no samples to review")
        self.book = DecisionLog(run / DECISIONS, self.columns)
        self.queues = Queues(self.columns)
        self.samples = open_samples(run, self.columns)
        self.twins = Twins(self.columns, self.samples)
        self.neighbours_of = Neighbours(self.columns, self.samples, self.twins)
        self.ignorance = ignorance(summary)
        self.unjudged = frozenset(unjudged(summary, self.columns.classes))
        self.suspects = self.queues.rows(Filter())
        self.likely = read_suggestions(run / NAME)  # None: suspicion ranks, and is no probability

    def start(self) -> dict[str, Any]:
        data = self.run.record().get("data") or {}
        return {
            "name": str(data.get("name") or self.run.path.resolve().name),
            "kind": self.samples.kind,
            "folder": self.run.path.name,
            "command": shlex.quote(str(self.run.path)),  # the run in a command that can be copied
            "judged": self.likely is not None,
            "warnings": self.warnings(),
            "bulk": not self.ignorance,
            "samples": len(self.columns),
            "suspects": len(self.suspects),
            "classes": list(self.columns.classes),
        }

    def warnings(self) -> list[str]:
        """What a person should know before the first sample."""
        told = [self.samples.notice] if self.samples.notice else []
        if self.ignorance == WEAK:
            told.append("the classifier is weak: it misses whole classes, so many suspects and suggestions are wrong")
        elif self.ignorance == UNGRADED:
            told.append(f"{self.ignorance}: it is equally sure of both, so many suspects and suggestions may be wrong")
        elif self.ignorance:
            told.append(f"{self.ignorance}: suspects and suggestions are little better than guesses")
        if problem := self.book.problem():
            told.append(f"in decisions.csv, {problem}; export refuses until it is corrected or removed")
        return [f"{sentence[0].upper()}{sentence[1:].rstrip('.')}." for sentence in told]

    def items(self, wanted: Filter, at: int, count: int) -> dict[str, Any]:
        rows = self.queues.rows(wanted)
        at = min(max(at, 0), max(len(rows) - 1, 0))
        shown = rows[at : at + min(max(count, 1), MOST_ITEMS)]
        return {
            **self.progress(wanted),
            "at": at,
            "items": [{"at": at + i, **self.item(int(row))} for i, row in enumerate(shown)],
        }

    def progress(self, wanted: Filter) -> dict[str, Any]:
        rows = self.queues.rows(wanted)
        decided = int(np.count_nonzero(self.book.decided[rows]))
        return {"total": len(rows), "decided": decided, "left": len(rows) - decided}

    def item(self, row: int) -> dict[str, Any]:
        columns = self.columns
        self._exists(row)
        seen: dict[str, Any] = {"kind": "picture"}
        if self.samples.kind != "pictures":
            seen = content(self.samples.show(row), self.samples.cells(row))
        return {
            "row": row,
            "id": columns.id(row),
            "given": int(columns.label[row]),
            "suggested": int(columns.suggested[row]),
            "predicted": int(columns.predicted[row]),
            "probability": _number(columns.probability[row]),
            "suspicion": _number(columns.suspicion[row]),
            "likely": _number((self.likely or {}).get(columns.id(row), math.nan)),
            "judged": int(columns.label[row]) not in self.unjudged,
            "verdict": VERDICTS[columns.verdict[row]],
            "iteration": int(columns.iteration[row]),
            "content": seen,
            **self.standing(row),
        }

    def standing(self, row: int) -> dict[str, Any]:
        """What was decided, and the version a window must name to decide again."""
        # The version first: should somebody decide in between, the window is refused rather than deceived.
        version, made = self.book.version(row), self.book.resolution(row)
        decision = made.choice.word if made.choice != Choice.UNDECIDED else None
        return {"decision": decision, "label": made.label, "version": version}

    def picture(self, row: int, *, large: bool) -> Sample:
        self._exists(row)
        return self.samples.show(row, side=LARGE if large else SMALL)

    def neighbours(self, row: int) -> dict[str, Any]:
        """The nearest selected samples of the given class and of the suggested one."""
        self._exists(row)
        given = int(self.columns.label[row])
        other = int(self.columns.suggested[row])
        if other < 0:
            other = int(self.columns.predicted[row])
        groups = [given] + ([other] if other >= 0 and other != given else [])
        return {
            "row": row,
            "groups": [
                {"label": label, "items": [self._beside(near) for near in self.neighbours_of.nearest(row, label)]}
                for label in groups
            ],
        }

    def _beside(self, row: int) -> dict[str, Any]:
        seen: dict[str, Any] = {"kind": "picture"}
        if self.samples.kind != "pictures":
            seen = content(self.samples.show(row))
        return {"row": row, "id": self.columns.id(row), "content": seen, **self.twins.about(row)}

    def same(self, row: int) -> dict[str, Any]:
        """With which labels the very same sample is there elsewhere; `known` is false while that is looked for."""
        self._exists(row)
        known = self.twins.known(PATIENCE)
        others = [other for other in self.twins.of(row) if other != row]
        return {"row": row, "known": known, "labels": self.twins.labels(others) if others else []}

    def matrix(self) -> dict[str, Any]:
        """Suspects by given and suggested class: how many, and how many are left. Only the most confused classes."""
        pairs = pair_counts(self.columns, self.suspects)
        left = pair_counts(self.columns, self.suspects[~self.book.decided[self.suspects]])
        shown = most_confused(pairs, MOST_CLASSES)
        inside = set(shown)
        cells = [
            [given, suggested, count, left.get((given, suggested), 0)]
            for (given, suggested), count in pairs.items()
            if given in inside and suggested in inside
        ]
        return {"classes": shown, "cells": cells, "hidden": len(self.columns.classes) - len(shown)}

    def next_open(self, wanted: Filter, start: int, step: int) -> int | None:
        return self.queues.next_open(wanted, start, self.book.decided, step=1 if step >= 0 else -1)

    def decide(self, row: int, decision: str, label: int | None, *, seen: int, window: str) -> dict[str, Any]:
        self._exists(row)
        self.book.decide(row, self._made(row, decision, label), seen=seen, window=window)
        return {"saved": True, "row": row, **self.standing(row)}

    def _made(self, row: int, decision: str, label: int | None) -> Resolution:
        if decision == "keep":
            return Resolution(Choice.KEEP, int(self.columns.label[row]))
        if decision == "drop":
            return Resolution(Choice.DROP, -1)
        if decision == "suggested":
            label = int(self.columns.suggested[row])
            if label < 0:
                raise InputError("no label is suggested for this sample")
        elif decision != "relabel":
            raise InputError(f"there is no decision {decision!r}")
        if label is None or not 0 <= label < len(self.columns.classes):
            raise InputError("choose a class of this run")
        return Resolution(Choice.KEEP if label == int(self.columns.label[row]) else Choice.RELABEL, label)

    def accept_top(self, wanted: Filter, count: int, *, window: str) -> dict[str, Any]:
        """Take the suggestion of the first `count` undecided samples of the queue."""
        if count < 1:
            raise InputError("accept at least one")
        if self.ignorance:
            raise InputError(f"{self.ignorance}: suggestions are not accepted unseen")
        rows = self.queues.rows(wanted)
        has_one = (self.columns.suggested[rows] >= 0) & (self.columns.suggested[rows] != self.columns.label[rows])
        waiting = rows[~self.book.decided[rows] & has_one]
        saved = self.book.accept(waiting[:count], window=window)
        return {"saved": True, "accepted": len(saved)}

    def turn(self, window: str, *, back: bool) -> dict[str, Any]:
        """Undo or redo. `rows` names what changed, a few of many."""
        rows = self.book.undo(window) if back else self.book.redo(window)
        return {"saved": True, "changed": len(rows), "rows": [{"row": row, **self.standing(row)} for row in rows[:5]]}

    def position(self, wanted: Filter, row: int) -> int | None:
        """Where a row stands in a queue."""
        found = np.flatnonzero(self.queues.rows(wanted) == row)
        return int(found[0]) if len(found) else None

    def _exists(self, row: int) -> None:
        if not 0 <= row < len(self.columns):
            raise InputError(f"there is no sample {row}")


def content(seen: Sample, beside: Cells = ()) -> dict[str, Any]:
    """A sample that is not a picture, as JSON; with what stands `beside` a text."""
    if isinstance(seen, Text):
        text = {"text": seen.text[:MOST_TEXT], "cut": len(seen.text) > MOST_TEXT}
        return {"kind": "text", **text, **_cells(beside)}
    if isinstance(seen, Row):
        return {"kind": "row", **_cells(seen.cells)}
    if isinstance(seen, Picture):
        return {"kind": "picture"}
    return {"kind": "missing", "reason": seen.reason if isinstance(seen, Missing) else "cannot be shown"}


def _cells(cells: Cells) -> dict[str, Any]:
    """What fits, and how many `more` columns there are."""
    shown = [
        [name, cell if len(cell) <= MOST_CELL else f"{cell[:MOST_CELL]} … (cut)"] for name, cell in cells[:MOST_CELLS]
    ]
    return {"cells": shown, "more": max(len(cells) - MOST_CELLS, 0)}


def _number(value: Any) -> float | None:
    value = float(value)
    return round(value, 6) if math.isfinite(value) else None
