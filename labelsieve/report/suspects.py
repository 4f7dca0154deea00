"""The suspects of a report: the most suspicious ones, each with what it looks like and what it may be."""

from __future__ import annotations

import base64

from labelsieve.report.facts import Facts
from labelsieve.report.html import Markup, el, percent, plural, shorten
from labelsieve.report.samples import CHANGED, GONE, Missing, Picture, Row, Samples, Text
from labelsieve.report.sections import section

MOST = 200
SIDE = 220
MOST_BYTES = 6_000_000  # of pictures: the page stays one small file whatever they are
MOST_TEXT = 600
MOST_CELLS = 24


def suspects(facts: Facts, samples: Samples, *, most: int = MOST) -> Markup:
    found = facts.suspects[:most]
    if not len(facts.suspects):
        return section("suspects", "Suspects", el("p", "There are none: every label agrees with its sample."))
    if not len(found):
        told = f"None is shown here, as was asked for. {plural(len(facts.suspects), 'suspect')} in all: see labels.csv."
        return section("suspects", "Suspects", el("p", told))
    spent = 0
    cards: list[Markup] = []
    for row in found.tolist():
        seen = samples.show(row, side=SIDE)
        if isinstance(seen, Picture):
            spent += len(seen.data) * 4 // 3
            if spent > MOST_BYTES:
                seen = Missing("picture left out: this page would become too large")
        cards.append(_card(facts, row, seen))
    told = f"The {plural(len(found), 'most suspicious sample')}" if len(facts.suspects) > len(found) else "All of them"
    if len(facts.suspects) > len(found):
        told += f" of {plural(len(facts.suspects), 'suspect')}, the rest are in labels.csv"
    told += ". The label given is struck through, the one suggested follows it. "
    if facts.likely is None:
        told += "Suspicion is between 0 and 1: it ranks, and is no probability."
    else:
        told += (
            "Percentages are estimated probabilities that the given label is wrong and that the suggested one is right."
        )
    wide = samples.kind != "pictures"
    return section("suspects", "Suspects", el("p", told), el("ol", *cards, cls="suspects wide" if wide else "suspects"))


def _card(facts: Facts, row: int, seen: object) -> Markup:
    columns = facts.columns
    given, other = columns.name(int(columns.label[row])) or "?", columns.name(int(columns.suggested[row])) or "?"
    labels = el(
        "p",
        el("del", shorten(given, 60), cls="was"),
        " \u2192 ",
        el("strong", shorten(other, 60), cls="now"),
    )
    suspicion = float(columns.suspicion[row])
    numbers = "suspicion unknown"
    if suspicion == suspicion:
        numbers = f"suspicion {suspicion:.2f}" if facts.likely is None else f"wrong: {percent(suspicion)}"
    likely = (facts.likely or {}).get(columns.id(row))
    if likely is not None:
        numbers += f", right: {percent(likely)}"
    about = el(
        "div",
        labels,
        el("p", numbers, cls="quiet"),
        el("p", f"id {shorten(columns.id(row), 120)}", cls="id"),
        cls="about",
    )
    said_above = isinstance(seen, Missing) and seen.reason in (GONE, CHANGED)
    return el("li", "" if said_above else _look(seen, given, other), about, cls="suspect")


def _look(seen: object, given: str, other: str) -> Markup:
    if isinstance(seen, Picture):
        source = f"data:{seen.media};base64,{base64.b64encode(seen.data).decode('ascii')}"
        tiny = "tiny" if max(seen.width, seen.height) <= 64 else None
        told = f"Sample labelled {given}, suggested {other}"
        shot = el("img", src=source, alt=told, width=seen.width, height=seen.height, decoding="async", cls=tiny)
        return el("div", shot, cls="shot")
    if isinstance(seen, Text):
        return el("blockquote", shorten(seen.text, MOST_TEXT) or "(empty)")
    if isinstance(seen, Row):
        shown = seen.cells[:MOST_CELLS]
        cells = [
            el("div", el("dt", shorten(name, 40)), el("dd", shorten(cell, 80) or "\u2013")) for name, cell in shown
        ]
        if len(seen.cells) > len(shown):
            cells.append(el("div", el("dt", "and"), el("dd", f"{len(seen.cells) - len(shown)} more columns")))
        return el("dl", *cells, cls="row")
    reason = seen.reason if isinstance(seen, Missing) else "cannot be shown"
    return el("div", el("p", reason, cls="quiet"), cls="shot")
