"""labelsieve review: a local page to go through the suspects."""

from __future__ import annotations

import json
from pathlib import Path

from labelsieve.cli.common import Common, Flag
from labelsieve.errors import Problems


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
    """Serve the review page until Ctrl-C. Every decision is saved immediately.

    Parameters
    ----------
    run
        Run folder of `select` or `run`.
    port
        Port to listen on; 0 is any free port. Default: 8765, or any free port if it is in use.
    host
        Address to listen on. With another address than that of this machine, others can open the printed URL.
    reviewer
        Name that decisions are saved under. It can be changed on the page. Decisions of several people are kept apart.
    open
        Open the page in the browser.
    """
    from labelsieve.review import is_loopback, serve

    problems = Problems()
    problems.check(port is None or 0 <= port <= 65535, f"--port {port}: give a number from 0 to 65535")
    problems.stop_if_any()

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
