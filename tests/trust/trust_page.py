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


# The rows of the table: the part and unit of the record, the test, the result if nothing failed, advisories.
KILLED = "killed with SIGKILL at random times and at random writes"
SAME = "same labels.csv, summary.json, history and weights as without kills"
NONE = ADVISORIES["none"]
ROWS = {
    "kills/network": (f"`run` on a table with a network, {KILLED}", SAME, NONE),
    "kills/pictures": (f"`run` on a folder of pictures, {KILLED}", SAME, NONE),
    "kills/scikit-learn": (f"`run` with a scikit-learn classifier, {KILLED}", SAME, NONE),
    "writes": (
        "disk full at the n-th write, rename, sync or removal",
        "exit code 1 and a one-line message; the resumed run gives the same result",
        NONE,
    ),
    "stops": (
        "Ctrl-C and SIGTERM at random times",
        "exit code 130 or 143 at the next safe point; the resumed run gives the same result",
        NONE,
    ),
    "tests/faults": (
        "file size limits, invalid output paths, two processes on one run, a stale lock, a damaged checkpoint; settings, "
        "a label, one value, a sample or a version changed before a resume; a second Ctrl-C",
        "a one-line message; no data lost",
        NONE,
    ),
    "hostile/code in files": (
        "files with code that would leave a marker: checkpoint, `.npz`, CIFAR pickle, CIFAR-10N `.pt`, model, transition "
        "matrix, EPS named `.jpg`, dataset script",
        "never executed; a one-line message",
        f"{ADVISORIES['cleanlab']}. {ADVISORIES['ydata-load']}",
    ),
    "hostile/files that grow": (
        "decompression bombs (`.npz`, `.xlsx`, Parquet, PNG), false sizes, huge or broken safetensors headers, nested lists",
        "refused before labelsieve allocates memory (a separate process, of at most 4 GB on Linux, reads `.xlsx` and Parquet first), "
        "within 20 seconds of processor time; a one-line message",
        NONE,
    ),
    "hostile/pictures that are none": (
        "pictures of 200 megapixels and more, truncated JPEG; SVG, HTML and EPS named `.jpg`",
        "skipped and listed with the reason; the run continues",
        NONE,
    ),
    "hostile/names that lead outside": (
        "`..`, absolute paths and links in folders, lists, tables, datasets and run folders; file names that are not text",
        "not followed; the targets are neither read nor written",
        ADVISORIES["fiftyone"],
    ),
    "hostile/cells of spreadsheets": (
        "formulas in exported names, labels and cells",
        "prefixed with an apostrophe in CSV files, except with `--raw`",
        NONE,
    ),
    "tests/findings": (
        "line breaks before formulas, `export --force` over originals, pipes and loops of links in a source, class folders "
        "that collide, linked folders in a run, restarted reviews, settings of wrong types, infinite values, a column equal "
        "to the label",
        "nothing lost or written outside; a one-line message or a warning",
        NONE,
    ),
    "tests/open_calls": (
        "calls that open or write a file outside the module that checks for links and special files",
        "none in the package",
        NONE,
    ),
    "strings": (
        "random ids, labels and cells (control characters, separators, formulas, Unicode forms, lengths) through `select`, "
        "`report`, `export`, `train` and `predict`",
        "every string comes out as it went in; no formula in an export; no traceback, no command over 5 seconds",
        NONE,
    ),
    "trees": (
        "random folders of pictures (hostile names, links, loops, pipes, sockets, damaged and unreadable files) through "
        "`select`, `export`, `train` and `predict`, as an unprivileged user",
        "every picture is a sample or listed as skipped; nothing outside the target changes; no traceback, no command over "
        "5 seconds",
        NONE,
    ),
    "tables": (
        "random tables (CSV and JSON Lines; encodings, separators, ragged rows, odd cells, damaged bytes) through `select`, "
        "`report`, `export`, `train` and `predict`",
        "a one-line message, or every row is a sample or listed as skipped; the source does not change; no traceback, no "
        "command over 5 seconds",
        NONE,
    ),
    "runs": (
        "damaged run folders (bytes, JSON values, headers of arrays and weights; files that are missing, links, pipes or "
        "folders) through `select`, `report`, `export`, `predict` and the review, as an unprivileged user",
        "a result or a one-line message; nothing outside the run changes; no traceback, no command over 5 seconds",
        NONE,
    ),
    "datasets": (
        "Hugging Face datasets in a folder (links and file names that lead outside, in `README.md`, `state.json` and "
        "`dataset_dict.json`; scripts, pickles, pipes, damaged files) through `select`, as an unprivileged user",
        "a result or a one-line message; no file outside the folder is read or changed, no code runs; no traceback, no command over 5 "
        "seconds",
        NONE,
    ),
    "models": (
        "pretrained models in a folder for `--embed` (pickles, Python code, links, pipes, truncated weights, extreme numbers "
        "of layers and sizes, slow regular expressions in `tokenizer.json`, damaged files), as an unprivileged user",
        "a result or a one-line message; no code runs; less than 1.5 GB of additional memory, no command over 5 seconds",
        NONE,
    ),
    "caches": (
        "stored embeddings of another shape, type or source, truncated, replaced by a pickle, link, pipe or folder, or not "
        "readable, in a run and in the run beside it",
        "not used: the result is the same as without them",
        NONE,
    ),
    "labels": (
        "files for `--labels` (CSV, Parquet, JSON Lines, `.npz`; missing, repeated and unknown ids, labels of odd types, "
        "damaged bytes), as an unprivileged user",
        "a result or a one-line message; no traceback, no command over 5 seconds",
        NONE,
    ),
    "votes": (
        "decisions of several people with random names: 40 decisions, undos, redos and restarts of the review each",
        "the same decisions after every restart; `export` works",
        NONE,
    ),
    "tests/ending": (
        "Ctrl-C or SIGTERM to a command that is stuck in a library while it reads, decodes, trains, reports, exports, "
        "predicts or serves the review",
        "ends within 5 seconds with exit code 130 or 143; no half-written file",
        NONE,
    ),
    "tests/pages": (
        '`"><img onerror=...>` and `</script>` as class, file, column, cell, setting and run name, in the report, the '
        "review page and its JSON, in Chromium; requests with another `Host`, another or `null` `Origin`, a missing or wrong "
        "token, WebSocket, oversized or invalid bodies",
        "shown as text, no script runs; 403 or 400, never 500; loopback only by default; no CORS header",
        f"{ADVISORIES['ydata-page']}. {ADVISORIES['fiftyone']}",
    ),
    "fuzz": (
        "fuzzed files for the parsers below",
        "a result or a one-line message, in limited time and memory",
        NONE,
    ),
    "tests/numbers": (
        "2 to 5 samples, one class per sample, 10,000 classes, one class with 99.9 %, all labels wrong, constant features, "
        "constant predictions, NaN loss, random labels, arbitrary predictions of a model",
        "results are consistent; random labels have the trust level `unknown`; a NaN loss stops the training with a "
        "one-line message, and the last checkpoint is kept",
        NONE,
    ),
    "tests/supply": (
        "`run`, `select`, `train`, `predict`, `report`, `export`, `corrupt` and `theory` without a network (opening a "
        "socket ends the process; a namespace without a network)",
        "all work; only `data fetch` and `hf:NAME` use the network; no telemetry",
        NONE,
    ),
}


