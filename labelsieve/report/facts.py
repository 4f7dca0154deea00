"""What a report says, before it is HTML: gathered from the files of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labelsieve.labels_csv import LabelColumns, pair_counts, read_labels
from labelsieve.report.html import percent, plural
from labelsieve.runfolder import RunFolder
from labelsieve.selection.estimate import OVERLAP, WEAK
from labelsieve.selection.state import NOT_JUDGED
from labelsieve.selection.suggestions import NAME, read_suggestions
from labelsieve.types import SELECTED, FloatArray, IntArray, NoiseEstimate, WhyUnknown

UNGRADED = "the classifier's own mistakes cannot be told from wrong labels"
WORSE = "the classifier seems to be wrong more often than the labels are"
MOST_MISTAKES = 1 / 8  # of a classifier whose suggestions are taken unseen (benchmarks/unseen-changes.md)
MANY_TIMES, MANY_MORE = 1.5, 0.02  # suspects as against wrong labels: where both are exceeded somebody will wonder


@dataclass(frozen=True)
class Facts:
    run: Path
    record: Mapping[str, Any]
    summary: Mapping[str, Any]
    history: list[dict[str, Any]]
    columns: LabelColumns
    suspects: IntArray  # rows, the most suspicious first
    pairs: dict[tuple[int, int], int]  # suspects labelled i and suggested j
    decided: int  # of the suspects
    touched: bool  # has anybody decided on any sample: then only what was decided changes
    likely: Mapping[str, float] | None  # probability of the label suggested, by id; None: suspicion is a rank only

    @property
    def name(self) -> str:
        data = self.record.get("data") or {}
        return str(data.get("name") or self.run.name)

    @property
    def title(self) -> str:
        """The data's name, and the run's where it says more."""
        return self.name if self.name == self.run.resolve().name else f"{self.name}, run {self.run.resolve().name}"

    @property
    def selected(self) -> int:
        return int(np.sum(self.columns.verdict == SELECTED))

    @property
    def noise_ratio(self) -> float | None:
        return number(self.summary.get("noise_ratio"))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The estimate's interval, wherever the selection's record keeps it."""
        for entry in nested(self.summary):
            low, high = number(entry.get("low")), number(entry.get("high"))
            if low is not None and high is not None:
                return low, high
        return None

    @property
    def trust(self) -> str | None:
        """The sentence that says how far to believe the estimate."""
        return trust_of(self.summary)

    @property
    def ignorance(self) -> str:
        return ignorance(self.summary)

    @property
    def notes(self) -> list[str]:
        """What the selection remarked, without what is said elsewhere."""
        notes = self.summary.get("notes")
        said = [str(note) for note in notes] if isinstance(notes, list) else []
        return [note for note in said if not self.trust or self.trust not in note]

    @property
    def transition(self) -> FloatArray | None:
        """The transition matrix over `columns.classes`, None where the run has none that fits."""
        try:
            matrix = np.asarray(self.summary.get("transition_matrix"), dtype=float)
        except (TypeError, ValueError):
            return None
        named = self.summary.get("classes")
        fits = isinstance(named, list) and matrix.ndim == 2 and matrix.shape == (len(named), len(named))
        return matrix if fits else None

    def headline(self) -> tuple[str, str]:
        """One sentence that says it, one that explains it."""
        found, total = len(self.suspects), len(self.columns)
        ratio = self.noise_ratio
        if self.ignorance == WEAK:
            first = "The classifier is too weak to say how many labels are wrong."
        elif self.ignorance == UNGRADED:
            first = "The classifier is equally sure of most labels: how many are wrong is not known."
        elif self.ignorance:
            first = "These labels cannot be told from random ones."
        elif ratio is None:
            first = f"{plural(found, 'label')} of {total:,} look wrong." if found else "No label looks wrong."
        elif ratio < 0.005 and not found:
            first = "These labels look clean."
        elif ratio < 0.005:
            first = "Almost all labels look right."
        else:
            first = f"About {percent(ratio)} of the labels look wrong."
        are = "is a suspect" if found == 1 else "are suspects"
        second = f"{plural(found, 'sample')} of {total:,} {are} with another label suggested"
        precision = number(self.summary.get("label_precision"))
        second += f"; {plural(self.selected, 'was', 'were')} selected as clean"
        if precision is not None and self.selected and not self.ignorance:
            second += f", of which about {percent(precision)} are expected to be right"
        return first, second + "."

    def why_so_many(self) -> str:
        """Why many more samples are suspects than labels are wrong; empty where they are not."""
        found, ratio = len(self.suspects), self.noise_ratio
        share = found / max(len(self.columns), 1)
        if ratio is None or self.ignorance or share < MANY_TIMES * ratio or share < ratio + MANY_MORE:
            return ""
        told = "A suspect is a sample whose label was not predicted; where the classifier is weak, many of these labels"
        if self.likely is None:  # suspicion is no probability that could be summed
            return f"{told} are right, and the most suspicious stand first."
        wrong = round(float(np.nansum(self.columns.suspicion[self.suspects])))
        return (
            f"{told} are right: about {wrong:,} of the {plural(found, 'suspect')} are expected to be wrong"
            " (the sum of their suspicions), and the most suspicious stand first."
        )


