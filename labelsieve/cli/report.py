"""labelsieve report: RUN/report.html, one file to read or to send."""

from __future__ import annotations

from pathlib import Path

from labelsieve.cli.common import Common
from labelsieve.errors import Problems


def report(run: Path, /, *, suspects: int = 200, common: Common = Common()) -> None:
    """Write RUN/report.html: how wrong the labels are, which class is taken for which, and the suspects.

    Parameters
    ----------
    run
        A run folder, made by `select` or `run`.
    suspects
        How many of the most suspicious samples to show, at most 2,000.
    """
    from labelsieve.report import write_report

    problems = Problems()
    problems.check(0 <= suspects <= 2000, f"--suspects {suspects} is outside 0..2000")
    problems.stop_if_any()
    path = write_report(run, most=suspects, note=common.progress().note)
    size = path.stat().st_size
    common.say(f"{path} ({size / 1e6:.1f} MB)" if size >= 1e6 else f"{path} ({size / 1e3:.0f} kB)")
    common.answer({"report": path, "bytes": size})
