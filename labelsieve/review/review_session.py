"""A review of a run, independent of HTTP: methods take plain values and return dicts for JSON."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from labelsieve.data.embedding_cache import find_embeddings
from labelsieve.decisions import Choice, DecisionLog, Resolution
from labelsieve.errors import InputError
from labelsieve.labels_csv import Duplicates, LabelColumns, most_confused, pair_counts
from labelsieve.report.facts import DEFAULT_CONFIDENCE, SAMPLE_SIZE, Facts, Group, SpotCheck
from labelsieve.report.html import shorten_names
from labelsieve.report.samples import Cells, Missing, Picture, Row, Sample, Text, open_samples
from labelsieve.review.neighbours import Neighbours
from labelsieve.runfolder import STAGED, RunFolder
from labelsieve.selection.noise_model import WHY_UNKNOWN
from labelsieve.types import VERDICTS, BoolArray, IntArray

MAX_ITEMS = 60  # samples per request
MAX_MATRIX_CLASSES = 24  # more names cannot be read
MAX_TEXT = 20_000  # characters that are shown of a text
MAX_CELLS, MAX_CELL = 200, 2000  # cells of a row and characters of a cell that are shown
SHORT_NAME = 24  # letters of a class name at the edge of the matrix
BUTTON_NAME = 18  # letters of a class name that fit on a button in a window of 1280 pixels
LARGE_SIDE, SMALL_SIDE = 1000, 160  # pixels of the picture and of its neighbours
MAX_QUEUES = 16  # filtered and sorted lists of samples that stay in memory
MAX_DUPLICATES = 8  # duplicates of a sample that are shown beside it
SHOW = ("suspects", "no_class", "conflicts", "duplicates", "outliers", "all", *VERDICTS)
SORT = ("suspicion", "pair")


@dataclass(frozen=True)
class Filter:
    """The samples to review. `given` and `suggested` are class codes, or None for all classes."""

    show: str = "suspects"
    given: int | None = None
    suggested: int | None = None
    low: float = 0.0
    high: float = 1.0
    sort: str = "suspicion"
    check: Group | None = None  # the random sample of this group, at `confidence`
    confidence: float = DEFAULT_CONFIDENCE

    def __post_init__(self) -> None:
        if self.sort not in SORT:
            raise ValueError(f"sort must be one of {', '.join(SORT)}")
        if self.show not in SHOW:
            raise ValueError(f"show must be one of {', '.join(SHOW)}")
        if not all(0 <= share <= 1 for share in (self.low, self.high, self.confidence)):
            raise ValueError("suspicion and confidence must be between 0 and 1")

    def mask(self, columns: LabelColumns, conflict: BoolArray, no_class: BoolArray) -> BoolArray:
        named = {"conflicts": conflict, "no_class": no_class, "outliers": columns.outlier}
        named |= {"suspects": columns.suspect(), "duplicates": columns.duplicates > 0}
        named |= {verdict: columns.verdict == code for code, verdict in enumerate(VERDICTS)}
        named["all"] = np.ones(len(columns), dtype=bool)
        mask = named[self.show]
        if self.given is not None:
            mask = mask & (columns.label == self.given)
        if self.suggested is not None:
            mask = mask & (columns.suggested == self.suggested)
        if self.low > 0 or self.high < 1:
            suspicion = np.nan_to_num(columns.suspicion, nan=-1.0)
            mask = mask & (suspicion >= self.low) & (suspicion <= self.high)
        return mask


class Queues:
    """Rows per filter in the order of the review; the last few are kept, so that a key press needs no sorting.

    A queue does not change when decisions are made: a position means the same sample after a refresh. Only the queue of
    conflicts follows the decisions.
    """

    def __init__(
        self, columns: LabelColumns, log: DecisionLog, spot_check: SpotCheck | None, no_class: BoolArray
    ) -> None:
        self.columns, self.log, self.spot_check, self.no_class = columns, log, spot_check, no_class
        self._stored = lru_cache(MAX_QUEUES)(self._find)

    def rows(self, wanted: Filter) -> IntArray:
        return self._find(wanted) if wanted.show == "conflicts" else self._stored(wanted)

    def _find(self, wanted: Filter) -> IntArray:
        if wanted.check is not None:
            if self.spot_check is None:
                raise InputError("this run has no probabilities (--protocol paper); decide on each sample")
            return self.spot_check.rows(wanted.check, wanted.confidence)[:SAMPLE_SIZE]
        mask = wanted.mask(self.columns, self.log.state == Choice.CONFLICT, self.no_class)
        rows = self.columns.ranked(np.flatnonzero(mask))
        if wanted.sort == "pair":
            rows = rows[np.lexsort((self.columns.suggested[rows], self.columns.label[rows]))]
        if wanted.show == "duplicates":  # group by group, those with different labels first
            together = Duplicates(self.columns).conflicting()
            rows = rows[np.lexsort((self.columns.duplicates[rows], ~together[rows]))]
        return rows

    def closed(self, wanted: Filter) -> BoolArray:
        """Whether each sample of a queue has a decision; in a random sample, by a person who looked at it."""
        made = self.log.decided if wanted.check is None else self.log.reviewed
        return made[self.rows(wanted)]

    def next_open(self, wanted: Filter, start: int, *, step: int = 1) -> int | None:
        """The first position from `start` on (backwards with step -1) whose sample is open."""
        rows = self.rows(wanted)
        if not 0 <= start < len(rows):
            return None
        still_open = ~self.closed(wanted) | (wanted.show == "conflicts")
        if step < 0:
            before = np.flatnonzero(still_open[: start + 1])
            return int(before[-1]) if len(before) else None
        after = np.flatnonzero(still_open[start:])
        return start + int(after[0]) if len(after) else None


class ReviewSession:
    def __init__(self, run: RunFolder, reviewer: str = "") -> None:
        self.run, self.reviewer = run, reviewer
        facts = self.facts = Facts.read(run)
        self.columns, self.log, self.no_class, self.suspects = facts.columns, facts.log, facts.no_class, facts.suspects
        if not len(self.columns):
            raise InputError(f"{run.path} has no samples to review")
        self.suggested_probability, self.spot_check = facts.suggested_probability, facts.spot_check
        self.queues = Queues(self.columns, self.log, self.spot_check, self.no_class)
        self.samples = open_samples(run, self.columns)
        self.duplicates = Duplicates(self.columns)
        embedding = find_embeddings(run / STAGED, len(self.columns))
        self.neighbours_of = Neighbours(self.columns, self.samples, self.duplicates, embedding)
        self.why_unknown = facts.why_unknown

    def start(self) -> dict[str, Any]:
        return {
            "name": self.facts.name,
            "kind": self.samples.kind,
            "folder": self.run.path.name,
            "command": shlex.quote(str(self.run.path)),  # for commands that can be copied
            "judged": self.suggested_probability is not None,
            "warnings": self.warnings(),
            "embedded": self.facts.embedded,
            "not_computed": self.not_computed(),
            "bulk": self.why_unknown is None and self.spot_check is not None,
            "confidence": DEFAULT_CONFIDENCE,
            "reviewer": self.reviewer,
            "samples": len(self.columns),
            "suspects": len(self.suspects),
            "classes": list(self.columns.classes),
        }

    def not_computed(self) -> dict[str, str]:
        """The lists that are empty because the run did not compute them, and why."""
        why = {}
        if not self.facts.embedded:
            why["outliers"] = "Outliers were not searched, because the run has no embeddings."
        if self.suggested_probability is None:
            why["no_class"] = "This was not estimated, because the run has no probabilities (--protocol paper)."
        return why

    def warnings(self) -> list[str]:
        """Sentences to read before the first sample."""
        found = [self.samples.state.explanation]
        if self.why_unknown is not None:
            found.append(WHY_UNKNOWN[self.why_unknown].sentence)
        elif self.facts.rough_noise is not None:
            low, high = (f"{100 * end:.0f}" for end in self.facts.rough_noise)
            found.append(
                f"the noise estimate is rough ({low} to {high} % of the labels may be wrong), so the percentages can "
                "be much too high: review a random sample (key a) to learn how many suspects are wrong"
            )
        if problem := self.log.problem():
            found.append(f"decisions.csv, {problem}; correct or remove it before you export")
        return [f"{sentence[0].upper()}{sentence[1:].rstrip('.')}." for sentence in found if sentence]

    def items(self, wanted: Filter, at: int, count: int, reviewer: str = "") -> dict[str, Any]:
        rows = self.queues.rows(wanted)
        at = min(max(at, 0), max(len(rows) - 1, 0))
        shown = rows[at : at + min(max(count, 1), MAX_ITEMS)].tolist()
        items = [{"at": at + i, **self.item(row, reviewer)} for i, row in enumerate(shown)]
        return {**self.progress(wanted), "at": at, "items": items}

    def progress(self, wanted: Filter) -> dict[str, Any]:
        rows, decided = self.queues.rows(wanted), int(np.count_nonzero(self.queues.closed(wanted)))
        conflicts = int(np.count_nonzero(self.log.state == Choice.CONFLICT))
        return {"total": len(rows), "decided": decided, "left": len(rows) - decided, "conflicts": conflicts}

    def item(self, row: int, reviewer: str = "") -> dict[str, Any]:
        columns = self.columns
        self._check_row(row)
        return {
            "row": row,
            "id": columns.id(row),
            "given": int(columns.label[row]),
            "suggested": int(columns.suggested[row]),
            "short": shorten_names(columns.names(np.array([columns.label[row], columns.suggested[row]])), BUTTON_NAME),
            "probability": _number(columns.probability[row]),
            "suspicion": _number(columns.suspicion[row]),
            "likely": _number(math.nan if self.suggested_probability is None else self.suggested_probability[row]),
            "no_class": bool(self.no_class[row]),
            "verdict": VERDICTS[columns.verdict[row]],
            "outlier": bool(columns.outlier[row]),
            "same": self.duplicates.labels([other for other in self.duplicates.of(row) if other != row]),
            "content": self._content(row, with_cells=True),
            **self.decision(row, reviewer),
        }

    def decision(self, row: int, reviewer: str = "") -> dict[str, Any]:
        """The decisions on a sample, and the version that a window of the reviewer must send to decide again."""
        # The version is read first: a decision made in between leads to a conflict instead of being overwritten.
        version, own = self.log.version(row, reviewer), self.log.vote(row, reviewer)
        others = [
            {"reviewer": name, "decision": vote.choice.word, "label": vote.label}
            for name, vote in sorted(self.log.votes.get(row, {}).items())
            if name != reviewer
        ]
        decision = own.choice.word if own.choice != Choice.UNDECIDED else None
        conflict = bool(self.log.state[row] == Choice.CONFLICT)
        return {
            "decision": decision, "label": own.label, "unseen": own.unseen, "version": version, "others": others,
            "conflict": conflict,
        }  # fmt: skip

    def picture(self, row: int, *, large: bool) -> Sample:
        self._check_row(row)
        return self.samples.show(row, side=LARGE_SIDE if large else SMALL_SIDE)

    def neighbours(self, row: int) -> dict[str, Any]:
        """The nearest selected samples of the given class and of the suggested one."""
        self._check_row(row)
        given, other = int(self.columns.label[row]), int(self.columns.suggested[row])
        if other < 0:
            other = int(self.columns.predicted[row])
        labels = [given] + ([other] if other >= 0 and other != given else [])
        groups = [
            {"label": label, "items": [self._neighbour(near) for near in self.neighbours_of.nearest(row, label)]}
            for label in labels
        ]
        others = [other for other in self.duplicates.of(row) if other != row]
        return {
            "row": row,
            "groups": groups,
            "duplicates": [self._neighbour(other) for other in others[:MAX_DUPLICATES]],
        }

    def _neighbour(self, row: int) -> dict[str, Any]:
        rows = self.duplicates.of(row)
        about = {"given": int(self.columns.label[row]), "times": len(rows), "labels": self.duplicates.labels(rows)}
        return {"row": row, "id": self.columns.id(row), "content": self._content(row), **about}

    def _content(self, row: int, *, with_cells: bool = False) -> dict[str, Any]:
        if self.samples.kind == "pictures":
            return {"kind": "picture"}  # requested separately
        return content(self.samples.show(row), self.samples.cells(row) if with_cells else ())

    def matrix(self) -> dict[str, Any]:
        """Suspects per given and suggested class, in total and undecided, for the most confused classes."""
        pairs = pair_counts(self.columns, self.suspects)
        left = pair_counts(self.columns, self.suspects[~self.log.decided[self.suspects]])
        shown = most_confused(pairs, MAX_MATRIX_CLASSES)
        cells = [
            [given, suggested, count, left.get((given, suggested), 0)]
            for (given, suggested), count in pairs.items()
            if {given, suggested} <= set(shown)
        ]
        names = shorten_names([self.columns.classes[code] for code in shown], SHORT_NAME)
        return {"classes": shown, "names": names, "cells": cells, "hidden": len(self.columns.classes) - len(shown)}

    def next_open(self, wanted: Filter, start: int, step: int) -> int | None:
        return self.queues.next_open(wanted, start, step=1 if step >= 0 else -1)

    def decide(
        self, samples: list[tuple[int, int]], decision: str, label: int | None, *, window: str, reviewer: str = ""
    ) -> dict[str, Any]:
        """Save one decision for all `samples`, given as (row, version that the window showed): all or none."""
        for row, _ in samples:
            self._check_row(row)
        made = [(row, self._resolution(row, decision, label), seen) for row, seen in samples]
        self.log.decide(made, window=window, reviewer=reviewer)
        return {"saved": True, "rows": [{"row": row, **self.decision(row, reviewer)} for row, _ in samples]}

    def _resolution(self, row: int, decision: str, label: int | None) -> Resolution:
        given = int(self.columns.label[row])
        if decision == "keep":
            return Resolution(Choice.KEEP, given)
        if decision == "drop":
            return Resolution(Choice.DROP, -1)
        if decision == "suggested":
            label = int(self.columns.suggested[row])
            if label < 0:
                raise InputError("this sample has no suggestion")
        elif decision != "relabel":
            raise InputError(f"unknown decision {decision!r}")
        if label is None or not 0 <= label < len(self.columns.classes):
            raise InputError("choose a class of this run")
        return Resolution(Choice.KEEP if label == given else Choice.RELABEL, label)

    def check(self, confidence: float) -> dict[str, Any]:
        """What accepting all suggestions from `confidence` on would do, and how far the random samples agree."""
        if self.spot_check is None or self.why_unknown is not None:
            why = "this run has no probabilities" if self.why_unknown is None else WHY_UNKNOWN[self.why_unknown].reason
            raise InputError(f"{why}: suggestions must be reviewed one by one")
        groups = {}
        for group in Group:
            found = self.spot_check.check(group, confidence, self.log)
            numbers = {name: value if isinstance(value, int) else _number(value) for name, value in vars(found).items()}
            groups[group.value] = {"sample": min(SAMPLE_SIZE, found.size)} | numbers
        probable = np.zeros(len(self.columns), dtype=bool)
        probable[self.spot_check.rows(Group.SUGGESTED, confidence)] = True
        noise = self.spot_check.noise(self.log, self.facts.noise, confidence)
        return {
            "groups": groups,
            "noise_ratio": self.facts.noise_ratio,
            "acceptable": len(self._acceptable(confidence)),
            "expected": str(self.facts.expected_right(probable, confidence)),
            "noise": None if noise is None else {name: _number(value) for name, value in vars(noise).items()},
        }

    def _acceptable(self, confidence: float) -> IntArray:
        """Suspects without a decision whose suggestion is probable enough."""
        assert self.spot_check is not None
        rows = self.spot_check.rows(Group.SUGGESTED, confidence)
        return rows[~self.log.decided[rows]]

    def accept_above(self, confidence: float, *, window: str, reviewer: str = "") -> dict[str, Any]:
        """Accept all suggestions from `confidence` on, once the random sample of them was reviewed."""
        sample = self.check(confidence)["groups"][Group.SUGGESTED]
        if sample["checked"] < sample["sample"]:
            raise InputError(f"review the random sample first: {sample['sample'] - sample['checked']} are left")
        saved = self.log.accept(self._acceptable(confidence), window=window, reviewer=reviewer)
        return {"saved": True, "accepted": len(saved)}

    def undo(self, window: str, reviewer: str = "") -> dict[str, Any]:
        return self._changed(self.log.undo(window, reviewer), reviewer)

    def redo(self, window: str, reviewer: str = "") -> dict[str, Any]:
        return self._changed(self.log.redo(window), reviewer)

    def _changed(self, rows: list[int], reviewer: str) -> dict[str, Any]:
        shown = [{"row": row, **self.decision(row, reviewer)} for row in rows[:5]]  # a few of many
        return {"saved": True, "changed": len(rows), "rows": shown}

    def position(self, wanted: Filter, row: int) -> int | None:
        """Position of a row in a queue."""
        found = np.flatnonzero(self.queues.rows(wanted) == row)
        return int(found[0]) if len(found) else None

    def _check_row(self, row: int) -> None:
        if not 0 <= row < len(self.columns):
            raise InputError(f"there is no sample {row}")


def content(sample: Sample, other: Cells = ()) -> dict[str, Any]:
    """A sample for JSON, with the `other` cells in the row of a text."""
    if isinstance(sample, Text):
        text = {"text": sample.text[:MAX_TEXT], "cut": len(sample.text) > MAX_TEXT}
        return {"kind": "text", **text, **_cells(other)}
    if isinstance(sample, Row):
        return {"kind": "row", **_cells(sample.cells)}
    if isinstance(sample, Missing):
        return {"kind": "missing", "reason": sample.reason}
    assert isinstance(sample, Picture)
    return {"kind": "picture"}


def _cells(cells: Cells) -> dict[str, Any]:
    """The cells that fit, and the number of `more` columns."""
    shown = [
        [name, cell if len(cell) <= MAX_CELL else f"{cell[:MAX_CELL]} … (cut)"] for name, cell in cells[:MAX_CELLS]
    ]
    return {"cells": shown, "more": max(len(cells) - MAX_CELLS, 0)}


def _number(value: Any) -> float | None:
    value = float(value)
    return round(value, 6) if math.isfinite(value) else None
