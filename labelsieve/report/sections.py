"""The sections of a report, each a function from facts to HTML."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np

from labelsieve.csv_files import csv_line
from labelsieve.data.source import TABLES, is_path
from labelsieve.labels_csv import most_confused
from labelsieve.report.charts import heat_map, stacked_bars, swatch
from labelsieve.report.facts import UNGRADED, Facts, number, outdone
from labelsieve.report.html import Markup, count, el, percent, plural, shorten
from labelsieve.selection.estimate import WEAK
from labelsieve.types import VERDICTS

MOST_CLASSES = 25
MOST_PAIRS = 12
SHOWN_VERDICTS = ("selected", "candidate", "removed")


def section(ident: str, title: str, *content: object) -> Markup:
    return el("section", el("h2", title, id=f"{ident}-title"), *content, id=ident, aria_labelledby=f"{ident}-title")


def table(heads: list[tuple[str, bool]], rows: list[list[object]], *, caption: str = "") -> Markup:
    """`heads` are names and whether the column holds numbers; the first cell of a row names it."""
    top = el("tr", *(el("th", name, scope="col", cls="n" if numeric else None) for name, numeric in heads))
    body = [
        el(
            "tr",
            el("th", row[0], scope="row"),
            *(el("td", cell, cls="n" if heads[i + 1][1] else None) for i, cell in enumerate(row[1:])),
        )
        for row in rows
    ]
    named = el("caption", caption) if caption else Markup("")
    inner = el("table", named, el("thead", top), el("tbody", *body))
    return el("div", inner, cls="scroll", tabindex=0, role="region", aria_label=caption or heads[0][0])


def masthead(facts: Facts, *, made: str, notice: str = "") -> Markup:
    first, second = facts.headline()
    brand = el("p", el("strong", "labelsieve"), el("span", f"Report on {facts.title}"), el("span", made), cls="brand")
    parts: list[object] = [brand, el("h1", first), el("p", second, cls="lead")]
    if why := facts.why_so_many():
        parts.append(el("p", why))
    if notice:
        parts.append(el("p", el("strong", "The source: "), notice.rstrip(".") + ".", cls="trust", role="alert"))
    if facts.trust:
        parts.append(el("p", el("strong", "How far to trust this: "), facts.trust.rstrip(".") + ".", cls="trust"))
    if facts.notes:
        listed = el("ul", *(el("li", note) for note in facts.notes))
        parts.append(el("details", el("summary", "Notes on the data and the selection"), listed, cls="notes"))
    return el("header", *parts, figures(facts), contents(), cls="masthead")


def figures(facts: Facts) -> Markup:
    summary = facts.summary
    ratio, interval = facts.noise_ratio, facts.interval
    between = f"likely {percent(interval[0])} to {percent(interval[1])}" if interval else ""
    if facts.ignorance:
        ratio, between = None, facts.ignorance
    truth = number(summary.get("measured_noise_ratio"))
    if truth is not None:
        between += f"{', ' if between else ''}measured {percent(truth, 1)}"
    shown: list[tuple[str, str, str]] = [
        ("samples", count(len(facts.columns)), plural(len(facts.columns.classes), "class", "classes")),
        ("estimated noise ratio", percent(ratio), between),
        ("suspects", count(len(facts.suspects)), _share(len(facts.suspects), len(facts.columns))),
        ("selected as clean", count(facts.selected), _share(facts.selected, len(facts.columns))),
    ]
    for key, told in (
        ("label_precision", "label precision of the selected"),
        ("label_recall", "label recall of the selected"),
    ):
        expected = None if facts.ignorance else number(summary.get(key))
        measured = number(summary.get(f"measured_{key}"))
        if expected is not None or measured is not None:
            small = f"measured {percent(measured, 1)}" if measured is not None else "the theory expects"
            shown.append((told, percent(expected), small))
    skipped = summary.get("skipped")
    if isinstance(skipped, int) and skipped:
        shown.append(("left out", count(skipped), "listed in skipped.csv"))
    return el(
        "dl",
        *(
            el("div", el("dt", name), el("dd", value), el("dd", small, cls="small") if small else "")
            for name, value, small in shown
        ),
        cls="figures",
    )


def contents() -> Markup:
    links = [
        ("next", "What to do next"),
        ("mistakes", "Which class is taken for which"),
        ("verdicts", "Verdicts by class"),
    ]
    links += [("suspects", "Suspects"), ("curves", "Learning curves"), ("theory", "What the theory expects")]
    links.append(("settings", "Settings"))
    items = [el("li", el("a", told, href=f"#{ident}")) for ident, told in links]
    return el("nav", el("ul", *items), aria_label="Contents")


def what_next(facts: Facts) -> Markup:
    run = shlex.quote(str(facts.run))  # as it was given: a command that can be copied
    left = max(len(facts.suspects) - facts.decided, 0)
    steps: list[Markup] = []
    if left:
        told = f" One key a sample: keep, take the suggestion, another class, drop. {plural(left, 'suspect')} left"
        told += f", {facts.decided:,} decided." if facts.decided else "."
        steps.append(el("li", el("strong", "Decide on the suspects. "), el("code", f"labelsieve review {run}"), told))
    elif facts.decided:
        steps.append(el("li", el("strong", "All suspects are decided. "), "Nothing is left to review."))
    data = facts.record.get("data") or {}
    source = str(data.get("source") or "SOURCE")
    told = "Ids, columns and order stay as they were; the originals are not touched."
    if is_path(source) and os.path.isdir(source):  # noqa: PTH112 - unlike Path's, it raises at no name
        told = "With a folder's name instead of cleaned.csv: copies of the pictures in the right class folders."
    why = facts.ignorance or outdone(facts.summary)
    if why and not facts.touched:
        told = f"No label is changed by itself, because {why}: decide on the suspects first. {told}"
    steps.append(
        el(
            "li",
            el("strong", "Take the corrected labels home. "),
            el("code", f"labelsieve export {run} --what cleaned --to cleaned.csv"),
            f" {told}",
        )
    )
    trained = ((facts.record.get("stages") or {}).get("train") or {}).get("state") == "done"
    if trained:
        steps.append(
            el(
                "li",
                el("strong", "Label new samples with the trained network. "),
                el("code", f"labelsieve predict {run} NEW --to predictions.csv"),
                " NEW is a folder or a file like the source; it needs no labels.",
            )
        )
    else:
        steps.append(
            el(
                "li",
                el("strong", "Train a classifier that does not learn the wrong labels. "),
                el("code", f"labelsieve train {run}"),
            )
        )
    steps.append(
        el(
            "li",
            el("strong", "Look again with the corrected labels. "),
            el("code", f"labelsieve select {_again(source, data, facts.record)} --out {run}-again"),
            " A second look finds what the first mistakes had hidden.",
        )
    )
    return section("next", "What to do next", el("ol", *steps, cls="next"))


def _again(source: str, data: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """A corrected table is a source of its own; other sources keep their samples and get the labels beside them. Both
    are read as the run read them."""
    settings = record.get("settings") or {}
    is_table = source.lower().endswith(TABLES)
    words = ["cleaned.csv"] if is_table else [source, "--labels", "cleaned.csv"]
    usual = {"label_column": "label", "text_column": "text", "id_column": "id", "group_column": ""}
    for name, default in usual.items():
        if settings.get(name) not in (None, "", default):
            words += [f"--{name.replace('_', '-')}", str(settings[name])]
    if is_table and settings.get("ignore_columns"):
        words += ["--ignore-columns", csv_line(settings["ignore_columns"])]
    if is_table and data.get("kind") == "pictures":
        words += ["--root", str(settings.get("root") or os.path.dirname(source) or ".")]  # noqa: PTH120
    if settings.get("size") is not None:
        words += ["--size", str(settings["size"])]
    return shlex.join(words)


def mistakes(facts: Facts) -> Markup:
    parts: list[object] = []
    left: list[object] = []
    right: list[object] = []
    names = facts.columns.classes
    matrix = facts.transition
    if facts.ignorance:
        matrix = None
        told = f"No matrix is drawn, because {facts.ignorance}: its numbers would say nothing about the labels."
        parts.append(el("p", told))
        if facts.ignorance not in (WEAK, UNGRADED):  # then the pairs are chance as well
            return section("mistakes", "Which class is taken for which", *parts)
    if matrix is not None and len(matrix) > 1:
        all_of_them = len(matrix) <= MOST_CLASSES
        chosen = list(range(len(matrix))) if all_of_them else _confused(facts, matrix)
        told = "Each row is a class as it really is, each column the label its samples were given, in percent."
        told += " Classes that differ by no more than chance share what was counted, so a rare one has the others' row."
        if not all_of_them:
            told += f" The {len(chosen)} most confused of {len(matrix):,} classes are shown."
        part = matrix[np.ix_(chosen, chosen)]
        chart = heat_map(
            [names[i] for i in chosen], part, title="Estimated transition matrix", description=told, ident="heat"
        )
        parts.append(el("p", told))
        left.append(el("div", chart, cls="scroll", tabindex=0, role="region", aria_label="Estimated transition matrix"))
        key = (el("li", swatch("d8"), "label right"), el("li", swatch("h8"), "label wrong"))
        left.append(el("ul", *key, cls="legend"))
    pairs = sorted(((n, pair) for pair, n in facts.pairs.items() if pair[0] != pair[1]), key=lambda p: (-p[0], p[1]))
    if pairs:
        given = np.bincount(facts.columns.label[facts.columns.label >= 0], minlength=len(names))
        rows: list[list[object]] = [
            [names[i], names[j], count(n), percent(n / max(int(given[i]), 1), 1)] for n, (i, j) in pairs[:MOST_PAIRS]
        ]
        heads = [("labelled", False), ("looks like", False), ("suspects", True), ("of this label", True)]
        caption = "The pairs with the most suspects"
        if len(pairs) > MOST_PAIRS:
            caption += f" ({MOST_PAIRS} of {len(pairs):,})"
        right += [el("h3", "Mistaken most often"), table(heads, rows, caption=caption)]
    if not pairs:
        parts.append(el("p", "No class is taken for another: there are no suspects."))
    together = "beside" if left and right and len(matrix if matrix is not None else ()) <= 12 else None
    parts.append(el("div", el("div", *left), el("div", *right), cls=together))
    return section("mistakes", "Which class is taken for which", *parts)


def verdicts(facts: Facts) -> Markup:
    columns = facts.columns
    c = len(columns.classes)
    counts = np.zeros((c, len(VERDICTS)), dtype=int)
    known = columns.label >= 0
    np.add.at(counts, (columns.label[known], columns.verdict[known]), 1)
    order = [VERDICTS.index(name) for name in SHOWN_VERDICTS]
    doubted = counts.sum(axis=1) - counts[:, VERDICTS.index("selected")]
    chosen = sorted(range(c), key=lambda i: (-int(doubted[i]), i))[:MOST_CLASSES]
    per_class = [[int(counts[i, code]) for code in order] for i in chosen]
    names = [columns.classes[i] for i in chosen]
    meaning = {
        "selected": "the label agrees with a model that never saw it",
        "candidate": "it does not: the label may be wrong",
        "removed": "the most doubtful, set aside for good",
    }
    legend = el(
        "ul",
        *(
            el("li", swatch(name), f"{name} ({int(counts[:, VERDICTS.index(name)].sum()):,}): {meaning[name]}")
            for name in SHOWN_VERDICTS
        ),
        cls="legend",
    )
    chart = stacked_bars(names, per_class, SHOWN_VERDICTS, title="Verdicts by given label", ident="bars")
    rows: list[list[object]] = [
        [name, *(count(n) for n in parts), percent(1 - parts[0] / max(sum(parts), 1), 1)]
        for name, parts in zip(names, per_class, strict=True)
    ]
    heads = [("given label", False), *((name, True) for name in SHOWN_VERDICTS), ("not selected", True)]
    caption = "Verdicts by given label" + (f" ({len(chosen)} of {c:,} classes)" if c > len(chosen) else "")
    return section(
        "verdicts",
        "Verdicts by class",
        legend,
        el("div", chart, cls="scroll", tabindex=0, role="region", aria_label="Verdicts by given label, chart"),
        el("details", el("summary", "The same as a table"), table(heads, rows, caption=caption)),
    )


def settings(facts: Facts) -> Markup:
    record = facts.record
    data = record.get("data") or {}
    rows: list[list[object]] = []
    flat: dict[str, Any] = {}
    for key in ("source", "name", "kind", "samples", "fingerprint"):
        if data.get(key) is not None:
            flat[f"data {key}"] = data[key]
    _flatten(record.get("settings") or {}, "", flat)
    flat["seed"] = record.get("seed", flat.get("seed"))
    for name, version in (record.get("versions") or {}).items():
        flat[f"version of {name}"] = version
    for stage, entry in (record.get("stages") or {}).items():
        if isinstance(entry, Mapping):
            flat[f"stage {stage}"] = entry.get("state")
    rows = [[key, shorten(str(value), 300)] for key, value in flat.items() if value is not None]
    inner = table([("setting", False), ("value", False)], rows, caption="Every setting this run used")
    return section("settings", "Settings", inner)


def _flatten(value: Mapping[str, Any], prefix: str, into: dict[str, Any]) -> None:
    for key, entry in value.items():
        if isinstance(entry, Mapping):
            _flatten(entry, f"{prefix}{key} ", into)
        else:
            into[f"{prefix}{key}"] = entry


def _confused(facts: Facts, matrix: Any) -> list[int]:
    """The classes to draw when there are too many: most in suspects' pairs, filled up with the noisiest rows."""
    chosen = [i for i in most_confused(facts.pairs, MOST_CLASSES) if i < len(matrix)]
    noisiest = np.argsort(np.diagonal(matrix), kind="stable")
    for i in noisiest:
        if len(chosen) >= MOST_CLASSES:
            break
        if int(i) not in chosen:
            chosen.append(int(i))
    return sorted(chosen)


def _share(part: int, whole: int) -> str:
    return f"{percent(part / whole)} of all" if whole else ""
