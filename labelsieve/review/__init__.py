"""The review page of a run: `serve(run)` opens it for this machine, until stopped."""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from labelsieve.errors import InputError
from labelsieve.files import locked, sweep
from labelsieve.runfolder import RunFolder

__all__ = ["serve"]

DEFAULT_PORT = 8765  # above the ports that need root
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # all addresses of this machine, and the one to show


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def names_of(host: str, port: int) -> set[str]:
    """Host names under which a browser may request the page."""
    names = {"127.0.0.1", "localhost", "[::1]", in_address(host)}
    if not is_loopback(host):
        names.add(socket.gethostname())
        if host in ANY_ADDRESS:
            names |= {in_address(address) for address in _own_addresses()}
    # Browsers omit the default port of HTTP.
    return {f"{name}:{port}" for name in names} | (names if port == 80 else set())


def in_address(host: str) -> str:
    """The host in an address: IPv6 compressed and in brackets; the loopback address for all addresses.

    >>> in_address("::"), in_address("2001:DB8:0::1"), in_address("192.168.1.5")
    ('[::1]', '[2001:db8::1]', '192.168.1.5')
    """
    if host in ANY_ADDRESS:
        return ANY_ADDRESS[host]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return f"[{address.compressed}]" if address.version == 6 else host


def open_listener(host: str, port: int | None) -> socket.socket:
    """A listening socket. Without `port`, the default port or, if it is taken, a free one."""
    if port is None:
        try:
            return open_listener(host, DEFAULT_PORT)
        except InputError:
            return open_listener(host, 0)
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()  # only now is the port taken
    except (OSError, OverflowError) as problem:
        listener.close()
        reason = problem.strerror if isinstance(problem, OSError) else "it is outside 0..65535"
        raise InputError(f"cannot listen on {host} port {port}: {reason}; give another --port") from None
    return listener


def serve(
    run: str | Path | RunFolder,
    *,
    port: int | None = None,
    host: str = "127.0.0.1",
    token: str | None = None,
    reviewer: str = "",
    ready: Callable[[str], None] = print,
    note: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until interrupted. `ready` is called with the address, which contains the token; `note` with warnings.

    `reviewer` is the name that the page suggests; every window can use another one.
    """
    try:
        import uvicorn

        from labelsieve.review.app import make_app
        from labelsieve.review.review_session import ReviewSession
    except ModuleNotFoundError as problem:
        raise InputError(f"the review page needs {problem.name}: pip install 'labelsieve[review]'") from None

    folder = run if isinstance(run, RunFolder) else RunFolder.existing(run)
    with _lock(folder):
        session = ReviewSession(folder, reviewer)
        for warning in session.warnings():
            note(warning)
        listener = open_listener(host, port)
        actual = int(listener.getsockname()[1])
        token = token or secrets.token_urlsafe(24)
        app = make_app(session, hosts=names_of(host, actual), token=token)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, lifespan="off", ws="none",
            timeout_graceful_shutdown=2,
        )  # fmt: skip
        address = f"http://{in_address(host)}:{actual}/?token={token}"

        class Announcing(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets=sockets)
                ready(address)

        try:
            Announcing(config).run(sockets=[listener])
        finally:
            listener.close()


@contextmanager
def _lock(run: RunFolder) -> Iterator[None]:
    """One server per run: two would not see each other's decisions."""
    lock = locked(
        run / "review.lock", what=str(run.path), used="already in review", hint="use that page, or stop it first"
    )
    with ExitStack() as held:
        try:
            held.enter_context(lock)
        except OSError as problem:
            raise InputError(f"decisions cannot be saved in {run.path} ({problem.strerror})") from None
        sweep(run.path, ".*.partial")
        yield


def _own_addresses() -> list[str]:
    try:
        found = socket.getaddrinfo(socket.gethostname(), None)
    except OSError:
        return []
    return sorted({str(entry[4][0]) for entry in found})
