"""docs/trust.md from the numbers of the last long run."""

# ruff: noqa: E501, ISC004 - prose in cells of a table

from __future__ import annotations

from typing import Any

ADVISORIES = {
    "cleanlab": "cleanlab: [CVE-2024-45857](https://github.com/advisories/GHSA-8cm9-rrgc-4pcj), a `datalab.pkl` that runs "
    "code when its folder is loaded (2.4.0 and newer; the advisory names no fixed version)",
    "ydata-load": "ydata-profiling: [CVE-2024-37062](https://github.com/advisories/GHSA-fpvj-m2h6-6wc5) and "
    "[CVE-2024-37064](https://github.com/advisories/GHSA-cg49-hrj4-3rpr), a report and a data set that run code when "
    "loaded (3.7.0 and newer; no fixed version named)",
    "ydata-page": "ydata-profiling: [CVE-2024-37063](https://github.com/advisories/GHSA-2r57-2mrh-ggjv), a report that runs "
    "scripts when viewed (3.7.0 and newer; no fixed version named)",
    "fiftyone": "FiftyOne: [CVE-2026-53656](https://github.com/advisories/GHSA-q78p-hj9h-5466), any web site could read "
    "local files through the app's server (`Access-Control-Allow-Origin: *` and an unguarded `/media`; fixed in 1.17.0)",
    "none": "no advisory of the three found",
}


def page(record: dict[str, Any]) -> str:
    """The whole of docs/trust.md."""
    rows = [
        ["what was tried", "how often", "what came of it", "advisories of others in the same place"],
        *_faults(record),
        *_hostile(record),
        *_pages(),
        *_fuzz(record),
        *_numbers(),
        *_supply(record),
    ]
    table = "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], ["---"] * 4, *rows[1:]])
    return TEXT.format(
        table=table,
        machine=record.get("machine", "not yet"),
        cases=_cases(record),
        fuzz=_fuzz_table(record),
        found=FOUND,
    )


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _faults(record: dict[str, Any]) -> list[list[str]]:
    rows = []
    names = {"network": "`run` on a table with a network", "scikit-learn": "`run` with a scikit-learn classifier",
             "pictures": "`run` on a folder of pictures"}  # fmt: skip
    for scenario, tally in record.get("kills", {}).items():
        rows.append(
            [
                f"{names[scenario]}, killed with SIGKILL at random moments and at random writes",
                f"{_number(tally['kills'])} kills, {_number(tally['runs'])} runs",
                f"same labels.csv, summary.json, history and weights as undisturbed; {_number(tally['files'])} files read "
                "after kills, none of them half",
                ADVISORIES["none"],
            ]
        )
    if tally := record.get("writes"):
        rows.append(
            [
                "the disk is full at the n-th write, rename, sync or removal",
                f"{_number(tally['kills'])} refusals, {_number(tally['runs'])} runs",
                f"exit 1 and one line; the next start goes on to the same end; {_number(tally['files'])} files read, "
                "none half",
                ADVISORIES["none"],
            ]
        )
    if tally := record.get("stops"):
        rows.append(
            [
                "Ctrl-C and SIGTERM at random moments",
                f"{_number(tally['kills'])} stops, {_number(tally['runs'])} runs",
                "exit 130 or 143 at the next safe point, everything kept, the same end; a second Ctrl-C stops at once",
                ADVISORIES["none"],
            ]
        )
    rows.append(
        [
            "files that may not grow, output that is a file or lies nowhere, two processes on one run, a stale lock, a "
            "damaged checkpoint; settings, a label, a digit of one sample, a sample or a version changed under a resume",
            "in every `make test`",
            "one line that says what; nothing lost",
            ADVISORIES["none"],
        ]
    )
    return rows


def _hostile(record: dict[str, Any]) -> list[list[str]]:
    kinds = {
        "code in files": (
            "files with a payload that would leave a marker: checkpoint, `.npz`, CIFAR pickle, CIFAR-10N `.pt`, model, "
            "transition matrix, EPS named `.jpg`, data set script",
            "never run; one line",
            f"{ADVISORIES['cleanlab']}. {ADVISORIES['ydata-load']}",
        ),
        "files that grow": (
            "decompression bombs, sizes that lie, giant or broken safetensors headers, lists that multiply",
            "refused before memory is taken; one line",
            ADVISORIES["none"],
        ),
        "pictures that are none": (
            "200 megapixels and more, truncated JPEG, SVG, HTML and EPS named `.jpg`",
            "skipped and listed with the reason; the run goes on",
            ADVISORIES["none"],
        ),
        "names that lead outside": (
            "`..`, whole paths and links in folders, lists, tables, data sets, run folders; names that are no text",
            "not followed; what they lead to is neither read nor written",
            ADVISORIES["fiftyone"],
        ),
        "cells of spreadsheets": (
            "formulas as names, labels and cells, exported",
            "neutralised in CSV unless `--raw`",
            ADVISORIES["none"],
        ),
    }
    found = record.get("hostile", {})
    return [
        [
            kinds[kind][0],
            f"{len(found[kind])} case{'s' if len(found[kind]) > 1 else ''}",
            kinds[kind][1],
            kinds[kind][2],
        ]
        for kind in kinds
        if kind in found
    ]


