"""Notes for the user: a kind, the values it mentions, and one sentence per kind.

Code asks for the kind of a note; only this module knows the sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class NoteKind(Enum):
    """Every kind of note, with its sentence."""

    SELECTION_STARTED = "{name}: {samples:,} samples, {classes} classes; {model}"
    SELECTION_RESUMED = "{name}: {samples:,} samples, {classes} classes; {model}; resuming"
    SELECTION_DONE = "{run}: the selection is already done"
    MEASURED_AGAIN = "{run}: the selection is already done; measured again with the current true labels"
    TRAININGS = "{stage}: {count} trainings"
    DAMAGED_ANSWER = "{file} is damaged; training again"
    ALL_PREDICTED = (
        "every label was predicted; if the model was trained on these samples, its predictions are not out-of-sample"
    )
    FEATURES = "{name}: the features are {columns}"
    SELECTION_NOT_MIRRORED = "classes differ by left and right: the selection does not mirror pictures"
    TRAINING_NOT_MIRRORED = (
        "training shifts but does not mirror pictures: the nearest neighbour has the same label for {plain:.1%} of the "
        "pictures, but only for {mirrored:.1%} of the mirrored ones. --augment mirror mirrors them anyway"
    )
    TRAINING_STARTED = "training {network} with {method}: {epochs} epochs, {samples}, {device}"
    TRAINING_RESUMED = "resuming the training of {network} with {method}: {epochs} epochs, {samples}, {device}"
    WEAK_NETWORK = "the network learned little: it agrees with {agreement:.1%} of {which}; {remedy}"
    SLOW_SELECTION = (
        "one training takes about {each}, the selection up to {count} of them. To be faster but less exact: {ways}, "
        "with another --out. Ctrl-C stops the run without losing anything"
    )
    SLOW_TRAINING = (
        "this training takes about {total}. To be faster but less exact: {ways}, with another --out. Ctrl-C stops the "
        "run without losing anything"
    )
    DECISIONS_NOT_USED = (
        "{count} in {file} are not used: training uses the selection of the run. To train on corrected labels: "
        "{export}, then {run}"
    )
    IDS_ARE_ROW_NUMBERS = "the ids of {source} are row numbers, starting at 0"
    IDS_CHANGED = "{source} has no column {column!r}, which has the ids in the run; its ids are {ids}"


@dataclass(frozen=True)
class Note:
    """One note."""

    kind: NoteKind
    values: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, kind: NoteKind, **values: Any) -> Note:
        """Make a note from keyword arguments."""
        return cls(kind, values)

    def __str__(self) -> str:
        return self.kind.value.format(**self.values)
