"""The sections of a report: functions from facts to HTML, with all their sentences."""

from __future__ import annotations

import base64
import math
import os
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from labelsieve.data.source import TABLES, is_path
from labelsieve.decisions import Choice
from labelsieve.labels_csv import Duplicates, most_confused
from labelsieve.progress import counted
from labelsieve.report.facts import DEFAULT_CONFIDENCE, SAMPLE_SIZE, Facts, number
from labelsieve.report.html import (
    LEAST_SHOWN,
    Markup,
    breakable,
    count,
    el,
    heat_map,
    percent,
    shorten,
    shorten_middle,
    stacked_bars,
    swatch,
)
from labelsieve.report.samples import MAX_TINY_SIDE, Missing, Picture, Row, Sample, Samples, Text
from labelsieve.report.source_state import SourceState
from labelsieve.runfolder import NoteTopic, notes_besides
from labelsieve.selection.noise_model import WHY_UNKNOWN
from labelsieve.types import VERDICTS, FloatArray, WhyUnknown

MAX_CLASSES = 25  # classes of the matrix: more names cannot be read
MAX_PAIRS = 12  # confused pairs that are listed
MAX_SUSPECTS = 200  # default of --suspects
THUMBNAIL_SIDE = 220  # pixels: twice the width of a card, for sharp displays
MAX_PICTURE_BYTES = 6_000_000  # of all pictures together: the page stays below 10 MB
MAX_GROUPS, MAX_GROUP_MEMBERS, MAX_OUTLIERS = 12, 4, 12  # duplicates and outliers that are shown
MAX_CLASS_NAME = 120  # letters of a class name on a card, which has several lines for it
MAX_TEXT, MAX_CELLS = 600, 24  # characters of a text and cells of a row that a card shows
CONFIDENCES = (0.5, 0.7, 0.9, 0.95)  # probabilities for which the report counts the suggestions
MAX_WIDE_MATRIX = 12  # classes up to which a table fits beside the matrix
CLEAN_RATIO = 0.005  # with noise ratios below it, almost all labels are reported as right
NO_WRONG_LABEL = "No wrong label was found."
VERDICT_MEANINGS = {
    "selected": "models that were not trained on the sample predict its label, or it is more likely right than wrong",
    "candidate": "its label may be wrong",
    "removed": "its label is probably wrong, so the next iteration trains without it",
}
VERDICT_CODES = {name: VERDICTS.index(name) for name in VERDICT_MEANINGS}
CONTENTS = {
    "next": "What to do next",
    "mistakes": "Confused classes",
    "verdicts": "Verdicts by class",
    "suspects": "Suspects",
    "similar": "Duplicates and outliers",
    "curves": "Learning curves",
    "theory": "Expected quality",
    "settings": "Settings",
}


def section(ident: str, title: str, *content: object) -> Markup:
    return el("section", el("h2", title, id=f"{ident}-title"), *content, id=ident, aria_labelledby=f"{ident}-title")


def table(heads: list[tuple[str, bool]], rows: list[list[object]], *, caption: str) -> Markup:
    """A table. `heads` are column names and whether the column is numeric; the first cell of a row is its header."""
    top = el("tr", *(el("th", name, scope="col", cls="n" if numeric else None) for name, numeric in heads))
    body = []
    for first, *rest in rows:
        cells = (el("td", cell, cls="n" if heads[i][1] else None) for i, cell in enumerate(rest, start=1))
        body.append(el("tr", el("th", first, scope="row"), *cells))
    return _scrolling(el("table", el("caption", caption), el("thead", top), el("tbody", *body)), caption)


def _scrolling(content: Markup, label: str) -> Markup:
    return el("div", content, cls="scroll", tabindex=0, role="region", aria_label=label)


# the top of the page


def headline(facts: Facts) -> str:
    found, total, ratio = len(facts.suspects), len(facts.columns), facts.noise_ratio
    if (checked := facts.checked_noise) is not None and not checked.unchecked:
        ends = f"{percent(checked.low, 0)} to {percent(checked.high, 0)}"
        return f"About {percent(checked.ratio, 0)} of the labels are wrong ({ends}, by your random decisions)."
    if facts.why_unknown is not None:
        return f"The share of wrong labels is unknown: {WHY_UNKNOWN[facts.why_unknown].reason}."
    if ratio is None:
        return f"{counted(found, 'label')} of {total:,} may be wrong." if found else NO_WRONG_LABEL
    if facts.rough_noise is not None:
        low, high = facts.rough_noise
        if low < LEAST_SHOWN:
            return f"Up to {percent(high, 0)} of the labels may be wrong."
        return f"Between {percent(low, 0)} and {percent(high, 0)} of the labels may be wrong."
    if ratio < CLEAN_RATIO:
        return "Almost all labels are probably right." if found else NO_WRONG_LABEL
    return f"About {percent(ratio)} of the labels may be wrong."


