"""The review page over HTTP: a few JSON answers, pictures, and the page's own files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from labelsieve.decisions import ConflictError
from labelsieve.errors import InputError
from labelsieve.report.samples import Missing, Picture
from labelsieve.review.guard import App, Guard
from labelsieve.review.queue import Filter
from labelsieve.review.review_session import Desk

PAGE_FILES = {
    "page.css": "text/css",
    "talk.js": "text/javascript",
    "show.js": "text/javascript",
    "page.js": "text/javascript",
}
MOST_WINDOW = 64
HELPS = 12  # answers that may take seconds, at once: the threads are few, and the rest is for the keys


class BadRequestError(Exception):
    """What was sent cannot be understood: 400 with a sentence."""


def make_app(desk: Desk, *, hosts: Iterable[str], token: str) -> App:
    static = files("labelsieve.review").joinpath("static")

    def page(request: Request) -> Response:
        # The token is made of URL-safe characters, so it cannot break out of the attributes it goes into.
        html = static.joinpath("page.html").read_text(encoding="utf-8").replace("TOKEN", token)
        return Response(html, media_type="text/html")

    def page_file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in PAGE_FILES:
            return _json({"error": "there is no such file"}, 404)
        return Response(static.joinpath(name).read_bytes(), media_type=PAGE_FILES[name])

    def icon(request: Request) -> Response:
        return Response(status_code=204)

    def start(request: Request) -> Response:
        return _json(desk.start())

    def items(request: Request) -> Response:
        query = request.query_params
        return _json(desk.items(_filter(query), _whole(query, "at", 0), _whole(query, "count", 8)))

    def next_open(request: Request) -> Response:
        query = request.query_params
        found = desk.next_open(_filter(query), _whole(query, "from", 0), _whole(query, "step", 1))
        return _json({"at": found})

    def where(request: Request) -> Response:
        query = request.query_params
        return _json({"at": desk.position(_filter(query), _whole(query, "row", -1))})

    def matrix(request: Request) -> Response:
        return _json(desk.matrix())

    def neighbours(request: Request) -> Response:
        return _json(desk.neighbours(_whole(request.path_params, "row", -1)))

    def same(request: Request) -> Response:
        return _json(desk.same(_whole(request.path_params, "row", -1)))

    def picture(request: Request) -> Response:
        row = _whole(request.path_params, "row", -1)
        seen = desk.picture(row, large=request.query_params.get("size") == "large")
        if isinstance(seen, Picture):
            headers = {"cache-control": "private, max-age=3600"}
            return Response(seen.data, media_type=seen.media, headers=headers)
        reason = seen.reason if isinstance(seen, Missing) else "this sample is not a picture"
        return _json({"error": reason}, 404)

    # What was sent is understood in full before anything is saved.

    def decide(sent: dict[str, Any]) -> dict[str, Any]:
        label = sent.get("label")
        wanted = _filter(_mapping(sent, "filter"))
        return desk.decide(
            _int(sent, "row"),
            str(sent.get("decision")),
            None if label is None else _int(sent, "label"),
            seen=_int(sent, "version"),
            window=_window(sent),
        ) | desk.progress(wanted)

    def accept(sent: dict[str, Any]) -> dict[str, Any]:
        wanted = _filter(_mapping(sent, "filter"))
        done = desk.accept_top(wanted, _int(sent, "count"), window=_window(sent))
        return done | desk.progress(wanted)

    def undo(sent: dict[str, Any]) -> dict[str, Any]:
        wanted = _filter(_mapping(sent, "filter"))
        return desk.turn(_window(sent), back=True) | desk.progress(wanted)

    def redo(sent: dict[str, Any]) -> dict[str, Any]:
        wanted = _filter(_mapping(sent, "filter"))
        return desk.turn(_window(sent), back=False) | desk.progress(wanted)

    def get(path: str, answer: Callable[[Request], Response]) -> Route:
        async def endpoint(request: Request) -> Response:
            return await _careful(desk, lambda: answer(request))

        return Route(path, endpoint, methods=["GET"])

    room = asyncio.Semaphore(HELPS)

    def get_help(path: str, answer: Callable[[Request], Response]) -> Route:
        async def endpoint(request: Request) -> Response:
            async with room:
                if await request.is_disconnected():  # the sample was left while its turn came
                    return Response(status_code=204)
                return await _careful(desk, lambda: answer(request))

        return Route(path, endpoint, methods=["GET"])

    def post(path: str, work: Callable[[dict[str, Any]], dict[str, Any]]) -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                sent = json.loads(await request.body())
            except (ValueError, RecursionError, ClientDisconnect):
                return _json({"error": "expected a JSON object of at most a megabyte"}, 400)
            if not isinstance(sent, dict):
                return _json({"error": "expected a JSON object"}, 400)
            return await _careful(desk, lambda: _json(work(sent)))

        return Route(path, endpoint, methods=["POST"])

    routes = [
        get("/", page),
        get("/page/{name}", page_file),
        get("/favicon.ico", icon),
        get("/api/start", start),
        get("/api/items", items),
        get("/api/next", next_open),
        get("/api/where", where),
        get("/api/matrix", matrix),
        get_help("/api/neighbours/{row}", neighbours),
        get_help("/api/same/{row}", same),
        get("/api/picture/{row}", picture),
        post("/api/decide", decide),
        post("/api/accept", accept),
        post("/api/undo", undo),
        post("/api/redo", redo),
    ]
    return Guard(Starlette(routes=routes), hosts=hosts, token=token)


async def _careful(desk: Desk, answer: Callable[[], Response]) -> Response:
    """In a thread, so that a slow disk never holds up the others; mistakes become answers."""
    try:
        return await run_in_threadpool(answer)
    except BadRequestError as problem:
        return _json({"error": str(problem)}, 400)
    except InputError as problem:
        return _json({"error": str(problem)}, 400)
    except ConflictError as problem:
        return _json({"error": str(problem), "row": problem.row, **desk.standing(problem.row)}, 409)
    except OSError as problem:
        return _json({"error": f"not saved: {problem.strerror or 'the disk refused'}"}, 507)


def _json(content: dict[str, Any], status: int = 200) -> JSONResponse:
    return JSONResponse(content, status)


def _filter(query: Any) -> Filter:
    def one(name: str) -> int | None:
        return None if query.get(name) in (None, "", "any") else _whole(query, name, 0)

    def share(name: str, default: float) -> float:
        return default if query.get(name) in (None, "") else float(query[name])

    try:
        return Filter(
            show=str(query.get("show") or "suspects"),
            given=one("given"),
            suggested=one("suggested"),
            low=share("low", 0.0),
            high=share("high", 1.0),
        )
    except (ValueError, TypeError, OverflowError) as problem:
        raise BadRequestError(f"this filter cannot be used: {problem}") from None


def _whole(query: Any, name: str, default: int) -> int:
    value = query.get(name, default)
    try:
        if isinstance(value, float):  # JSON's 1.5 would be cut, its 1e999 is infinite
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


def _mapping(sent: dict[str, Any], name: str) -> dict[str, Any]:
    value = sent.get(name, {})
    if not isinstance(value, dict):
        raise BadRequestError(f"{name} must be an object")
    return value


def _window(sent: dict[str, Any]) -> str:
    value = sent.get("window")
    if not isinstance(value, str) or not 0 < len(value) <= MOST_WINDOW:
        raise BadRequestError("window must be a short text")
    return value