def _pages() -> list[list[str]]:
    return [
        [
            '`"><img onerror=...>` and `</script>` as class, file, column, cell, setting and run name, in the report, the '
            "review page and its JSON, in Chromium",
            "in every `make test`",
            "shown as text, nothing runs",
            ADVISORIES["ydata-page"],
        ],
        [
            "review: foreign `Host`, foreign or `null` `Origin`, no or wrong token, WebSocket, oversized and odd bodies",
            "in every `make test`",
            "403 or 400, never 500; loopback only unless told otherwise; no CORS header at all",
            ADVISORIES["fiftyone"],
        ],
    ]


def _fuzz(record: dict[str, Any]) -> list[list[str]]:
    found = record.get("fuzz", {})
    if not found:
        return []
    tried = sum(tally["tried"] for tally in found.values())
    broken = sum(len(tally["problems"]) for tally in found.values())
    return [
        [
            f"bent files for {len(found)} parsers (below)",
            f"{_number(tried)} inputs",
            "samples or one sentence, in seconds and little memory" if not broken else f"{broken} broke a promise",
            ADVISORIES["none"],
        ]
    ]


def _numbers() -> list[list[str]]:
    return [
        [
            "2 to 5 samples, a class a sample, 10,000 classes, one class with 99.9 %, all labels wrong, constant features, "
            "a classifier with one answer, NaN loss, labels that do not depend on the samples, any answer a trainer can give",
            "in every `make test` (10,000 classes in `make test-slow`)",
            'promises hold; random labels are reported as "not distinguishable from random"; NaN stops with one line and '
            "keeps the checkpoint before it",
            ADVISORIES["none"],
        ]
    ]


def _supply(record: dict[str, Any]) -> list[list[str]]:
    rows = [
        [
            "`run`, `select`, `train`, `predict`, `report`, `export`, `corrupt` and `theory` with the network cut (sockets that kill the process; a namespace without network)",
            "in every `make test`",
            "all work; only `data fetch` and `hf:NAME` ask for an address; no telemetry",
            ADVISORIES["none"],
        ]
    ]
    audit = record.get("audit")
    if audit is not None:
        if not audit["reached"]:
            came = "could not be done where this table was made: pip-audit did not reach a vulnerability database"
        elif audit["known"]:
            known = "; ".join(f"{name}: {', '.join(ids)}" for name, ids in audit["known"].items())
            came = f"known: {known}"
        else:
            came = f"nothing known of {audit['packages'] - len(audit['skipped'])} packages"
        rows.append(["`pip-audit` on constraints.txt", "once", came, ADVISORIES["none"]])
    return rows


def _cases(record: dict[str, Any]) -> str:
    return "\n".join(f"- {kind}: {', '.join(names)}" for kind, names in record.get("hostile", {}).items())


def _fuzz_table(record: dict[str, Any]) -> str:
    rows = ["| parser | inputs | seconds | broke a promise |", "|---|---|---|---|"]
    for name, tally in record.get("fuzz", {}).items():
        rows.append(f"| {name} | {_number(tally['tried'])} | {tally['seconds']:.0f} | {len(tally['problems'])} |")
    return "\n".join(rows)


FOUND = """\
- A link called `run.lock` or `decisions.csv` in a run folder from somebody else led writes to whatever it pointed at.
- `predict` imported the module that a model's file named.
- A file list, or a row of a data set, could name pictures outside its folder; WebVision pictures could be EPS, which
  Pillow hands to Ghostscript, and of any size.
- A run killed while it asked the system for its name left its lock behind for a moment, and the next start was refused.
- A decision that only half fitted on the disk was answered as saved.
- A pickle of a few bytes could fill the memory (places, shared lists), and change the reader's defaults.
- Random labels were called trustworthy where the network memorises: the check used networks that indirectly knew the labels.
- A resumed run noticed changes of every so many samples only.
- 1,500 classes took as long as their cube; file names that are no text, numbers beyond 2^53, texts that are none, and
  damaged records ended in tracebacks; so did a loss that became NaN."""

TEXT = """# Trust

What labelsieve promises is in the repository's `SECURITY.md`. This page says what was tried
against the promises, with numbers. It is written by `make trust` (`scripts/trust.py`); the short part of everything
runs in `make test` (`tests/trust/`).

Machine of the numbers below: {machine}.

{table}

Nothing was lost and nothing was run. A row without an advisory means that none of cleanlab's, FiftyOne's and
ydata-profiling's was found for that place in a copy of GitHub's advisory database, not that they were tested there.

## Parsers

Valid files, bent: bits turned, parts cut, doubled and moved, numbers made extreme, inside their containers with right
checksums too. A parser keeps its promise when it ends in samples or in one sentence, within 5 seconds of computing and 3 GB
more memory. Inputs that once broke it lie in `tests/fuzz/` and are replayed by the tests.

{fuzz}

## Hostile files

{cases}

## What this work found and mended

{found}

## Again

    make trust      210 kills, 120 refused writes, 40 stops, every hostile file, 10,000 inputs a parser; about 15 minutes on 2 cores
    make fuzz       the parsers alone
"""
