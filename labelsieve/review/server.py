"""Serves the review page of one run to one person, until stopped."""

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

PORT = 8765
ANY = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # every address of this machine, and the one a browser can ask for


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def names_of(host: str, port: int) -> set[str]:
    """What a browser may call the page: the address it was given, and this machine's own names for itself."""
    names = {"127.0.0.1", "localhost", "[::1]", in_address(host)}
    if not is_loopback(host):
        names.add(socket.gethostname())
        if host in ANY:
            names |= {in_address(address) for address in _own_addresses()}
    # A browser leaves out the port that is HTTP's own.
    return {f"{name}:{port}" for name in names} | (names if port == 80 else set())


def in_address(host: str) -> str:
    """As a browser writes it: an IPv6 address in brackets, at its shortest; for every address of this machine its own.

    >>> in_address("::"), in_address("2001:DB8:0::1"), in_address("192.168.1.5")
    ('[::1]', '[2001:db8::1]', '192.168.1.5')
    """
    if host in ANY:
        return ANY[host]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return f"[{address.compressed}]" if address.version == 6 else host


def bound(host: str, port: int | None) -> socket.socket:
    """A listening socket; without a port asked for, the usual one or, where it is taken, any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for attempt in (port,) if port is not None else (PORT, 0):
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, attempt))
            listener.listen()  # only now the port is taken: another process may be about to ask for it
            return listener
        except OSError as problem:
            listener.close()
            if port is not None or attempt == 0:
                raise InputError(
                    f"cannot listen on {host} port {attempt}: {problem.strerror}; give another --port"
                ) from None
        except OverflowError:
            listener.close()
            raise InputError(f"port {attempt} is outside 0..65535") from None
    raise AssertionError("unreachable")


def serve(
    run: str | Path | RunFolder,
    *,
    port: int | None = None,
    host: str = "127.0.0.1",
    token: str | None = None,
    ready: Callable[[str], None] = print,
    note: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until interrupted. `ready` gets the address, which holds the token, once the page answers; `note` is told
    what a person should know before."""
    try:
        import uvicorn

        from labelsieve.review.app import make_app
        from labelsieve.review.review_session import Desk
    except ModuleNotFoundError as problem:
        raise InputError(f"the review page needs {problem.name}: pip install 'labelsieve[review]'") from None

    folder = run if isinstance(run, RunFolder) else RunFolder.existing(run)
    with _alone(folder):
        desk = Desk(folder)
        for warning in desk.warnings():
            note(warning)
        listener = bound(host, port)
        actual = int(listener.getsockname()[1])
        token = token or secrets.token_urlsafe(24)
        app = make_app(desk, hosts=names_of(host, actual), token=token)
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
def _alone(run: RunFolder) -> Iterator[None]:
    """One server a run: two would not see each other's decisions."""
    lock = locked(
        run / "review.lock", what=str(run.path), used="already being reviewed", hint="use its page, or stop it first"
    )
    with ExitStack() as held:
        try:
            held.enter_context(lock)
        except OSError as problem:
            told = f"{run.path} cannot be written ({problem.strerror}): decisions could not be saved"
            raise InputError(told) from None
        sweep(run.path, ".*.partial")
        yield


def _own_addresses() -> list[str]:
    try:
        found = socket.getaddrinfo(socket.gethostname(), None)
    except OSError:
        return []
    return sorted({str(entry[4][0]) for entry in found})
