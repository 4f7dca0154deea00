"""Figure 3 and supplement B: on the test set the trained network's confusion matrix M is the noise's T.

labelsieve reproduce confusion --data DIR                  five of the theory item's trainings, the same records
labelsieve reproduce confusion-without-decay --data DIR    five of theory-without-decay's
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from labelsieve.experiments import paper
from labelsieve.experiments.cells import Cell, Wish, theory_cells
from labelsieve.experiments.plots import canvas, heat
from labelsieve.experiments.plots import table as markdown
from labelsieve.experiments.records import Record
from labelsieve.experiments.settings import FIGURE_3, WITHOUT_DECAY, Noise, Scale
from labelsieve.experiments.summary import Footnotes, pick, value_with_spread
from labelsieve.experiments.theory_check import grouped


def cells(scale: Scale, wish: Wish) -> list[Cell]:
    return theory_cells(scale, wish, _settings(scale))


def cells_without_decay(scale: Scale, wish: Wish) -> list[Cell]:
    return theory_cells(scale, wish, _settings(scale), kind=WITHOUT_DECAY)


def _settings(scale: Scale) -> list[Noise]:
    return [noise for noise in FIGURE_3 if noise in scale.theory_settings]


def shown(found: list[Record]) -> list[tuple[Noise, list[Record]]]:
    groups = dict(grouped(found))
    return [(noise, groups[noise]) for noise in FIGURE_3 if noise in groups]


def table(found: list[Record], scale: Scale) -> str:
    groups = shown(found)
    if not groups:
        return "No records yet."
    notes, rows = Footnotes(), []
    for noise, group in groups:
        published = paper.TRAINING_ACCURACY.get(noise.key)
        rows.append(
            [
                noise.title + notes.mark(group),
                str(len(group)),
                value_with_spread(pick(group, lambda r: r["results"]["train_accuracy_given"]), 2),
                "-" if published is None else f"{published:.2f}",
                value_with_spread(pick(group, lambda r: float(np.mean(np.diagonal(r["results"]["confusion"])))), 3),
                f"{np.mean(np.diagonal(group[0]['results']['transition'])):.3f}",
                value_with_spread(pick(group, lambda r: r["results"]["mean_difference"]), 3),
                value_with_spread(pick(group, lambda r: r["results"]["largest_difference"]), 3),
            ]
        )
    header = ["noise", "seeds", "training accuracy", "paper", "mean M_ii", "mean T_ii"]
    header += ["mean abs. M - T", "largest abs. M - T"]
    return f"{markdown(header, rows)}\n{notes.lines()}"


def figure(found: list[Record], scale: Scale, results: Path, path: Path) -> None:
    groups = shown(found)
    with canvas(path, 2, max(1, len(groups)), width=2.6, height=2.7, note=scale.note) as axes:
        for column, (noise, group) in enumerate(groups):
            M = np.mean([r["results"]["confusion"] for r in group], axis=0)
            heat(axes[0, column], M, f"M, {noise.title}")
            heat(axes[1, column], group[0]["results"]["transition"], f"T, {noise.title}")
