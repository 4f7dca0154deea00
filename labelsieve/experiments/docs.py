"""docs/reproduction.md, written from the records: every figure and table, paper beside ours, and what it cost.

    python3 -m labelsieve.experiments.run docs --results results

Words that only a person can find stand in results/remarks.md, one heading an item, and are put under that item.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np

from labelsieve.experiments import paper, records, theory_check
from labelsieve.experiments.cells import THEORY
from labelsieve.experiments.items import ITEMS, Item
from labelsieve.experiments.plots import table as markdown
from labelsieve.experiments.records import Record
from labelsieve.experiments.run import draw_item
from labelsieve.experiments.settings import CONVENTIONS, METHODS, Scale
from labelsieve.experiments.summary import Footnotes, by_cell, deviations, pick, seeds_text

NEAR_ENOUGH = 1.5  # points of accuracy under the paper's that call for an explanation

_HEAD = """# The paper, reproduced

Every figure and table of *Understanding and utilizing deep neural networks trained with noisy labels* (Chen et al.,
ICML 2019), the paper's values beside ours. This page is written by `python -m labelsieve.experiments.run docs` from the
records in `results/`, with remarks from `results/remarks.md`; no number in its tables was typed. To repeat any of it:

    labelsieve data fetch cifar10 --to data/cifar10
    labelsieve reproduce ITEM --data data/cifar10 --seeds 0-4

A finished cell (setting x method x seed) is one JSON record with every setting, the noise convention, versions, card,
commit, seconds, and hashes of the training labels and of the predictions, which lie beside it. `reproduce` skips what
is there; `--budget SECONDS` stops it, and the same command goes on from the middle of a cell. Accuracies are the last
epoch's, never the best. Test labels are read by the evaluation of predictions, after the training, and by nothing else;
of the predictions behind figure 6's curves only the last epoch's are kept.
"""


def write_page(results: Path, page: Path, scale: Scale) -> Path:
    """Draw every item again and write the page."""
    for item in ITEMS.values():
        draw_item(item, results, scale, say=lambda line: None)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(page_text(results, page, scale), encoding="utf-8")
    return page


def page_text(results: Path, page: Path, scale: Scale) -> str:
    found = [record for record in records.walk(results) if record["cell"]["scale"] == scale.name]
    remarks = read_remarks(results / "remarks.md")
    parts = [_HEAD, _summary(found, scale), _conventions(found)]
    for item in ITEMS.values():
        of_kind = [record for record in found if record["kind"] == item.kind]
        parts.append(_section(item, of_kind, results, page, scale, remarks.get(item.name, "")))
    parts.append(_cost(found))
    parts.append(_differences(found, remarks.get("differences", "")))
    return "\n".join(part.rstrip() + "\n" for part in parts if part)


def read_remarks(path: Path) -> dict[str, str]:
    """`## item` headings and the text under them."""
    if not path.is_file():
        return {}
    pieces = re.split(r"^## +(.+?) *$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(pieces[1::2], pieces[2::2], strict=True)}


def _summary(found: list[Record], scale: Scale) -> str:
    """The numbers a hurried reader wants."""
    lines = []
    for kind, how in zip(THEORY, ("", " without weight decay, Adam's state kept,"), strict=True):
        theory = [r for r in found if r["kind"] == kind]
        if theory:
            quiet = 1 - paper.FIGURE_2_WITHOUT_NOISE
            lines.append(
                f"- Theory: over {len(theory)} trainings{how} the largest gap between a measured point and its curve "
                f"is {_furthest(theory)}, and {_furthest(theory_check.random_labels(theory))} where labels are random; "
                f"the paper's own is about {quiet:.2f} without noise and up to {paper.FIGURE_2_LARGEST_GAP} with it."
            )
    groups = by_cell([r for r in found if r["kind"] == "accuracy"])
    cells = []
    for noise in scale.table_settings:
        group = groups.get(("incv-coteaching", noise.key))
        if group:
            ours = 100 * float(pick(group, lambda r: r["results"]["test_accuracy"]).mean)
            published = paper.TABLE_1["incv-coteaching"][noise.key][0]
            cells.append(f"{noise.title}: **{ours:.2f}** (paper {published:.2f}, {seeds_text([group])})")
    if cells:
        lines.append("- The paper's method, last epoch, in %: " + "; ".join(cells) + ".")
    total = sum(r["seconds"] for r in found) / 60
    lines.append(f"- Records: {len(found)} cells, {total:.0f} device minutes in all.")
    return "## In short\n\n" + "\n".join(lines)


def _furthest(theory: list[Record]) -> str:
    if not theory:
        return "not measured"
    gaps = theory_check.largest_gap(theory)
    measure, (gap, where) = max(gaps.items(), key=lambda entry: abs(entry[1][0]))
    return f"**{abs(gap):.3f}** ({measure.replace('_', ' ')} at {where})"


def _conventions(found: list[Record]) -> str:
    used = sorted({r["noise"]["pattern"] for r in found})
    if not used:
        return ""
    return "## Noise conventions\n\n" + "\n".join(f"- `{pattern}`: {CONVENTIONS[pattern]}" for pattern in used)


def _section(item: Item, found: list[Record], results: Path, page: Path, scale: Scale, remark: str) -> str:
    lines = [f"## {item.title}", "", f"`labelsieve reproduce {item.name}`", ""]
    figure = results / "figures" / f"{item.name}.svg"
    if item.figure is not None and figure.is_file():
        lines += [f"![{item.title}]({Path(os.path.relpath(figure, page.parent)).as_posix()})", ""]
    lines.append(item.table(found, item.scales[scale.name]))
    if item.name == "accuracy":
        lines += ["", _gaps(found, scale)]
    if remark:
        lines += ["", remark]
    return "\n".join(lines)


def _gaps(found: list[Record], scale: Scale) -> str:
    """Ours minus the paper's, with what lies further from it than seeds explain, and who is first."""
    groups, rows, under, above = by_cell(found), [], [], []
    notes = Footnotes()
    for method in METHODS:
        row, seen = [method], False
        for noise in scale.table_settings:
            group, published = groups.get((method, noise.key)), paper.TABLE_1.get(method, {}).get(noise.key)
            if group is None or published is None:
                row.append("-")
                continue
            seen = True
            gap = 100 * float(pick(group, lambda r: r["results"]["test_accuracy"]).mean) - published[0]
            row.append(f"{gap:+.2f}{notes.mark(group)}")
            if gap < -NEAR_ENOUGH:
                under.append(f"{method} at {noise.title} ({gap:+.2f})")
            if gap > NEAR_ENOUGH:
                above.append(f"{method} at {noise.title} ({gap:+.2f})")
        if seen:
            rows.append(row)
    if not rows:
        return ""
    verdict = (
        f"More than {NEAR_ENOUGH} points under the paper's: {', '.join(under)}."
        if under
        else f"No cell lies more than {NEAR_ENOUGH} points under the paper's."
    )
    if above:
        verdict += f" More than {NEAR_ENOUGH} above: {', '.join(above)}."
    header = ["ours minus the paper's", *(noise.title for noise in scale.table_settings)]
    return f"{markdown(header, rows)}\n{notes.lines()}\n{verdict} {_first(groups, scale)}"


