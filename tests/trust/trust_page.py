"""Write docs/trust.md from the numbers of the last `make trust`."""

# ruff: noqa: E501, ISC004 - prose in cells of a table

from __future__ import annotations

from typing import Any

ADVISORIES = {
    "cleanlab": "cleanlab: [CVE-2024-45857](https://github.com/advisories/GHSA-8cm9-rrgc-4pcj), a `datalab.pkl` that runs "
    "code when its folder is loaded (2.4.0 and newer; no fixed version)",
    "ydata-load": "ydata-profiling: [CVE-2024-37062](https://github.com/advisories/GHSA-fpvj-m2h6-6wc5) and "
    "[CVE-2024-37064](https://github.com/advisories/GHSA-cg49-hrj4-3rpr), a report and a dataset that run code when "
    "loaded (3.7.0 and newer; no fixed version)",
    "ydata-page": "ydata-profiling: [CVE-2024-37063](https://github.com/advisories/GHSA-2r57-2mrh-ggjv), a report that runs "
    "scripts when viewed (3.7.0 and newer; no fixed version)",
    "fiftyone": "FiftyOne: [CVE-2026-53656](https://github.com/advisories/GHSA-q78p-hj9h-5466), any web site could read "
    "local files through the app's server (`Access-Control-Allow-Origin: *` and an unguarded `/media`; fixed in 1.17.0)",
    "none": "none found",
}


def page(record: dict[str, Any]) -> str:
    """Return the text of docs/trust.md."""
    rows = [
        ["test", "amount", "result", "advisories of similar tools"],
        *_faults(record),
        *_hostile(record),
        *_generated(record),
        *_limits(),
        *_large(record),
        *_pages(),
        *_fuzz(record),
        *_numbers(),
        *_supply(record),
    ]
    table = "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], ["---"] * 4, *rows[1:]])
    return TEXT.format(
        table=table,
        machine=record.get("machine", "unknown"),
        fuzz=_fuzz_table(record),
        found=FOUND,
        commits=_commits(record),
    )


def _commits(record: dict[str, Any]) -> str:
    """Say which commit each part was measured on; parts without an entry are older than this list."""
    parts: dict[str, list[str]] = {}
    for part, commit in sorted(record.get("commits", {}).items()):
        parts.setdefault(commit, []).append(part)
    older = [part for part in ("kills", "writes", "stops", "hostile", "fuzz") if part not in record.get("commits", {})]
    listed = [f"Commit {commit}: {', '.join(names)}." for commit, names in parts.items()]
    return " ".join(listed + [f"Measured on earlier commits: {', '.join(older)}."] * bool(older))


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _faults(record: dict[str, Any]) -> list[list[str]]:
    rows = []
    names = {"network": "`run` on a table with a network", "scikit-learn": "`run` with a scikit-learn classifier",
             "pictures": "`run` on a folder of pictures"}  # fmt: skip
    for scenario, tally in record.get("kills", {}).items():
        rows.append(
            [
                f"{names[scenario]}, killed with SIGKILL at random times and at random writes",
                f"{_number(tally['kills'])} kills, {_number(tally['runs'])} runs",
                f"same labels.csv, summary.json, history and weights as without kills; {_number(tally['files'])} files checked "
                "after kills, all complete",
                ADVISORIES["none"],
            ]
        )
    if tally := record.get("writes"):
        rows.append(
            [
                "disk full at the n-th write, rename, sync or removal",
                f"{_number(tally['kills'])} failures, {_number(tally['runs'])} runs",
                f"exit code 1 and a one-line message; the resumed run gives the same result; {_number(tally['files'])} files "
                "checked, all complete",
                ADVISORIES["none"],
            ]
        )
    if tally := record.get("stops"):
        rows.append(
            [
                "Ctrl-C and SIGTERM at random times",
                f"{_number(tally['kills'])} stops, {_number(tally['runs'])} runs",
                "exit code 130 or 143 at the next safe point; the resumed run gives the same result; a second Ctrl-C stops immediately",
                ADVISORIES["none"],
            ]
        )
    rows.append(
        [
            "file size limits, invalid output paths, two processes on one run, a stale lock, a damaged checkpoint; settings, "
            "a label, one value, a sample or a version changed before a resume",
            "every `make test`",
            "a one-line message; no data lost",
            ADVISORIES["none"],
        ]
    )
    return rows


