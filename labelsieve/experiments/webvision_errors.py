"""Supplement C: the labels of WebVision that INCV trusts least, each picture under the concept it is labelled as.

labelsieve reproduce webvision-errors --data DIR      the selection that `webvision` starts from, the same record
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np

from labelsieve.experiments.cells import Cell, Wish, selection_cells
from labelsieve.experiments.cifar10_errors import chosen
from labelsieve.experiments.plots import canvas
from labelsieve.experiments.plots import table as markdown
from labelsieve.experiments.records import Record, load_arrays
from labelsieve.experiments.settings import TRIAL, Scale
from labelsieve.experiments.summary import deviations
from labelsieve.experiments.webvision import not_run

COLUMNS, NAME_WIDTH = 6, 24


def cells(scale: Scale, wish: Wish) -> list[Cell]:
    return selection_cells(scale, wish, kind="webvision-selection")


def table(found: list[Record], scale: Scale) -> str:
    record = chosen(found)
    if record is None:
        return not_run("webvision-errors")
    results = record["results"]
    rows = [
        [s["id"], s["given"], s["suggested"], f"{s['suspicion']:.4f}", f"{s['loss']:.2f}"] for s in results["suspects"]
    ]
    candidate, selected, removed = results["verdicts"]
    words = (
        f"INCV selected {selected:,} labels, removed {removed:,} and left {candidate:,} as candidates; by Eq. 4 "
        f"{100 * results['noise_ratio_estimate']:.1f} % of the labels would be wrong, an upper estimate, since the "
        f"network's own mistakes count too{''.join('; ' + words for words in deviations([record]))}."
    )
    lines = [markdown(["training picture", "labelled", "suggested", "suspicion", "loss"], rows), "", words]
    if record["noise"]["measured_ratio"] is not None:
        last = results["by_iteration"][-1]
        lines.append(
            f"{TRIAL} {100 * record['noise']['measured_ratio']:.1f} % of the labels are planted wrong; of those shown "
            f"{100 * results['suspects_wrong']:.0f} %, of those selected {100 * (1 - last['label_precision']):.1f} %."
        )
    return "\n".join(lines)


def figure(found: list[Record], scale: Scale, results: Path, path: Path) -> None:
    record = chosen(found)
    pictures = np.empty((0, 1, 1, 3)) if record is None else load_arrays(results, record)["suspect_pictures"]
    suspects = [] if record is None else record["results"]["suspects"]
    rows = max(1, -(-len(pictures) // COLUMNS))
    with canvas(path, rows, COLUMNS, width=1.6, height=2.1, note=scale.note) as axes:
        for ax in axes.flat:
            ax.axis("off")
        for ax, picture, suspect in zip(axes.flat, pictures, suspects, strict=False):
            ax.imshow(picture)
            ax.set_title(short(suspect["given"]), fontsize=7)
            ax.text(
                0.5, -0.04, f"→ {short(suspect['suggested'])}", fontsize=6, color="#666666",
                ha="center", va="top", transform=ax.transAxes,
            )  # fmt: skip


def short(name: str) -> str:
    """A concept in at most two lines: some have five names."""
    return "\n".join(textwrap.wrap(name, NAME_WIDTH, max_lines=2, placeholder=" ..."))
