"""What is answered under which address."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from serve.access import AccessRules, SafeHeaders
from serve.collector import Collector, Snapshot
from serve.exposition import CONTENT_TYPE, exposed

_log = logging.getLogger(__name__)
Handler = Callable[[Request], Awaitable[Response]]


class Service:
    """The addresses of one pipeline's service. Whatever is asked is answered from what the collector knows."""

    def __init__(self, pipeline: str, collector: Collector, access: AccessRules) -> None:
        self._pipeline = pipeline
        self._collector = collector
        self._access = access

    def app(self) -> Starlette:
        """The ASGI application."""
        routes = [
            Route("/healthz", self._alive),
            Route("/readyz", self._ready),
            Route("/metrics", self._allowed(self._metrics)),
            Route("/status", self._allowed(self._status)),
        ]
        failed = {404: _nowhere, 405: _wrong_method, 500: _failed}
        return Starlette(routes=routes, middleware=[Middleware(SafeHeaders)], exception_handlers=failed)

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


async def _nowhere(_: Request, __: Exception) -> Response:
    return JSONResponse({"error": "there is nothing here: docs/serve.md lists the addresses"}, 404)


async def _wrong_method(_: Request, __: Exception) -> Response:
    return JSONResponse({"error": "this address is asked in another way: see docs/serve.md"}, 405)


async def _failed(request: Request, exc: Exception) -> Response:
    _log.error("%s %s: %s", request.method, request.url.path, type(exc).__name__)
    return JSONResponse({"error": "this is a defect of driftless: its output says where"}, 500)
