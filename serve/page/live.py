"""Parts of the page as they change, as an event stream: each reader is told what differs from what it was told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from serve.facts.collector import Collector
from serve.page.page import Page

STEP_SECONDS = 1.0
READERS = 64
"""At once; one more is told to come back later."""


class LiveParts:
    """Streams for browsers. Of a reader that does not keep up one event waits; the next one has the newest."""

    def __init__(self, collector: Collector, page: Page) -> None:
        self._collector = collector
        self._page = page
        self._readers = 0

    async def answer(self, request: Request) -> Response:
        """The stream; 503 where there are too many."""
        if self._readers >= READERS:
            return JSONResponse({"error": f"{READERS} pages are open already"}, 503, {"retry-after": "10"})
        return StreamingResponse(self._events(request), media_type="text/event-stream")

    async def _events(self, request: Request) -> AsyncIterator[str]:
        self._readers += 1
        told: dict[str, str] = {}
        try:
            while not await request.is_disconnected():
                snapshot = await run_in_threadpool(self._collector.look)
                parts = await run_in_threadpool(self._page.parts, snapshot)
                changed = {name: html for name, html in parts.items() if told.get(name) != html}
                told |= changed
                at = datetime.fromtimestamp(snapshot.at, UTC).strftime("%H:%M:%S")
                yield f"data: {json.dumps({'at': at, 'parts': changed})}\n\n"
                await asyncio.sleep(STEP_SECONDS)
        finally:
            self._readers -= 1