def page(record: dict[str, Any]) -> str:
    """Return the text of docs/trust.md."""
    units: dict[str, dict[str, Any]] = record["units"]
    rows = [["test", "amount", "result", "advisories of similar tools"], ["---"] * 4]
    for key, (test, came, advisories) in ROWS.items():
        part, _, name = key.partition("/")
        found = {
            unit: result for unit, result in units.items() if unit == key or (not name and unit.startswith(f"{part}/"))
        }
        if found:
            rows.append([test, *_outcome(part, list(found.values()), came), advisories])
        if key == "tests/ending":
            rows += [[*row, NONE] for row in (*_limits(units), *_large(units))]
    rows += [[*row, NONE] for row in _audit(units)]
    problems = {name: text for result in units.values() for name, text in result["problems"].items()}
    return TEXT.format(
        table="\n".join("| " + " | ".join(row) + " |" for row in rows),
        machine=f"{record['machine']}, {record['cores']} processes",
        fuzz=_fuzz_table(units),
        found=FOUND,
        commits=_commits(units),
        problems=_problems(problems),
    )


def _outcome(part: str, results: list[dict[str, Any]], came: str) -> tuple[str, str]:
    """The amount and the result of a row."""

    def total(name: str) -> str:
        return f"{sum(result.get(name, 0) for result in results):,}"

    problems = [problem for result in results for problem in result["problems"]]
    if problems:
        came = f"**{len(problems)} failures**, see below"
    if part in ("kills", "writes", "stops"):
        unit = {"kills": "kills", "writes": "failures", "stops": "stops"}[part]
        checked = "" if problems else f"; {total('files')} files checked, all complete"
        return f"{total('kills')} {unit}, {total('runs')} runs", came + checked
    if part == "hostile":
        cases = sum(len(result.get("cases", ())) for result in results)
        return f"{cases} case{'s' * (cases != 1)}", came
    if part == "tests":
        skipped = f", {total('skipped')} skipped" if any(result.get("skipped") for result in results) else ""
        return f"{total('passed')} test{'s' * (total('passed') != '1')}{skipped}", came
    if part == "fuzz":
        return f"{total('tried')} inputs for {len(results)} parsers", came
    unit = {"caches": "files", "labels": "files", "votes": "reviews"}.get(part, part)
    return f"{total('items')} {unit}", came


