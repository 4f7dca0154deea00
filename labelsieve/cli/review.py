"""labelsieve review: a page on this machine to go through the suspects."""

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
    open: Flag = False,
    common: Common = Common(),
) -> int:
    """Serve the review page until Ctrl-C. Every decision is saved when it is made.

    Parameters
    ----------
    run
        A run folder, made by `select` or `run`.
    port
        Port to listen on; 8765 or, where that is taken, any free one. 0 takes any.
    host
        Address to listen on. Anything but this machine's own lets others with the printed address in.
    open
        Open the page in the browser.
    """
    from labelsieve.review import serve
    from labelsieve.review.server import is_loopback

    problems = Problems()
    problems.check(port is None or 0 <= port <= 65535, f"--port {port} is outside 0..65535")
    problems.stop_if_any()

    def ready(address: str) -> None:
        if common.json:
            print(json.dumps({"address": address}), flush=True)
        if not is_loopback(host):
            common.say(f"Listening on {host}: whoever has the address below can see the samples and decide.")
        common.say(f"Review page: {address}", "Decisions are saved as they are made. Stop with Ctrl-C.")
        if open:
            import webbrowser

            webbrowser.open(address)

    try:
        serve(run, port=port, host=host, ready=ready, note=common.progress().note)
    except KeyboardInterrupt as stopped:
        if type(stopped) is not KeyboardInterrupt:
            raise
        common.say("The review page has ended; every decision is saved.")
        return 130
    return 0