def _hostile(record: dict[str, Any]) -> list[list[str]]:
    kinds = {
        "code in files": (
            "files with code that would leave a marker: checkpoint, `.npz`, CIFAR pickle, CIFAR-10N `.pt`, model, transition "
            "matrix, EPS named `.jpg`, dataset script",
            "never executed; a one-line message",
            f"{ADVISORIES['cleanlab']}. {ADVISORIES['ydata-load']}",
        ),
        "files that grow": (
            "decompression bombs, false sizes, huge or broken safetensors headers, nested lists",
            "refused before memory is allocated; a one-line message",
            ADVISORIES["none"],
        ),
        "pictures that are none": (
            "pictures of 200 megapixels and more, truncated JPEG; SVG, HTML and EPS named `.jpg`",
            "skipped and listed with the reason; the run continues",
            ADVISORIES["none"],
        ),
        "names that lead outside": (
            "`..`, absolute paths and links in folders, lists, tables, datasets and run folders; file names that are not text",
            "not followed; the targets are neither read nor written",
            ADVISORIES["fiftyone"],
        ),
        "cells of spreadsheets": (
            "exported formulas in names, labels and cells",
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


def _generated(record: dict[str, Any]) -> list[list[str]]:
    texts = {
        "strings": (
            "random ids, labels and cells (control characters, separators, formulas, Unicode forms, lengths) through `select`, "
            "`report`, `export`, `train` and `predict`",
            "strings",
            "every string comes out as it went in; no formula in an export",
        ),
        "trees": (
            "random folders of pictures (hostile names, links, loops, pipes, sockets, damaged and unreadable files) through "
            "`select`, `export`, `train` and `predict`, as a user without rights",
            "trees",
            "every picture is a sample or listed as skipped; nothing outside the target changes",
        ),
        "tables": (
            "random tables (encodings, separators, ragged rows, odd cells, damaged bytes) through `select`, `report`, `export`, "
            "`train` and `predict`",
            "tables",
            "a result or a one-line message; the source does not change",
        ),
    }
    rows = []
    for name, tally in record.get("generated", {}).items():
        text, unit, came = texts[name]
        problems = len(tally["problems"])
        came = f"{came}; no traceback, no command over 5 seconds" if not problems else f"{problems} problems"
        rows.append([text, f"{_number(tally['items'])} {unit}", came, ADVISORIES["none"]])
    return rows


def _limits() -> list[list[str]]:
    return [
        [
            "Ctrl-C or SIGTERM to a command that is stuck in a library while it reads, decodes, trains, reports, exports, "
            "predicts or serves the review",
            "every `make test`",
            "ends within 5 seconds with exit code 130 or 143; no half-written file",
            ADVISORIES["none"],
        ],
        [
            "the run folder of another user, a home and an output that cannot be written (as a user without rights); a clock "
            "that goes backwards; a kill during an export",
            "every `make test`",
            "a one-line message; the run of the other user does not change; the old export or the new one, and the next export works",
            ADVISORIES["none"],
        ],
        [
            "disk full in the middle of an export of 100 MB; tables of 100,000 and 1,000,000 columns, an `.npz` of 320 MB, 1,000 "
            "classes of 5 samples, a cell of 200 MB",
            "`make test-slow`",
            "no half-written file; a million columns are refused with one line, the other inputs are read",
            ADVISORIES["none"],
        ],
    ]


def _large(record: dict[str, Any]) -> list[list[str]]:
    rows = []
    for name, case in record.get("large", {}).items():
        came = f"`select` takes {case['seconds']:.0f} s and {case['megabytes']:,.0f} MB; `report` and `export` work"
        if case["code"]:
            came = f"refused after {case['seconds']:.0f} s with one line that names the limit"
        rows.append([f"{name} (a file of {case['file_megabytes']:,.1f} MB)", "once", came, ADVISORIES["none"]])
    return rows


def _pages() -> list[list[str]]:
    return [
        [
            '`"><img onerror=...>` and `</script>` as class, file, column, cell, setting and run name, in the report, the '
            "review page and its JSON, in Chromium",
            "every `make test`",
            "shown as text, no script runs",
            ADVISORIES["ydata-page"],
        ],
        [
            "review page: other `Host`, other or `null` `Origin`, missing or wrong token, WebSocket, oversized or invalid bodies",
            "every `make test`",
            "403 or 400, never 500; loopback only by default; no CORS header",
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
            f"fuzzed files for {len(found)} parsers (see below)",
            f"{_number(tried)} inputs",
            "a result or a one-line message, in limited time and memory" if not broken else f"{broken} failures",
            ADVISORIES["none"],
        ]
    ]


def _numbers() -> list[list[str]]:
    return [
        [
            "2 to 5 samples, one class per sample, 10,000 classes, one class with 99.9 %, all labels wrong, constant features, "
            "constant predictions, NaN loss, random labels, arbitrary scores of a trainer",
            "every `make test` (10,000 classes in `make test-slow`)",
            'results are consistent; random labels are reported as "not distinguishable from random"; NaN stops with a '
            "one-line message and keeps the last checkpoint",
            ADVISORIES["none"],
        ]
    ]


def _supply(record: dict[str, Any]) -> list[list[str]]:
    rows = [
        [
            "`run`, `select`, `train`, `predict`, `report`, `export`, `corrupt` and `theory` without network (sockets that kill the process; a namespace without network)",
            "every `make test`",
            "all work; only `data fetch` and `hf:NAME` use the network; no telemetry",
            ADVISORIES["none"],
        ]
    ]
    audit = record.get("audit")
    if audit is not None:
        if not audit["reached"]:
            came = "not possible on this machine: no access to a vulnerability database"
        elif audit["known"]:
            known = "; ".join(f"{name}: {', '.join(ids)}" for name, ids in audit["known"].items())
            came = f"known: {known}"
        else:
            came = f"no known vulnerability in {audit['packages'] - len(audit['skipped'])} packages"
        rows.append(["`pip-audit` on constraints.txt", "once", came, ADVISORIES["none"]])
    return rows


def _fuzz_table(record: dict[str, Any]) -> str:
    rows = ["| parser | inputs | seconds | failures |", "|---|---|---|---|"]
    for name, tally in record.get("fuzz", {}).items():
        rows.append(f"| {name} | {_number(tally['tried'])} | {tally['seconds']:.0f} | {len(tally['problems'])} |")
    return "\n".join(rows)


FOUND = """\
- A link called `run.lock` or `decisions.csv` in a run folder redirected writes to its target.
- `predict` imported the module that a model file named.
- A file list or a row of a dataset could name pictures outside its folder. WebVision pictures could be EPS, which Pillow
  passes to Ghostscript, and had no size limit.
- A run that was killed while it wrote its lock could not be restarted for a moment.
- A decision that was only partly written to a full disk was confirmed as saved.
- A pickle of a few bytes could fill the memory or change the defaults of the reader.
- Random labels were called trustworthy if the network memorises.
- A resumed run checked only a part of the samples for changes.
- A carriage return in a cell split a row of an export, and a formula after a line break or separator stayed a formula.
- `export --force` could replace originals whose samples were all dropped. Class folders were renamed silently.
- A pipe in a class folder stopped a run for ever, and a loop of links made an export impossible.
- `train` wrote through a linked folder in a run. Restarted reviews added blank lines to `decisions.csv`.
- A library that did not return delayed Ctrl-C and SIGTERM.
- A NUL at the end of an id or label was lost. A row longer than a megabyte could not be read.
- Links inside a source were followed. A table of 3,000 columns took quadratic time, and JSON Lines with other names in every
  line quadratic memory.
- 1,500 classes took cubic time. Invalid file names, numbers above 2^53, damaged records and a NaN loss caused
  tracebacks."""

TEXT = """# Tests of the guarantees

`SECURITY.md` in the repository lists the guarantees of labelsieve. This page lists how they were tested. `make trust`
(`scripts/trust.py`) runs all tests and writes this page. A short version runs in every `make test` (`tests/trust/`).

Machine: {machine}. {commits}

{table}

No data was lost and no hostile code was executed. The last column lists advisories for cleanlab, FiftyOne and ydata-profiling in a copy of GitHub's advisory
database. These tools were not tested.

## Parsers

The fuzzer changes valid files: it flips bits, cuts, doubles and moves parts, and inserts extreme numbers, also inside
containers with valid checksums. A parser must return a result or a one-line message within 5 seconds of CPU time and 3 GB of
additional memory. Inputs that caused a failure are stored in `tests/fuzz/`, and the tests replay them. The hostile files of
the table above are in `tests/trust/trust_hostile.py`.

{fuzz}

## Problems that were found and fixed

{found}

## Repeat the tests

    make trust      210 kills, 120 failed writes, 40 stops, every hostile file, 100,000 strings, 2,000 trees and tables, 10,000 inputs
                    per parser
    make fuzz       the parsers only
"""
