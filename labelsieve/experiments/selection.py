"""Figure 4: label precision and recall of INCV after each of its four iterations.

labelsieve reproduce selection --data DIR     4 settings x 4 iterations x 2 halves of ResNet-32, 50 epochs, in lockstep
"""

from __future__ import annotations

from pathlib import Path

from labelsieve.experiments import paper
from labelsieve.experiments.cells import Cell, Wish, selection_cells
from labelsieve.experiments.plots import COLOURS, canvas
from labelsieve.experiments.plots import table as markdown
from labelsieve.experiments.records import Record
from labelsieve.experiments.settings import Noise, Scale
from labelsieve.experiments.summary import Footnotes, by_cell, pick, seeds_text, value_with_spread

MEASURES = (("label_precision", "LP"), ("label_recall", "LR"))


def cells(scale: Scale, wish: Wish) -> list[Cell]:
    return selection_cells(scale, wish)


def grouped(found: list[Record], scale: Scale) -> list[tuple[Noise, list[Record]]]:
    groups = {key: group for (_, key), group in by_cell(found).items()}
    return [(noise, groups[noise.key]) for noise in scale.table_settings if noise.key in groups]


def table(found: list[Record], scale: Scale) -> str:
    groups = grouped(found, scale)
    if not groups:
        return "No records yet."
    notes, rows = Footnotes(), []
    for noise, group in groups:
        for k in range(group[0]["cell"]["iterations"]):
            published = paper.FIGURE_4[noise.key][k]
            row = [noise.title + notes.mark(group) if k == 0 else "", str(k + 1)]
            for i, (measure, _) in enumerate(MEASURES):
                ours = pick(group, lambda r, m=measure, k=k: r["results"]["by_iteration"][k][m])  # type: ignore[misc]
                row += [value_with_spread(ours, 3), f"{published[i]:.3f}"]
            selected = pick(group, lambda r, k=k: r["results"]["by_iteration"][k]["selected"])  # type: ignore[misc]
            row.append(f"{float(selected.mean):,.0f}")
            rows.append(row)
    header = ["noise", "iteration", "LP", "paper", "LR", "paper", "selected"]
    estimates = ", ".join(
        f"{noise.title}: {value_with_spread(pick(group, lambda r: r['results']['noise_ratio_estimate']), 3)}"
        for noise, group in groups
    )
    return (
        f"{markdown(header, rows)}\n{notes.lines()}\n{from_the_paper(groups)} "
        f"Paper values are read off its plot; {seeds_text([g for _, g in groups])} a setting. "
        f"Noise ratio as estimated by Eq. 4 after iteration 1: {estimates}."
    )


def from_the_paper(groups: list[tuple[Noise, list[Record]]]) -> str:
    """How far the means after the last iteration lie from the paper's, the farthest of each measure."""
    gaps = []
    for i, (measure, name) in enumerate(MEASURES):
        settings = []
        for noise, group in groups:
            last = group[0]["cell"]["iterations"] - 1
            ours = pick(group, lambda r, m=measure, k=last: r["results"]["by_iteration"][k][m])  # type: ignore[misc]
            settings.append((float(ours.mean) - paper.FIGURE_4[noise.key][last][i], noise.title))
        gap, title = max(settings, key=lambda setting: abs(setting[0]))
        gaps.append(f"{name} {gap:+.3f} at {title}")
    return f"Farthest from the paper's after the last iteration: {', '.join(gaps)}."


def figure(found: list[Record], scale: Scale, results: Path, path: Path) -> None:
    with canvas(path, 1, 2, height=3.0, note=scale.note) as axes:
        for column, (measure, name) in enumerate(MEASURES):
            ax = axes[0, column]
            for colour, (noise, group) in zip(COLOURS, grouped(found, scale), strict=False):
                lines = pick(group, lambda r, m=measure: [k[m] for k in r["results"]["by_iteration"]])  # type: ignore[misc]
                iterations = list(range(1, len(lines.mean) + 1))
                ax.errorbar(
                    iterations, lines.mean, yerr=lines.spread, marker="o", markersize=4, color=colour, label=noise.title
                )
                published = [pair[column] for pair in paper.FIGURE_4[noise.key]][: len(iterations)]
                ax.plot(iterations, published, "--", color=colour, alpha=0.6)
            ax.set_title(name)
            ax.set_xlabel("iteration")
            ax.set_xticks(iterations if grouped(found, scale) else [])
        axes[0, 0].plot([], [], "--", color="#888888", label="paper")
        axes[0, 0].legend(frameon=False, fontsize=8)
