"""Figures as SVG and PNG, the same bytes for the same records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labelsieve.experiments.settings import METHODS, TOLD_NOTHING

# Colours that stay apart for most eyes (Okabe and Ito).
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#444444")
COLOUR_OF = dict(zip(METHODS, COLOURS, strict=True)) | {TOLD_NOTHING: "#000000"}


@contextmanager
def canvas(
    path: Path, rows: int, columns: int, *, width: float = 3.2, height: float = 2.7, note: str = "", **options: Any
) -> Iterator[Any]:
    """Axes [rows, columns] to draw on; saved as path.svg and path.png, with `note` over them."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    plain: Any = {"svg.hashsalt": "labelsieve", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    with matplotlib.rc_context(plain):
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        FigureCanvasAgg(figure)
        if note:
            figure.suptitle(note, fontsize=7, color="#666666")
        yield figure.subplots(rows, columns, squeeze=False, **options)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
        figure.savefig(path.with_suffix(".png"), dpi=110, metadata={"Software": None})


def heat(axes: Any, matrix: ArrayLike, title: str) -> None:
    """A matrix of probabilities, each entry written in it."""
    values = np.asarray(matrix, dtype=np.float64)
    axes.imshow(values, vmin=0, vmax=1, cmap="Blues")
    small = len(values) > 6
    for (i, j), value in np.ndenumerate(values):
        if value >= 0.005:
            shade = "white" if value > 0.55 else "black"
            axes.text(
                j, i, f"{value:.2f}".lstrip("0"), ha="center", va="center", color=shade, fontsize=5 if small else 8
            )
    axes.set_title(title)
    axes.set_xticks([])
    axes.set_yticks([])
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)


def table(header: list[str], rows: list[list[str]]) -> str:
    """Markdown; the first column reads from the left, numbers from the right."""
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join(["---"] + ["---:"] * (len(header) - 1)) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])
