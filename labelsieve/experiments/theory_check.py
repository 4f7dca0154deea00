"""Figure 2: a network trained on half of the noisy data, tested on the other half, beside the closed forms.

labelsieve reproduce theory --data DIR                  21 trainings of ResNet-110, 200 epochs, in lockstep
labelsieve reproduce theory-without-decay --data DIR    without weight decay, Adam's state kept
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from labelsieve import theory
from labelsieve.experiments import paper
from labelsieve.experiments.cells import Cell, Wish, theory_cells
from labelsieve.experiments.plots import canvas
from labelsieve.experiments.plots import table as markdown
from labelsieve.experiments.records import Record
from labelsieve.experiments.settings import WITHOUT_DECAY, Noise, Scale
from labelsieve.experiments.summary import Footnotes, by_cell, noise_of, pick, seeds_text, value_with_spread

MEASURES = (("test_accuracy", "test accuracy"), ("label_precision", "LP"), ("label_recall", "LR"))


def cells(scale: Scale, wish: Wish) -> list[Cell]:
    return theory_cells(scale, wish)


def cells_without_decay(scale: Scale, wish: Wish) -> list[Cell]:
    return theory_cells(scale, wish, kind=WITHOUT_DECAY)


def grouped(found: list[Record]) -> list[tuple[Noise, list[Record]]]:
    """Settings in the order of the figure."""
    groups = [(noise_of(group[0]), group) for group in by_cell(found).values()]
    return sorted(groups, key=lambda pair: (pair[0].pattern != "symmetric", pair[0].ratio))


def random_labels(found: list[Record]) -> list[Record]:
    """Those with labels that do not follow from the class: without noise, and at pair 1.0, only mistakes are seen."""
    return [record for record in found if record["results"]["theory"]["test_accuracy"] < 1]


def largest_gap(found: list[Record]) -> dict[str, tuple[float, str]]:
    """For each measure the furthest any mean over seeds lies from its curve, and where."""
    furthest: dict[str, tuple[float, str]] = {}
    for noise, group in grouped(found):
        for measure, _ in MEASURES:
            gap = float(pick(group, lambda r, m=measure: r["results"]["gap"][m]).mean)  # type: ignore[misc]
            if measure not in furthest or abs(gap) > abs(furthest[measure][0]):
                furthest[measure] = (gap, noise.key)
    return furthest


def recall_after_mistakes(found: list[Record]) -> dict[Noise, float]:
    """Label recall, were predictions drawn from T after the mistakes that the network makes without noise: the mean of
    (C T)_ii, C its confusion matrix on the test set. Nothing where there is no training without noise."""
    groups = grouped(found)
    quiet = [record["results"]["confusion"] for noise, group in groups if noise.ratio == 0 for record in group]
    if not quiet:
        return {}
    own = np.mean(quiet, axis=0)
    return {n: float(np.mean(np.diagonal(own @ np.array(g[0]["results"]["transition"])))) for n, g in groups}


def table(found: list[Record], scale: Scale) -> str:
    if not found:
        return "No records yet."
    notes, rows = Footnotes(), []
    groups, mistaken = grouped(found), recall_after_mistakes(found)
    for noise, group in groups:
        row = [noise.title + notes.mark(group), str(len(group))]
        for measure, _ in MEASURES:
            measured = pick(group, lambda r, m=measure: r["results"][m])  # type: ignore[misc]
            expected = group[0]["results"]["theory"][measure]
            row += [f"{expected:.3f}", value_with_spread(measured, 3), f"{float(measured.mean) - expected:+.3f}"]
        rows.append([*row, f"{mistaken[noise]:.3f}" if noise in mistaken else "-"])
    header = ["noise", "seeds"]
    for _, name in MEASURES:
        header += [f"{name}: theory", "measured", "gap"]
    header.append("LR: theory with its mistakes")
    return (
        f"{markdown(header, rows)}\n{notes.lines()}\n"
        f"Largest gap between measured points and curves: {_gaps(found)}. Where labels are random: "
        f"{_gaps(random_labels(found))}. The paper's own points lie up to {paper.FIGURE_2_LARGEST_GAP} under "
        f"the curves, as read off its plot, and at about {paper.FIGURE_2_WITHOUT_NOISE:.2f} without noise. "
        "*With its mistakes*: were predictions drawn from T after the mistakes that the network without noise makes "
        "on the test set. "
        f"{seeds_text([g for _, g in groups])} a setting."
    )


def _gaps(found: list[Record]) -> str:
    if not found:
        return "no records"
    gaps = largest_gap(found)
    words = ", ".join(f"{name} {gaps[measure][0]:+.3f} at {gaps[measure][1]}" for measure, name in MEASURES)
    return f"**{max(abs(gap) for gap, _ in gaps.values()):.3f}** ({words})"


def figure(found: list[Record], scale: Scale, results: Path, path: Path) -> None:
    groups = grouped(found)
    ratios = np.linspace(0, 1, 101)
    classes = found[0]["noise"]["classes"] if found else 10
    with canvas(path, 2, 3, sharex=True, sharey=True, note=scale.note) as axes:
        for row, pattern in enumerate(("symmetric", "pair")):
            for column, (measure, name) in enumerate(MEASURES):
                ax = axes[row, column]
                curve = [getattr(theory, measure)(theory.matrix(pattern, classes, float(r))) for r in ratios]
                ax.plot(ratios, curve, color="#888888", label="theory")
                mine = [(noise, group) for noise, group in groups if noise.pattern == pattern or noise.ratio == 0]
                points = [pick(group, lambda r, m=measure: r["results"][m]) for _, group in mine]  # type: ignore[misc]
                ax.errorbar(
                    [noise.ratio for noise, _ in mine],
                    [float(p.mean) for p in points],
                    yerr=[float(p.spread) for p in points],
                    fmt="o",
                    markersize=4,
                    color="#0072B2",
                    label="measured",
                )
                ax.set_title(f"{name}, {'symmetric' if pattern == 'symmetric' else 'asymmetric (pair)'}")
                ax.set_ylim(-0.03, 1.03)
                if row:
                    ax.set_xlabel("noise ratio")
        axes[0, 0].legend(frameon=False)
