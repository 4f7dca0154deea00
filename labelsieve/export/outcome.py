"""The label of every sample in an export: decided ones, and suggestions only on request."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelsieve.decisions import Choice
from labelsieve.errors import InputError
from labelsieve.export.settings import ExportSettings
from labelsieve.export.tables import RunResult
from labelsieve.report.facts import WHY_UNKNOWN, why_unknown
from labelsieve.types import SELECTED, BoolArray

UNDECIDED_SUSPECT, APPLIED_SUGGESTION, CONFLICT = "suspect", "suggested", "conflict"  # cells of STATUS_COLUMN


@dataclass(frozen=True)
class Outcome:
    """The label of every sample after the decisions (class codes), whether it stays, and what was not decided."""

    label: NDArray[np.int32]
    stays: BoolArray
    undecided: BoolArray  # suspects without a decision that keep their label
    applied: BoolArray  # suspects without a decision that get the suggested label
    dropped: BoolArray  # suspects without a decision that are left out
    conflict: BoolArray  # samples on which reviewers disagree; they keep their label
    expected_right: float | None = None  # of the applied suggestions; None if not known
    expected_wrong: float | None = None  # labels of the dropped suspects; None if not known
    why_unknown: str = ""  # why the expected numbers are not known

    @property
    def status(self) -> NDArray[np.object_] | None:
        """A mark per sample; None if there are none."""
        marks = np.full(len(self.label), "", dtype=object)
        marks[self.undecided] = UNDECIDED_SUSPECT
        marks[self.applied] = APPLIED_SUGGESTION
        marks[self.conflict] = CONFLICT
        return marks if (marks != "").any() else None

    def describe(self, changed: int) -> str:
        """What the export changes, and how much of it is expected to be right."""
        applied, dropped, undecided = (int(mask.sum()) for mask in (self.applied, self.dropped, self.undecided))
        parts = [f"{changed:,} label{'s' * (changed != 1)} changed"]
        if applied:
            parts.append(f"{applied:,} of them by suggestions, {self._expected(self.expected_right)} expected right")
        if dropped:
            parts.append(
                f"{dropped:,} suspects dropped, {self._expected(self.expected_wrong)} expected to have a wrong label"
            )
        if undecided:
            parts.append(f"{undecided:,} undecided suspects keep their label")
        if conflicts := int(self.conflict.sum()):
            parts.append(f"{conflicts:,} samples on which reviewers disagree keep their label")
        return "; ".join(parts)

    def _expected(self, number: float | None) -> str:
        return f"an unknown number of them ({self.why_unknown})" if number is None else f"about {number:,.0f} of them"


def resolve_labels(result: RunResult, settings: ExportSettings) -> Outcome:
    """Apply the decisions, and what `settings` request for suspects without one."""
    columns, state, probability = result.columns, result.log.state, result.suggested_probability
    pending = columns.suspect() & (state == Choice.UNDECIDED)
    applied, dropped = np.zeros((2, len(columns)), dtype=bool)
    if settings.changes_undecided and probability is None:
        raise InputError(
            f"{result.run.path} has no probabilities (protocol paper), which --apply suggested and --drop-suspects "
            "need; --what selected leaves all suspects out"
        )
    if settings.apply == "suggested" and probability is not None:
        applied = pending & (np.nan_to_num(probability, nan=-1.0) >= settings.min_confidence)
    if settings.drop_suspects is not None:
        open_suspects = (state == Choice.UNDECIDED) & (columns.verdict != SELECTED) & ~applied
        dropped = open_suspects & (np.nan_to_num(columns.suspicion, nan=-1.0) >= settings.drop_suspects)
    label = np.where(result.log.label >= 0, result.log.label, columns.label)
    label = np.where(applied, columns.suggested, label).astype(np.int32)
    why, right, wrong = why_unknown(result.summary), None, None
    if why is None and probability is not None:
        right, wrong = float(probability[applied].sum()), float(columns.suspicion[dropped].sum())
    stays = (state != Choice.DROP) & ~dropped
    undecided, conflict = pending & ~applied & ~dropped, state == Choice.CONFLICT
    reason = WHY_UNKNOWN[why] if why is not None else ""
    return Outcome(label, stays, undecided, applied, dropped, conflict, right, wrong, reason)
