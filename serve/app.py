"""What is answered under which address."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import NoneType
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from driftless.config.models import Config
from driftless.errors import SyncError
from serve.actions import Actions
from serve.facts.collector import Collector, Snapshot
from serve.http.access import AccessRules, SafeAnswers
from serve.http.exposition import CONTENT_TYPE, exposed
from serve.page.live import LiveParts
from serve.page.page import Page
from serve.why import WhyError, WhyReport

_STATIC = Path(__file__).parent / "page" / "static"
BODY_BYTES = 16 << 10
KEY_CHARACTERS = 4_000
Handler = Callable[[Request], Awaitable[Response]]


class Service:
    """The addresses of one pipeline's service. Whatever is asked is answered from what the collector knows."""

    def __init__(
        self, config: Config, collector: Collector, access: AccessRules, actions: Actions, why: WhyReport
    ) -> None:
        self._pipeline = config.name
        self._config = config
        self._collector = collector
        self._access = access
        self._actions = actions
        self._why = why
        self._page = Page(config, collector, actions.verifying)
        self._live = LiveParts(collector, self._page)

    def app(self) -> Starlette:
        """The ASGI application."""
        routes = [
            Route("/", self._whole_page),
            Mount("/static", StaticFiles(directory=_STATIC)),
            Route("/healthz", self._alive),
            Route("/readyz", self._ready),
            Route("/metrics", self._allowed(self._metrics)),
            Route("/status", self._allowed(self._status)),
            Route("/live", self._allowed(self._live.answer)),
            Route("/history", self._allowed(self._history)),
            Route("/why", self._allowed(self._explain, needs_token=True)),
            Route("/actions/{verb}", self._allowed(self._act, needs_token=True), methods=["POST"]),
        ]
        failed = {404: _nowhere, 405: _wrong_method}
        return Starlette(routes=routes, middleware=[Middleware(SafeAnswers)], exception_handlers=failed)

    def _allowed(self, handler: Handler, *, needs_token: bool = False) -> Handler:
        async def guarded(request: Request) -> Response:
            return self._access.refusal(request, needs_token=needs_token) or await handler(request)

        return guarded

    async def _look(self) -> Snapshot:
        return await run_in_threadpool(self._collector.look)

    async def _alive(self, _: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _ready(self, _: Request) -> Response:
        if self._collector.ready.is_set() and self._collector.kafka_up:
            return PlainTextResponse("ready\n")
        return PlainTextResponse("not ready: the source or Kafka has not answered yet\n", 503)

    async def _metrics(self, _: Request) -> Response:
        snapshot = await self._look()
        return Response(await run_in_threadpool(exposed, self._pipeline, snapshot.figures()), media_type=CONTENT_TYPE)

    async def _status(self, _: Request) -> Response:
        return JSONResponse((await self._look()).facts)

    async def _whole_page(self, request: Request) -> Response:
        """Where reading needs the token and there is none, the page without anything of the pipeline."""
        refusal = self._access.refusal(request, needs_token=False)
        if refusal is not None and refusal.status_code != 401:
            return refusal
        parts = None if refusal else await run_in_threadpool(self._page.parts, await self._look())
        has_token = self._access.token is not None
        text = await run_in_threadpool(self._page.whole, parts, has_token=has_token)
        return HTMLResponse(text)

    async def _history(self, request: Request) -> Response:
        follower = request.query_params.get("follower", "")
        if follower not in self._config.followers:
            return JSONResponse({"error": "there is no such follower"}, 404)
        return JSONResponse(await run_in_threadpool(self._collector.history.of, follower))

    async def _explain(self, request: Request) -> Response:
        follower, key = request.query_params.get("follower", ""), request.query_params.get("key", "")
        if follower not in self._config.followers or not key or len(key) > KEY_CHARACTERS:
            return JSONResponse({"error": "name a follower of sync.yaml and a key"}, 400)
        try:
            return HTMLResponse(await self._why.html(follower, key))
        except WhyError as exc:
            return JSONResponse({"error": str(exc)}, 409)

    async def _act(self, request: Request) -> Response:
        verb = request.path_params["verb"]
        asked = await small_json(request)
        if verb not in self._actions.verbs or asked is None:
            return JSONResponse({"error": "this cannot be asked for: see docs/serve.md"}, 400)
        follower, generation = asked.get("follower"), asked.get("generation")
        if not isinstance(follower, str) or type(generation) not in (int, NoneType):
            return JSONResponse({"error": "`follower` is a text, `generation` a whole number or null"}, 400)
        try:
            done = await run_in_threadpool(self._actions.do, verb, follower, generation)
        except SyncError as exc:
            return JSONResponse({"error": f"{exc}; {exc.hint}" if exc.hint else str(exc)}, 409)
        say(f"{verb} {follower}: {done} (asked for by {request.client.host if request.client else 'somebody'})")
        return JSONResponse({"done": done})


async def small_json(request: Request) -> dict[str, Any] | None:
    """What a request says as a JSON object; None where it says no such thing, or more than BODY_BYTES."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        return None
    said = b""
    try:
        async for some in request.stream():
            said += some
            if len(said) > BODY_BYTES:
                return None
        found = json.loads(said)
    except (ClientDisconnect, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def say(line: str) -> None:
    """Tell the operator, who keeps what the service says."""
    print(line, file=sys.stderr, flush=True)


async def _nowhere(_: Request, __: Exception) -> Response:
    return JSONResponse({"error": "there is nothing here: docs/serve.md lists the addresses"}, 404)


async def _wrong_method(_: Request, __: Exception) -> Response:
    return JSONResponse({"error": "this address is asked in another way: see docs/serve.md"}, 405)
