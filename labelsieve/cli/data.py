"""labelsieve data and corrupt: list and merge classes, plant wrong labels, fetch data sets, make a small one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import App

from labelsieve.cli.common import Common, Flag, Flat, check_target, percent, table
from labelsieve.csv_files import csv_line, parse_names, write_csv
from labelsieve.data.make_webvision import GeneratedFolder
from labelsieve.errors import InputError, Problems
from labelsieve.progress import counted
from labelsieve.workflow.settings import SourceSettings, check_known, check_seed


def corrupt(
    source: str,
    /,
    *,
    out: Path,
    pattern: str = "symmetric",
    ratio: float = 0.4,
    matrix: Path | None = None,
    force: Flag = False,
    settings: Annotated[SourceSettings, Flat] = SourceSettings(),
    common: Common = Common(),
) -> None:
    """Write a CSV file (columns id, label and true) in which some labels are replaced with wrong ones.

    Parameters
    ----------
    source
        Source, as for `run`.
    out
        CSV file to write. Use it with the option --labels of `select` or `run`.
    pattern
        Noise pattern: symmetric (any other class), symmetric-inclusive (any class), pair (the next class), cifar10-map
        (pairs of similar classes of CIFAR-10) or instance (depends on the sample).
    ratio
        Probability that a label is replaced, from 0 to 1. The proportion of wrong labels is lower with
        symmetric-inclusive and cifar10-map.
    matrix
        File with a transition matrix: .csv, .npy, .json or the summary.json of a run. It replaces --pattern and
        --ratio.
    force
        Overwrite the file if it exists.
    """
    from labelsieve import metrics, noise
    from labelsieve.theory import PATTERNS
    from labelsieve.workflow.edit_labels import INSTANCE, corrupt_labels, label_rows
    from labelsieve.workflow.read import read_samples

    problems = Problems()
    check_seed(problems, common.seed)
    problems.check(0 <= ratio <= 1, f"--ratio must be a number from 0 to 1, got {ratio}")
    check_known(problems, "pattern", pattern, (*PATTERNS, INSTANCE))
    check_target(problems, "--out", out, source=source, force=force, example="labels.csv")
    transition = None if matrix is None else problems.attempt(noise.load_matrix, matrix)
    data = problems.attempt(read_samples, source, settings, progress=common.progress())
    problems.stop_if_any()
    assert data is not None
    noisy = corrupt_labels(data, pattern, ratio, common.seed, transition=transition)
    rows = label_rows(data, noisy)
    write_csv(out, next(rows), rows)
    wrong = metrics.noise_ratio(noisy, data.y)
    common.say(f"{out}: {counted(len(data), 'label')}, {percent(wrong)} of them wrong")
    common.answer(
        {
            "out": out,
            "samples": len(data),
            "classes": list(data.classes),
            "pattern": pattern if matrix is None else None,
            "matrix": matrix,
            "ratio": ratio if matrix is None else None,
            "seed": common.seed,
            "wrong": wrong,
        }
    )


data = App(
    name="data",
    help="List or merge classes, download CIFAR or a pretrained model, or create a small data set like WebVision.",
)


@data.command
def classes(
    source: str,
    /,
    *,
    alike: Flag = False,
    merge: str | None = None,
    leave_out: str | None = None,
    to: Path | None = None,
    force: Flag = False,
    settings: Annotated[SourceSettings, Flat] = SourceSettings(),
    common: Common = Common(),
) -> None:
    """List the classes with their number of samples, or merge classes.

    Different spellings of a class and names such as n/a are marked. --to writes the changed labels to a file for
    `run --labels`. The source is not changed.

    Parameters
    ----------
    source
        Source, as for `run`.
    alike
        Merge classes whose names differ only in case or punctuation. The most frequent name is used.
    merge
        Rename classes: OLD=NEW, separated by commas. Put a name that contains a comma in quotes.
    leave_out
        Labels to exclude, such as n/a, separated by commas. Their samples are skipped.
    to
        CSV file to write, with the columns id and label.
    force
        Overwrite the file if it exists.
    """
    from labelsieve.data.label_notes import placeholders, same_spelling
    from labelsieve.progress import SILENT
    from labelsieve.workflow.edit_labels import ClassChanges, parse_renames
    from labelsieve.workflow.read import read_samples

    problems = Problems()
    if to is not None:
        check_target(problems, "--to", to, source=source, force=force, example="labels.csv")
    wanted = problems.attempt(parse_renames, merge or "") or {}
    samples = problems.attempt(read_samples, source, settings, note_spelling=False, progress=SILENT)
    problems.stop_if_any()
    assert samples is not None
    dropped = parse_names(leave_out or "", "--leave-out")
    changes = ClassChanges.of(samples, wanted, dropped, alike=alike)
    if to is not None:
        rows = changes.rows(samples)
        write_csv(to, next(rows), rows)
    counts = changes.counts
    same, missing = same_spelling(counts), placeholders(counts)
    common.say(*map(str, samples.notes), *_list_classes(counts, same, missing))
    words = [source, *settings.read_options().words()]
    if to is not None:
        common.say(f"{to} has these labels: {shlex.join(['labelsieve', 'run', *words, '--labels', str(to)])}")
    elif (changes.renamed or dropped) and not (same or missing):
        common.say("nothing was written; add --to labels.csv")
    if same or missing:
        command = ["labelsieve", "data", "classes", *words, *["--alike"] * (alike or bool(same))]
        if wanted:
            command += ["--merge", csv_line(f"{old}={new}" for old, new in wanted.items())]
        if gone := sorted({*dropped, *missing}):
            command += ["--leave-out", csv_line(gone)]
        common.say(f"to merge them: {shlex.join(command)} --to labels.csv")
        if gone:
            common.say("check the names after --leave-out first, and remove those that are right")
    common.answer(
        {"classes": counts, "merged": changes.renamed, "left_out": list(changes.dropped), "alike": same,
         "no_labels": missing, "to": to}
    )  # fmt: skip


def _list_classes(counts: Mapping[str, int], same: Mapping[str, str], missing: Sequence[str]) -> list[str]:
    head, *lines = table([("class", "samples")] + [(name, f"{count:,}") for name, count in counts.items()])
    for i, name in enumerate(counts):
        if name in same:
            lines[i] += f"  another spelling of {same[name]!r}"
        elif name in missing:
            lines[i] += "  perhaps not a label"
    return [head, *lines]


@data.command
def fetch(name: str, model: str | None = None, /, *, to: Path | None = None, common: Common = Common()) -> None:
    """Download a data set or a pretrained model. Other commands download only hf:NAME sources.

    Parameters
    ----------
    name
        What to fetch: cifar10, cifar100, or model.
    model
        After model: the Hugging Face name of a model for --embed, or auto for the default models.
    to
        Folder to write. Default for models: the Hugging Face cache.
    """
    from labelsieve.data.cifar_fetch import fetch as download
    from labelsieve.models.embed import AUTO, DEFAULT_MODELS, fetch_model

    if name == "model":
        if model is None:
            raise InputError("data fetch model requires the name of a model, or auto")
        names = list(DEFAULT_MODELS.values()) if model == AUTO else [model]
        if to is not None and len(names) > 1:
            raise InputError(
                "--to: the default models are stored in the Hugging Face cache; omit --to, or use the name of a model "
                "instead of auto"
            )
        folders = {each: fetch_model(each, to) for each in names}
        for each, folder in folders.items():
            common.say(f"{each} is in {folder}; use it as --embed {shlex.quote(each if to is None else str(folder))}")
        common.answer({"name": model, "folders": folders})
        return
    if name not in ("cifar10", "cifar100"):
        raise InputError(f"data fetch: unknown data set {name!r}; choose one of cifar10, cifar100, model")
    if model is not None or to is None:
        raise InputError(f"data fetch {name} requires --to FOLDER and does not accept the name of a model")

    folder = download(to, name, progress=common.progress())
    common.say(f"{name} is in {folder}; use it as {shlex.quote(f'{name}:{folder}')}")
    common.answer({"name": name, "to": folder, "source": f"{name}:{folder}"})


@data.command(name="make-webvision")
def make_webvision(
    *, to: Path, content: Annotated[GeneratedFolder, Flat] = GeneratedFolder(), common: Common = Common()
) -> None:
    """Create a small data set in WebVision's layout, with generated pictures and known wrong labels.

    Parameters
    ----------
    to
        Folder to write.
    """
    from labelsieve.data.make_webvision import make

    found = make(to, seed=common.seed, **asdict(content))
    use = shlex.quote(f"webvision:{to}")
    common.say(f"{to}: {found['classes']} classes, {found['train']:,} training pictures; use it as {use}")
    common.answer({"to": to, "source": f"webvision:{to}", **found})
