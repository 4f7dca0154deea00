"""labelsieve data classes: what the classes are, and a file in which those written in several ways are one."""

from __future__ import annotations

import csv
import shlex
from collections.abc import Sequence
from pathlib import Path

from labelsieve.cli.common import Common, Flag, check_target, table
from labelsieve.decisions import csv_line
from labelsieve.errors import InputError, Problems
from labelsieve.workflow.read import SourceOptions


def classes(
    source: str,
    /,
    *,
    alike: Flag = False,
    merge: str | None = None,
    leave_out: str | None = None,
    to: Path | None = None,
    force: Flag = False,
    reading: SourceOptions = SourceOptions(),
    common: Common = Common(),
) -> None:
    """List the classes with their samples, and which may be one class written in several ways, or none.

    With --to the labels are written to a file for `run` and `select`, --labels; the source stays as it is.

    Parameters
    ----------
    source
        A folder of class folders, a .csv, .parquet or .npz file, hf:NAME_OR_DIR and the like.
    alike
        Make one class of names that differ only in case or between their words, called as most of its samples are.
    merge
        Make one class of others: OLD=NEW, with commas between several; one with a comma in it stands in quotes.
    leave_out
        Names that are no labels, such as n/a, with commas between them: their samples are left out.
    to
        The file to write, a CSV of id and label.
    force
        Write over the file that is there already.
    """
    from labelsieve.data import spelling
    from labelsieve.data.labels import OTHERS
    from labelsieve.files import atomic_writer
    from labelsieve.progress import Progress

    problems = Problems()
    if to is not None:
        check_target(problems, "--to", to, source=source, force=force, usual="labels.csv")
    wanted = problems.attempt(renames, merge or "") or {}
    data = problems.attempt(
        reading.read, source, refuse_mixed=False, note_spelling=False, progress=Progress(silent=True)
    )
    problems.stop_if_any()
    assert data is not None
    before = spelling.class_counts(data)
    gone = set(names_in(leave_out or "", "--leave-out"))
    for option, names in (("--merge", wanted), ("--leave-out", gone)):
        for name in names:
            if name not in before:
                raise InputError(f"{option} {name}: {data.name} has no class {name!r}")
    usual = spelling.alike(before) if alike else {}
    merged = {name: wanted.get(new, new) for name, new in usual.items()} | wanted
    after: dict[str, int] = {}
    for name, count in before.items():
        if name not in gone:
            new = merged.get(name, name)
            after[new] = after.get(new, 0) + count
    if to is not None:
        kept = {i: merged.get(str(name), str(name)) for i, name in enumerate(data.classes) if str(name) not in gone}
        dropped = len(data) - sum(after.values())
        with atomic_writer(to) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("id", "label", OTHERS) if dropped else ("id", "label"))
            for id, code in zip(data.ids.tolist(), data.y.tolist(), strict=True):
                if code in kept:
                    writer.writerow((id, kept[code], dropped) if dropped else (id, kept[code]))
    same, perhaps, missing = spelling.alike(after), spelling.perhaps(after), spelling.no_labels(after)
    common.say(*data.notes, *_listed(after, same, perhaps, missing))
    words = [source, *reading.words()]
    if to is not None:
        common.say(f"{to} has these labels: {shlex.join(['labelsieve', 'run', *words, '--labels', str(to)])}")
    elif (merged or gone) and not same and not perhaps and not missing:
        common.say("nothing was written: --to labels.csv writes these labels")
    if same or perhaps or missing:
        common.say(*_how_to_change(words, alike or bool(same), wanted | perhaps, sorted({*gone, *missing})))
    common.answer(
        {"classes": after, "merged": merged, "left_out": sorted(gone), "alike": same, "perhaps": perhaps,
         "no_labels": missing, "to": to}
    )  # fmt: skip


def renames(text: str) -> dict[str, str]:
    """`OLD=NEW, OLD=NEW` as a dictionary."""
    found: dict[str, str] = {}
    for cell in names_in(text, "--merge"):
        old, equals, new = (part.strip() for part in cell.partition("="))
        if not old or not equals or not new or "=" in new:
            raise InputError(f"--merge {cell!r}: write OLD=NEW, such as --merge 'Y=yes, N=no'")
        if found.setdefault(old, new) != new:
            raise InputError(f"--merge: {old!r} cannot become both {found[old]!r} and {new!r}")
    return found


def names_in(text: str, option: str) -> list[str]:
    """What stands between commas; what holds one is in quotes."""
    try:
        cells = next(csv.reader([text], skipinitialspace=True), [])
    except csv.Error as problem:
        raise InputError(f"{option} {text!r}: {problem}") from None
    return [cell.strip() for cell in cells if cell.strip()]


def _listed(counts: dict[str, int], same: dict[str, str], perhaps: dict[str, str], missing: Sequence[str]) -> list[str]:
    rows = [("class", "samples")] + [(name, f"{count:,}") for name, count in counts.items()]
    head, *lines = table(rows)
    for i, name in enumerate(counts):
        if name in same:
            lines[i] += f"  written otherwise: {same[name]!r}"
        elif name in perhaps:
            lines[i] += f"  perhaps {perhaps[name]!r}"
        elif name in missing:
            lines[i] += "  no label?"
    return [head, *lines]


def _how_to_change(words: list[str], alike: bool, merge: dict[str, str], leave_out: list[str]) -> list[str]:
    command = ["labelsieve", "data", "classes", *words, *["--alike"] * alike]
    if merge:
        command += ["--merge", csv_line(f"{old}={new}" for old, new in merge.items())]
    if leave_out:
        command += ["--leave-out", csv_line(leave_out)]
    lines = [f"to change that: {shlex.join(command)} --to labels.csv"]
    if merge or leave_out:
        lines.append("what names under --merge and --leave-out mean is yours to say: strike those that are classes")
    return lines
