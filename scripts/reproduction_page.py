"""Write docs/reproduction.md from the records in results/: every figure and table, the paper's values and the cost.

    python3 scripts/reproduction_page.py [--results results] [--page docs/reproduction.md]

Figures are not drawn again: `labelsieve reproduce all --budget 0` does that. The remarks of a person are in
scripts/reproduction_remarks.md, with one heading per item, and are put below that item's table.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from labelsieve.experiments import paper, records
from labelsieve.experiments.cells import THEORY_KINDS
from labelsieve.experiments.paper import CONVENTIONS, METHODS, SCALES, Scale
from labelsieve.experiments.records import Record
from labelsieve.experiments.render import Footnotes, Item, by_cell, deviations, markdown, seeds_text, summarise
from labelsieve.experiments.runner import ITEMS, PAPER_ITEMS
from labelsieve.experiments.theory_figures import largest_gaps, with_random_labels

ROOT = Path(__file__).resolve().parents[1]
REMARKS = ROOT / "scripts" / "reproduction_remarks.md"
NOTABLE_GAP = 1.5  # points of accuracy away from the paper's value that the page lists

_HEAD = """# The paper, reproduced

This page shows every figure and table of *Understanding and utilizing deep neural networks trained with noisy labels*
(Chen et al., ICML 2019), with the paper's values next to ours. `python3 scripts/reproduction_page.py` writes it from
the records in `results/`; no number in its tables was typed by hand. To run any of it again:

    labelsieve data fetch cifar10 --to data/cifar10
    labelsieve reproduce ITEM --data data/cifar10 --seeds 0-4

A *cell* is one combination of noise setting, method and seed. The result of a cell is a JSON file in `results/`, a
*record*, with all settings, the noise convention, versions, GPU, commit, seconds, and hashes of the training labels and
of the predictions. The predictions are in an .npz file with the same name. For the curves of figure 6, only the
predictions of the last epoch are stored. `reproduce` skips finished cells. `--budget SECONDS` stops it after this time,
and the same command continues in the middle of a cell. All accuracies are those of the last epoch, never of the best
one. Test labels are used only for the evaluation after the training.