def lead(facts: Facts) -> str:
    found = len(facts.suspects)
    suspect = "is a suspect" if found == 1 else "are suspects"
    text = f"{found:,} of {counted(len(facts.columns), 'sample')} {suspect}: the model suggests another label. "
    text += f"{counted(facts.selected, 'sample was', 'samples were')} selected"
    precision = number(facts.summary.get("label_precision"))
    if precision is not None and facts.selected and not facts.why_unknown:
        text += f"; about {percent(precision)} of their labels are expected to be right"
    return text + "."


def why_many_suspects(facts: Facts) -> str:
    """Why there are many more suspects than wrong labels; empty if there are not."""
    if not facts.more_suspects_than_noise:
        return ""
    text = "A suspect is a sample whose label the model did not predict. If the model is weak, many suspects have a"
    text += " right label. The most suspicious samples come first"
    if facts.suggested_probability is None:  # suspicion is not a probability, so it cannot be summed
        return f"{text}."
    wrong = round(float(np.nansum(facts.columns.suspicion[facts.suspects])))
    return f"{text}: about {wrong:,} of {counted(len(facts.suspects), 'suspect')} are expected to have a wrong label."


def masthead(facts: Facts, *, time: str, source: SourceState) -> Markup:
    brand = el("p", el("strong", "labelsieve"), el("span", f"Report on {facts.title}"), el("span", time), cls="brand")
    parts: list[object] = [brand, el("h1", headline(facts)), el("p", lead(facts), cls="lead")]
    if why := why_many_suspects(facts):
        parts.append(el("p", why))
    if source.explanation:
        text = source.explanation.rstrip(".") + "."
        parts.append(el("p", el("strong", "Source: "), text, cls="trust", role="alert"))
    trust = facts.noise.explanation if facts.noise is not None else ""
    if trust:
        parts.append(el("p", el("strong", "How far to trust this: "), trust.rstrip(".") + ".", cls="trust"))
    if shown := notes_besides(facts.summary, NoteTopic.NOISE):  # which is above
        items = el("ul", *(el("li", note) for note in shown))
        parts.append(el("details", el("summary", "Notes on the data and the selection"), items, cls="notes"))
    links = [el("li", el("a", title, href=f"#{ident}")) for ident, title in CONTENTS.items()]
    nav = el("nav", el("ul", *links), aria_label="Contents")
    return el("header", *parts, figures(facts), nav, cls="masthead")


def figures(facts: Facts) -> Markup:
    summary, total = facts.summary, len(facts.columns)

    def share(part: int) -> str:
        return f"{percent(part / total)} of all" if total else ""

    ratio, noise = facts.noise_ratio, facts.noise
    details = []
    if facts.why_unknown:
        ratio = None
        details.append(WHY_UNKNOWN[facts.why_unknown].reason)
    elif noise is not None and number(noise.low) is not None and number(noise.high) is not None:
        details.append(f"95\u202f% interval: {percent(noise.low)} to {percent(noise.high)}")
    if (checked := facts.checked_noise) is not None:
        text = f"{percent(checked.ratio)} ({percent(checked.low)} to {percent(checked.high)})"
        text += f" by {counted(checked.decided, 'random decision')}"
        text += f", {percent(checked.unchecked)} of the samples without a check" if checked.unchecked else ""
        details.append(text)
    if (truth := number(summary.get("measured_noise_ratio"))) is not None:
        details.append(f"measured {percent(truth, 1)}")
    shown: list[tuple[str, str, str]] = [
        ("samples", count(total), counted(len(facts.columns.classes), "class", "classes")),
        ("estimated noise ratio", percent(ratio), ", ".join(details)),
        ("suspects", count(len(facts.suspects)), share(len(facts.suspects))),
        ("selected", count(facts.selected), share(facts.selected)),
    ]
    for key in ("label_precision", "label_recall"):
        expected = None if facts.why_unknown else number(summary.get(key))
        measured = number(summary.get(f"measured_{key}"))
        if expected is not None or measured is not None:
            small = f"measured {percent(measured, 1)}" if measured is not None else "expected"
            shown.append((f"{key.replace('_', ' ')} of the selection", percent(expected), small))
    skipped = summary.get("skipped")
    if isinstance(skipped, int) and skipped:
        shown.append(("skipped", count(skipped), "listed in skipped.csv"))
    items = (
        el("div", el("dt", name), el("dd", value), el("dd", small, cls="small") if small else "")
        for name, value, small in shown
    )
    return el("dl", *items, cls="figures")


