"""The one door to an OpenSearch server: requests, trying again, and what each failure means for the program."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson
from opensearchpy import ConnectionError as NoConnection
from opensearchpy import Urllib3HttpConnection

from driftless.config.address import shown_url
from driftless.errors import SinkMisconfigured, SinkUnavailable
from driftless.transport.http import is_whole
from driftless.transport.tls import CERTIFICATES, refusal
from sinks import client_tls
from sinks._retry import attempts
from sinks.opensearch.bulk import is_bulk_answer, missing_right

AWAY = "Is the server running, and is `url` right?"
SHARDS = "Start the nodes that are down: `GET /_cat/shards` says which shards have none."
PERMISSIONS = "Check the user, its password and its permissions: docs/security.md lists what it needs."
WRONG_URL = "Is `url` that of an OpenSearch server?"
BUSY = frozenset({408, 429, 500, 502, 503, 504})
TOO_LARGE = 413
"""The one answer of OpenSearch's that may have no body."""


@dataclass(frozen=True)
class Index:
    """What the server says of an index; the UUID changes when one is recreated under the same name."""

    name: str
    uuid: str
    shards: int


@dataclass(frozen=True)
class Access:
    """Files of certificates, for `https`; and what is sent as `Authorization` where the URL has no user."""

    ca_certs: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    authorization: str | None = field(default=None, repr=False)


