"""How far the probabilities of a run hold, and how many labels are wrong, from decisions on random samples.

The samples of a run form three groups: suspects whose suggestion has at least a given probability, other suspects, and
all other samples. Each group has a fixed random order. A person judges the first `SAMPLE_SIZE` of a group; the decided
ones from the start of the order up to the first undecided one are its random sample. Other decisions are not used: a
person who starts with the most suspicious labels does not decide on a random sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from labelsieve.decisions import Choice, DecisionLog
from labelsieve.labels_csv import LabelColumns
from labelsieve.types import FloatArray, IntArray

SAMPLE_SIZE = 20  # decisions take a minute, and 20 of 20 right means at least 86 % right with a probability of 95 %
MIN_CHECKED = 10  # a smaller sample of a group says too little: the noise model is used instead
DEFAULT_CONFIDENCE = 0.9  # of `export --min-confidence` (benchmarks/exports.md)


class Group(StrEnum):
    SUGGESTED = "suggested"  # suspects with a probable suggestion
    OTHER = "other"  # other suspects
    REST = "rest"  # samples that are not suspects


@dataclass(frozen=True)
class GroupCheck:
    """A group and its random sample."""

    size: int
    checked: int
    wrong: int  # labels in the sample that were changed or dropped
    right_suggestions: int  # of the sample
    model_wrong: float  # share of wrong labels by the noise model
    model_right: float  # mean probability of the suggestions, nan if there are none

    @property
    def known(self) -> bool:
        return self.checked >= min(MIN_CHECKED, self.size)


@dataclass(frozen=True)
class CheckedNoise:
    """Share of wrong labels by decisions, with a 95 % interval, and the share of samples in groups without a check."""

    ratio: float
    low: float
    high: float
    unchecked: float
    decided: int


class SpotCheck:
    """The random samples of a run."""

    def __init__(self, columns: LabelColumns, probability: FloatArray) -> None:
        self.columns, self.probability = columns, np.nan_to_num(probability, nan=-1.0)
        self._order = np.random.default_rng(0).permutation(len(columns))
        self._suspect = columns.suspect()

    def rows(self, group: Group, confidence: float) -> IntArray:
        """The rows of a group in random order."""
        probable = self._suspect & (self.probability >= confidence)
        other = self._suspect & ~probable
        mask = {Group.SUGGESTED: probable, Group.OTHER: other, Group.REST: ~self._suspect}[group]
        return np.asarray(self._order[mask[self._order]])

    def check(self, group: Group, confidence: float, log: DecisionLog) -> GroupCheck:
        rows, columns = self.rows(group, confidence), self.columns
        settled = (log.state[rows] != Choice.UNDECIDED) & (log.state[rows] != Choice.CONFLICT)
        checked = int(np.argmin(settled)) if not settled.all() else len(rows)
        sample = rows[:checked]
        wrong = int(np.sum(log.state[sample] != Choice.KEEP))
        right = int(np.sum((log.state[sample] == Choice.RELABEL) & (log.label[sample] == columns.suggested[sample])))
        suspicion = columns.suspicion[rows][~np.isnan(columns.suspicion[rows])]
        model_wrong = float(suspicion.mean()) if len(suspicion) else 0.0
        model_right = float(self.probability[rows].mean()) if len(rows) and group is not Group.REST else math.nan
        return GroupCheck(len(rows), checked, wrong, right, model_wrong, model_right)

    def noise(self, log: DecisionLog, confidence: float = DEFAULT_CONFIDENCE) -> CheckedNoise | None:
        """The stratified estimate over the groups; None if no group has a sample.

        The interval uses the variance of each share under Jeffreys' prior. A group without a sample contributes the
        share of the noise model and no variance, and is counted in `unchecked`.
        """
        checks = [self.check(group, confidence, log) for group in Group]
        if not any(check.known and check.checked for check in checks):
            return None
        total, ratio, variance, unchecked = len(self.columns), 0.0, 0.0, 0
        for check in checks:
            weight = check.size / total
            if not check.known:
                ratio, unchecked = ratio + weight * check.model_wrong, unchecked + check.size
            elif check.size:
                ratio += weight * check.wrong / check.checked
                wrong, right = check.wrong + 0.5, check.checked - check.wrong + 0.5
                left = 1 - check.checked / check.size  # a group that is decided completely has no uncertainty
                variance += left * weight**2 * wrong * right / ((wrong + right) ** 2 * (wrong + right + 1))
        half = 1.96 * math.sqrt(variance)
        decided = sum(check.checked for check in checks)
        return CheckedNoise(ratio, max(0.0, ratio - half), min(1.0, ratio + half), unchecked / total, decided)