def _limits(units: dict[str, dict[str, Any]]) -> list[list[str]]:
    found = {key.partition("/")[2]: result for key, result in units.items() if key.startswith("limits/")}
    return [[name, "once", result.get("result", "**failed**, see below")] for name, result in found.items()]


def _large(units: dict[str, dict[str, Any]]) -> list[list[str]]:
    rows = []
    for key, case in units.items():
        if not key.startswith("large/"):
            continue
        if case["problems"]:
            rows.append([key.partition("/")[2], "once", "**failed**, see below"])
            continue
        came = f"`select` takes {case['seconds']:.0f} s of processor time and {case['megabytes']:,.0f} MB; `report` and `export` work"
        if case["code"]:
            came = f"refused after {case['seconds']:.0f} s with one line that names the limit"
        rows.append([f"{key.partition('/')[2]} (a file of {case['file_megabytes']:,.1f} MB)", "once", came])
    return rows


def _audit(units: dict[str, dict[str, Any]]) -> list[list[str]]:
    audit = units.get("audit/all")
    if audit is None:
        return []
    if not audit.get("reached"):
        came = "not possible on this machine: no access to a vulnerability database"
    elif audit["known"]:
        came = "known: " + "; ".join(f"{name}: {', '.join(ids)}" for name, ids in audit["known"].items())
    else:
        came = f"no known vulnerability in {audit['packages']} packages"
    return [["`pip-audit` on constraints.txt", "once", came]]


def _commits(units: dict[str, dict[str, Any]]) -> str:
    """Say which code was tested. Commits that change no source share their results."""
    parts: dict[tuple[str, str], set[str]] = {}
    for key, result in units.items():
        parts.setdefault((result["sources"], result["commit"]), set()).add(key.partition("/")[0])
    if len({sources for sources, _ in parts}) == 1:
        commits = list(dict.fromkeys(commit for _, commit in parts))
        same = ", which have the same sources" if len(commits) > 1 else ""
        return f"All tests ran on commit {' and '.join(commits)}{same}."
    return " ".join(f"Commit {commit}: {', '.join(sorted(names))}." for (_, commit), names in sorted(parts.items()))


def _problems(problems: dict[str, str]) -> str:
    if not problems:
        return "No test failed: no data was lost and no hostile code was executed."
    listed = "\n".join(f"- `{name}`: {text.strip().splitlines()[-1][:300]}" for name, text in problems.items())
    return f"These tests failed:\n\n{listed}\n"


