"""Records of the same cell at several seeds, brought together: mean, standard deviation, how many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelsieve.experiments.records import Record
from labelsieve.experiments.settings import Noise


class Summary(NamedTuple):
    """Over seeds; `spread` is the sample standard deviation, 0 for one seed; shape as the value's."""

    mean: NDArray[np.float64]
    spread: NDArray[np.float64]
    seeds: int


def summarise(values: Sequence[Any]) -> Summary:
    stacked = np.array(values, dtype=np.float64)
    spread = stacked.std(axis=0, ddof=1) if len(stacked) > 1 else np.zeros(stacked.shape[1:])
    return Summary(stacked.mean(axis=0), np.asarray(spread), len(stacked))


def noise_of(record: Record) -> Noise:
    return Noise(record["noise"]["pattern"], record["noise"]["ratio"])


def by_cell(found: Sequence[Record]) -> dict[tuple[str, str], list[Record]]:
    """(method, noise) to its records, one a seed. Of runs of different lengths the longest count."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in found:
        groups.setdefault((record["cell"]["method"], noise_of(record).key), []).append(record)
    return {key: _comparable(group) for key, group in groups.items()}


def _comparable(group: list[Record]) -> list[Record]:
    def length(record: Record) -> tuple[int, int, int]:
        return record["cell"]["epochs"], record["cell"]["iterations"], record["cell"]["selection_epochs"]

    longest = max(length(r) for r in group)
    group = [r for r in group if length(r) == longest]
    # The protocol's own settings win over tried ones.
    plain = [r for r in group if not r["cell"]["settings"]]
    if plain:
        return plain
    newest = max(group, key=lambda r: str(r.get("finished", "")))["cell"]["settings"]
    return [r for r in group if r["cell"]["settings"] == newest]


def deviations(group: Sequence[Record]) -> list[str]:
    """How a cell's records differ from the protocol, in words; empty where they do not."""
    cell = group[0]["cell"]
    found = []
    if cell["epochs"] != cell["full_epochs"]:
        found.append(f"{cell['epochs']} epochs instead of {cell['full_epochs']}")
    if cell["iterations"] != cell["full_iterations"]:
        found.append(f"{cell['iterations']} iterations of INCV instead of {cell['full_iterations']}")
    full = cell.get("full_selection_epochs", cell["selection_epochs"])  # records of old do not say: they are whole
    if cell["selection_epochs"] != full:
        found.append(f"INCV of {cell['selection_epochs']} epochs instead of {full}")
    for key, value in cell["settings"].items():
        found.append(f"`--set {cell['method']}.{key}={value}`")
    return found


class Footnotes:
    """Marks for cells that differ from the protocol, and the lines that explain them."""

    def __init__(self) -> None:
        self.notes: dict[str, str] = {}

    def mark(self, group: Sequence[Record]) -> str:
        words = "; ".join(deviations(group))
        if not words:
            return ""
        return self.notes.setdefault(words, f" [{len(self.notes) + 1}]")

    def lines(self) -> str:
        return "".join(f"\n{mark.strip()} {words}  " for words, mark in self.notes.items())


def value_with_spread(found: Summary, digits: int, factor: float = 1.0) -> str:
    text = f"{factor * float(found.mean):.{digits}f}"
    return text if found.seeds == 1 else f"{text} ± {factor * float(found.spread):.{digits}f}"


def pick(group: Sequence[Record], get: Callable[[Record], Any]) -> Summary:
    return summarise([get(record) for record in group])


def seeds_text(groups: Sequence[Sequence[Record]]) -> str:
    counts = sorted({len(group) for group in groups})
    if not counts:
        return "no seeds yet"
    text = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{text} seed{'' if counts[-1] == 1 else 's'}"