# what to do next


def what_next(facts: Facts) -> Markup:
    run = shlex.quote(str(facts.run.path))  # as it was given, so that commands can be copied
    decided = facts.decided_suspects
    left = max(len(facts.suspects) - decided, 0)
    steps: list[Markup] = []
    if left:
        text = "One key per sample: keep, accept the suggestion, choose another class, drop. "
        text += f"{counted(left, 'suspect')} left" + (f", {decided:,} decided." if decided else ".")
        steps.append(_step("Review the suspects.", f"labelsieve review {run}", text))
    elif decided:
        steps.append(_step("All suspects are decided.", "", "Nothing is left to review."))
    data = facts.record.get("data") or {}
    source = str(data.get("source") or "SOURCE")
    text = "Ids, columns and order stay the same. The originals are not changed."
    if is_path(source) and os.path.isdir(source):  # noqa: PTH112 - Path.is_dir may raise
        text = "With the name of a folder instead of cleaned.csv, the pictures are copied into class folders."
    text = f"Only labels that you corrected are changed. The other suspects are marked. {text}"
    command = f"labelsieve export {run} --what cleaned --to cleaned.csv"
    steps.append(_step("Export the corrected labels.", command, text))
    if (offer := accept_many(facts, run)) is not None:
        steps.append(offer)
    if ((facts.record.get("stages") or {}).get("train") or {}).get("state") == "done":
        command = f"labelsieve predict {run} NEW --to predictions.csv"
        text = "NEW is a folder or a file like the source. It needs no labels."
        steps.append(_step("Label new samples with the trained model.", command, text))
    else:
        steps.append(_step("Train a classifier that ignores the wrong labels.", f"labelsieve train {run}", ""))
    words = facts.source.words("cleaned.csv", table=source.lower().endswith(TABLES))
    command = f"labelsieve select {shlex.join(words)} --out {run}-again"
    text = "Models that learn from corrected labels can find more wrong labels."
    steps.append(_step("Select again with the corrected labels.", command, text))
    return section("next", CONTENTS["next"], el("ol", *steps, cls="next"))


def accept_many(facts: Facts, run: str) -> Markup | None:
    """How many labels change if all suggestions above a probability are applied, and how many changes are right."""
    if facts.suggested_probability is None or facts.why_unknown:
        return None
    suspect, undecided = facts.columns.suspect(), facts.log.state == Choice.UNDECIDED
    changes, right = {}, {}
    for least in CONFIDENCES:
        probable = suspect & (np.nan_to_num(facts.suggested_probability, nan=-1.0) >= least)
        if number := int(np.sum(probable & undecided)):
            changes[least], right[least] = number, facts.expected_right(probable, least)
    if not changes:
        return None
    cells: list[list[object]] = [
        [f"at least {percent(p)}", count(changes[p]), ", ".join(filter(None, (f"about {n.number:,.0f}", n.range)))]
        for p, n in right.items()
    ]
    heads = [("probability of the suggestion", False), ("labels that change", True), ("expected to be right", True)]
    chosen = min(DEFAULT_CONFIDENCE, max(changes))
    command = el("code", f"labelsieve export {run} --apply suggested --min-confidence {chosen}")
    inner = table(heads, cells, caption="Undecided suspects")
    sample = f"{min(SAMPLE_SIZE, changes[chosen])} random ones"
    if not right[chosen].enough_of(changes[chosen]):
        title = f"Or apply all probable suggestions, after you have reviewed {sample}. "
        text = " Press a on the review page and review the random sample. Until then the export stops with an error,"
        text += " because by the interval of the noise estimate perhaps few of the suggestions are right. After that:"
        return el("li", el("strong", title), el("code", f"labelsieve review {run}"), text, command, inner)
    if reviewed := right[chosen].decisions:
        text = f"From {percent(chosen)} on, the expected number follows from {counted(reviewed, 'random decision')}."
    else:
        text = f"First review {sample} on the review page (key a): the expected number then follows from your"
        text += " decisions."
        if facts.rough_noise is not None:
            text += " The noise estimate is rough, so the number of right suggestions is uncertain."
    return el("li", el("strong", "Or apply all probable suggestions. "), command, f" {text}", inner)


