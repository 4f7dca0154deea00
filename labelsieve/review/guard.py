"""Access to the review page: requests need the address of the page, its own origin and the token.

Other requests are answered with 403 before any other code runs.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),  # the address contains the token
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
)
MAX_BODY_BYTES = 1_000_000


def allowed(scope: Message, hosts: Iterable[str], token: str) -> str | None:
    """None if the request is allowed, else the reason."""
    headers: dict[bytes, list[bytes]] = {}
    for name, value in scope.get("headers") or ():
        headers.setdefault(bytes(name).lower(), []).append(bytes(value))
    known = {host.lower().encode() for host in hosts}
    host = headers.get(b"host", [])
    if len(host) != 1 or host[0].lower() not in known:
        return "this is not the address of the page"
    origins = headers.get(b"origin", [])
    if len(origins) > 1 or any(origin.lower() not in {b"http://" + name for name in known} for origin in origins):
        return "the request comes from another page"
    given = headers.get(b"x-labelsieve-token", [])
    if not given:
        query = bytes(scope.get("query_string") or b"").decode("latin-1")
        try:
            found = parse_qs(query, keep_blank_values=True, max_num_fields=50).get("token", [])
        except ValueError:
            found = []
        given = [value.encode("utf-8", "replace") for value in found]
    if len(given) != 1 or not hmac.compare_digest(given[0], token.encode()):
        return "the token is missing or wrong: use the whole address that labelsieve printed"
    return None


class Guard:
    """Refuses requests, limits their size, and adds security headers to every answer."""

    def __init__(self, app: App, *, hosts: Iterable[str], token: str) -> None:
        self.app, self.hosts, self.token = app, frozenset(hosts), token

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        why = allowed(scope, self.hosts, self.token)
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        if why is not None:
            await _refuse(send, 403, f"Not allowed: {why}.")
            return
        left = MAX_BODY_BYTES

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body") or b"")
            if left < 0:
                return {"type": "http.disconnect"}
            return message

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in HEADERS}
                kept = [(name, value) for name, value in message.get("headers", []) if name.lower() not in own]
                if not any(name.lower() == b"cache-control" for name, _ in kept):
                    kept.append((b"cache-control", b"no-store"))
                message["headers"] = [*kept, *HEADERS]
            await send(message)

        await self.app(scope, counted, sealed)


async def _refuse(send: Send, status: int, text: str) -> None:
    body = text.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode()), *HEADERS]
    await send(
        {"type": "http.response.start", "status": status, "headers": [*headers, (b"cache-control", b"no-store")]}
    )
    await send({"type": "http.response.body", "body": body})
