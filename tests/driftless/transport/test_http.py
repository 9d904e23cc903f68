"""Answers of HTTP servers that are cut off, at every place: never taken for whole ones."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from connectors.debezium.connect import Connect
from driftless.config.models import ConnectConfig
from driftless.errors import SinkUnavailable, SourceError, SourceUnavailable
from driftless.sink import SinkContext
from sinks import open_sink
from sinks.opensearch.server import Access, OpenSearchServer
from tests.sinks.store_case import upsert, writes

BODY = b'{"took":12,"errors":false}'
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 26\r\n\r\n" + BODY
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: application/json\r\n\r\n"
    b"8\r\n" + BODY[:8] + b"\r\n12\r\n" + BODY[8:] + b"\r\n0\r\n\r\n"
)


@contextmanager
def answering(pieces: list[bytes]) -> Iterator[str]:
    """A server that gives each request the next of these, and closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for piece in pieces:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(piece)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)
        assert not thread.is_alive(), "not every answer was asked for"


def test_a_worker_that_can_change_nothing_any_more_is_told_at_once() -> None:
    """Asking again for a minute, as for a worker that waits for its group, would change nothing."""
    said = b'{"error_code":500,"message":"Cannot produce to config topic without claiming write privileges first"}'
    head = b"HTTP/1.1 500 Error\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(said)
    with answering([head + said]) as url:
        with pytest.raises(SourceError, match="without claiming write privileges") as raised:
            Connect(ConnectConfig(url=url)).restart("shop")
        assert raised.value.hint == "start the Connect worker again"


@pytest.mark.parametrize(
    ("whole", "end"), [(PLAIN, len(PLAIN)), (CHUNKED, CHUNKED.rindex(b"0"))], ids=["length", "chunked"]
)
def test_an_answer_that_is_cut_off_is_no_answer(whole: bytes, end: int) -> None:
    """`end`: where nothing of the body is missing any more."""
    cuts = [whole[:at] for at in range(end)]
    with answering([*cuts, whole]) as url:
        server = OpenSearchServer(url, access=Access(), connections=1, request_seconds=5, retry_seconds=0)
        for cut in cuts:
            with pytest.raises(SinkUnavailable, match=r"OpenSearch at \S+ (broke off|does not).* POST /items/_bulk"):
                print(cut, server.once("POST", "/items/_bulk", b"{}"))
        assert server.once("POST", "/items/_bulk", b"{}") == (200, BODY.decode())
    with answering([*cuts, whole]) as url:
        connect = Connect(ConnectConfig(url=url))
        for cut in cuts:
            with pytest.raises(SourceUnavailable, match="Kafka Connect at"):
                print(cut, connect.config("shop"))
        found: object = connect.config("shop")
        assert found == {"took": 12, "errors": False}


@pytest.mark.timeout(30)
def test_a_connect_that_sleeps_is_waited_for_no_longer_than_asked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connect = Connect(ConnectConfig(url=f"http://127.0.0.1:{listener.getsockname()[1]}"), patience=0.2)
        with pytest.raises(SourceUnavailable, match="cannot be reached"):
            connect.state("shop")


STRANGERS = {
    "a page": (400, "text/html", b"<html><h1>400 Bad Request</h1> SECRET</html>"),
    "JSON": (400, "application/json", b'{"message":"no route SECRET"}'),
    "another page": (404, "text/html", b"<html>not found</html>"),
    "a portal": (200, "text/html", b"<html>please log in</html>"),
    "its own JSON": (200, "application/json; charset=utf-8", b'{"message":"welcome"}'),
}


@pytest.mark.parametrize("kind", STRANGERS)
def test_who_answers_in_the_place_of_opensearch_has_no_document_quarantined(kind: str) -> None:
    status, content, body = STRANGERS[kind]
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {content}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with answering([head + body]) as url:
        config = {"url": url, "index": "products", "retry_seconds": 0}
        sink = open_sink("opensearch", config, SinkContext("shop", "product-search", ("id",)))
        with pytest.raises(SinkUnavailable, match=f"is answered with {status} by something that is not") as raised:
            sink.apply(1, writes(*(upsert(str(n), n, {"n": n}) for n in range(1, 50))))
        sink.close()
    assert "`url`" in raised.value.hint
    assert "SECRET" not in str(raised.value)
