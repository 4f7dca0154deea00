"""Tables in Markdown and figures as SVG and PNG, from records alone. The same records give the same bytes."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelsieve.experiments.cells import Cell, SweepRequest
from labelsieve.experiments.paper import AUTOMATIC, METHODS, SCALES, Noise, Scale
from labelsieve.experiments.records import Record
from labelsieve.files import atomic_file

# A palette for colour-blind readers (Okabe and Ito).
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#444444")
COLOUR_OF = dict(zip(METHODS, COLOURS, strict=True)) | {AUTOMATIC: "#000000"}
NO_RECORDS = "No records yet."


@dataclass(frozen=True)
class Item:
    """A figure or table of the paper: the cells it needs, and how it is drawn from the records of `kind`.

    The items of WebVision have their own `scales`, and their own folder for `--data`. An item without a kind needs no
    records.
    """

    name: str
    title: str
    kind: str
    cells: Callable[[Scale, SweepRequest], list[Cell]]
    table: Callable[[list[Record], Scale], str]  # returns Markdown
    figure: Callable[[list[Record], Scale, Path, Path], None] | None = None  # records, scale, results, path
    scales: dict[str, Scale] = field(default_factory=lambda: SCALES)
    repeat: Callable[[Record, Path], Record] | None = None  # computes results again from stored arrays: record, results

    def text(self, found: list[Record], scale: Scale, results: Path) -> str:
        """Return the table in Markdown, below a warning if the records are those of a smoke run."""
        if not found and self.kind and self.scales is SCALES:
            return NO_RECORDS
        if self.repeat is not None:
            found = [self.repeat(record, results) for record in found]
        return (f"{scale.note}\n\n" if found and scale.note else "") + self.table(found, scale)


# ---------------------------------------------------------------- several seeds of one cell


class Summary(NamedTuple):
    """Mean and sample standard deviation over seeds (0 for one seed), with the shape of the value."""

    mean: NDArray[np.float64]
    spread: NDArray[np.float64]
    seeds: int

    @classmethod
    def of(cls, values: Sequence[Any]) -> Summary:
        if not values:
            return cls(np.array(np.nan), np.array(np.nan), 0)
        stacked = np.array(values, dtype=np.float64)
        spread = stacked.std(axis=0, ddof=1) if len(stacked) > 1 else np.zeros(stacked.shape[1:])
        return cls(stacked.mean(axis=0), np.asarray(spread), len(stacked))

    def at(self, place: int) -> Summary:
        return Summary(self.mean[place], self.spread[place], self.seeds)

    def text(self, digits: int, factor: float = 1.0) -> str:
        """Return the mean and, for several seeds, the spread; a dash without seeds."""
        if not self.seeds:
            return "-"
        text = f"{factor * float(self.mean):.{digits}f}"
        return text if self.seeds == 1 else f"{text} ± {factor * float(self.spread):.{digits}f}"


def summarise(group: Sequence[Record], *keys: str) -> Summary:
    """Summarise the value under `keys` in the results of the records over the seeds."""
    return Summary.of([functools.reduce(operator.getitem, keys, record["results"]) for record in group])


def noise_of(record: Record) -> Noise:
    return Noise(record["noise"]["pattern"], record["noise"]["ratio"])


def by_cell(found: Sequence[Record]) -> dict[tuple[str, str], list[Record]]:
    """Group records by method and noise. Of runs of different lengths only the longest are kept."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in found:
        groups.setdefault((record["cell"]["method"], noise_of(record).key), []).append(record)
    return {key: _comparable(group) for key, group in groups.items()}


def by_noise(
    found: Sequence[Record], noises: Sequence[Noise] | None = None
) -> list[tuple[Noise, list[Record]]]:  # fmt: skip
    """Group the records of one method by noise setting, in the order of `noises` or of figure 2."""
    groups = {noise_of(group[0]): group for group in by_cell(found).values()}
    order = noises or sorted(groups, key=lambda noise: (noise.pattern != "symmetric", noise.ratio))
    return [(noise, groups[noise]) for noise in order if noise in groups]


