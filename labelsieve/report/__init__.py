"""The report of a run: `write_report(run)` writes RUN/report.html, one file without scripts or network requests.

`run_html` returns the most suspicious labels of a run as the HTML that a notebook shows.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from pathlib import Path

import numpy as np

from labelsieve.files import write_text
from labelsieve.frames import SHOWN_SUSPECTS, THUMBNAIL_SIDE, Suspect, picture_html, sample_html, suspects_html
from labelsieve.report import sections, training_sections
from labelsieve.report.facts import Facts
from labelsieve.report.html import Markup, el
from labelsieve.report.samples import Missing, Picture, Row, Sample, Samples, open_samples
from labelsieve.runfolder import RunFolder

__all__ = ["write_report"]


def write_report(
    run: str | Path | RunFolder, *, most: int = sections.MAX_SUSPECTS, note: Callable[[str], None] = lambda _: None
) -> Path:
    """Write RUN/report.html with at most `most` suspects. `note` is called if the source is missing or changed."""
    folder = run if isinstance(run, RunFolder) else RunFolder.existing(run)
    facts = Facts.read(folder)
    samples = open_samples(folder, facts.columns)
    if samples.state.explanation:
        note(samples.state.explanation)
    path = folder / "report.html"
    write_text(path, render_report(facts, samples, most=most))
    return path


def render_report(facts: Facts, samples: Samples, *, most: int = sections.MAX_SUSPECTS) -> str:
    from labelsieve import __version__

    style = files("labelsieve.report").joinpath("style.css").read_text(encoding="utf-8")
    now = datetime.now(UTC)
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy(style)),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"{facts.title}: {sections.headline(facts).rstrip('.')} \u2013 labelsieve"),
        el("style", Markup(style)),
    )
    main = el(
        "main",
        sections.what_next(facts),
        sections.confusion(facts),
        sections.verdicts(facts),
        sections.suspects(facts, samples, most=most),
        sections.similar(facts, samples),
        training_sections.learning(facts),
        training_sections.theory(facts),
        sections.settings(facts),
    )
    header = sections.masthead(facts, time=f"{now.day} {now:%B %Y, %H:%M} UTC", source=samples.state)
    footer = el("footer", el("p", f"Made with labelsieve {__version__}. This page is a single file."))
    skip = el("a", "Skip to the content", href="#next", cls="skip")
    body = el("body", skip, el("div", header, main, footer, cls="page"))
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


def policy(style: str) -> str:
    """A policy that allows embedded pictures and this style sheet, and no scripts or requests."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    return f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def run_html(path: Path, title: str) -> str:
    """Return the first suspects of a run, with thumbnails of pictures."""
    run = RunFolder.existing(path)
    columns = run.columns()
    samples = open_samples(run, columns)
    rows = columns.ranked(np.flatnonzero(columns.suspect()))[:SHOWN_SUSPECTS].tolist()
    return suspects_html(
        title,
        (
            Suspect(
                columns.id(row), _shown(samples.show(row, side=THUMBNAIL_SIDE)), columns.name(int(columns.label[row])),
                columns.name(int(columns.suggested[row])), float(columns.suspicion[row]),
            )
            for row in rows
        ),
    )  # fmt: skip


def _shown(sample: Sample) -> str:
    if isinstance(sample, Picture):
        return picture_html(sample.data, sample.media)
    if isinstance(sample, Missing):
        return escape(sample.reason)
    if isinstance(sample, Row):
        return sample_html(dict(sample.cells))
    return sample_html(sample.text)
