"""An address that leads to another kind of server: every answer ends in a message that names it, not in a traceback."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from connectors.debezium.connect import Connect
from connectors.postgres.client import Postgres
from driftless.config.models import ConnectConfig
from driftless.errors import ConfigError, SinkMisconfigured, SinkUnavailable, SyncError
from driftless.sink import SinkContext
from sinks import open_sink


def http(body: object, status: str = "200 OK") -> bytes:
    text = (body if isinstance(body, str) else json.dumps(body)).encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n".encode() + text


ANSWERS = {
    "HTML": http("<html><body>Welcome to nginx!</body></html>"),
    "HTML that is not found": http("<html>not found</html>", "404 Not Found"),
    "an empty list": http([]),
    "an empty object": http({}),
    "null": http(None),
    "a number": http(7),
    "Connect's own": http({"version": "4.3.0", "commit": "x", "kafka_cluster_id": "y"}),
    "an error of OpenSearch": http({"error": {"type": "x"}, "status": 404}, "404 Not Found"),
    "Elasticsearch's own": http({"version": {"number": "8.1.0"}, "tagline": "You Know, for Search"}),
    "fields of other types": http({"connector": 1, "tasks": 2, "offsets": 3, "configs": 4, "version": {"number": {}}}),
    "an offset of another form": http({"offsets": [{"offset": 7}], "connector": {}, "tasks": [{}]}),
    "a refusal": http("denied", "403 Forbidden"),
    "another place": http("", "301 Moved Permanently"),
    "Redis's own": b"-ERR wrong number of arguments\r\n",
    "Postgres's own": b"N",
    "bytes": bytes(range(256)) * 4,
    "nothing": b"",
}


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A server that says the same to whoever comes, and hangs up."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.settimeout(2)
            try:
                self.request.recv(65536)
                self.request.sendall(answer)
            except OSError:
                pass

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


CONTEXT = SinkContext("shop", "a", ("id",))
STORES: dict[str, Callable[[str], dict[str, object]]] = {
    "opensearch": lambda at: {"url": f"http://u:hunter2@{at}", "index": "items"},
    "redis": lambda at: {"url": f"redis://u:hunter2@{at}/0", "key": "item:{id}"},
}
ASKED: dict[str, Callable[[Connect], object]] = {
    "its state": lambda connect: connect.state("x"),
    "its position": lambda connect: connect.position("x"),
    "its settings": lambda connect: connect.config("x"),
    "what it validates": lambda connect: connect.validate({"connector.class": "a.B"}),
}


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("kind", STORES)
def test_a_stores_url(kind: str, answer: str) -> None:
    with answering(ANSWERS[answer]) as at:
        entry = {**STORES[kind](at), "request_seconds": 2, "retry_seconds": 0}
        sink = open_sink(kind, entry, CONTEXT)
        with suppress(SinkMisconfigured, SinkUnavailable):
            sink.rehearse()
        with pytest.raises((SinkMisconfigured, SinkUnavailable)) as refused:
            sink.check()
        assert at in str(refused.value) or refused.value.hint, refused.value
        assert "hunter2" not in str(refused.value)
        sink.close()


@pytest.mark.parametrize("answer", ANSWERS)
def test_connects_url(answer: str) -> None:
    with answering(ANSWERS[answer]) as at:
        for name, ask in ASKED.items():
            connect = Connect(ConnectConfig(url=f"http://u:hunter2@{at}"), patience=2)
            told = ""
            try:
                found = ask(connect)
            except SyncError as exc:
                told = str(exc)
            if told:
                assert at in told, (name, told)
                assert "hunter2" not in told
            else:
                assert found in (None, []) or isinstance(found, dict), (name, found)


@pytest.mark.parametrize("answer", ["HTML", "Redis's own", "bytes", "nothing"])
def test_the_dsn(answer: str) -> None:
    with answering(ANSWERS[answer]) as at:
        host, port = at.split(":")
        with pytest.raises(SyncError) as refused:
            Postgres(f"postgresql://u:hunter2@{host}:{port}/x", patience=2)
        assert at in str(refused.value)
        assert "hunter2" not in str(refused.value)


def test_a_store_that_refuses_connections_is_not_waited_for() -> None:
    for kind, entry in STORES.items():
        sink = open_sink(kind, {**entry("127.0.0.1:1"), "retry_seconds": 600}, CONTEXT)
        with pytest.raises(SinkUnavailable, match=r"at \w+://127.0.0.1:1.* does not answer") as refused:
            sink.check()
        assert "Is the server running" in refused.value.hint
        sink.close()


def test_a_wrong_password_is_no_outage() -> None:
    from driftless.config.address import is_refusal

    assert is_refusal('FATAL:  password authentication failed for user "u"')
    assert is_refusal('FATAL:  database "x" does not exist')
    assert not is_refusal("FATAL:  the database system is starting up")
    assert not is_refusal("Connection refused")
    assert ConfigError is not None
