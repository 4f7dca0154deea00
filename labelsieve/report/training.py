"""The sections on the trainings behind a run: curves, iterations, and what the theory expects of the outcome."""

from __future__ import annotations

from collections.abc import Mapping

from labelsieve.report.charts import dash, line_chart
from labelsieve.report.curves import curves
from labelsieve.report.facts import Facts, number
from labelsieve.report.html import Markup, count, el, percent, plural
from labelsieve.report.sections import section, table

MOST_NAMES = 24
NONE = "\u2013"


def learning(facts: Facts) -> Markup:
    charts = curves(facts.history)
    by_iteration = iterations(facts)
    if not charts:
        told = "No epochs of a network are on record in this run, so there are no curves over them."
        return section("curves", "Learning curves", el("p", told, cls="quiet"), by_iteration)
    drawn = []
    for i, (quantity, lines) in enumerate(charts.items()):
        title = quantity.replace("_", " ")
        drawn.append(el("figure", el("figcaption", title), line_chart(lines, title=title, ident=f"c{i}")))
    styles = {line.name: line.style for lines in charts.values() for line in lines}
    legend = [el("li", dash(style), name) for name, style in list(styles.items())[:MOST_NAMES]]
    if len(styles) > MOST_NAMES:
        legend.append(el("li", f"and {len(styles) - MOST_NAMES} more"))
    parts = el("ul", *legend, cls="legend"), el("div", *drawn, cls="curves"), by_iteration
    return section("curves", "Learning curves", *parts)


def iterations(facts: Facts) -> Markup:
    """What each iteration of the selection did."""
    found = facts.summary.get("iterations")
    shown = {
        "candidates": "looked at",
        "selected": "selected",
        "removed": "removed",
        "candidates_left": "left",
        "expected_precision": "expected precision",
    }
    known = [entry for entry in found if isinstance(entry, Mapping)] if isinstance(found, list) else []
    if facts.ignorance:
        del shown["expected_precision"]  # as above, where it is not known either
    columns = [key for key in shown if any(number(entry.get(key)) is not None for entry in known)]
    if not columns:
        return Markup("")
    rows: list[list[object]] = []
    for i, entry in enumerate(known):
        cells: list[object] = [str(entry.get("iteration", i + 1))]
        for key in columns:
            value = number(entry.get(key))
            precise = key == "expected_precision"
            cells.append(NONE if value is None else percent(value, 1) if precise else count(int(value)))
        rows.append(cells)
    heads = [("iteration", False), *((shown[key], True) for key in columns)]
    return el("div", el("h3", "Iteration by iteration"), table(heads, rows, caption="What each iteration did"))


def theory(facts: Facts) -> Markup:
    summary = facts.summary

    def measured(name: str) -> str:
        value = number(summary.get(f"measured_{name}"))
        return NONE if value is None else percent(value, 1)

    def row(name: str, told: str, meaning: str) -> list[object]:
        expected = None if facts.ignorance else number(summary.get(name))
        return [told, meaning, NONE if expected is None else percent(expected, 1), measured(name)]

    rows = [
        row("label_precision", "label precision", "share of the selected samples whose label is right"),
        row("label_recall", "label recall", "share of the right labels that were selected"),
    ]
    known = any(str(key).startswith("measured_") for key in summary)
    if known:
        rows.append(row("noise_ratio", "noise ratio", "share of all labels that are wrong"))
    if "measured_auroc" in summary:
        meaning = "chance that a wrong label ranks as more suspicious than a right one (AUROC)"
        rows.append(row("auroc", "ranking", meaning))
    of = number(summary.get("measured_samples"))  # only where not all have a true label
    whose = "this run" if of is None else f"{plural(int(of), 'sample')} of this run"
    why = (
        f"The true labels of {whose} are known, so the last column was measured with them; nothing else saw them."
        if known
        else "Measured values need true labels, which this run was not given."
    )
    heads = [("quantity", False), ("what it is", False), ("expected", True), ("measured", True)]
    formula = el(
        "p",
        "A network that learns one half of noisy data completely makes its labels' mistakes again on the other half: it"
        " agrees with a given label with probability Σ T² over the row of the true class. So of the samples where it"
        " agrees, Σ π Tᵢᵢ² / Σ π Tᵢⱼ² are right, and Σ π Tᵢᵢ² / Σ π Tᵢᵢ of the right ones are found."
        " A network that resists some of the noise does better than this.",
    )
    return section("theory", "What the theory expects", formula, table(heads, rows, caption=why))
