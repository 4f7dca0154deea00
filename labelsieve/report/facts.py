"""The facts of a report, collected from the files of a run, and the spot checks of its probabilities.

A spot check says how far the probabilities of a run hold, and how many labels are wrong, from decisions on random
samples. The samples of a run form three groups: suspects whose suggestion has at least a given probability, other
suspects, and all other samples. Each group has a fixed random order. A person judges the first `SAMPLE_SIZE` of a
group; the reviewed ones from the start of the order up to the first that is not are its random sample. Other decisions
are not used: a person who starts with the most suspicious labels does not decide on a random sample, and suggestions
that were accepted together were not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from labelsieve.decisions import Choice, DecisionLog
from labelsieve.labels_csv import LabelColumns, pair_counts
from labelsieve.progress import counted
from labelsieve.report.source_state import RunSource
from labelsieve.runfolder import DECISIONS, RunFolder
from labelsieve.selection.finalize import SUGGESTIONS, read_suggestions
from labelsieve.types import SELECTED, BoolArray, FloatArray, IntArray, NoiseEstimate, Trust, WhyUnknown, fits_no_class

SAMPLE_SIZE = 20  # decisions take a minute, and 20 of 20 right means at least 86 % right with a probability of 95 %
MIN_CHECKED = 10  # a smaller sample of a group says too little: the noise model is used instead
DEFAULT_CONFIDENCE = 0.9  # of `export --min-confidence` (benchmarks/exports.md)
# Suggestions are not applied if, by the low end of the noise estimate, fewer than this share of them is right. In
# benchmarks/exports.md this refuses all harmful exports, and helpful ones whose noise estimate has a wide interval. An
# exception for suggestions above 0.9 let 18 of them through on unspoilt photos, of which at most 4 were right.
LEAST_RIGHT = 0.2


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
        return is_known(self.checked, self.size)

    def errors(self, number: int) -> tuple[float, float]:
        return sampling_errors(number, self.checked, self.size)


def is_known(checked: int, size: int) -> bool:
    """Whether a random sample says enough about its group."""
    return checked >= min(MIN_CHECKED, size)


def sampling_errors(number: int, checked: int, size: int) -> tuple[float, float]:
    """How far the share of a group may be below and above that of its sample, which has this `number`.

    The ends of the 95 % interval under Jeffreys' prior. If all of the group is checked, there is no error.
    """
    from scipy.special import betaincinv  # here, because the import takes long

    share, left = number / max(checked, 1), math.sqrt(1 - checked / max(size, 1))
    ends = (float(betaincinv(number + 0.5, checked - number + 0.5, end)) for end in (0.025, 0.975))
    low, high = (left * abs(share - end) for end in ends)
    return (low if number else 0.0), (high if number < checked else 0.0)


def hits_in_rest(number: int, checked: int, left: int) -> tuple[float, float]:
    """How many hits the `left` samples of a group without a decision have, and how much smaller this number may be.

    The `checked` ones are known, so an error in the number of hits in both together is one in the rest.
    """
    rest, together = left * number / checked, checked + left
    return rest, min(rest, together * sampling_errors(number, checked, together)[0])


class Expected(NamedTuple):
    """An expected number of samples, such as right suggestions among those without a decision."""

    number: float
    least: float  # by the low end of the noise estimate, or of the intervals of the random samples
    decisions: int = 0  # on random samples, from which the number follows; 0: it follows from the noise model

    def enough_of(self, applied: int) -> bool:
        """Whether enough of the `applied` suggestions are right to apply them without more decisions."""
        return self.decisions > 0 or self.least >= LEAST_RIGHT * applied

    @property
    def range(self) -> str:
        """The least number, if it is smaller than the expected one."""
        if round(self.least) == round(self.number):
            return ""
        return f"at least {self.least:,.0f}" if round(self.least) else "perhaps none"

    def __str__(self) -> str:
        by = f"by {counted(self.decisions, 'decision')} on a random sample" if self.decisions else ""
        details = ", ".join(part for part in (self.range, by) if part)
        return f"about {self.number:,.0f} of them" + (f" ({details})" if details else "")


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

    def sample(self, rows: IntArray, log: DecisionLog) -> IntArray:
        """The reviewed rows from the start of a random order up to the first that is not."""
        reviewed = log.reviewed[rows] & (log.state[rows] != Choice.CONFLICT)
        return rows if reviewed.all() else rows[: int(np.argmin(reviewed))]

    def is_wrong(self, rows: IntArray, log: DecisionLog) -> BoolArray:
        """Whether the label of reviewed rows was changed or dropped."""
        return np.asarray(log.state[rows] != Choice.KEEP)

    def is_right(self, rows: IntArray, log: DecisionLog) -> BoolArray:
        """Whether reviewed rows got their suggestion."""
        return np.asarray((log.state[rows] == Choice.RELABEL) & (log.label[rows] == self.columns.suggested[rows]))

    def check(self, group: Group, confidence: float, log: DecisionLog) -> GroupCheck:
        rows, columns = self.rows(group, confidence), self.columns
        sample = self.sample(rows, log)
        wrong, right = (int(count.sum()) for count in (self.is_wrong(sample, log), self.is_right(sample, log)))
        suspicion = columns.suspicion[rows][~np.isnan(columns.suspicion[rows])]
        model_wrong = float(suspicion.mean()) if len(suspicion) else 0.0
        model_right = float(self.probability[rows].mean()) if len(rows) and group is not Group.REST else math.nan
        return GroupCheck(len(rows), len(sample), wrong, right, model_wrong, model_right)

    def noise(
        self, log: DecisionLog, model: NoiseEstimate | None, confidence: float = DEFAULT_CONFIDENCE
    ) -> CheckedNoise | None:
        """The stratified estimate over the groups; None if no group has a sample.

        The errors of the groups are independent. A group without a sample contributes the share by the suspicions, is
        counted in `unchecked`, and makes the interval wider: its share is as uncertain, in proportion, as the ratio of
        the noise model.
        """
        checks = [self.check(group, confidence, log) for group in Group]
        if not any(check.known and check.checked for check in checks):
            return None
        total, ratio, below, above, unchecked, guessed = len(self.columns), 0.0, 0.0, 0.0, 0, 0.0
        for check in checks:
            weight = check.size / total
            if not check.known:
                guessed, unchecked = guessed + weight * check.model_wrong, unchecked + check.size
            elif check.size:
                ratio += weight * check.wrong / check.checked
                below, above = map(math.hypot, (below, above), (weight * error for error in check.errors(check.wrong)))
        low, high = _proportional(guessed, unchecked / total, model)
        below, above = math.hypot(below, guessed - low), math.hypot(above, high - guessed)
        ratio, decided = ratio + guessed, sum(check.checked for check in checks)
        return CheckedNoise(ratio, max(0.0, ratio - below), min(1.0, ratio + above), unchecked / total, decided)


def _proportional(share: float, most: float, model: NoiseEstimate | None) -> tuple[float, float]:
    """The interval of a part of the noise that is at most `most`, in proportion to the interval of the whole."""
    if model is None or not model.known or not math.isfinite(model.low + model.high) or model.ratio <= 0:
        return 0.0, most
    return share * min(1.0, model.low / model.ratio), min(most, share * max(1.0, model.high / model.ratio))


# A report explains why there are more suspects than wrong labels if both limits are exceeded.
MANY_SUSPECTS_FACTOR, MANY_SUSPECTS_SHARE = 1.5, 0.02


@dataclass(frozen=True)
class Facts:
    """The results of a run and the decisions on them. The report, the review and the export read a run with `read`."""

    run: RunFolder
    record: Mapping[str, Any]
    summary: Mapping[str, Any]
    columns: LabelColumns
    log: DecisionLog
    suggested_probability: FloatArray | None  # of every suspect, else nan; None: suspicion is a rank, not a probability

    @classmethod
    def read(cls, run: RunFolder) -> Facts:
        summary = run.read_summary()
        columns = run.columns(summary.get("classes"))
        log = DecisionLog(run / DECISIONS, columns)
        return cls(run, run.record(), summary, columns, log, suggested_probabilities(run, columns))

    @cached_property
    def source(self) -> RunSource:
        return RunSource.of(self.run)

    @cached_property
    def suspects(self) -> IntArray:
        """Rows by descending suspicion."""
        return self.columns.ranked(np.flatnonzero(self.columns.suspect()))

    @cached_property
    def pairs(self) -> dict[tuple[int, int], int]:
        """Number of suspects per given and suggested label."""
        return pair_counts(self.columns, self.suspects)

    @property
    def name(self) -> str:
        data = self.record.get("data") or {}
        return str(data.get("name") or self.run.path.resolve().name)

    @property
    def title(self) -> str:
        """The name of the data, and the name of the run if it is another one."""
        folder = self.run.path.resolve().name
        return self.name if self.name == folder else f"{self.name}, run {folder}"

    @property
    def embedded(self) -> bool:
        """Whether the run has embeddings. Only then it searches for near duplicates and outliers."""
        return bool((self.record.get("settings") or {}).get("embed"))

    @property
    def decided_suspects(self) -> int:
        return int(np.count_nonzero(self.log.decided[self.suspects]))

    @property
    def checked_noise(self) -> CheckedNoise | None:
        """Share of wrong labels by decisions on random samples."""
        return None if self.spot_check is None else self.spot_check.noise(self.log, self.noise)

    @cached_property
    def no_class(self) -> BoolArray:
        """Suspects that may belong to none of the classes."""
        if self.suggested_probability is None:
            return np.zeros(len(self.columns), dtype=bool)
        return self.columns.suspect() & fits_no_class(self.columns.suspicion, self.suggested_probability)

    @property
    def selected(self) -> int:
        return int(np.sum(self.columns.verdict == SELECTED))

    @property
    def noise_ratio(self) -> float | None:
        return number(self.summary.get("noise_ratio"))

    @cached_property
    def noise(self) -> NoiseEstimate | None:
        """The noise estimate; None if the run has none."""
        return NoiseEstimate.of_history(self.summary.get("iterations"))

    @property
    def rough_noise(self) -> tuple[float, float] | None:
        """The interval, if the estimated ratio may be far off."""
        found = self.noise
        if found is None or found.trust is not Trust.ROUGH or not math.isfinite(found.low + found.high):
            return None
        return found.low, found.high

    def least_wrong(self, number: float) -> float:
        """An expected number of wrong labels, by the low end of the noise estimate instead of its ratio."""
        noise = self.noise
        return number if noise is None or not noise.ratio > 0 else number * min(1.0, noise.low / noise.ratio)

    @cached_property
    def spot_check(self) -> SpotCheck | None:
        """The random samples; None if the run has no probabilities."""
        known = self.suggested_probability
        return None if known is None else SpotCheck(self.columns, known)

    def expected_right(self, among: BoolArray, confidence: float) -> Expected:
        """How many suggestions of the samples `among` without a decision are right."""
        assert self.spot_check is not None
        return self._expected(among, self.spot_check.is_right, self.spot_check.probability, confidence)

    def expected_wrong(self, among: BoolArray) -> Expected:
        """How many labels of the samples `among` without a decision are wrong."""
        assert self.spot_check is not None
        return self._expected(among, self.spot_check.is_wrong, self.columns.suspicion, DEFAULT_CONFIDENCE)

    def _expected(
        self, among: BoolArray, hits: Callable[[IntArray, DecisionLog], BoolArray], model: FloatArray, confidence: float
    ) -> Expected:
        """The number of hits: in each group by its random sample if that is large enough, else by the noise model.

        The part of a random sample that is `among` is a random sample of these rows.
        """
        assert self.spot_check is not None
        number, squares, least, decisions = 0.0, 0.0, 0.0, 0
        for group in Group:
            rows = self.spot_check.rows(group, confidence)
            sample = self.spot_check.sample(rows, self.log)
            rows, sample = rows[among[rows]], sample[among[sample]]
            left = int(np.sum(self.log.state[rows] == Choice.UNDECIDED))
            if not left:
                continue
            if len(sample) and is_known(len(sample), len(rows)):
                rest, error = hits_in_rest(int(hits(sample, self.log).sum()), len(sample), left)
                number, least, squares = number + rest, least + rest, squares + error**2
                decisions += len(sample)
            else:
                by_model = float(np.nansum(model[rows[self.log.state[rows] == Choice.UNDECIDED]]))
                number, least = number + by_model, least + self.least_wrong(by_model)
        return Expected(number, max(0.0, least - math.sqrt(squares)), decisions)

    @property
    def why_unknown(self) -> WhyUnknown | None:
        """Why the noise estimate says nothing; None if it does."""
        return self.noise.why_unknown if self.noise is not None else None

    @property
    def transition(self) -> FloatArray | None:
        """The transition matrix over `columns.classes`; None if the run has none of this size."""
        try:
            matrix = np.asarray(self.summary.get("transition_matrix"), dtype=float)
        except (TypeError, ValueError):
            return None
        named = self.summary.get("classes")
        fits = isinstance(named, list) and matrix.ndim == 2 and matrix.shape == (len(named), len(named))
        return matrix if fits else None

    @property
    def more_suspects_than_noise(self) -> bool:
        """Whether there are many more suspects than wrong labels."""
        ratio, share = self.noise_ratio, len(self.suspects) / max(len(self.columns), 1)
        if ratio is None or self.why_unknown:
            return False
        return share >= MANY_SUSPECTS_FACTOR * ratio and share >= ratio + MANY_SUSPECTS_SHARE


def suggested_probabilities(run: RunFolder, columns: LabelColumns) -> FloatArray | None:
    """Probability of every suggestion, nan for other samples; None if suspicion is a rank, not a probability."""
    by_id = read_suggestions(run / SUGGESTIONS)
    if by_id is None:
        return None
    found = np.full(len(columns), np.nan)
    rows = columns.find(list(by_id))
    found[rows[rows >= 0]] = np.array(list(by_id.values()))[rows >= 0]
    return found


def number(value: object) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if np.isfinite(value) else None