def _fuzz_table(units: dict[str, dict[str, Any]]) -> str:
    rows = ["| parser | inputs | seconds | failures |", "|---|---|---|---|"]
    for key, tally in units.items():
        if key.startswith("fuzz/"):
            seconds, failures = tally.get("seconds", 0), len(tally["problems"])
            rows.append(f"| {key.partition('/')[2]} | {tally.get('tried', 0):,} | {seconds:.0f} | {failures} |")
    return "\n".join(rows)


FOUND = """\
- A link called `run.lock` or `decisions.csv` in a run folder redirected writes to its target.
- `predict` imported any module whose name was in the model file.
- A file list or a row of a dataset could name pictures outside its folder. WebVision pictures could be EPS, which Pillow
  passes to Ghostscript, and had no size limit.
- After a run was killed while it wrote its lock file, it could not be restarted for a short time.
- A decision that was only partly written because the disk was full was reported as saved.
- A pickle of a few bytes could use all memory, or change settings of the code that reads it.
- With random labels, the noise estimate had the level `trustworthy` if the network memorised the labels.
- A resumed run compared only some of the samples with the source.
- A carriage return in a cell split a row of an export in two, and formulas after a line break or separator got no
  apostrophe.
- `export --force` could replace original pictures if all of their samples were dropped. Class folders were renamed without a
  message.
- With a pipe in a class folder, a run waited for ever. With a loop of links, an export failed.
- `train` followed a link in a run folder and wrote outside the folder. Restarted reviews added blank lines to `decisions.csv`.
- Ctrl-C and SIGTERM had no effect while a function of a library did not return.
- A NUL at the end of an id or label was lost. A row longer than a megabyte could not be read.
- Links inside a source were followed. Time grew with the square of the number of columns of a table, and memory with the
  square of the number of lines of JSON Lines if every line had other names.
- A decision on an id or class with a line break could be applied to another one that differs only in the line break.
- Damaged embeddings, arrays, `summary.json` and descriptions of models caused tracebacks; `data fetch model --to` replaced
  existing files.
- A single cell far from the others in a spreadsheet ended the process. An invalid character (half of a surrogate pair) in
  JSON caused a traceback for a file, and an internal server error (500) on the review page.
- A spreadsheet of a few megabytes needed minutes and gigabytes of memory before it was refused, and a Parquet file of a
  kilobyte could need any amount of memory.
- Links, `README.md` and `state.json` in the folder of a Hugging Face dataset could refer to any file on the machine.
- A `config.json` with many layers, or a slow regular expression in `tokenizer.json`, stopped `--embed` for ever or ended it
  with a traceback.
- Time grew with the cube of the number of classes. Invalid file names, numbers above 2^53, damaged records and a NaN loss caused
  tracebacks."""

TEXT = """# Tests of the guarantees

`SECURITY.md` in the repository lists the guarantees of labelsieve. This page lists how they were tested. `make trust`
(`scripts/trust.py`) runs all tests and writes this page. A short version runs in every `make test` (`tests/trust/`).

Machine: {machine}. {commits}

{table}

{problems}
The last column lists advisories for cleanlab, FiftyOne and ydata-profiling in a copy of
GitHub's advisory database. These tools were not tested.

## Parsers

The fuzzer changes valid files: it flips bits, cuts, doubles and moves parts, and inserts extreme numbers, also inside
containers with valid checksums. A parser must return a result or a one-line message within 5 seconds of CPU time and 3 GB of
additional memory. Inputs that caused a failure are stored in `tests/fuzz/`, and the tests replay them. The hostile files of
the table above are in `tests/trust/trust_hostile.py`.

{fuzz}

## Problems that were found and fixed

{found}

## Repeat the tests

    make trust      210 kills, 120 failed writes, 40 stops, every hostile file, 100,000 strings, 2,000 trees, 2,000 tables,
                    1,000 damaged runs, 1,600 folders and label files, 10,000 inputs per parser, very large inputs, and the
                    tests in tests/trust/
    make fuzz       the parsers only

`python scripts/trust.py --resume` continues a run that was stopped. A result counts for all commits with the same sources
of the package, of these tests and the same fixed versions; commits that change only documentation keep it.
"""
