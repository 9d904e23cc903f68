"""What one client may take: connections, time, bytes. Against the real server."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from serve.http import limits as http_limits
from serve.http.limits import CONNECTIONS, HEADER_BYTES
from tests.serve.service import served
from tests.support.machine import until


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(http_limits, "PATIENCE_SECONDS", 0.3)
    with served() as port:
        yield port


def answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def is_closed(peer: socket.socket) -> bool:
    """Whether the server has closed it, which is known at once."""
    peer.setblocking(False)
    try:
        return peer.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /status HTTP/1.1\r\nhost: a\r\n", b"POST /status HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nabc"],
    ids=["nothing", "half of its headers", "half of its body"],
)
def test_a_client_that_does_not_finish_its_request_is_closed(port: int, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(sent)
        until("the server to close it", lambda: is_closed(peer) if not sent.endswith(b"abc") else answered(peer), 20)
    assert answers(port)


def answered(peer: socket.socket) -> bool:
    """Whether everything that comes has come: a refusal, then the end."""
    peer.settimeout(5)
    try:
        while peer.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


def test_a_client_that_does_not_take_its_answer_is_closed(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        begun = time.monotonic()
        with pytest.raises(OSError, match=r"reset|Broken pipe"):  # noqa: PT012
            while time.monotonic() - begun < 60:
                peer.sendall(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n" * 50)
                time.sleep(0.05)
    assert answers(port)


def test_more_connections_than_that_are_closed_and_it_answers_again(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "PATIENCE_SECONDS", 3.0)
    with ExitStack() as ending:
        peers = [ending.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(CONNECTIONS + 50)]
        until("some to be closed", lambda: sum(map(is_closed, peers)) >= 50, 20)
    until("it to answer", lambda: answers(port), 20)


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /" + b"a" * (HEADER_BYTES + 1) + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * HEADER_BYTES,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 50,
        b"GET /status HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
        b"GET /status HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        b"\0" * 100_000,
    ],
)
def test_a_bad_or_huge_request_is_refused_and_nothing_else_happens(port: int, request_: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.settimeout(20)
        said = b""
        try:
            peer.sendall(request_)
            while some := peer.recv(65536):
                said += some
        except OSError:
            pass
    assert said == b"" or said.startswith((b"HTTP/1.1 400", b"HTTP/1.1 4"))
    assert answers(port)