T is the noise transition matrix: T_ij is the probability of the given label j for a sample of class i. A sample is
*selected* if a model that was not trained on it predicts its given label. LP is the label precision: the proportion of
right labels among the selected samples. LR is the label recall: the proportion of the right labels that is selected.
The [theory](theory.md) page has the formulas and the equations, which have the same numbers as in the paper.
"""


def page_text(results: Path, page: Path, scale: Scale, remarks: dict[str, str]) -> str:
    found = [record for record in records.walk(results) if record["cell"]["scale"] == scale.name]
    parts = [_HEAD, _summary(found, scale), _conventions(found)]
    for item in (PAPER_ITEMS | ITEMS).values():
        of_kind = [record for record in found if record["kind"] == item.kind]
        figure = results / "figures" / f"{item.name}.svg"
        link = Path(os.path.relpath(figure, page.parent)).as_posix() if item.figure and figure.is_file() else ""
        parts.append(_section(item, of_kind, scale, link, remarks.get(item.name, ""), results))
    parts += [_cost(found), _differences(found, remarks.get("differences", ""))]
    return "\n".join(part.rstrip() + "\n" for part in parts if part)


def read_remarks(path: Path) -> dict[str, str]:
    """Return the text below each `## item` heading."""
    if not path.is_file():
        return {}
    pieces = re.split(r"^## +(.+?) *$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(pieces[1::2], pieces[2::2], strict=True)}


def _mean_accuracy(group: Sequence[Record]) -> float:
    return 100 * float(summarise(group, "test_accuracy").mean)


def _summary(found: list[Record], scale: Scale) -> str:
    lines = []
    for kind, how in zip(THEORY_KINDS, ("", " without weight decay and with Adam's state kept,"), strict=True):
        theory = [record for record in found if record["kind"] == kind]
        if theory:
            lines.append(
                f"- Theory: over {len(theory)} trainings{how} the largest difference between a measured value and the "
                f"theory is {_largest_gap(theory)}, and {_largest_gap(with_random_labels(theory))} without the "
                "settings symmetric 0 and pair 1, where the class determines the given label. In the paper it is "
                f"about {1 - paper.FIGURE_2_WITHOUT_NOISE:.2f} without noise and up to "
                f"{paper.FIGURE_2_LARGEST_GAP} with noise."
            )
    groups = by_cell([record for record in found if record["kind"] == "accuracy"])
    cells = []
    for noise in scale.table_noises:
        group = groups.get(("incv-coteaching", noise.key))
        if group:
            published = paper.TABLE_1["incv-coteaching"][noise.key][0]
            measured = f"**{_mean_accuracy(group):.2f}** (paper {published:.2f}, {seeds_text([group])})"
            cells.append(f"{noise.title}: {measured}")
    if cells:
        lines.append("- The paper's method, test accuracy of the last epoch in %: " + "; ".join(cells) + ".")
    minutes = sum(record["seconds"] for record in found) / 60
    lines.append(f"- Records: {len(found)} cells, {minutes:.0f} GPU minutes in total.")
    return "## Summary\n\n" + "\n".join(lines)


def _largest_gap(theory: list[Record]) -> str:
    if not theory:
        return "not measured"
    measure, (gap, noise) = max(largest_gaps(theory).items(), key=lambda entry: abs(entry[1][0]))
    return f"**{abs(gap):.3f}** ({measure.replace('_', ' ')} at {noise})"


def _conventions(found: list[Record]) -> str:
    used = sorted({record["noise"]["pattern"] for record in found})
    if not used:
        return ""
    return "## Noise conventions\n\n" + "\n".join(f"- `{pattern}`: {CONVENTIONS[pattern]}" for pattern in used)


def _section(item: Item, found: list[Record], scale: Scale, figure: str, remark: str, results: Path) -> str:
    lines = [f"## {item.title}", "", f"`labelsieve reproduce {item.name}`", ""]
    if figure:
        lines += [f"![{item.title}]({figure})", ""]
    lines.append(item.text(found, item.scales[scale.name], results))
    if item.name == "accuracy":
        lines += ["", _accuracy_gaps(found, scale)]
    return "\n".join([*lines, "", remark] if remark else lines)


def _accuracy_gaps(found: list[Record], scale: Scale) -> str:
    """List the differences from table 1 of the paper, the notable ones, and the best method of each setting."""
    groups, rows, below, above = by_cell(found), [], [], []
    notes = Footnotes()
    for method in METHODS:
        row = [method]
        for noise in scale.table_noises:
            group, published = groups.get((method, noise.key)), paper.TABLE_1.get(method, {}).get(noise.key)
            if group is None or published is None:
                row.append("-")
                continue
            gap = _mean_accuracy(group) - published[0]
            row.append(f"{gap:+.2f}{notes.mark(group)}")
            if abs(gap) > NOTABLE_GAP:
                (below if gap < 0 else above).append(f"{method} at {noise.title} ({gap:+.2f})")
        if set(row[1:]) != {"-"}:
            rows.append(row)
    if not rows:
        return ""
    text = f"More than {NOTABLE_GAP} points below the paper: {', '.join(below) or 'none'}."
    if above:
        text += f" More than {NOTABLE_GAP} points above: {', '.join(above)}."
    header = ["ours minus the paper's", *(noise.title for noise in scale.table_noises)]
    return f"{markdown(header, rows)}\n{notes.lines()}\n{text} {_best_methods(groups, scale)}"


def _best_methods(groups: dict[tuple[str, str], list[Record]], scale: Scale) -> str:
    words = []
    for noise in scale.table_noises:
        accuracies = {method: _mean_accuracy(group) for method in METHODS if (group := groups.get((method, noise.key)))}
        if accuracies:
            best = max(accuracies, key=lambda method: accuracies[method])
            words.append(f"{noise.title} {best} ({accuracies[best]:.2f})")
    return f"Best method in the last epoch: {', '.join(words)}."


def _cost(found: list[Record]) -> str:
    """Show minutes per cell and in total. The share of a cell in a lockstep is by the pictures that it processed."""
    if not found:
        return ""
    kinds: dict[tuple[str, str, str, int], list[Record]] = {}
    for record in found:
        cell = record["cell"]
        kinds.setdefault(
            (record["kind"], cell["method"], cell["network"], record["results"].get("epochs_trained", cell["epochs"])),
            [],
        ).append(record)
    rows = []
    for (kind, method, network, epochs), group in sorted(kinds.items()):
        minutes = np.array([record["seconds"] / 60 for record in group])
        rows.append(
            [
                f"{kind}: {method}",
                network,
                str(epochs),
                str(len(group)),
                f"{minutes.mean():.2f}",
                f"{minutes.min():.2f} to {minutes.max():.2f}",
                f"{minutes.sum():.1f}",
            ]
        )
    total = sum(record["seconds"] for record in found) / 60
    rows.append(["**total**", "", "", str(len(found)), f"{total / len(found):.2f}", "", f"**{total:.1f}**"])
    devices = ", ".join(sorted({record["device"] for record in found}))
    commits = ", ".join(sorted({f"`{record['commit'][:10]}`" for record in found}))
    header = ["kind: method", "network", "epochs", "cells", "minutes per cell", "range", "minutes in total"]
    return (
        f"## Cost\n\n{markdown(header, rows)}\n\n"
        f"Device: {devices}. Commits: {commits}. Several cells are trained together on a GPU; the "
        "minutes of a cell are its share of this time."
    )


def _differences(found: list[Record], remark: str) -> str:
    """List differences from the paper's protocol: those in the records, then the remark."""
    lines = []
    for kind in sorted({record["kind"] for record in found}):
        groups = by_cell([record for record in found if record["kind"] == kind])
        for (method, noise), group in sorted(groups.items()):
            if words := "; ".join(deviations(group)):
                lines.append(f"- {kind}, {method}, {noise}: {words}")
    text = "\n".join(lines) or "- All cells have the numbers of epochs and the settings of the paper."
    return f"## Differences from the paper's protocol\n\n{text}\n\n{remark}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="folder of the records")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "reproduction.md", help="file to write")
    parser.add_argument("--remarks", type=Path, default=REMARKS, help="file with the remarks")
    parser.add_argument("--scale", default="paper", choices=list(SCALES))
    options = parser.parse_args(arguments)
    options.page.parent.mkdir(parents=True, exist_ok=True)
    text = page_text(options.results, options.page, SCALES[options.scale], read_remarks(options.remarks))
    options.page.write_text(text, encoding="utf-8")
    print(f"wrote {options.page}")


if __name__ == "__main__":
    main()
