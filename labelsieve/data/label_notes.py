"""Notes about labels: contradictions between equal samples, leaks, numbers, outcomes, and spellings of one class.

The user gets a note about each. None of them stops a run, and different spellings stay separate classes.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.cells import distinct_values
from labelsieve.data.columns import MAX_LEVELS, TableX, quote_name
from labelsieve.data.duplicates import Groups, groups_of
from labelsieve.data.read_options import ReadOptions
from labelsieve.progress import Note, NoteKind, format_share, join_names
from labelsieve.types import IntArray, LabelledData, WhyUnknown

# A column leaks the label if it removes this share of the errors of always naming the most frequent class. On real
# tables, all columns above determine the label by construction; the best measurement has 0.91
# (benchmarks/table-reading.md).
LEAK_GAIN = 0.95
MAX_COLUMNS = 100  # wider arrays are features of networks, in which no column has a meaning of its own
# Names of label columns that record what happened, which equal cases do not share.
OUTCOME_NAMES = frozenset(
    ("survived", "survival", "alive", "died", "death", "outcome", "churn", "churned", "default", "defaulted", "fraud",
     "readmitted", "relapse", "recurrence", "converted", "clicked", "won")
)  # fmt: skip


def label_notes(data: LabelledData, label_column: str = "") -> list[Note]:
    """Return the notes about the labels."""
    groups = groups_of(data)
    found = (_contradictions(data, groups), *_leaks(data), _numbers(data), _outcomes(data, label_column))
    return [note for note in found if note is not None]


def why_unknown(notes: Iterable[Note]) -> WhyUnknown | None:
    """Return why the noise of labels with these notes cannot be estimated; None if it can."""
    kinds = {note.kind for note in notes}
    if NoteKind.LEAK in kinds:
        return WhyUnknown.LEAK
    return WhyUnknown.OUTCOME if NoteKind.OUTCOMES in kinds else None


def _names_outcome(label_column: str) -> bool:
    return label_column.strip().casefold() in OUTCOME_NAMES


def _contradictions(data: LabelledData, groups: Groups) -> Note | None:
    several = [group for group in groups if len(set(data.y[group].tolist())) > 1]
    if not several:
        return None
    first = several[0][0]
    other = next(i for i in several[0] if data.y[i] != data.y[first])
    wrong = sum(len(group) - int(np.bincount(data.y[group]).max()) for group in several)
    pair = " and ".join(f"{data.ids[i] if len(data.ids) else i} ({data.classes[data.y[i]]})" for i in (first, other))
    count = sum(map(len, several))
    return Note.of(NoteKind.CONTRADICTIONS, count=count, pair=pair, wrong=wrong, share=format_share(wrong / len(data)))


def _leaks(data: LabelledData) -> Iterator[Note]:
    if data.kind != "table":
        return
    shares = np.bincount(data.y) / len(data.y)
    base = float(shares.max())
    for name, codes in _columns(data.x):
        share = accuracy_by_value(codes, data.y)
        if base < 1 and (share - base) / (1 - base) >= LEAK_GAIN:
            yield Note.of(NoteKind.LEAK, column=quote_name(name), share=format_share(share))


def _columns(x: Any) -> Iterator[tuple[str, IntArray]]:
    """Yield the name and the values of each column as codes; numbers with many values as codes of their quantiles."""
    if not isinstance(x, TableX):
        if isinstance(x, np.ndarray) and x.ndim == 2 and x.shape[1] <= MAX_COLUMNS and x.dtype.kind in "biuf":
            yield from ((f"column {at + 1}", _quantiles(x[:, at])) for at in range(x.shape[1]))
        return
    at = 0
    for column in x.encoding.columns:
        if column.kind == "number":
            gap = x.matrix[:, at + 1] if column.gaps else np.zeros(len(x))
            yield column.name, 2 * _quantiles(x.matrix[:, at]) + gap.astype(np.int64)
        elif column.form != "text":
            yield column.name, distinct_values(x.table.column(column.name))[0]
        at += column.width


def _quantiles(values: NDArray[Any]) -> IntArray:
    if len(np.unique(values)) > MAX_LEVELS:
        values = np.searchsorted(np.quantile(values, np.arange(1, MAX_LEVELS) / MAX_LEVELS), values)
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def accuracy_by_value(codes: IntArray, y: IntArray) -> float:
    """Return the share of samples whose class is the most frequent one among the other samples with the same value."""
    classes = int(y.max()) + 1
    pairs, counts = np.unique((codes + 1) * classes + y, return_counts=True)  # the code of a missing value is -1
    order = np.lexsort((-counts, pairs // classes))
    values, counts = pairs[order] // classes, counts[order]
    first = np.flatnonzero(np.diff(values, prepend=values[0] - 1))
    has_second = np.append(first[1:], len(values)) > first + 1
    second = np.where(has_second, counts[np.minimum(first + 1, len(counts) - 1)], 0)
    largest = counts[first]
    return float(largest[largest - 1 > second].sum() / len(y))


def _numbers(data: LabelledData) -> Note | None:
    """Integers that are not simply numbered from 0 or 1, such as ages and scores."""
    numbers = [name for name in data.classes if isinstance(name, int | np.integer) and not isinstance(name, bool)]
    if len(numbers) < 3 or len(numbers) < len(data.classes):
        return None
    low, high = min(numbers), max(numbers)
    if low in (0, 1) and high - low == len(numbers) - 1:
        return None
    return Note.of(NoteKind.NUMERIC_LABELS, count=len(numbers), low=low, high=high)


def _outcomes(data: LabelledData, label_column: str) -> Note | None:
    """By the name of the column alone: equal rows with different labels can also be mistakes."""
    return Note.of(NoteKind.OUTCOMES) if data.kind == "table" and _names_outcome(label_column) else None


EXAMPLES = 5  # shown in one note
PLACEHOLDERS = frozenset(("na", "n/a", "#n/a", "nan", "null", "none", "missing", "?", "-", "--", ".", "tbd"))


def fold_name(name: str) -> str:
    """A name in lower case, without spaces, dots, hyphens and underscores between its words."""
    folded = unicodedata.normalize("NFKC", name).casefold().strip()
    if not any(letter.isalpha() for letter in folded):  # -1 is not 1, and 1.0 is not 10
        return folded
    return re.sub(r"(?<=\w)[\s._-]+(?=\w)|_", "", folded)


def same_spelling(counts: Mapping[str, int]) -> dict[str, str]:
    """Names that differ from a more frequent name only in case or in the characters between words."""
    groups: dict[str, list[str]] = {}
    for name in counts:
        groups.setdefault(fold_name(name), []).append(name)
    found = {}
    for names in groups.values():
        usual = max(names, key=lambda name: counts[name])
        found.update({name: usual for name in names if name != usual})
    return found


def placeholders(counts: Mapping[str, int]) -> list[str]:
    """Names that people write if a label is missing."""
    return [name for name in counts if name.casefold() in PLACEHOLDERS]


def class_counts(data: LabelledData) -> dict[str, int]:
    """Number of samples per class, the largest class first."""
    codes, counts = np.unique(data.y, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return {str(data.classes[codes[i]]): int(counts[i]) for i in order}


def about_spelling(counts: Mapping[str, int], source: str, options: ReadOptions) -> str | None:
    """A note about names that may be one class, with the command that merges them; None if there are none."""
    variants, missing = same_spelling(counts), placeholders(counts)
    parts = []
    if missing:
        listed = ", ".join(f"{name!r} ({counts[name]:,})" for name in missing[:EXAMPLES])
        parts.append(f"classes that look like missing labels: {listed}")
    if variants:
        pairs = [f"{name!r} ({counts[name]:,}) and {usual!r} ({counts[usual]:,})" for name, usual in variants.items()]
        parts.append(f"classes that differ only in case or punctuation: {join_names(pairs, EXAMPLES)}")
    if not parts:
        return None
    command = ["labelsieve", "data", "classes", source, *options.words()]
    return f"{'; '.join(parts)}. They are separate classes; see `{shlex.join(command)}` to merge them"
