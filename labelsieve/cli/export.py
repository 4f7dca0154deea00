"""labelsieve export: write corrected labels, selected samples, suspects or decisions."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from labelsieve.cli.common import Common, Flag, counted


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
    """Write results of a run to a .csv or .parquet file or to class folders. The source is never changed.

    Parameters
    ----------
    run
        Run folder of `select` or `run`.
    what
        cleaned: all samples with corrected labels. selected: samples that the run or a person trusts. suspects: the
        most suspicious first. decisions: decisions of the review page.
    to
        A .csv or .parquet file (for a .tsv source also .tsv), or a folder (pictures only). Default: a file in this
        folder, named after the source, such as fruit-cleaned.csv.
    undecided
        Label of suspects without a decision. keep: the given one. suggested: the suggested one. likely: the suggested
        one, unless the given one is clearly more likely. drop: leave the sample out. auto: likely if there are no
        decisions, else keep; keep if the run could not estimate the noise.
    link
        Fill the folder with links to the pictures instead of copies.
    raw
        Write cells that a spreadsheet would run as formulas unchanged. Default: with an apostrophe in front.
    force
        Overwrite the file or folder if it exists.
    """
    from labelsieve.export import export as write

    done = write(run, what=what, to=to, undecided=undecided, raw=raw, link=link, force=force)
    line = f"{done.path}: {counted(done.rows, 'sample')}"
    if what in ("cleaned", "selected"):
        line += f", {done.changed:,} with another label, {done.dropped:,} dropped"
    common.say(line + (f"; {done.note}" if done.note else ""))
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
