"""Figure 6: test accuracy after every epoch, from the accuracy item's records."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from labelsieve.experiments import paper
from labelsieve.experiments.cells import Cell, Wish, accuracy_cells
from labelsieve.experiments.plots import COLOUR_OF, canvas
from labelsieve.experiments.plots import table as markdown
from labelsieve.experiments.records import Record
from labelsieve.experiments.settings import METHODS, TOLD_NOTHING, Scale
from labelsieve.experiments.summary import by_cell, pick

_WORDS = (
    "Highest point of the mean curve, in %, and how far from it the last epoch lies. In the figure a cross marks the "
    "paper's last epoch."
)


def cells(scale: Scale, wish: Wish) -> list[Cell]:
    return accuracy_cells(scale, wish)


def table(found: list[Record], scale: Scale) -> str:
    """How far each method falls from its highest point to its last epoch: memorised noise."""
    groups = by_cell(found)
    if not groups:
        return "No records yet."
    rows = []
    for method in METHODS:
        row = [method]
        for noise in scale.table_settings:
            group = groups.get((method, noise.key))
            if group is None:
                row += ["-", "-"]
                continue
            curve = pick(group, lambda r: r["results"]["curve"]).mean
            row += [f"{100 * curve.max():.2f}", f"{100 * (curve[-1] - curve.max()):+.2f}"]
        rows.append(row)
    header = ["method"]
    for noise in scale.table_settings:
        header += [f"{noise.title}: highest", "last epoch"]
    return f"{markdown(header, rows)}\n\n{_WORDS}"


def figure(found: list[Record], scale: Scale, results: Path, path: Path) -> None:
    groups = by_cell(found)
    with canvas(path, 2, 2, width=4.2, height=3.0, note=scale.note) as axes:
        for ax, noise in zip(axes.flat, scale.table_settings, strict=True):
            for method in (*METHODS, TOLD_NOTHING):
                group = groups.get((method, noise.key))
                if group is None:
                    continue
                curve = pick(group, lambda r: r["results"]["curve"])
                epochs = np.arange(1, len(curve.mean) + 1)
                mean, spread = 100 * curve.mean, 100 * curve.spread
                ax.plot(epochs, mean, color=COLOUR_OF[method], linewidth=1.2, label=method)
                published = paper.TABLE_1.get(method, {}).get(noise.key)
                if published is not None and scale.name == "paper":
                    ax.plot(epochs[-1:], published[:1], "x", markersize=5, color=COLOUR_OF[method], clip_on=False)
                if curve.seeds > 1:
                    ax.fill_between(
                        epochs, mean - spread, mean + spread, color=COLOUR_OF[method], alpha=0.2, linewidth=0
                    )
            ax.set_title(noise.title)
            if not ax.lines:
                ax.text(0.5, 0.5, "no records yet", ha="center", va="center", color="#666666", transform=ax.transAxes)
                ax.set(xticks=[], yticks=[])
                continue
            ax.set_xlabel("epoch")
            ax.set_ylabel("test accuracy, %")
        handles, labels = max((ax.get_legend_handles_labels() for ax in axes.flat), key=lambda found: len(found[1]))
        if labels:
            if scale.name == "paper":
                handles += axes[0, 0].plot([], [], "x", markersize=5, color="#888888")
                labels.append("paper, at the end")
            axes[0, 0].legend(handles, labels, frameon=False, fontsize=7)
