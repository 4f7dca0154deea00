"""labelsieve report, review and export: read the results of a run, decide on suspects, write labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from labelsieve.cli.common import Common, Flag, Flat
from labelsieve.errors import InputError
from labelsieve.export import ExportSettings
from labelsieve.export import export as write
from labelsieve.progress import counted

MAX_SUSPECTS = 2000  # more would make a page that browsers load slowly


def report(run: Path, /, *, suspects: int = 200, common: Common = Common()) -> None:
    """Write RUN/report.html, a single file with the estimated noise, the confused classes and the suspects.

    Parameters
    ----------
    run
        Run folder created by `select` or `run`.
    suspects
        Number of suspects to show, at most 2,000.
    """
    from labelsieve.progress import format_bytes
    from labelsieve.report import write_report

    if not 0 <= suspects <= MAX_SUSPECTS:
        raise InputError(f"--suspects must be an integer from 0 to {MAX_SUSPECTS}, got {suspects}")
    path = write_report(run, most=suspects, note=common.progress().note)
    size = path.stat().st_size
    common.say(f"{path} ({format_bytes(size)})")
    common.answer({"report": path, "bytes": size})


def review(
    run: Path,
    /,
    *,
    port: int | None = None,
    host: str = "127.0.0.1",
    reviewer: str = "",
    open: Flag = False,
    common: Common = Common(),
) -> int:
    """Start a web server for the review page. Press Ctrl-C to stop it. Every decision is saved immediately.

    Requires an extra: pip install 'labelsieve[review]'.

    Parameters
    ----------
    run
        Run folder created by `select` or `run`.
    port
        Port to listen on; 0 selects any free port. Default: 8765, or any free port if 8765 is in use.
    host
        Address to listen on. Set it to the network address of this machine, so that other machines can open the printed
        URL.
    reviewer
        Initial name of the reviewer. Each reviewer can change it on the page. Decisions are saved per reviewer.
    open
        Open the page in the browser.
    """
    from labelsieve.review import is_loopback, serve

    if port is not None and not 0 <= port <= 65535:
        raise InputError(f"--port must be an integer from 0 to 65535, got {port}")

    def ready(address: str) -> None:
        if common.json:
            print(json.dumps({"address": address}), flush=True)
        if not is_loopback(host):
            common.say(f"Listening on {host}: anyone with the URL below can see the samples and decide.")
        common.say(f"Review page: {address}", "Every decision is saved immediately. Stop with Ctrl-C.")
        if open:
            import webbrowser

            webbrowser.open(address)

    try:
        serve(run, port=port, host=host, reviewer=reviewer, ready=ready, note=common.progress().note)
    except KeyboardInterrupt as stopped:
        if type(stopped) is not KeyboardInterrupt:
            raise
        common.say("The review page was stopped; every decision is saved.")
        return 130
    return 0


def export(
    run: Path,
    /,
    *,
    settings: Annotated[ExportSettings, Flat] = ExportSettings(),
    dry_run: Flag = False,
    common: Common = Common(),
) -> None:
    """Write results of a run to a .csv or .parquet file or to class folders. The source is never changed.

    A label is changed only if you corrected it on the review page or use --apply suggested. Suspects are excluded
    only with --drop-suspects.

    Parameters
    ----------
    run
        Run folder created by `select` or `run`.
    dry_run
        Print how many labels would change. Nothing is written.
    """
    done = write(run, dry_run=dry_run, **vars(settings))
    if done.summary:
        common.say(done.summary)
    line = f"{done.path}: {counted(done.rows, 'sample')}"
    if settings.what in ("cleaned", "selected"):
        line += f", {done.changed:,} with another label, {done.dropped:,} dropped"
    line += f"; {done.note}" if done.note else ""
    common.say(f"nothing written (dry run): {line}" if dry_run else line)
    common.answer({"to": done.path, "what": settings.what, "written": not dry_run, **vars(done)})