class OpenSearchServer:
    """Sends requests over connections that are kept. Messages name the request, never its body."""

    def __init__(
        self, url: str, *, access: Access, connections: int, request_seconds: float, retry_seconds: float
    ) -> None:
        self._url = url
        self.address = shown_url(url)
        self._access = access
        self._connections = connections
        self._request_seconds = request_seconds
        self.retry_seconds = retry_seconds

    def call(self, method: str, path: str, body: object = None, *, ok: Collection[int] = ()) -> tuple[int, str]:
        """A request that may be sent again, until the store answers with success or one of the statuses `ok`."""
        sent = None if body is None else orjson.dumps(body)
        why: SinkUnavailable | None = None
        for _ in attempts(self.retry_seconds):
            try:
                return self.once(method, path, sent, ok=ok)
            except SinkUnavailable as busy:
                why = busy
        raise SinkUnavailable(f"{why}; tried for {self.retry_seconds:g} s", hint=why.hint if why else "") from why

    def once(self, method: str, path: str, body: bytes | None, *, ok: Collection[int] = ()) -> tuple[int, str]:
        where = f"{method} {path.partition('?')[0]}"
        try:
            status, headers, answer = self._connection.perform_request(method, path, body=body, ignore=range(300, 600))
        except NoConnection as exc:  # TLS fails with one of its kinds
            if self._url.startswith("https") and (refused := refusal(str(exc))):
                raise SinkMisconfigured(f"OpenSearch at {self.address}: {refused}", hint=f"{CERTIFICATES}.") from exc
            # Only the kind of failure: the text of some names the URL.
            kind = type(exc.info if isinstance(exc.info, Exception) else exc).__name__
            raise SinkUnavailable(f"OpenSearch at {self.address} does not answer {where}: {kind}", hint=AWAY) from exc
        if not is_whole(status, headers):
            what = f"OpenSearch at {self.address} broke off its answer to {where}"
            raise SinkUnavailable(what, hint="see the log of the server, and of a proxy before it")
        if status < 300 or status in ok:
            if status != TOO_LARGE and not _is_json(headers):
                raise stranger(where, status)
            return status, answer
        if status in BUSY:
            what = f"OpenSearch answers {where} with {status} {error_type(answer)}"
            raise SinkUnavailable(what, hint="It is overloaded or starting: its log says which.")
        hint = PERMISSIONS if status in (401, 403) else WRONG_URL
        what = f"OpenSearch refuses {where}: {status} {error_type(answer)}{missing_right(answer)}"
        raise SinkMisconfigured(what, hint=hint)

    def require_opensearch(self) -> None:
        """Raises where it is another kind of server, or too old."""
        _, answer = self.look("/")
        version = answer.get("version")
        if not isinstance(version, dict) or version.get("distribution") != "opensearch":
            raise SinkMisconfigured(f"The server at {self.address} is not OpenSearch", hint=WRONG_URL)
        number = str(version.get("number"))
        if not number.partition(".")[0].isdecimal() or int(number.partition(".")[0]) < 2:
            raise SinkMisconfigured(f"OpenSearch {number} is too old", hint="Use 2.x or newer.")

    def look(self, path: str, *, ok: Collection[int] = ()) -> tuple[int, dict[str, Any]]:
        """What a preflight asks, once: who waits for it wants to know now. Raises where that is no JSON object."""
        status, answer = self.once("GET", path, None, ok=ok)
        try:
            found = orjson.loads(answer)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise SinkMisconfigured(f"The server at {self.address} is not OpenSearch", hint=WRONG_URL)
        return status, found

    def bulk(self, path: str, body: bytes) -> tuple[int, str]:
        """A bulk request: OpenSearch's answer on each item, or why it takes none of them (400, 404, TOO_LARGE)."""
        status, answer = self.once("POST", path, body, ok={400, 404, TOO_LARGE})
        if status != TOO_LARGE and not (is_bulk_answer(answer) if status == 200 else error_type(answer)):
            raise stranger(f"POST {path.partition('?')[0]}", status)
        return status, answer

    def index(self, alias: str) -> Index | None:
        """The one index behind an alias; None where there is no such alias. Cheap: no shard is asked."""
        path = f"/{alias}/_settings/index.uuid,index.number_of_shards?flat_settings=true"
        status, answer = self.call("GET", path, ok={404})
        if status == 404:
            return None
        entries = orjson.loads(answer)
        if len(entries) != 1:
            raise SinkMisconfigured(
                f"The alias `{alias}` leads to several indices: {', '.join(sorted(entries))}",
                hint="Somebody else gave it to another index: take it away there.",
            )
        ((name, found),) = entries.items()
        settings = found["settings"]
        return Index(name, settings["index.uuid"], int(settings["index.number_of_shards"]))

    def create(self, name: str, body: object) -> bool:
        """Make an index; False where it is there already."""
        status, answer = self.call("PUT", f"/{name}", body, ok={400})
        if status == 400 and (error := orjson.loads(answer)["error"])["type"] != "resource_already_exists_exception":
            # The operator's own settings and mapping are at fault, no row is: the server may be quoted.
            raise SinkMisconfigured(
                f"OpenSearch does not make the index `{name}`: {error['reason']}",
                hint="Correct `settings` or `mapping` of the follower, then `driftless apply`.",
            )
        return status != 400

    def close(self) -> None:
        self._connection.close()
        del self._connection

    @cached_property
    def _connection(self) -> _Connection:
        url = urlsplit(self._url)
        secure, access = url.scheme == "https", self._access
        return _Connection(
            host=url.hostname or "",
            port=url.port or (443 if secure else 9200),
            url_prefix=url.path,
            http_auth=(unquote(url.username), unquote(url.password or "")) if url.username else None,
            use_ssl=secure,
            ssl_context=client_tls(access.ca_certs, access.client_cert, access.client_key) if secure else None,
            headers={"authorization": access.authorization} if access.authorization else None,
            timeout=self._request_seconds,
            pool_maxsize=self._connections,
        )


class _Connection(Urllib3HttpConnection):
    """opensearch-py's connection, which would log bodies, so row values, and warn of every try that failed."""

    def log_request_success(self, *_: Any, **__: Any) -> None:
        pass

    def log_request_fail(self, *_: Any, **__: Any) -> None:
        pass


def _is_json(headers: Mapping[str, str]) -> bool:
    return headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


def stranger(where: str, status: int) -> SinkUnavailable:
    """An answer that OpenSearch does not give: it says nothing about documents, and is another one tomorrow."""
    return SinkUnavailable(
        f"{where} is answered with {status} by something that is not OpenSearch",
        hint="A proxy or firewall on the way answers in its place: let requests through, or correct `url`.",
    )


def error_type(answer: str) -> str:
    """The server's name for what is wrong; it never holds values."""
    try:
        error = orjson.loads(answer)["error"]
    except (ValueError, KeyError, TypeError):
        return ""
    return str(error["type"]) if isinstance(error, dict) else ""