def noise_of(summary: Mapping[str, Any]) -> NoiseEstimate | None:
    """The noise estimate of a run; None if it has none."""
    record = first_iteration(summary).get("estimate")
    return NoiseEstimate.from_record(record) if isinstance(record, Mapping) else None


def trust_of(summary: Mapping[str, Any]) -> str | None:
    """The sentence that says how far to believe the estimate."""
    noise = noise_of(summary)
    return None if noise is None else noise.explanation


def ignorance(summary: Mapping[str, Any]) -> str:
    """Why a selection's numbers say nothing, where it said so itself: it cannot tell the labels from random ones,
    misses whole classes, or is equally sure of most. Empty where they do."""
    noise = noise_of(summary)
    why = None if noise is None else noise.why_unknown
    if why is WhyUnknown.RANDOM:
        return "the labels cannot be told from random ones"
    return WEAK if why is WhyUnknown.WEAK else ""


def first_iteration(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """The one that measured the noise; empty where the run has none."""
    found = summary.get("iterations")
    return found[0] if isinstance(found, list) and found and isinstance(found[0], Mapping) else {}


def unjudged(summary: Mapping[str, Any], classes: Sequence[str]) -> list[int]:
    """Codes of classes whose labels the selection did not judge, where it said so itself."""
    listed = first_iteration(summary).get("unjudged_classes")
    if isinstance(listed, list):
        return [code for code in listed if isinstance(code, int) and 0 <= code < len(classes)]
    notes = summary.get("notes")  # older runs have a note for each class
    said = [str(note) for note in notes if NOT_JUDGED in str(note)] if isinstance(notes, list) else []
    starts = [(f"class {name!r} (", f"class {name} (") for name in classes] if said else []
    return [code for code, start in enumerate(starts) if any(note.startswith(start) for note in said)]


def outdone(summary: Mapping[str, Any]) -> str:
    """Why suggestions should not be taken unseen: what wrong labels do not explain of the disagreement in iteration 1
    are the classifier's own mistakes. Where these are more, a disagreement speaks against the classifier; where they
    are many, part of them was taken for noise, too."""
    if OVERLAP in (trust_of(summary) or ""):
        return "what so few columns cannot tell apart looks like a wrong label"
    first = first_iteration(summary)
    ratio, agree, asked = map(number, (summary.get("noise_ratio"), first.get("selected"), first.get("candidates")))
    if ratio is None or ratio >= 1 or agree is None or not asked:
        return ""
    mistakes = 1 - agree / asked / (1 - ratio)
    if mistakes > ratio:
        told = f"about {100 * mistakes:.0f} % against {100 * ratio:.0f} %"  # both as measured: the noise may read low
        return f"{WORSE} ({told})"
    if mistakes > MOST_MISTAKES:
        return f"the classifier seems to be wrong on about {100 * mistakes:.0f} % of the samples"
    return ""


def read_facts(run: RunFolder) -> Facts:
    summary = run.read_summary()
    classes = summary.get("classes")
    columns = read_labels(run / "labels.csv", classes if isinstance(classes, list) else ())
    suspects = columns.ranked(np.flatnonzero(columns.suspect()))
    last = {made.id: made.decision for made in run.read_decisions()}
    made = {id for id, decision in last.items() if decision != "undo"}
    return Facts(
        run=run.path,
        record=run.record(),
        summary=summary,
        history=run.read_history(),
        columns=columns,
        suspects=suspects,
        pairs=pair_counts(columns, suspects),
        decided=len(made.intersection(columns.ids.take(suspects).to_pylist())) if made else 0,
        touched=bool(made),
        likely=read_suggestions(run / NAME),
    )


def number(value: object) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if np.isfinite(value) else None


def nested(value: object) -> Iterator[Mapping[str, Any]]:
    """Every mapping inside `value`, outermost first, latest list entries first."""
    if isinstance(value, Mapping):
        yield value
        for entry in value.values():
            yield from nested(entry)
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for entry in reversed(value):
            yield from nested(entry)
