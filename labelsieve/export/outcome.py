"""The settings of an export, and the label of every sample in it: decided ones, and suggestions only on request.

The fields of `ExportSettings` are the options of `labelsieve export`, its docstring is their help.

How many suggestions are right, and how many dropped labels are wrong, is expected from decisions on random samples, if
there are enough, else from the probabilities of the run. These can be too high by as much as the noise estimate can: if
only `low` of the labels are wrong instead of `ratio`, only `low / ratio` of the expected suggestions are right.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from labelsieve.decisions import Choice
from labelsieve.errors import InputError, Problems
from labelsieve.progress import counted
from labelsieve.report.facts import DEFAULT_CONFIDENCE, SAMPLE_SIZE, Expected, Facts
from labelsieve.selection.noise_model import WHY_UNKNOWN
from labelsieve.types import SELECTED, BoolArray

UNDECIDED_SUSPECT, APPLIED_SUGGESTION, CONFLICT = "suspect", "suggested", "conflict"  # cells of STATUS_COLUMN
STATUS_MEANING = "undecided suspects, applied suggestions and conflicts of reviewers"


What = Literal["cleaned", "selected", "suspects", "decisions"]
Apply = Literal["decided", "suggested"]


@dataclass(frozen=True)
class ExportSettings:
    """What an export writes.

    Parameters
    ----------
    what
        cleaned: all samples except dropped ones, with corrected labels. selected: samples that the run selected or
        whose label you kept or corrected. suspects: the suspects, most suspicious first. decisions: your decisions on
        the review page.
    to
        A .csv or .parquet file (for a .tsv source also .tsv), or a folder (pictures only). Default: a file, or
        for a folder of pictures a folder, in the current folder, such as fruit-cleaned.csv or flowers-cleaned.
    apply
        decided: change only labels that you corrected on the review page. suggested: also apply the suggestions to
        suspects without a decision, if their probability is at least --min-confidence.
    min_confidence
        With --apply suggested: minimum probability, from 0 to 1, that a suggested label is right (column probability of
        suggestions.csv).
    drop_suspects
        Exclude samples that were not selected, have no decision and have a suspicion of at least this value, from 0
        to 1.
    link
        Create links to the pictures instead of copies.
    raw
        Do not change cells that a spreadsheet would evaluate as formulas. Default: prefix them with an apostrophe.
    force
        Replace the file, or the folder of an earlier export, if it exists.
    """

    what: What = "cleaned"
    to: Path | None = None
    apply: Apply = "decided"
    min_confidence: float = DEFAULT_CONFIDENCE
    drop_suspects: float | None = None
    link: bool = False
    raw: bool = False
    force: bool = False

    @property
    def changes_undecided(self) -> bool:
        return self.apply == "suggested" or self.drop_suspects is not None

    def check(self) -> None:
        problems = Problems()
        for option, value, known in (("what", self.what, get_args(What)), ("apply", self.apply, get_args(Apply))):
            problems.check(value in known, f"--{option} {value}: choose one of {', '.join(known)}")
        problems.check(
            self.apply == "suggested" or self.min_confidence == DEFAULT_CONFIDENCE,
            "--min-confidence has no effect without --apply suggested; omit it",
        )
        for option, share in (("min-confidence", self.min_confidence), ("drop-suspects", self.drop_suspects)):
            problems.check(share is None or 0 <= share <= 1, f"--{option} must be a number from 0 to 1, got {share}")
        fits = not self.changes_undecided or self.what in ("cleaned", "selected")
        problems.check(fits, f"--what {self.what}: --apply and --drop-suspects need --what cleaned or selected")
        problems.stop_if_any()


@dataclass(frozen=True)
class Outcome:
    """The label of every sample after the decisions (class codes), whether it stays, and what was not decided."""

    label: NDArray[np.int32]
    stays: BoolArray
    undecided: BoolArray  # suspects without a decision that keep their label
    applied: BoolArray  # suspects without a decision that get the suggested label
    dropped: BoolArray  # suspects without a decision that are left out
    conflict: BoolArray  # samples on which reviewers disagree; they keep their label
    right: Expected | None = None  # of the applied suggestions; None if not known
    wrong: Expected | None = None  # labels of the dropped suspects; None if not known
    why_unknown: str = ""  # why the expected numbers are not known

    @property
    def status(self) -> NDArray[np.object_] | None:
        """A mark per sample; None if there are none."""
        marks = np.full(len(self.label), "", dtype=object)
        marks[self.undecided] = UNDECIDED_SUSPECT
        marks[self.applied] = APPLIED_SUGGESTION
        marks[self.conflict] = CONFLICT
        return marks if (marks != "").any() else None

    def describe(self, changed: int, undecided: int, *, with_suspects: bool) -> str:
        """What the export changes, and how much of it is expected to be right.

        `undecided` suspects keep their label in the export, or are not in it (`with_suspects` is false).
        """
        applied, dropped = int(self.applied.sum()), int(self.dropped.sum())
        parts = [f"{counted(changed, 'label')} changed"]
        if applied:
            parts.append(f"{applied:,} of them by suggestions, {self._expected(self.right)} expected right")
        if dropped:
            wrong = self._expected(self.wrong)
            parts.append(f"{counted(dropped, 'suspect')} dropped, {wrong} expected to have a wrong label")
        if undecided:
            one, many = ("keeps its label", "keep their label") if with_suspects else ("is left out", "are left out")
            parts.append(counted(undecided, f"undecided suspect {one}", f"undecided suspects {many}"))
        if conflicts := int(self.conflict.sum()):
            parts.append(f"samples on which reviewers disagree keep their label: {conflicts:,}")
        return "; ".join(parts)

    def _expected(self, expected: Expected | None) -> str:
        return f"an unknown number of them ({self.why_unknown})" if expected is None else str(expected)

    def refusal(self, run: Path) -> str:
        """Why the suggestions are not applied: most of them may be wrong, and no decisions say otherwise."""
        applied = int(self.applied.sum())
        if applied == 0 or (self.right is not None and self.right.enough_of(applied)):
            return ""
        if self.right is None:
            return f"--apply suggested: {self.why_unknown}; decide on the suggestions with labelsieve review {run}"
        which = f"{SAMPLE_SIZE} random ones" if applied > SAMPLE_SIZE else "them"
        least, expected = round(self.right.least), round(self.right.number)
        few = f"only {least:,}" if least else "none"
        return (
            f"--apply suggested: about {expected:,} of {applied:,} suggestions are expected to be right, but by the "
            f"interval of the noise estimate perhaps {few}; review {which} first (labelsieve review {run}, key a)"
        )


def resolve_labels(facts: Facts, settings: ExportSettings) -> Outcome:
    """Apply the decisions, and what `settings` request for suspects without one."""
    columns, state, probability = facts.columns, facts.log.state, facts.suggested_probability
    pending = columns.suspect() & (state == Choice.UNDECIDED)
    suggested, dropping = np.zeros((2, len(columns)), dtype=bool)
    if settings.changes_undecided and probability is None:
        raise InputError(
            f"{facts.run.path} has no probabilities (protocol paper), which --apply suggested and --drop-suspects "
            "need; --what selected leaves all suspects out"
        )
    if settings.apply == "suggested" and probability is not None:
        suggested = columns.suspect() & (np.nan_to_num(probability, nan=-1.0) >= settings.min_confidence)
    if settings.drop_suspects is not None:
        suspicious = np.nan_to_num(columns.suspicion, nan=-1.0) >= settings.drop_suspects
        dropping = (columns.verdict != SELECTED) & suspicious & ~suggested
    applied, dropped = pending & suggested, (state == Choice.UNDECIDED) & dropping
    label = np.where(facts.log.label >= 0, facts.log.label, columns.label)
    label = np.where(applied, columns.suggested, label).astype(np.int32)
    right, wrong, why = None, None, facts.why_unknown
    if why is None and probability is not None:
        right = facts.expected_right(suggested, settings.min_confidence)
        wrong = facts.expected_wrong(dropping)
    stays = (state != Choice.DROP) & ~dropped
    undecided, conflict = pending & ~applied & ~dropped, state == Choice.CONFLICT
    reason = WHY_UNKNOWN[why].reason if why is not None else ""
    return Outcome(label, stays, undecided, applied, dropped, conflict, right, wrong, reason)
