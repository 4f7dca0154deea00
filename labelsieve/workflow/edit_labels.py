"""Make new label files from the labels of a source: corrupted ones, and ones with other classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from labelsieve import noise
from labelsieve.csv_files import parse_names
from labelsieve.data.label_notes import class_counts, same_spelling
from labelsieve.data.labels import OTHERS
from labelsieve.errors import InputError
from labelsieve.types import FloatArray, IntArray, LabelledData

INSTANCE = "instance"  # noise that depends on the sample


def corrupt_labels(
    data: LabelledData, pattern: str, ratio: float, seed: int, *, transition: FloatArray | None = None
) -> IntArray:
    """Return corrupted labels: by a transition matrix if one is given, else by the noise pattern."""
    rng, codes = np.random.default_rng(seed), np.arange(len(data.classes))
    if transition is not None:
        if len(transition) != len(codes):
            raise InputError(f"--matrix is for {len(transition)} classes, {data.name} has {len(codes)}")
        return np.asarray(noise.corrupt(data.y, transition, rng, classes=codes))
    if pattern != INSTANCE:
        return np.asarray(noise.corrupt(data.y, noise.matrix(pattern, len(codes), ratio), rng, classes=codes))
    if data.kind == "text":
        raise InputError("--pattern instance needs pictures or numbers; these samples are texts")
    return np.asarray(noise.corrupt_by_instance(data.y, np.asarray(data.x), ratio, rng, classes=codes))


@dataclass(frozen=True)
class ClassChanges:
    """How classes are renamed and which are dropped, and what the classes are afterwards."""

    renamed: dict[str, str]
    dropped: tuple[str, ...]
    counts: dict[str, int]  # samples per class afterwards

    @classmethod
    def of(cls, data: LabelledData, merge: Mapping[str, str], drop: Sequence[str], *, alike: bool) -> ClassChanges:
        """Rename the classes in `merge`, drop those in `drop`, and with `alike` join different spellings."""
        before = class_counts(data)
        for option, names in (("--merge", list(merge)), ("--leave-out", drop)):
            for name in names:
                if name not in before:
                    raise InputError(f"{option} {name}: {data.name} has no class {name!r}")
        joined = same_spelling(before) if alike else {}
        renamed = {name: merge.get(new, new) for name, new in joined.items()} | dict(merge)
        counts: dict[str, int] = {}
        for name, count in before.items():
            if name not in drop:
                new = renamed.get(name, name)
                counts[new] = counts.get(new, 0) + count
        return cls(renamed, tuple(sorted(drop)), counts)

    def rows(self, data: LabelledData) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of the label file; its last column counts the samples that were left out."""
        left_out = len(data) - sum(self.counts.values())
        yield ("id", "label", OTHERS) if left_out else ("id", "label")
        names = [str(name) for name in data.classes]
        for id, code in zip(data.ids.tolist(), data.y.tolist(), strict=True):
            if (name := names[code]) not in self.dropped:
                label = self.renamed.get(name, name)
                yield (id, label, left_out) if left_out else (id, label)


def parse_renames(text: str) -> dict[str, str]:
    """Parse `OLD=NEW, OLD=NEW`."""
    found: dict[str, str] = {}
    for cell in parse_names(text, "--merge"):
        old, equals, new = (part.strip() for part in cell.partition("="))
        if not old or not equals or not new or "=" in new:
            raise InputError(f"--merge {cell!r}: write OLD=NEW, such as --merge 'Y=yes, N=no'")
        if found.setdefault(old, new) != new:
            raise InputError(f"--merge: {old!r} cannot become both {found[old]!r} and {new!r}")
    return found


def label_rows(data: LabelledData, given: IntArray) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a label file with given and true labels."""
    names = [str(name) for name in data.classes]
    yield ("id", "label", "true")
    for id, code, true in zip(data.ids.tolist(), given.tolist(), data.y.tolist(), strict=True):
        yield id, names[code], names[true]
