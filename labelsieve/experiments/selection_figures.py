"""Section 5.2: figures 4 and 5 and supplement C, the labels that INCV selects and those it trusts least.

labelsieve reproduce selection --data DIR         figure 4; 4 settings x 4 iterations x 2 halves of ResNet-32, 50 epochs
labelsieve reproduce cifar10-errors --data DIR    figure 5; INCV on CIFAR-10 with its own labels
labelsieve reproduce webvision-errors --data DIR  supplement C, from the selection that `webvision` starts from
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.experiments import paper, render
from labelsieve.experiments.cells import selection_cells
from labelsieve.experiments.paper import SMOKE_NOTE, WEBVISION, Noise, Scale
from labelsieve.experiments.records import Record, load_arrays
from labelsieve.experiments.render import Item, Summary, markdown, summarise, value_with_spread

MEASURES = {"label_precision": "LP", "label_recall": "LR"}

# ---------------------------------------------------------------- figure 4


def by_noise(found: list[Record], scale: Scale) -> list[tuple[Noise, list[Record]]]:
    groups = {key: group for (_, key), group in render.by_cell(found).items()}
    return [(noise, groups[noise.key]) for noise in scale.table_noises if noise.key in groups]


def by_iteration(group: list[Record], measure: str) -> Summary:
    """Summarise a measure over seeds, as arrays with one value per iteration."""
    return summarise(group, lambda results: [iteration[measure] for iteration in results["by_iteration"]])


def selection_table(found: list[Record], scale: Scale) -> str:
    groups = by_noise(found, scale)
    if not groups:
        return render.NO_RECORDS
    notes, rows = render.Footnotes(), []
    for noise, group in groups:
        measured = {measure: by_iteration(group, measure) for measure in (*MEASURES, "selected")}
        for k in range(group[0]["cell"]["iterations"]):
            row = [noise.title + notes.mark(group) if k == 0 else "", str(k + 1)]
            for measure, published in zip(MEASURES, paper.FIGURE_4[noise.key][k], strict=True):
                summary = measured[measure]
                at_k = Summary(summary.mean[k], summary.spread[k], summary.seeds)
                row += [value_with_spread(at_k, 3), f"{published:.3f}"]
            rows.append([*row, f"{measured['selected'].mean[k]:,.0f}"])
    header = ["noise", "iteration", "LP", "paper", "LR", "paper", "selected"]
    estimates = ", ".join(
        f"{noise.title}: {value_with_spread(summarise(group, itemgetter('noise_ratio_estimate')), 3)}"
        for noise, group in groups
    )
    differences = ", ".join(f"{name} {gap:+.3f} at {title}" for name, gap, title in largest_differences(groups))
    return (
        f"{markdown(header, rows)}\n{notes.lines()}\n"
        f"Largest difference from the paper after the last iteration: {differences}. "
        f"The paper's values are read off its plot. {render.seeds_text([g for _, g in groups])} per setting. "
        f"Noise ratio estimated by Eq. 4 after iteration 1: {estimates}."
    )


def largest_differences(groups: list[tuple[Noise, list[Record]]]) -> list[tuple[str, float, str]]:
    """For each measure, return the mean after the last iteration that differs most from the paper's."""
    largest = []
    for i, (measure, name) in enumerate(MEASURES.items()):
        differences = []
        for noise, group in groups:
            last = group[0]["cell"]["iterations"] - 1
            published = paper.FIGURE_4[noise.key][last][i]
            differences.append((name, float(by_iteration(group, measure).mean[last]) - published, noise.title))
        largest.append(max(differences, key=lambda difference: abs(difference[1])))
    return largest


def selection_figure(found: list[Record], scale: Scale, results: Path, path: Path) -> None:
    groups = by_noise(found, scale)
    with render.canvas(path, 1, 2, height=3.0, note=scale.note) as axes:
        for column, (measure, name) in enumerate(MEASURES.items()):
            ax = axes[0, column]
            iterations: list[int] = []
            for colour, (noise, group) in zip(render.COLOURS, groups, strict=False):
                lines = by_iteration(group, measure)
                iterations = list(range(1, len(lines.mean) + 1))
                ax.errorbar(
                    iterations, lines.mean, yerr=lines.spread, marker="o", markersize=4, color=colour, label=noise.title
                )
                published = [pair[column] for pair in paper.FIGURE_4[noise.key]][: len(iterations)]
                ax.plot(iterations, published, "--", color=colour, alpha=0.6)
            ax.set_title(name)
            ax.set_xlabel("iteration")
            ax.set_xticks(iterations)
        axes[0, 0].plot([], [], "--", color="#888888", label="paper")
        axes[0, 0].legend(frameon=False, fontsize=8)


# ---------------------------------------------------------------- figure 5 and supplement C

LabelSuspect = Callable[[Any, dict[str, Any]], None]  # axes, suspect
NAME_WIDTH = 24  # characters of a concept's name per line; some concepts have five names


