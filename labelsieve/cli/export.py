"""labelsieve export: corrected labels, the selected, the suspects or the decisions, to take home."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from labelsieve.cli.common import Common, Flag


def export(
    run: Path,
    /,
    *,
    what: Literal["cleaned", "selected", "suspects", "decisions"] = "cleaned",
    to: Path | None = None,
    undecided: Literal["auto", "keep", "likely", "suggested", "drop"] = "auto",
    link: Flag = False,
    raw: Flag = False,
    force: Flag = False,
    common: Common = Common(),
) -> None:
    """Write results of a run to FILE.csv, FILE.parquet or a FOLDER of class folders. The originals are never changed.

    Parameters
    ----------
    run
        A run folder, made by `select` or `run`.
    what
        cleaned: all samples with corrected labels; selected: only those that the run or a person trusts;
        suspects: the most suspicious first, with their own cells where the source is a table; decisions: what was
        decided.
    to
        A .csv or .parquet file (of a .tsv also a .tsv), or a folder (pictures only); default: here, after the source,
        as fruit-cleaned.csv.
    undecided
        Suspects nobody decided on: keep their label, take the suggested one (likely: unless the given one is clearly
        likelier right), or drop them. auto is likely as long as there are no decisions at all; once there are, and
        where the run knows too little (a line says so), it keeps them.
    link
        Fill the folder with links to the pictures instead of copies.
    raw
        Leave CSV cells as they are that a spreadsheet would run as formulas; else they get an apostrophe in front,
        and a line says how many did.
    force
        Write over the file, or the folder of class folders, that is there already.
    """
    from labelsieve.export import export as write

    done = write(run, what=what, to=to, undecided=undecided, raw=raw, link=link, force=force)
    said = f"{done.path}: {done.rows:,} {'sample' if done.rows == 1 else 'samples'}"
    if what in ("cleaned", "selected"):
        said += f", {done.changed:,} with another label, {done.dropped:,} dropped"
    common.say(said + (f"; {done.note}" if done.note else ""))
    common.answer(
        {
            "to": done.path,
            "what": what,
            "rows": done.rows,
            "changed": done.changed,
            "dropped": done.dropped,
            "apostrophes": done.apostrophes,
            "note": done.note,
        }
    )
