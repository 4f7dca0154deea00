"""labelsieve report: write RUN/report.html."""

from __future__ import annotations

from pathlib import Path

from labelsieve.cli.common import Common
from labelsieve.errors import Problems

MAX_SUSPECTS = 2000  # more would make a page that browsers load slowly


def report(run: Path, /, *, suspects: int = 200, common: Common = Common()) -> None:
    """Write RUN/report.html, one self-contained file: the noise, the confused classes and the suspects.

    Parameters
    ----------
    run
        Run folder of `select` or `run`.
    suspects
        Number of suspects to show, at most 2,000.
    """
    from labelsieve.progress import format_bytes
    from labelsieve.report import write_report

    problems = Problems()
    problems.check(0 <= suspects <= MAX_SUSPECTS, f"--suspects {suspects}: give a number from 0 to {MAX_SUSPECTS}")
    problems.stop_if_any()
    path = write_report(run, most=suspects, note=common.progress().note)
    size = path.stat().st_size
    common.say(f"{path} ({format_bytes(size)})")
    common.answer({"report": path, "bytes": size})