def shown_selection(found: list[Record]) -> Record | None:
    """Return the record that a gallery shows: of the longest trainings the one with the lowest seed."""
    groups = list(render.by_cell(found).values())
    return min(groups[0], key=lambda record: int(record["cell"]["seed"])) if groups else None


def _suspects_table(record: Record, given_column: str, name: str) -> str:
    results = record["results"]
    rows = [
        [str(s[name]), s["given"], s["suggested"], f"{s['suspicion']:.4f}", f"{s['loss']:.2f}"]
        for s in results["suspects"]
    ]
    candidate, selected, removed = results["verdicts"]
    return (
        f"{markdown(['training picture', given_column, 'suggested', 'suspicion', 'loss'], rows)}\n\n"
        f"INCV selected {selected:,} labels, removed {removed:,} and left {candidate:,} as candidates. Eq. 4 estimates "
        f"that {100 * results['noise_ratio_estimate']:.1f} % of the labels are wrong. This is an upper bound, because "
        f"errors of the network count as wrong labels{''.join('; ' + words for words in render.deviations([record]))}."
    )


def cifar10_errors_table(found: list[Record], scale: Scale) -> str:
    record = shown_selection(found)
    return render.NO_RECORDS if record is None else _suspects_table(record, "given", "index")


def _gallery(
    found: list[Record], results: Path, path: Path, size: tuple[int, float, float], note: str, label: LabelSuspect
) -> None:
    """Draw the suspects of a selection; `size` is the number of columns, and the width and height of a picture."""
    record, (columns, width, height) = shown_selection(found), size
    pictures: NDArray[Any] = np.empty((0,)) if record is None else load_arrays(results, record)["suspect_pictures"]
    suspects = [] if record is None else record["results"]["suspects"]
    rows = max(1, -(-len(pictures) // columns))
    with render.canvas(path, rows, columns, width=width, height=height, note=note) as axes:
        for ax in axes.flat:
            ax.axis("off")
        for ax, picture, suspect in zip(axes.flat, pictures, suspects, strict=False):
            ax.imshow(picture)
            label(ax, suspect)


def cifar10_errors_figure(found: list[Record], scale: Scale, results: Path, path: Path) -> None:
    def label(ax: Any, suspect: dict[str, Any]) -> None:
        ax.set_title(f"{suspect['given']}\n→ {suspect['suggested']}", fontsize=7)

    _gallery(found, results, path, (8, 1.15, 1.5), scale.note, label)


def webvision_not_run(item: str) -> str:
    """The text of a WebVision item without records."""
    return (
        "**Not run**: the pictures of WebVision and ILSVRC12 were not available. "
        f"`labelsieve reproduce {item} --data DIR` runs it. `--scale smoke` runs the same code on generated pictures; "
        "its numbers are not results and are not on this page."
    )


def webvision_errors_table(found: list[Record], scale: Scale) -> str:
    record = shown_selection(found)
    if record is None:
        return webvision_not_run("webvision-errors")
    text, results = _suspects_table(record, "labelled", "id"), record["results"]
    if record["noise"]["measured_ratio"] is None:
        return text
    selected_wrong = 1 - results["by_iteration"][-1]["label_precision"]
    return (
        f"{text}\n{SMOKE_NOTE} {100 * record['noise']['measured_ratio']:.1f} % of all labels are wrong, "
        f"{100 * results['suspects_wrong']:.0f} % of the labels shown and {100 * selected_wrong:.1f} % of the selected "
        "ones."
    )


def webvision_errors_figure(found: list[Record], scale: Scale, results: Path, path: Path) -> None:
    def label(ax: Any, suspect: dict[str, Any]) -> None:
        given, suggested = (
            "\n".join(textwrap.wrap(suspect[key], NAME_WIDTH, max_lines=2, placeholder=" ..."))
            for key in ("given", "suggested")
        )
        ax.set_title(given, fontsize=7)
        below = {"ha": "center", "va": "top", "transform": ax.transAxes}
        ax.text(0.5, -0.04, f"→ {suggested}", fontsize=6, color="#666666", **below)

    _gallery(found, results, path, (6, 1.6, 2.1), scale.note, label)


ITEMS = (
    Item(
        "selection",
        "Figure 4: label precision and recall of INCV by iteration",
        "selection",
        selection_cells,
        selection_table,
        selection_figure,
    ),
    Item(
        "cifar10-errors",
        "Figure 5: suspicious labels in CIFAR-10",
        "errors",
        partial(selection_cells, kind="errors"),
        cifar10_errors_table,
        cifar10_errors_figure,
    ),
    Item(
        "webvision-errors",
        "Supplement C: suspicious labels in WebVision",
        "webvision-selection",
        partial(selection_cells, kind="webvision-selection"),
        webvision_errors_table,
        webvision_errors_figure,
        WEBVISION,
    ),
)
