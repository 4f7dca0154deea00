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
from labelsieve.files import SpecialFileError
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
    """Return the review page of a session. A slow disk blocks no request: what is not `async` runs in threads."""
    routes = [
        Route("/", page),
        Route("/page/{name}", page_file),
        Route("/favicon.ico", lambda request: Response(status_code=204)),
        Route("/api/picture/{row}", picture),
        Route("/api/neighbours/{row}", neighbours),
        get("/api/start", lambda session, query: session.start()),
        get("/api/items", items),
        get("/api/next", next_open),
        get("/api/where", position),
        get("/api/matrix", lambda session, query: session.matrix()),
        get("/api/check", lambda session, query: session.check(_share(query, "confidence"))),
        post("/api/decide", decide),
        post("/api/accept", accept),
        post("/api/undo", lambda session, sent: session.undo(_window(sent), _reviewer(sent))),
        post("/api/redo", lambda session, sent: session.redo(_window(sent), _reviewer(sent))),
    ]
    app = Starlette(routes=routes, exception_handlers=ERROR_ANSWERS)
    app.state.session, app.state.token = session, token
    app.state.slow_requests = asyncio.Semaphore(MAX_SLOW_REQUESTS)
    return Guard(app, hosts=hosts, token=token)


def get(path: str, answer: Callable[[ReviewSession, Any], Answer]) -> Route:
    """Return the route of a GET request: `answer` receives the session and the query."""

    def endpoint(request: Request) -> Response:
        return _json(answer(request.app.state.session, request.query_params))

    return Route(path, endpoint)


def post(path: str, work: Callable[[ReviewSession, Answer], Answer]) -> Route:
    """Return the route of a POST request, which is read completely before `work` saves anything."""

    def answer(session: ReviewSession, sent: Answer) -> Response:
        wanted = _filter(_object(sent.get("filter", {})))
        return _json(work(session, sent) | session.progress(wanted))

    async def endpoint(request: Request) -> Response:
        try:
            sent = json.loads(await request.body())
            json.dumps(sent, ensure_ascii=False).encode()  # half of a surrogate pair is valid JSON, but not text
        except (ValueError, RecursionError, ClientDisconnect):
            return _json({"error": "expected a JSON object of at most a megabyte"}, 400)
        if not isinstance(sent, dict):
            return _json({"error": "expected a JSON object"}, 400)
        return await run_in_threadpool(answer, request.app.state.session, sent)

    return Route(path, endpoint, methods=["POST"])


# ---------------------------------------------------------------- answers


def page(request: Request) -> Response:
    static = files("labelsieve.review").joinpath("static")
    # The token has URL-safe characters only, so it cannot break out of the attributes of the page.
    html = static.joinpath("page.html").read_text(encoding="utf-8").replace("TOKEN", request.app.state.token)
    return Response(html, media_type="text/html")


def page_file(request: Request) -> Response:
    static, name = files("labelsieve.review").joinpath("static"), request.path_params["name"]
    if name not in PAGE_FILES:
        return _json({"error": "there is no such file"}, 404)
    return Response(static.joinpath(name).read_bytes(), media_type=PAGE_FILES[name])


def picture(request: Request) -> Response:
    row, large = _whole(request.path_params, "row", -1), request.query_params.get("size") == "large"
    sample = request.app.state.session.picture(row, large=large)
    if isinstance(sample, Picture):
        headers = {"cache-control": "private, max-age=3600"}
        return Response(sample.data, media_type=sample.media, headers=headers)
    reason = sample.reason if isinstance(sample, Missing) else "this sample is not a picture"
    return _json({"error": reason}, 404)


async def neighbours(request: Request) -> Response:
    async with request.app.state.slow_requests:
        if await request.is_disconnected():  # the page shows another sample by now
            return Response(status_code=204)
        row = _whole(request.path_params, "row", -1)
        return _json(await run_in_threadpool(request.app.state.session.neighbours, row))


def items(session: ReviewSession, query: Any) -> Answer:
    return session.items(_filter(query), _whole(query, "at", 0), _whole(query, "count", 8), _reviewer(query))


def next_open(session: ReviewSession, query: Any) -> Answer:
    return {"at": session.next_open(_filter(query), _whole(query, "from", 0), _whole(query, "step", 1))}


def position(session: ReviewSession, query: Any) -> Answer:
    return {"at": session.position(_filter(query), _whole(query, "row", -1))}


def decide(session: ReviewSession, sent: Answer) -> Answer:
    label = None if sent.get("label") is None else _int(sent, "label")
    listed = sent.get("samples")
    if not isinstance(listed, list) or not 0 < len(listed) <= MAX_ITEMS:
        raise BadRequestError(f"samples must be a list of 1 to {MAX_ITEMS} objects")
    samples = [(_int(_object(one), "row"), _int(_object(one), "version")) for one in listed]
    return session.decide(samples, str(sent.get("decision")), label, window=_window(sent), reviewer=_reviewer(sent))


def accept(session: ReviewSession, sent: Answer) -> Answer:
    return session.accept_above(_share(sent, "confidence"), window=_window(sent), reviewer=_reviewer(sent))


def bad_request(request: Request, problem: Exception) -> Response:
    return _json({"error": str(problem)}, 400)


def conflict(request: Request, problem: ConflictError) -> Response:
    now = request.app.state.session.decision(problem.row, problem.reviewer)
    return _json({"error": str(problem), "row": problem.row, **now}, 409)


def not_saved(request: Request, problem: OSError) -> Response:
    return _json({"error": f"not saved: {problem.strerror or 'the disk refused'}"}, 507)


ERROR_ANSWERS: dict[Any, Any] = {
    BadRequestError: bad_request,
    InputError: bad_request,
    SpecialFileError: bad_request,
    ConflictError: conflict,
    OSError: not_saved,
}


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
