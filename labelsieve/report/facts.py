"""The facts of a report, collected from the files of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from labelsieve.decisions import DecisionLog
from labelsieve.labels_csv import LabelColumns, pair_counts
from labelsieve.report.spot_check import CheckedNoise, SpotCheck
from labelsieve.runfolder import DECISIONS, RunFolder
from labelsieve.selection.finalize import SUGGESTIONS, fits_no_class, read_suggestions
from labelsieve.types import SELECTED, BoolArray, FloatArray, IntArray, NoiseEstimate, WhyUnknown

# A report explains why there are more suspects than wrong labels if both limits are exceeded.
MANY_SUSPECTS_FACTOR, MANY_SUSPECTS_SHARE = 1.5, 0.02

WHY_UNKNOWN = {
    WhyUnknown.RANDOM: "the labels cannot be distinguished from random ones",
    WhyUnknown.WEAK: "the classifier is too weak",
    WhyUnknown.LEAK: "one column tells the labels by itself",
}


@dataclass(frozen=True)
class Facts:
    run: Path
    record: Mapping[str, Any]
    summary: Mapping[str, Any]
    history: list[dict[str, Any]]
    columns: LabelColumns
    suspects: IntArray  # rows by descending suspicion
    pairs: dict[tuple[int, int], int]  # number of suspects per given and suggested label
    log: DecisionLog
    suggested_probability: FloatArray | None  # of every suspect; None: suspicion is a rank, not a probability

    @property
    def name(self) -> str:
        data = self.record.get("data") or {}
        return str(data.get("name") or self.run.name)

    @property
    def title(self) -> str:
        """The name of the data, and the name of the run if it is another one."""
        folder = self.run.resolve().name
        return self.name if self.name == folder else f"{self.name}, run {folder}"

    @property
    def decided_suspects(self) -> int:
        return int(np.count_nonzero(self.log.decided[self.suspects]))

    @property
    def checked_noise(self) -> CheckedNoise | None:
        """Share of wrong labels by decisions on random samples."""
        if self.suggested_probability is None:
            return None
        return SpotCheck(self.columns, self.suggested_probability).noise(self.log)

    @cached_property
    def no_class(self) -> BoolArray:
        return no_class(self.columns, self.suggested_probability)

    @property
    def selected(self) -> int:
        return int(np.sum(self.columns.verdict == SELECTED))

    @property
    def noise_ratio(self) -> float | None:
        return number(self.summary.get("noise_ratio"))

    @property
    def noise(self) -> NoiseEstimate | None:
        return noise_of(self.summary)

    @property
    def why_unknown(self) -> WhyUnknown | None:
        """Why the noise estimate says nothing; None if it does."""
        return why_unknown(self.summary)

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


def noise_of(summary: Mapping[str, Any]) -> NoiseEstimate | None:
    """The noise estimate of a run; None if it has none."""
    record = first_iteration(summary).get("estimate")
    return NoiseEstimate.from_record(record) if isinstance(record, Mapping) else None


def why_unknown(summary: Mapping[str, Any]) -> WhyUnknown | None:
    """Why the noise estimate of a run says nothing; None if it does."""
    noise = noise_of(summary)
    return noise.why_unknown if noise is not None else None


def first_iteration(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """The iteration that estimated the noise; empty if there is none."""
    found = summary.get("iterations")
    return found[0] if isinstance(found, list) and found and isinstance(found[0], Mapping) else {}


def not_assessed(summary: Mapping[str, Any], classes: Sequence[str]) -> list[int]:
    """Codes of the classes whose labels the selection did not assess."""
    listed = first_iteration(summary).get("unjudged_classes")
    codes = listed if isinstance(listed, list) else []
    return [code for code in codes if isinstance(code, int) and 0 <= code < len(classes)]


def suggested_probabilities(run: RunFolder, columns: LabelColumns) -> FloatArray | None:
    """Probability of every suggestion, nan for other samples; None if suspicion is a rank, not a probability."""
    by_id = read_suggestions(run / SUGGESTIONS)
    if by_id is None:
        return None
    found = np.full(len(columns), np.nan)
    rows = columns.find(list(by_id))
    found[rows[rows >= 0]] = np.array(list(by_id.values()))[rows >= 0]
    return found


def no_class(columns: LabelColumns, suggested_probability: FloatArray | None) -> BoolArray:
    """Suspects that may belong to none of the classes."""
    if suggested_probability is None:
        return np.zeros(len(columns), dtype=bool)
    return columns.suspect() & fits_no_class(columns.suspicion, suggested_probability)


def read_facts(run: RunFolder) -> Facts:
    summary = run.read_summary()
    columns = run.columns(summary.get("classes"))
    suspects = columns.ranked(np.flatnonzero(columns.suspect()))
    return Facts(
        run=run.path,
        record=run.record(),
        summary=summary,
        history=run.read_history(),
        columns=columns,
        suspects=suspects,
        pairs=pair_counts(columns, suspects),
        log=DecisionLog(run / DECISIONS, columns),
        suggested_probability=suggested_probabilities(run, columns),
    )


def number(value: object) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if np.isfinite(value) else None
