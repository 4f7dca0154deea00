"""The figures and tables, each by name: which cells it needs, and what is drawn from their records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from labelsieve.errors import InputError
from labelsieve.experiments import (
    accuracy,
    cifar10_errors,
    confusion,
    curves,
    selection,
    theory_check,
    transition_matrices,
    webvision,
    webvision_errors,
)
from labelsieve.experiments.cells import Cell, Wish
from labelsieve.experiments.records import Record
from labelsieve.experiments.settings import SCALES, WEBVISION, WITHOUT_DECAY, Scale


@dataclass(frozen=True)
class Item:
    """`kind` names the records it is drawn from; `figure` writes SVG and PNG, `table` gives Markdown.

    `scales` are its protocols: WebVision's items have their own, and a folder of their own as --data.
    """

    name: str
    title: str
    kind: str
    cells: Callable[[Scale, Wish], list[Cell]]
    table: Callable[[list[Record], Scale], str]
    figure: Callable[[list[Record], Scale, Path, Path], None] | None  # records, scale, results, path without ending
    scales: dict[str, Scale] = field(default_factory=lambda: SCALES)


ITEMS: dict[str, Item] = {
    item.name: item
    for item in (
        Item(
            "transition-matrices",
            "Figure 1: noise transition matrices",
            "",
            transition_matrices.cells,
            transition_matrices.table,
            transition_matrices.figure,
        ),
        Item(
            "theory",
            "Figure 2: test accuracy, label precision and label recall against the theory",
            "theory",
            theory_check.cells,
            theory_check.table,
            theory_check.figure,
        ),
        Item(
            "confusion",
            "Figure 3 and supplement B: confusion matrix M beside T",
            "theory",
            confusion.cells,
            confusion.table,
            confusion.figure,
        ),
        Item(
            WITHOUT_DECAY,
            "Figure 2 without weight decay, Adam's state kept",
            WITHOUT_DECAY,
            theory_check.cells_without_decay,
            theory_check.table,
            theory_check.figure,
        ),
        Item(
            "confusion-without-decay",
            "Figure 3 and supplement B without weight decay, Adam's state kept",
            WITHOUT_DECAY,
            confusion.cells_without_decay,
            confusion.table,
            confusion.figure,
        ),
        Item(
            "selection",
            "Figure 4: label precision and recall of INCV by iteration",
            "selection",
            selection.cells,
            selection.table,
            selection.figure,
        ),
        Item(
            "cifar10-errors",
            "Figure 5: suspects in CIFAR-10 as it is",
            "errors",
            cifar10_errors.cells,
            cifar10_errors.table,
            cifar10_errors.figure,
        ),
        Item(
            "accuracy",
            "Table 1: test accuracy of every method",
            "accuracy",
            accuracy.cells,
            accuracy.table,
            None,
        ),
        Item(
            "curves",
            "Figure 6: test accuracy by epoch",
            "accuracy",
            curves.cells,
            curves.table,
            curves.figure,
        ),
        Item(
            "webvision",
            "Table 2: top-1 and top-5 accuracy of every method on WebVision",
            "webvision",
            webvision.cells,
            webvision.table,
            None,
            WEBVISION,
        ),
        Item(
            "webvision-errors",
            "Supplement C: suspects in WebVision as it is",
            "webvision-selection",
            webvision_errors.cells,
            webvision_errors.table,
            webvision_errors.figure,
            WEBVISION,
        ),
    )
}


ON_CIFAR10 = tuple(name for name, item in ITEMS.items() if item.scales is SCALES)


def find(name: str) -> Item:
    if name not in ITEMS:
        raise InputError(f"no item {name!r}: choose one of {', '.join(ITEMS)}, or `list`")
    return ITEMS[name]