def _first(groups: dict[tuple[str, str], list[Record]], scale: Scale) -> str:
    """Which method ends highest in each setting: in the paper its own, everywhere."""
    words = []
    for noise in scale.table_settings:
        ends = {
            method: 100 * float(pick(group, lambda r: r["results"]["test_accuracy"]).mean)
            for method in METHODS
            if (group := groups.get((method, noise.key)))
        }
        if ends:
            best = max(ends, key=lambda method: ends[method])
            words.append(f"{noise.title} {best} ({ends[best]:.2f})")
    return f"Highest at the end: {', '.join(words)}."


def _cost(found: list[Record]) -> str:
    """Minutes a cell and in sum; a cell's share of a lockstep is by the pictures its networks saw."""
    if not found:
        return ""
    kinds: dict[tuple[str, str, str, int], list[Record]] = {}
    for record in found:
        cell = record["cell"]
        key = (record["kind"], cell["method"], cell["network"], cell["epochs"])
        kinds.setdefault(key, []).append(record)
    rows = []
    for (kind, method, network, epochs), group in sorted(kinds.items()):
        minutes = np.array([r["seconds"] / 60 for r in group])
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
    total = sum(r["seconds"] for r in found) / 60
    rows.append(["**in all**", "", "", str(len(found)), f"{total / len(found):.2f}", "", f"**{total:.1f}**"])
    devices = ", ".join(sorted({r["device"] for r in found}))
    commits = ", ".join(sorted({f"`{r['commit'][:10]}`" for r in found}))
    header = ["cells", "network", "epochs", "number", "minutes a cell", "from to", "minutes in sum"]
    return (
        f"## What it cost\n\n{markdown(header, rows)}\n\n"
        f"Device: {devices}. Commits: {commits}. A cell's minutes are its share of the lockstep it trained in."
    )


def _differences(found: list[Record], remark: str) -> str:
    """Where runs differ from the paper's protocol; what the records know, then what a person wrote."""
    lines = []
    for kind in sorted({r["kind"] for r in found}):
        for (method, noise), group in sorted(by_cell([r for r in found if r["kind"] == kind]).items()):
            words = "; ".join(deviations(group))
            if words:
                lines.append(f"- {kind}, {method}, {noise}: {words}")
    told = "\n".join(lines) or "- Every number above is from a training of the protocol's length and settings."
    return f"## What differs from the paper's protocol\n\n{told}\n\n{remark}"