def _step(title: str, command: str, text: str) -> Markup:
    code = el("code", command) if command else Markup("")
    return el("li", el("strong", f"{title} "), code, f" {text}" if text else "")


# classes and verdicts


def confusion(facts: Facts) -> Markup:
    """The transition matrix and the pairs of classes with the most suspects."""
    title, names, matrix = CONTENTS["mistakes"], facts.columns.classes, facts.transition
    parts: list[object] = []
    left: list[object] = []
    right: list[object] = []
    if facts.why_unknown:
        matrix = None
        parts.append(el("p", f"There is no matrix, because {WHY_UNKNOWN[facts.why_unknown].reason}."))
        if facts.why_unknown is WhyUnknown.RANDOM:  # then the pairs are random as well
            return section("mistakes", title, *parts)
    if matrix is not None and len(matrix) > 1:
        chosen = list(range(len(matrix))) if len(matrix) <= MAX_CLASSES else _confused_classes(facts, matrix)
        text = "Each row is a true class, each column a given label, in percent of the row."
        text += " Classes with few samples share the estimate of all classes."
        if len(chosen) < len(matrix):
            text += f" The {len(chosen)} most confused of {len(matrix):,} classes are shown."
        chart = heat_map(
            [names[i] for i in chosen], matrix[np.ix_(chosen, chosen)], title="Estimated transition matrix",
            description=text,
        )  # fmt: skip
        parts.append(el("p", text))
        key = (el("li", swatch("d8"), "right label"), el("li", swatch("h8"), "wrong label"))
        left += [_scrolling(chart, "Estimated transition matrix"), el("ul", *key, cls="legend")]
    pairs = sorted(((n, pair) for pair, n in facts.pairs.items() if pair[0] != pair[1]), key=lambda p: (-p[0], p[1]))
    if pairs:
        suspects, columns = facts.suspects, facts.columns
        label, suggested, suspicion = (part[suspects] for part in (columns.label, columns.suggested, columns.suspicion))
        heads = [("given label", False), ("suggested label", False), ("suspects", True)]
        rows: list[list[object]] = [
            [breakable(names[i]), breakable(names[j]), count(n)] for n, (i, j) in pairs[:MAX_PAIRS]
        ]
        if facts.suggested_probability is not None and facts.why_unknown is None:  # suspicion is a probability
            heads.append(("expected to be wrong", True))
            for row, (_, (i, j)) in zip(rows, pairs, strict=False):
                row.append(f"about {np.nansum(suspicion[(label == i) & (suggested == j)]):,.0f}")
        caption = "Pairs of labels with the most suspects"
        caption += f" ({MAX_PAIRS} of {len(pairs):,})" if len(pairs) > MAX_PAIRS else ""
        right += [el("h3", "Most frequent suggestions"), table(heads, rows, caption=caption)]
    else:
        parts.append(el("p", "No classes are confused: there are no suspects."))
    beside = left and right and matrix is not None and len(matrix) <= MAX_WIDE_MATRIX
    parts.append(el("div", el("div", *left), el("div", *right), cls="beside" if beside else None))
    return section("mistakes", title, *parts)


def _confused_classes(facts: Facts, matrix: FloatArray) -> list[int]:
    """The classes of most suspects, then those with the most wrong labels, in class order."""
    chosen = [i for i in most_confused(facts.pairs, MAX_CLASSES) if i < len(matrix)]
    noisiest = [i for i in np.argsort(np.diagonal(matrix), kind="stable").tolist() if i not in chosen]
    return sorted([*chosen, *noisiest[: MAX_CLASSES - len(chosen)]])


