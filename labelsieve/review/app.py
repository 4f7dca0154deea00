"""The review page over HTTP: JSON answers, pictures and the files of the page.

Requests need the address of the page, its own origin and the token. `Guard` answers others with 403 before any other
code runs.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import math
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from labelsieve.decisions import ConflictError
from labelsieve.errors import InputError
from labelsieve.report.facts import DEFAULT_CONFIDENCE, Group
from labelsieve.report.samples import Missing, Picture
from labelsieve.review.review_session import MAX_ITEMS, Filter, ReviewSession

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
MAX_BODY_BYTES = 1_000_000  # larger requests are refused


def refusal_reason(scope: Message, hosts: Iterable[str], token: str) -> str | None:
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
        why = refusal_reason(scope, self.hosts, self.token)
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        left = MAX_BODY_BYTES

        async def limit_body() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body") or b"")
            if left < 0:
                return {"type": "http.disconnect"}
            return message

        async def add_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in HEADERS}
                kept = [(name, value) for name, value in message.get("headers", []) if name.lower() not in own]
                if not any(name.lower() == b"cache-control" for name, _ in kept):
                    kept.append((b"cache-control", b"no-store"))
                message["headers"] = [*kept, *HEADERS]
            await send(message)

        app = self.app if why is None else PlainTextResponse(f"Not allowed: {why}.", 403)
        await app(scope, limit_body, add_headers)


PAGE_FILES = {
    "page.css": "text/css",
    "talk.js": "text/javascript",
    "show.js": "text/javascript",
    "page.js": "text/javascript",
}
MAX_WINDOW_NAME = 64  # characters; the page sends at most 18
MAX_SLOW_REQUESTS = 12  # at once: the other threads stay free for decisions

Answer = dict[str, Any]


class BadRequestError(Exception):
    """A request that cannot be understood; answered with status 400."""


def make_app(session: ReviewSession, *, hosts: Iterable[str], token: str) -> App:
    static = files("labelsieve.review").joinpath("static")
    slow_requests = asyncio.Semaphore(MAX_SLOW_REQUESTS)

    def page(request: Request) -> Response:
        # The token has URL-safe characters only, so it cannot break out of the attributes of the page.
        html = static.joinpath("page.html").read_text(encoding="utf-8").replace("TOKEN", token)
        return Response(html, media_type="text/html")

    def page_file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in PAGE_FILES:
            return _json({"error": "there is no such file"}, 404)
        return Response(static.joinpath(name).read_bytes(), media_type=PAGE_FILES[name])

    def picture(request: Request) -> Response:
        row = _whole(request.path_params, "row", -1)
        sample = session.picture(row, large=request.query_params.get("size") == "large")
        if isinstance(sample, Picture):
            headers = {"cache-control": "private, max-age=3600"}
            return Response(sample.data, media_type=sample.media, headers=headers)
        reason = sample.reason if isinstance(sample, Missing) else "this sample is not a picture"
        return _json({"error": reason}, 404)

    def items(query: Any) -> Answer:
        return session.items(_filter(query), _whole(query, "at", 0), _whole(query, "count", 8), _reviewer(query))

    def next_open(query: Any) -> Answer:
        return {"at": session.next_open(_filter(query), _whole(query, "from", 0), _whole(query, "step", 1))}

    def position(query: Any) -> Answer:
        return {"at": session.position(_filter(query), _whole(query, "row", -1))}

    # A request is read completely before anything is saved.

    def decide(sent: Answer) -> Answer:
        label = None if sent.get("label") is None else _int(sent, "label")
        listed = sent.get("samples")
        if not isinstance(listed, list) or not 0 < len(listed) <= MAX_ITEMS:
            raise BadRequestError(f"samples must be a list of 1 to {MAX_ITEMS} objects")
        samples = [(_int(_object(one), "row"), _int(_object(one), "version")) for one in listed]
        return session.decide(samples, str(sent.get("decision")), label, window=_window(sent), reviewer=_reviewer(sent))

    def accept(sent: Answer) -> Answer:
        return session.accept_above(_share(sent, "confidence"), window=_window(sent), reviewer=_reviewer(sent))

    async def respond(answer: Callable[[], Response]) -> Response:
        """Run in a thread, so that a slow disk does not block other requests. Errors become answers."""
        try:
            return await run_in_threadpool(answer)
        except (BadRequestError, InputError) as problem:
            return _json({"error": str(problem)}, 400)
        except ConflictError as problem:
            return _json(
                {"error": str(problem), "row": problem.row, **session.decision(problem.row, problem.reviewer)}, 409
            )
        except OSError as problem:
            return _json({"error": f"not saved: {problem.strerror or 'the disk refused'}"}, 507)

    def get(path: str, answer: Callable[[Request], Response]) -> Route:
        async def endpoint(request: Request) -> Response:
            return await respond(lambda: answer(request))

        return Route(path, endpoint, methods=["GET"])

    def get_json(path: str, answer: Callable[[Any], Answer]) -> Route:
        return get(path, lambda request: _json(answer(request.query_params)))

    def get_slow(path: str, answer: Callable[[int], Answer]) -> Route:
        async def endpoint(request: Request) -> Response:
            async with slow_requests:
                if await request.is_disconnected():  # the page shows another sample by now
                    return Response(status_code=204)
                return await respond(lambda: _json(answer(_whole(request.path_params, "row", -1))))

        return Route(path, endpoint, methods=["GET"])

    def post(path: str, work: Callable[[Answer], Answer]) -> Route:
        def answer(sent: Answer) -> Response:
            wanted = _filter(_object(sent.get("filter", {})))
            return _json(work(sent) | session.progress(wanted))

        async def endpoint(request: Request) -> Response:
            try:
                sent = json.loads(await request.body())
                json.dumps(sent, ensure_ascii=False).encode()  # half of a surrogate pair is valid JSON, but not text
            except (ValueError, RecursionError, ClientDisconnect):
                return _json({"error": "expected a JSON object of at most a megabyte"}, 400)
            if not isinstance(sent, dict):
                return _json({"error": "expected a JSON object"}, 400)
            return await respond(lambda: answer(sent))

        return Route(path, endpoint, methods=["POST"])

    routes = [
        get("/", page),
        get("/page/{name}", page_file),
        get("/favicon.ico", lambda request: Response(status_code=204)),
        get("/api/picture/{row}", picture),
        get_json("/api/start", lambda query: session.start()),
        get_json("/api/items", items),
        get_json("/api/next", next_open),
        get_json("/api/where", position),
        get_json("/api/matrix", lambda query: session.matrix()),
        get_json("/api/check", lambda query: session.check(_share(query, "confidence"))),
        get_slow("/api/neighbours/{row}", session.neighbours),
        post("/api/decide", decide),
        post("/api/accept", accept),
        post("/api/undo", lambda sent: session.undo(_window(sent), _reviewer(sent))),
        post("/api/redo", lambda sent: session.redo(_window(sent), _reviewer(sent))),
    ]
    return Guard(Starlette(routes=routes), hosts=hosts, token=token)


def _json(content: dict[str, Any], status: int = 200) -> JSONResponse:
    return JSONResponse(content, status)


def _filter(query: Any) -> Filter:
    def class_code(name: str) -> int | None:
        return None if query.get(name) in (None, "", "any") else _whole(query, name, 0)

    def share(name: str, default: float) -> float:
        return default if query.get(name) in (None, "") else float(query[name])

    try:
        return Filter(
            show=str(query.get("show") or "suspects"),
            given=class_code("given"),
            suggested=class_code("suggested"),
            low=share("low", 0.0),
            high=share("high", 1.0),
            sort=str(query.get("sort") or "suspicion"),
            check=Group(str(query["check"])) if query.get("check") else None,
            confidence=share("confidence", DEFAULT_CONFIDENCE),
        )
    except (ValueError, TypeError, OverflowError) as problem:
        raise BadRequestError(f"this filter cannot be used: {problem}") from None


def _whole(query: Any, name: str, default: int) -> int:
    value = query.get(name, default)
    try:
        if isinstance(value, float):  # int() would cut 1.5, and 1e999 is infinite
            raise TypeError
        number = int(value)
    except (ValueError, TypeError):
        raise BadRequestError(f"{name} must be a whole number") from None
    if abs(number) > 2**53:
        raise BadRequestError(f"{name} is too large")
    return number


def _int(sent: dict[str, Any], name: str) -> int:
    value = sent.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 2**53:
        raise BadRequestError(f"{name} must be a whole number")
    return value


def _share(query: Any, name: str) -> float:
    try:
        value = float(query.get(name, "nan"))
    except (ValueError, TypeError):
        value = math.nan
    if not 0 <= value <= 1:
        raise BadRequestError(f"{name} must be a number from 0 to 1")
    return value


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRequestError("expected an object")
    return value


def _reviewer(sent: Any) -> str:
    """The name of the person; empty if none was given."""
    value = sent.get("reviewer") or ""
    if not isinstance(value, str) or len(value) > MAX_WINDOW_NAME:
        raise BadRequestError("reviewer must be a short text")
    return " ".join(value.split())


def _window(sent: dict[str, Any]) -> str:
    value = sent.get("window")
    if not isinstance(value, str) or not 0 < len(value) <= MAX_WINDOW_NAME:
        raise BadRequestError("window must be a short text")
    return value
