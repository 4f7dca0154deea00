"""labelsieve export: write corrected labels, selected samples, suspects or decisions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from labelsieve.cli.common import Common, Flag, Flat, counted
from labelsieve.export import export as write
from labelsieve.export.settings import ExportSettings


def export(
    run: Path,
    /,
    *,
    settings: Annotated[ExportSettings, Flat] = ExportSettings(),
    dry_run: Flag = False,
    common: Common = Common(),
) -> None:
    """Write results of a run to a .csv or .parquet file or to class folders. The source is never changed.

    Labels change only if a person decided on them, or if --apply suggested or --drop-suspects asks for it.

    Parameters
    ----------
    run
        Run folder of `select` or `run`.
    dry_run
        Print how many labels would change, and write nothing.
    """
    done = write(run, dry_run=dry_run, announce=common.say, **vars(settings))
    if not dry_run:
        line = f"{done.path}: {counted(done.rows, 'sample')}"
        if settings.what in ("cleaned", "selected"):
            line += f", {done.changed:,} with another label, {done.dropped:,} dropped"
        common.say(line + (f"; {done.note}" if done.note else ""))
    common.answer({"to": done.path, "what": settings.what, "written": not dry_run, **vars(done)})