def verdicts(facts: Facts) -> Markup:
    columns = facts.columns
    counts = np.zeros((len(columns.classes), len(VERDICT_CODES)), dtype=int)
    known = columns.label >= 0
    np.add.at(counts, (columns.label[known], columns.verdict[known]), 1)
    counts = counts[:, list(VERDICT_CODES.values())]
    suspicious = counts[:, 1:].sum(axis=1)
    chosen = sorted(range(len(counts)), key=lambda i: (-int(suspicious[i]), i))[:MAX_CLASSES]
    names, parts = [columns.classes[i] for i in chosen], counts[chosen].tolist()
    totals = counts.sum(axis=0).tolist()
    legend = (
        el("li", swatch(name), f"{name} ({total:,}): {VERDICT_MEANINGS[name]}")
        for name, total in zip(VERDICT_CODES, totals, strict=True)
    )
    title = "Verdicts by given label"
    chart = stacked_bars(names, parts, tuple(VERDICT_CODES), title=title)
    rows: list[list[object]] = [
        [breakable(name), *(count(n) for n in numbers), percent(1 - numbers[0] / max(sum(numbers), 1), 1)]
        for name, numbers in zip(names, parts, strict=True)
    ]
    heads = [("given label", False), *((name, True) for name in VERDICT_CODES), ("not selected", True)]
    caption = title + (f" ({len(chosen)} of {len(counts):,} classes)" if len(counts) > len(chosen) else "")
    details = el("details", el("summary", "Show as a table"), table(heads, rows, caption=caption))
    chart = _scrolling(chart, f"{title}, chart")
    return section("verdicts", CONTENTS["verdicts"], el("ul", *legend, cls="legend"), chart, details)


# suspects


def suspects(facts: Facts, samples: Samples, *, most: int) -> Markup:
    total, shown = len(facts.suspects), facts.suspects[:most].tolist()
    title = CONTENTS["suspects"]
    if not total:
        return section("suspects", title, el("p", "There are no suspects: the model agrees with every label."))
    if not shown:
        text = f"No suspects are shown, as requested. labels.csv lists all {counted(total, 'suspect')}."
        return section("suspects", title, el("p", text))
    used = 0
    cards: list[Markup] = []
    for row in shown:
        sample = samples.show(row, side=THUMBNAIL_SIDE)
        if isinstance(sample, Picture):
            used += len(sample.data) * 4 // 3
            if used > MAX_PICTURE_BYTES:
                sample = Missing("picture omitted to keep this page small")
        cards.append(_card(facts, row, sample))
    text = "All suspects" if total == len(shown) else f"The {len(shown):,} most suspicious of {total:,} suspects"
    text += ". The suggested label follows the given one. "
    text += "The rest is in labels.csv. " if total > len(shown) else ""
    if facts.suggested_probability is None:
        text += "Suspicion is a rank between 0 and 1, not a probability."
    else:
        text += "Labels that are probably wrong are struck through. Percentages are estimated probabilities"
        rough = ", which can be much too high: the noise estimate is rough." if facts.rough_noise is not None else "."
        text += rough
    return section("suspects", title, el("p", text), _cards(samples, cards))


def _cards(samples: Samples, cards: Iterable[Markup]) -> Markup:
    return el("ol", *cards, cls="suspects" if samples.kind == "pictures" else "suspects wide")


def _card(facts: Facts, row: int, sample: Sample) -> Markup:
    columns = facts.columns
    given, suggested = (columns.name(int(codes[row])) or "?" for codes in (columns.label, columns.suggested))
    was, now = (breakable(shorten_middle(name, MAX_CLASS_NAME)) for name in (given, suggested))
    suspicion, numbers, ranked = float(columns.suspicion[row]), "suspicion unknown", facts.suggested_probability is None
    likely_wrong = suspicion > 0.5 and not ranked
    labels = el("del", was, cls="was") if likely_wrong else el("span", was), " \u2192 ", el("strong", now, cls="now")
    if suspicion == suspicion:
        numbers = f"suspicion {suspicion:.2f}" if ranked else f"given label {percent(suspicion)} likely wrong"
    probability = math.nan if facts.suggested_probability is None else facts.suggested_probability[row]
    numbers += f", suggestion {percent(probability)} likely right" if probability == probability else ""
    numbers += ", may fit no class" if facts.no_class[row] else ""
    numbers += f"; your decision: {_decision(facts, row)}" if facts.log.decided[row] else ""
    id = el("p", f"id {shorten(columns.id(row), 120)}", cls="id")
    about = el("div", el("p", *labels), el("p", numbers, cls="quiet"), id, cls="about")
    said_above = isinstance(sample, Missing) and sample.all_samples
    return el("li", "" if said_above else _content(sample, given, suggested), about, cls="suspect")


def _decision(facts: Facts, row: int) -> str:
    choice, label, _ = facts.log.resolution(row)
    if choice is Choice.CONFLICT:
        return "reviewers disagree"
    return "drop" if choice is Choice.DROP else shorten_middle(facts.columns.name(label) or "?", MAX_CLASS_NAME)


