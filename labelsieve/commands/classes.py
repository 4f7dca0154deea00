"""labelsieve data classes: what the classes are, and a file in which those written in several ways are one."""

from __future__ import annotations

import csv
import shlex
from pathlib import Path

from labelsieve.commands.common import Common, Flag, check_target, table
from labelsieve.commands.source import SourceOptions
from labelsieve.decisions import csv_line
from labelsieve.errors import InputError, Problems


def classes(
    source: str,
    /,
    *,
    alike: Flag = False,
    merge: str | None = None,
    to: Path | None = None,
    force: Flag = False,
    reading: SourceOptions = SourceOptions(),
    common: Common = Common(),
) -> None:
    """List the classes with their samples, and those that may be one class written in several ways.

    With --to the labels are written to a file for `run` and `select`, --labels; the source stays as it is.

    Parameters
    ----------
    source
        A folder of class folders, a .csv, .parquet or .npz file, hf:NAME_OR_DIR and the like.
    alike
        Make one class of names that differ only in case or between their words, called as most of its samples are.
    merge
        Make one class of others: OLD=NEW, with commas between several; one with a comma in it stands in quotes.
    to
        The file to write, a CSV of id and label.
    force
        Write over the file that is there already.
    """
    from labelsieve.data import spelling
    from labelsieve.files import atomic_writer
    from labelsieve.progress import Progress

    problems = Problems()
    if to is not None:
        check_target(problems, "--to", to, source=source, force=force, usual="labels.csv")
    wanted = problems.attempt(renames, merge or "") or {}
    data = problems.attempt(reading.read, source, progress=Progress(silent=True))
    problems.stop_if_any()
    assert data is not None
    before = spelling.class_counts(data)
    for name in wanted:
        if name not in before:
            raise InputError(f"--merge {name}={wanted[name]}: {data.name} has no class {name!r}")
    usual = spelling.alike(before) if alike else {}
    merged = {name: wanted.get(new, new) for name, new in usual.items()} | wanted
    after: dict[str, int] = {}
    for name, count in before.items():
        new = merged.get(name, name)
        after[new] = after.get(new, 0) + count
    if to is not None:
        names = [merged.get(str(name), str(name)) for name in data.classes]
        with atomic_writer(to) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("id", "label"))
            writer.writerows((id, names[code]) for id, code in zip(data.ids.tolist(), data.y.tolist(), strict=True))
    same, perhaps = spelling.alike(after), spelling.perhaps(after)
    notes = [note for note in data.notes if note != spelling.about_spelling(before, source)]
    common.say(*notes, *_listed(after, same, perhaps))
    words = [source, *reading.words()]
    if to is not None:
        common.say(f"{to} has these labels: {shlex.join(['labelsieve', 'run', *words, '--labels', str(to)])}")
    elif merged and not same and not perhaps:
        common.say("nothing was written: --to labels.csv writes these labels")
    if same or perhaps:
        common.say(*_how_to_merge(words, alike or bool(same), wanted | perhaps))
    common.answer({"classes": after, "merged": merged, "alike": same, "perhaps": perhaps, "to": to})


def renames(text: str) -> dict[str, str]:
    """`OLD=NEW, OLD=NEW` as a dictionary."""
    try:
        cells = next(csv.reader([text], skipinitialspace=True), [])
    except csv.Error as problem:
        raise InputError(f"--merge {text!r}: {problem}") from None
    found: dict[str, str] = {}
    for cell in filter(None, map(str.strip, cells)):
        old, equals, new = (part.strip() for part in cell.partition("="))
        if not old or not equals or not new or "=" in new:
            raise InputError(f"--merge {cell!r}: write OLD=NEW, such as --merge 'Y=yes, N=no'")
        if found.setdefault(old, new) != new:
            raise InputError(f"--merge: {old!r} cannot become both {found[old]!r} and {new!r}")
    return found


def _listed(counts: dict[str, int], same: dict[str, str], perhaps: dict[str, str]) -> list[str]:
    rows = [("class", "samples")] + [(name, f"{count:,}") for name, count in counts.items()]
    head, *lines = table(rows)
    for i, name in enumerate(counts):
        if name in same:
            lines[i] += f"  written otherwise: {same[name]!r}"
        elif name in perhaps:
            lines[i] += f"  perhaps {perhaps[name]!r}"
    return [head, *lines]


def _how_to_merge(words: list[str], alike: bool, merge: dict[str, str]) -> list[str]:
    command = ["labelsieve", "data", "classes", *words, *["--alike"] * alike]
    lines = []
    if merge:
        command += ["--merge", csv_line(f"{old}={new}" for old, new in merge.items())]
        lines = ["whether names under --merge mean the same is yours to say: leave out those that do not"]
    return [f"to make them one: {shlex.join(command)} --to labels.csv", *lines]
