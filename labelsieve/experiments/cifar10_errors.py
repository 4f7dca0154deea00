"""Figure 5: INCV on CIFAR-10 as it is; the labels it trusts least.

labelsieve reproduce cifar10-errors --data DIR
"""

from __future__ import annotations

from pathlib import Path

from labelsieve.experiments.cells import Cell, Wish, errors_cells
from labelsieve.experiments.plots import canvas
from labelsieve.experiments.plots import table as markdown
from labelsieve.experiments.records import Record, load_arrays
from labelsieve.experiments.settings import Scale
from labelsieve.experiments.summary import by_cell, deviations

COLUMNS = 8


def cells(scale: Scale, wish: Wish) -> list[Cell]:
    return errors_cells(scale, wish)


def chosen(found: list[Record]) -> Record | None:
    """A gallery shows one selection: the longest training's lowest seed."""
    groups = list(by_cell(found).values())
    return min(groups[0], key=lambda r: int(r["cell"]["seed"])) if groups else None


def table(found: list[Record], scale: Scale) -> str:
    record = chosen(found)
    if record is None:
        return "No records yet."
    rows = [
        [str(s["index"]), s["given"], s["suggested"], f"{s['suspicion']:.4f}", f"{s['loss']:.2f}"]
        for s in record["results"]["suspects"]
    ]
    candidate, selected, removed = record["results"]["verdicts"]
    words = "; ".join(deviations([record]))
    return (
        f"{markdown(['training picture', 'given', 'suggested', 'suspicion', 'loss'], rows)}\n\n"
        f"INCV selected {selected:,} labels, removed {removed:,} and left {candidate:,} as candidates; by Eq. 4 "
        f"{100 * record['results']['noise_ratio_estimate']:.1f} % of the labels would be wrong, an upper estimate, "
        f"since the network's own mistakes count too{'; ' + words if words else ''}."
    )


def figure(found: list[Record], scale: Scale, results: Path, path: Path) -> None:
    record = chosen(found)
    pictures = [] if record is None else list(load_arrays(results, record)["suspect_pictures"])
    suspects = [] if record is None else record["results"]["suspects"]
    rows = max(1, -(-len(pictures) // COLUMNS))
    with canvas(path, rows, COLUMNS, width=1.15, height=1.5, note=scale.note) as axes:
        for ax in axes.flat:
            ax.axis("off")
        for ax, picture, suspect in zip(axes.flat, pictures, suspects, strict=False):
            ax.imshow(picture)
            ax.set_title(f"{suspect['given']}\n→ {suspect['suggested']}", fontsize=7)
