"""Section 5.1: figures 1 to 3, the closed forms against trained networks.

labelsieve reproduce transition-matrices                figure 1; nothing is trained
labelsieve reproduce theory --data DIR                  figure 2; 21 trainings of ResNet-110, 200 epochs, in lockstep
labelsieve reproduce confusion --data DIR               figure 3 and supplement B, from five of these trainings
labelsieve reproduce theory-without-decay --data DIR    figure 2 without weight decay, with Adam's state kept
labelsieve reproduce confusion-without-decay --data DIR
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from labelsieve import theory
from labelsieve.experiments import paper, render
from labelsieve.experiments.cells import WITHOUT_DECAY, Cell, SweepRequest, theory_cells
from labelsieve.experiments.paper import FIGURE_3_NOISES, Noise, Scale
from labelsieve.experiments.records import Record
from labelsieve.experiments.render import Item, Summary, markdown, summarise

MEASURES: dict[str, tuple[str, Callable[[Any], float]]] = {
    "test_accuracy": ("test accuracy", theory.test_accuracy),
    "label_precision": ("LP", theory.label_precision),
    "label_recall": ("LR", theory.label_recall),
}

# ---------------------------------------------------------------- figure 1

MATRIX_CLASSES, MATRIX_RATIO = 5, 0.4  # as in figure 1
MATRICES = {
    "symmetric": theory.symmetric(MATRIX_CLASSES, MATRIX_RATIO),
    "asymmetric (pair)": theory.pair(MATRIX_CLASSES, MATRIX_RATIO),
}


def matrices_table(found: list[Record], scale: Scale) -> str:
    rows = []
    for name, T in MATRICES.items():
        off = sorted({round(float(v), 4) for v in T[0, 1:]}, reverse=True)
        expected = [f"{closed_form(T):.4f}" for _, closed_form in MEASURES.values()]
        rows.append([name, f"{T[0, 0]:.2f}", " and ".join(f"{v:g}" for v in off), *expected])
    return markdown(["pattern", "T_ii", "T_ij", *(name for name, _ in MEASURES.values())], rows)


def matrices_figure(found: list[Record], scale: Scale, results: Path, path: Path) -> None:
    with render.canvas(path, 1, 2) as axes:
        for ax, (name, T) in zip(axes.flat, MATRICES.items(), strict=True):
            render.heatmap(ax, T, f"{name}, {MATRIX_RATIO}")


# ---------------------------------------------------------------- figure 2


def with_random_labels(found: list[Record]) -> list[Record]:
    """Return the records whose labels do not follow from the class: not those without noise and at pair 1.0."""
    return [record for record in found if record["results"]["theory"]["test_accuracy"] < 1]


def largest_gaps(found: list[Record]) -> dict[str, tuple[float, str]]:
    """For each measure, return the largest gap between a mean over seeds and its curve, and the noise setting."""
    gaps = {}
    for measure in MEASURES:
        candidates = [
            (float(summarise(group, "gap", measure).mean), noise.key) for noise, group in render.by_noise(found)
        ]
        gaps[measure] = max(candidates, key=lambda candidate: abs(candidate[0]))
    return gaps


def recall_with_own_errors(found: list[Record]) -> dict[Noise, float]:
    """Expected label recall of a network that also makes the errors it makes without noise.

    This is the mean of (C T)_ii, where C is the confusion matrix on the test set after training without noise. Empty if
    there is no such training.
    """
    groups = render.by_noise(found)
    confusions = [record["results"]["confusion"] for noise, group in groups if noise.ratio == 0 for record in group]
    if not confusions:
        return {}
    C = np.mean(confusions, axis=0)
    return {n: float(np.mean(np.diagonal(C @ np.array(g[0]["results"]["transition"])))) for n, g in groups}


def theory_table(found: list[Record], scale: Scale) -> str:
    notes, rows = render.Footnotes(), []
    groups, with_errors = render.by_noise(found), recall_with_own_errors(found)
    for noise, group in groups:
        row = [noise.title + notes.mark(group), str(len(group))]
        for measure in MEASURES:
            measured = summarise(group, measure)
            expected = group[0]["results"]["theory"][measure]
            row += [f"{expected:.3f}", measured.text(3), f"{float(measured.mean) - expected:+.3f}"]
        rows.append([*row, f"{with_errors[noise]:.3f}" if noise in with_errors else "-"])
    header = ["noise", "seeds"]
    for name, _ in MEASURES.values():
        header += [f"{name}: theory", "measured", "gap"]
    header.append("LR: theory with errors of the network")
    return (
        f"{markdown(header, rows)}\n{notes.lines()}\n"
        f"*Gap*: measured value minus theory. Largest gaps: {gaps_text(found)}. Largest gaps without symmetric 0 and "
        f"pair 1, where the class determines the given label: {gaps_text(with_random_labels(found))}. In the paper's "
        f"plot, points are up to {paper.FIGURE_2_LARGEST_GAP} below the curves, and at about "
        f"{paper.FIGURE_2_WITHOUT_NOISE:.2f} without noise. *With errors of the network*: the recall that is expected "
        "if the network also makes the errors that it makes on the test set after training without noise. "
        f"{render.seeds_text([g for _, g in groups])} per setting."
    )


def gaps_text(found: list[Record]) -> str:
    if not found:
        return "no records"
    gaps = largest_gaps(found)
    words = ", ".join(
        f"{name} {gaps[measure][0]:+.3f} at {gaps[measure][1]}" for measure, (name, _) in MEASURES.items()
    )
    return f"**{max(abs(gap) for gap, _ in gaps.values()):.3f}** ({words})"


def theory_figure(found: list[Record], scale: Scale, results: Path, path: Path) -> None:
    groups = render.by_noise(found)
    ratios = np.linspace(0, 1, 101)
    classes = found[0]["noise"]["classes"] if found else 10
    patterns = {"symmetric": "symmetric", "pair": "asymmetric (pair)"}
    with render.canvas(path, 2, 3, sharex=True, sharey=True, note=scale.note) as axes:
        for row, (pattern, title) in enumerate(patterns.items()):
            for column, (measure, (name, closed_form)) in enumerate(MEASURES.items()):
                ax = axes[row, column]
                curve = [closed_form(theory.matrix(pattern, classes, float(ratio))) for ratio in ratios]
                ax.plot(ratios, curve, color="#888888", label="theory")
                shown = [(noise, group) for noise, group in groups if noise.pattern == pattern or noise.ratio == 0]
                points = [summarise(group, measure) for _, group in shown]
                ax.errorbar(
                    [noise.ratio for noise, _ in shown],
                    [float(point.mean) for point in points],
                    yerr=[float(point.spread) for point in points],
                    fmt="o",
                    markersize=4,
                    color="#0072B2",
                    label="measured",
                )
                ax.set_title(f"{name}, {title}")
                ax.set_ylim(-0.03, 1.03)
                if row:
                    ax.set_xlabel("noise ratio")
        axes[0, 0].legend(frameon=False)


# ---------------------------------------------------------------- figure 3 and supplement B


def confusion_cells(scale: Scale, request: SweepRequest, *, kind: str = "theory") -> list[Cell]:
    noises = [noise for noise in FIGURE_3_NOISES if noise in scale.theory_noises]
    return theory_cells(scale, request, kind=kind, noises=noises)


def confusion_table(found: list[Record], scale: Scale) -> str:
    groups = render.by_noise(found, FIGURE_3_NOISES)
    if not groups:
        return render.NO_RECORDS
    notes, rows = render.Footnotes(), []
    for noise, group in groups:
        published = paper.TRAINING_ACCURACY.get(noise.key)
        diagonal = Summary.of([np.mean(np.diagonal(record["results"]["confusion"])) for record in group])
        rows.append(
            [
                noise.title + notes.mark(group),
                str(len(group)),
                summarise(group, "train_accuracy_given").text(2),
                "-" if published is None else f"{published:.2f}",
                diagonal.text(3),
                f"{np.mean(np.diagonal(group[0]['results']['transition'])):.3f}",
                summarise(group, "mean_difference").text(3),
                summarise(group, "largest_difference").text(3),
            ]
        )
    header = ["noise", "seeds", "training accuracy", "paper", "mean M_ii", "mean T_ii"]
    header += ["mean abs. M - T", "largest abs. M - T"]
    return f"{markdown(header, rows)}\n{notes.lines()}"


def confusion_figure(found: list[Record], scale: Scale, results: Path, path: Path) -> None:
    groups = render.by_noise(found, FIGURE_3_NOISES)
    with render.canvas(path, 2, max(1, len(groups)), width=2.6, height=2.7, note=scale.note) as axes:
        for column, (noise, group) in enumerate(groups):
            M = np.mean([record["results"]["confusion"] for record in group], axis=0)
            render.heatmap(axes[0, column], M, f"M, {noise.title}")
            render.heatmap(axes[1, column], group[0]["results"]["transition"], f"T, {noise.title}")


ITEMS = (
    Item(
        "transition-matrices",
        "Figure 1: noise transition matrices",
        "",
        lambda scale, request: [],
        matrices_table,
        matrices_figure,
    ),
    Item(
        "theory",
        "Figure 2: test accuracy, label precision and label recall against the theory",
        "theory",
        theory_cells,
        theory_table,
        theory_figure,
    ),
    Item(
        "confusion",
        "Figure 3 and supplement B: confusion matrix M and transition matrix T",
        "theory",
        confusion_cells,
        confusion_table,
        confusion_figure,
    ),
    Item(
        WITHOUT_DECAY,
        "Figure 2 without weight decay, with Adam's state kept",
        WITHOUT_DECAY,
        partial(theory_cells, kind=WITHOUT_DECAY),
        theory_table,
        theory_figure,
    ),
    Item(
        "confusion-without-decay",
        "Figure 3 and supplement B without weight decay, with Adam's state kept",
        WITHOUT_DECAY,
        partial(confusion_cells, kind=WITHOUT_DECAY),
        confusion_table,
        confusion_figure,
    ),
)