def _comparable(group: list[Record]) -> list[Record]:
    def length(record: Record) -> tuple[int, int, int]:
        return record["cell"]["epochs"], record["cell"]["iterations"], record["cell"]["selection_epochs"]

    longest = max(length(record) for record in group)
    group = [record for record in group if length(record) == longest]
    default = [record for record in group if not record["cell"]["settings"]]
    if default:  # the protocol's own settings have priority
        return default
    newest = max(group, key=lambda record: str(record.get("finished", "")))["cell"]["settings"]
    return [record for record in group if record["cell"]["settings"] == newest]


def deviations(group: Sequence[Record]) -> list[str]:
    """List the differences between a cell's records and the protocol."""
    if not group:
        return []
    cell = group[0]["cell"]
    words = []
    if cell["epochs"] != cell["full_epochs"]:
        words.append(f"{cell['epochs']} epochs instead of {cell['full_epochs']}")
    if cell["iterations"] != cell["full_iterations"]:
        words.append(f"{cell['iterations']} iterations of INCV instead of {cell['full_iterations']}")
    full = cell.get("full_selection_epochs", cell["selection_epochs"])  # old records lack it and have the full length
    if cell["selection_epochs"] != full:
        words.append(f"INCV of {cell['selection_epochs']} epochs instead of {full}")
    return words + [f"`--set {cell['method']}.{key}={value}`" for key, value in cell["settings"].items()]


class Footnotes:
    """Marks for cells that differ from the protocol, and the lines that explain them."""

    def __init__(self) -> None:
        self.notes: dict[str, str] = {}

    def mark(self, group: Sequence[Record]) -> str:
        words = "; ".join(deviations(group))
        return self.notes.setdefault(words, f" [{len(self.notes) + 1}]") if words else ""

    def lines(self) -> str:
        return "".join(f"\n{mark.strip()} {words}  " for words, mark in self.notes.items())


def seeds_text(groups: Sequence[Sequence[Record]]) -> str:
    counts = sorted({len(group) for group in groups})
    if not counts:
        return "no seeds yet"
    text = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{text} seed{'' if counts[-1] == 1 else 's'}"


# ---------------------------------------------------------------- tables and figures


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table; the first column is aligned left, the others right."""
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join(["---"] + ["---:"] * (len(header) - 1)) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


@contextmanager
def canvas(
    path: Path, rows: int, columns: int, *, width: float = 3.2, height: float = 2.7, note: str = "", **options: Any
) -> Iterator[Any]:
    """Yield axes [rows, columns] and save the figure as path.svg and path.png, with `note` as its title."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    style: Any = {"svg.hashsalt": "labelsieve", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        FigureCanvasAgg(figure)
        if note:
            figure.suptitle(note, fontsize=7, color="#666666")
        yield figure.subplots(rows, columns, squeeze=False, **options)
        with atomic_file(path.with_suffix(".svg")) as svg, atomic_file(path.with_suffix(".png")) as png:
            figure.savefig(svg, format="svg", metadata={"Date": None})
            figure.savefig(png, format="png", dpi=110, metadata={"Software": None})


def heatmap(axes: Any, matrix: ArrayLike, title: str) -> None:
    """Draw a matrix of probabilities with its entries as text."""
    values = np.asarray(matrix, dtype=np.float64)
    axes.imshow(values, vmin=0, vmax=1, cmap="Blues")
    size = 5 if len(values) > 6 else 8
    for (i, j), value in np.ndenumerate(values):
        if value >= 0.005:
            colour = "white" if value > 0.55 else "black"
            axes.text(j, i, f"{value:.2f}".lstrip("0"), ha="center", va="center", color=colour, fontsize=size)
    axes.set_title(title)
    axes.set_xticks([])
    axes.set_yticks([])
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)
