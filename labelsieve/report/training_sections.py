"""The sections of a report on training: learning curves, iterations of the selection, and the theory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labelsieve.progress import counted
from labelsieve.report.facts import Facts, number
from labelsieve.report.html import LINE_STYLES, Line, Markup, count, dash, el, line_chart, percent
from labelsieve.report.sections import section, table

MAX_LEGEND = 24  # trainings that the legend names
NONE = "\u2013"
QUANTITIES = ("loss", "accuracy_given", "agreement")  # entries of history.jsonl that are drawn
MAX_NETWORKS = 2  # of a training, which have a line each
ITERATION_COLUMNS = {
    "selected_total": "selected",
    "candidates_left": "candidates",
    "removed_total": "removed",
    "expected_precision": "expected precision",
}


def learning(facts: Facts) -> Markup:
    charts = curves(facts.run.read_history())
    title = "Learning curves"
    if not charts:
        text = "This run has no records of training epochs, so there are no curves."
        return section("curves", title, el("p", text, cls="quiet"), iterations(facts))
    figures = []
    for i, (quantity, lines) in enumerate(charts.items()):
        name = quantity.replace("_", " ")
        figures.append(el("figure", el("figcaption", name), line_chart(lines, title=name, ident=f"c{i}")))
    styles = {line.name: line.style for lines in charts.values() for line in lines}
    legend = [el("li", dash(style), name) for name, style in list(styles.items())[:MAX_LEGEND]]
    if len(styles) > MAX_LEGEND:
        legend.append(el("li", f"and {len(styles) - MAX_LEGEND} more"))
    parts = el("ul", *legend, cls="legend"), el("div", *figures, cls="curves"), iterations(facts)
    return section("curves", title, *parts)


def curves(history: Sequence[Mapping[str, Any]]) -> dict[str, list[Line]]:
    """history.jsonl as lines per quantity, one line per network; lines of one network have one style."""
    found: dict[str, dict[str, Line]] = {}
    styles: dict[str, int] = {}
    for entry in history:
        epoch = number(entry.get("epoch"))
        if epoch is None:
            continue
        training = ", ".join(str(entry[key]) for key in ("stage", "training") if entry.get(key))
        for quantity in QUANTITIES:
            values = entry.get(quantity)
            values = values[:MAX_NETWORKS] if isinstance(values, list) else [values]
            for i, value in enumerate(map(number, values)):
                if value is not None:
                    name = training if len(values) == 1 else f"{training} ({i + 1})"
                    style = styles.setdefault(name, len(styles)) % LINE_STYLES
                    line = found.setdefault(quantity, {}).setdefault(name, Line(name, [], [], style))
                    line.x.append(epoch)
                    line.y.append(value)
    charts = {quantity: list(found[quantity].values()) for quantity in QUANTITIES if quantity in found}
    return {name: lines for name, lines in charts.items() if any(len(set(line.x)) > 1 for line in lines)}


def iterations(facts: Facts) -> Markup:
    """A table with one row per iteration of the selection."""
    listed = facts.summary.get("iterations")
    entries = [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []
    keys = [key for key in ITERATION_COLUMNS if any(number(entry.get(key)) is not None for entry in entries)]
    if facts.why_unknown:
        keys = [key for key in keys if key != "expected_precision"]
    if not keys:
        return Markup("")

    def cell(entry: Mapping[str, Any], key: str) -> str:
        value = number(entry.get(key))
        return NONE if value is None else percent(value, 1) if key == "expected_precision" else count(int(value))

    rows: list[list[object]] = [
        [str(entry.get("iteration", i + 1)), *(cell(entry, key) for key in keys)] for i, entry in enumerate(entries)
    ]
    heads = [("iteration", False), *((ITERATION_COLUMNS[key], True) for key in keys)]
    return el("div", el("h3", "Iterations"), table(heads, rows, caption="Samples after each iteration"))


def theory(facts: Facts) -> Markup:
    summary = facts.summary

    def row(key: str, name: str, meaning: str) -> list[object]:
        expected = None if facts.why_unknown else number(summary.get(key))
        values = (expected, number(summary.get(f"measured_{key}")))
        return [name, meaning, *(NONE if value is None else percent(value, 1) for value in values)]

    rows = [
        row("label_precision", "label precision", "share of the selected samples whose label is right"),
        row("label_recall", "label recall", "share of the right labels that were selected"),
    ]
    measured = any(str(key).startswith("measured_") for key in summary)
    if measured:
        rows.append(row("noise_ratio", "noise ratio", "share of all labels that are wrong"))
    if "measured_auroc" in summary:
        meaning = "probability that a wrong label is ranked as more suspicious than a right one (AUROC)"
        rows.append(row("auroc", "ranking", meaning))
    caption = "Measured values need true labels, which this run does not have."
    if measured:
        samples = number(summary.get("measured_samples"))  # present if only some samples have a true label
        whose = "this run" if samples is None else f"{counted(int(samples), 'sample')} of this run"
        caption = f"The measured values use the true labels of {whose}. Nothing else uses them."
    heads = [("quantity", False), ("meaning", False), ("expected", True), ("measured", True)]
    text = "The expected values are computed from the suspicions, the estimated probabilities that labels are wrong. If"
    text += " these are too low or too high, the expected values are wrong as well."
    if facts.suggested_probability is None:  # protocol "paper"
        text = "The expected values follow from the estimated noise ratio: the theory assumes that the networks fit the"
        text += " noisy labels completely."
    return section("theory", "Expected quality", el("p", text), table(heads, rows, caption=caption))
