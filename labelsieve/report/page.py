"""report.html: one file that needs nothing else, no script, no network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

from labelsieve.files import write_text
from labelsieve.report import sections, training
from labelsieve.report.facts import Facts, read_facts
from labelsieve.report.html import Markup, el
from labelsieve.report.samples import Samples, open_samples
from labelsieve.report.suspects import MOST, suspects
from labelsieve.runfolder import RunFolder


def style_sheet() -> str:
    return files("labelsieve.report").joinpath("style.css").read_text(encoding="utf-8")


def policy(style: str) -> str:
    """Nothing runs, nothing is fetched: pictures inside the page and this one style sheet."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    return f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def render_report(facts: Facts, samples: Samples, *, most: int = MOST, made: datetime | None = None) -> str:
    from labelsieve import __version__

    style = style_sheet()
    now = made or datetime.now(UTC)
    when = f"{now.day} {now:%B %Y, %H:%M} UTC"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy(style)),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"{facts.title}: {facts.headline()[0].rstrip('.')} \u2013 labelsieve"),
        el("style", Markup(style)),
    )
    body = el(
        "body",
        el("a", "Skip to the content", href="#next", cls="skip"),
        el(
            "div",
            sections.masthead(facts, made=when, notice=samples.notice),
            el(
                "main",
                sections.what_next(facts),
                sections.mistakes(facts),
                sections.verdicts(facts),
                suspects(facts, samples, most=most),
                training.learning(facts),
                training.theory(facts),
                sections.settings(facts),
            ),
            el("footer", el("p", f"Made by labelsieve {__version__}. This page is one file: send it to anyone.")),
            cls="page",
        ),
    )
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


def write_report(
    run: str | Path | RunFolder, *, most: int = MOST, note: Callable[[str], None] = lambda _: None
) -> Path:
    """Write RUN/report.html, old or new but never half. `note` is told where the source is not what it was."""
    folder = run if isinstance(run, RunFolder) else RunFolder.existing(run)
    facts = read_facts(folder)
    samples = open_samples(folder, facts.columns)
    if samples.notice:
        note(samples.notice)
    path = folder / "report.html"
    write_text(path, render_report(facts, samples, most=most))
    return path
