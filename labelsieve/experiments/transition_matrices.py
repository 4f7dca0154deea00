"""Figure 1: noise transition matrices, 5 classes at ratio 0.4. Nothing is trained."""

from __future__ import annotations

from pathlib import Path

from labelsieve import theory
from labelsieve.experiments.cells import Cell, Wish
from labelsieve.experiments.plots import canvas, heat
from labelsieve.experiments.plots import table as markdown
from labelsieve.experiments.records import Record
from labelsieve.experiments.settings import Scale

CLASSES, RATIO = 5, 0.4


def cells(scale: Scale, wish: Wish) -> list[Cell]:
    return []


def table(found: list[Record], scale: Scale) -> str:
    """The diagonal and what the theory makes of each matrix."""
    rows = []
    for pattern, name in (("symmetric", "symmetric"), ("pair", "asymmetric (pair)")):
        T = theory.matrix(pattern, CLASSES, RATIO)
        off = sorted({round(float(v), 4) for v in T[0, 1:]}, reverse=True)
        numbers = (theory.test_accuracy(T), theory.label_precision(T), theory.label_recall(T))
        rows.append([name, f"{T[0, 0]:.2f}", " and ".join(f"{v:g}" for v in off), *(f"{v:.4f}" for v in numbers)])
    return markdown(["pattern", "T_ii", "T_ij", "test accuracy", "LP", "LR"], rows)


def figure(found: list[Record], scale: Scale, results: Path, path: Path) -> None:
    with canvas(path, 1, 2) as axes:
        heat(axes[0, 0], theory.symmetric(CLASSES, RATIO), f"symmetric, {RATIO}")
        heat(axes[0, 1], theory.pair(CLASSES, RATIO), f"asymmetric (pair), {RATIO}")