def _content(sample: Sample, given: str, suggested: str) -> Markup:
    if isinstance(sample, Picture):
        data = f"data:{sample.media};base64,{base64.b64encode(sample.data).decode('ascii')}"
        tiny = "tiny" if max(sample.width, sample.height) <= MAX_TINY_SIDE else None
        alt = f"Sample labelled {given}, suggested {suggested}"
        image = el("img", src=data, alt=alt, width=sample.width, height=sample.height, decoding="async", cls=tiny)
        return el("div", image, cls="shot")
    if isinstance(sample, Text):
        return el("blockquote", shorten(sample.text, MAX_TEXT) or "(empty)")
    if isinstance(sample, Row):
        cells = [
            el("div", el("dt", shorten(name, 40)), el("dd", shorten(cell, 80) or "\u2013"))
            for name, cell in sample.cells[:MAX_CELLS]
        ]
        if (more := len(sample.cells) - MAX_CELLS) > 0:
            cells.append(el("div", el("dt", "and"), el("dd", f"{more} more columns")))
        return el("dl", *cells, cls="row")
    return el("div", el("p", sample.reason, cls="quiet"), cls="shot")


# duplicates and outliers


def similar(facts: Facts, samples: Samples) -> Markup:
    """Groups of equal or nearly equal samples, those with different labels side by side, and outliers."""
    columns, duplicates = facts.columns, Duplicates(facts.columns)
    groups = int(columns.duplicates.max(initial=0))
    conflicting = np.unique(columns.duplicates[duplicates.conflicting()], return_index=True)[0]
    if not groups:
        text = "No sample occurs more than once. "
    else:
        text = f"{counted(int(np.count_nonzero(columns.duplicates)), 'sample')} in {counted(groups, 'group')} are "
        text += f"{'identical or nearly identical' if facts.embedded else 'identical'} to another sample; "
        text += f"{counted(len(conflicting), 'group has', 'groups have')} different labels. "
        text += "In labels.csv, column duplicates has the number of the group. "
    if not facts.embedded:
        text += "Near duplicates and outliers were not searched, because the run has no embeddings."
    parts: list[object] = [el("p", text)]
    for group in conflicting[:MAX_GROUPS].tolist():
        rows = np.flatnonzero(columns.duplicates == group)
        first = np.unique(columns.label[rows], return_index=True)[1]  # of each label
        rows = np.append(rows[first], np.delete(rows, first))[:MAX_GROUP_MEMBERS].tolist()
        parts.append(_cards(samples, (_labelled(facts, row, samples) for row in rows)))
    outliers = np.flatnonzero(columns.outlier)
    if len(outliers):
        text = f"{counted(len(outliers), 'sample is an outlier', 'samples are outliers')}: far from all others in the "
        text += "embedding. They may belong to none of the classes. On the review page, key d drops a sample."
        cards = (_labelled(facts, row, samples) for row in columns.ranked(outliers)[:MAX_OUTLIERS].tolist())
        parts += [el("h3", "Outliers"), el("p", text), _cards(samples, cards)]
    return section("similar", CONTENTS["similar"], *parts)


def _labelled(facts: Facts, row: int, samples: Samples) -> Markup:
    """A card with a sample and its given label."""
    given = facts.columns.name(int(facts.columns.label[row])) or "?"
    id = el("p", f"id {shorten(facts.columns.id(row), 120)}", cls="id")
    about = el("div", el("p", el("strong", breakable(shorten_middle(given, MAX_CLASS_NAME)))), id, cls="about")
    return el("li", _content(samples.show(row, side=THUMBNAIL_SIDE), given, given), about, cls="suspect")


# settings


def settings(facts: Facts) -> Markup:
    record = facts.record
    data = record.get("data") or {}
    flat = {f"data {key}": data.get(key) for key in ("source", "name", "kind", "samples", "fingerprint")}
    flat |= _flatten(record.get("settings") or {})
    flat["seed"] = record.get("seed", flat.get("seed"))
    flat |= {f"version of {name}": version for name, version in (record.get("versions") or {}).items()}
    flat |= {f"stage {name}": stage.get("state") for name, stage in (record.get("stages") or {}).items()}
    flat.pop("stage report", None)  # still running while it writes this page
    texts = {key: f"{value:.4g}" if isinstance(value, float) else str(value) for key, value in flat.items()}
    rows: list[list[object]] = [[key, shorten(texts[key], 300)] for key, value in flat.items() if value is not None]
    inner = table([("setting", False), ("value", False)], rows, caption="All settings of this run")
    return section("settings", CONTENTS["settings"], inner)


def _flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, entry in value.items():
        flat |= _flatten(entry, f"{prefix}{key} ") if isinstance(entry, Mapping) else {f"{prefix}{key}": entry}
    return flat
