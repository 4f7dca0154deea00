"""The settings of an export. The fields are the options of `labelsieve export`, the docstring is their help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from labelsieve.errors import Problems
from labelsieve.report.facts import DEFAULT_CONFIDENCE

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
        for option, share in (("min-confidence", self.min_confidence), ("drop-suspects", self.drop_suspects)):
            problems.check(share is None or 0 <= share <= 1, f"--{option} must be a number from 0 to 1, got {share}")
        fits = not self.changes_undecided or self.what in ("cleaned", "selected")
        problems.check(fits, f"--what {self.what}: --apply and --drop-suspects need --what cleaned or selected")
        problems.stop_if_any()
