"""Who may ask what: the token, the names under which the service is reached, and what every answer tells a browser."""

from __future__ import annotations

import hmac
import logging
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_log = logging.getLogger(__name__)
TOKEN_CHARACTERS = 20
"""A shorter token could be guessed."""
_GUESSES, _GUESS_SECONDS = 10, 60.0
"""From one address, so many wrong tokens in so long; a further one is not even looked at."""
_ADDRESSES = 1_000
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Of every answer: no other site may frame, read or keep it, and no page of ours loads anything from elsewhere."""


@dataclass
class AccessRules:
    """`token`: what allows more; None where nothing does. `open`: reading needs no token: it is on loopback.

    `names`: what a request may call the host, so that a name of somebody else's that leads here is refused; empty for
    any.
    """

    token: str | None = field(repr=False)
    open: bool
    names: Collection[str] = ()
    clock: Callable[[], float] = time.monotonic
    _wrong: dict[str, deque[float]] = field(default_factory=dict)

    def refusal(self, request: Request, *, needs_token: bool) -> Response | None:
        """The answer to a request that is not allowed; None where it is."""
        if self.names and request.url.hostname not in self.names:
            return _refused(421, "this service has another name: see `--host` in docs/serve.md")
        if request.method not in ("GET", "HEAD") and not _same_origin(request.headers, request.url.netloc):
            return _refused(403, "the request comes from another site")
        if self.open and not needs_token:
            return None
        if self.token is None:
            return _refused(403, "this service was started without a token, and only shows: see docs/serve.md")
        return self._judged(request, self.token)

    def _judged(self, request: Request, token: str) -> Response | None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not given:
            return _refused(401, "a token is needed, as `Authorization: Bearer TOKEN`", {"www-authenticate": "Bearer"})
        address = request.client.host if request.client else ""
        wrong = self._wrong.setdefault(address, deque())
        now = self.clock()
        while wrong and wrong[0] < now - _GUESS_SECONDS:
            wrong.popleft()
        if len(wrong) >= _GUESSES:
            return _refused(429, "too many wrong tokens from this address", {"retry-after": f"{_GUESS_SECONDS:.0f}"})
        if hmac.compare_digest(given.strip().encode(), token.encode()):
            if not wrong:
                del self._wrong[address]
            return None
        wrong.append(now)
        while len(self._wrong) > _ADDRESSES:
            del self._wrong[next(iter(self._wrong))]
        return _refused(401, "this is not the token", {"www-authenticate": 'Bearer error="invalid_token"'})


def _same_origin(headers: Headers, netloc: str) -> bool:
    """Whether a request that changes something was made by our own page, or by no page at all."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        return False
    return origin is None or origin.partition("://")[2] == netloc


def _refused(status: int, why: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": why}, status, headers)


class SafeAnswers:
    """Gives every answer HEADERS. A defect is answered with 500, and told without its words, which may quote a row."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._app(scope, receive, with_headers)
        except Exception as exc:  # noqa: BLE001
            where = "".join(traceback.format_tb(exc.__traceback__))
            _log.error("%s %s: %s\n%s", scope["method"], scope["path"], type(exc).__name__, where)
            if not started:
                failed = _refused(500, "this is a defect of driftless: report it with what the service has printed")
                await failed(scope, receive, with_headers)
