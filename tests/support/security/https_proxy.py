"""A proxy that speaks TLS and asks for a certificate and a login, before a server that does neither."""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.support.security.certificates import Certificates


@contextmanager
def https_proxy(url: str, files: Certificates, authorization: str) -> Iterator[str]:
    """Its URL. Who has no certificate of the CA gets no connection; who has another `Authorization` gets 401."""
    target = urlsplit(url)

    class Passing(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Authorization") != authorization:
                self.answer(401, b'{"message":"who are you?"}', {"Content-Type": "application/json"})
                return
            onward = http.client.HTTPConnection(target.hostname or "", target.port, timeout=90)
            kept = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "authorization", "connection")}
            onward.request(self.command, self.path, body or None, kept)
            found = onward.getresponse()
            headers = {k: v for k, v in found.getheaders() if k.lower() in ("content-type", "content-encoding")}
            self.answer(found.status, found.read(), headers)
            onward.close()

        do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = pass_on  # noqa: N815

        def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    context = _context(files)

    class Server(ThreadingHTTPServer):
        def process_request_thread(self, request: Any, client_address: Any) -> None:
            if (entered := _entered(context, request)) is not None:
                super().process_request_thread(entered, client_address)

    server = Server(("127.0.0.1", 0), Passing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def basic(name: str, password: str) -> str:
    """The header by which one logs in."""
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@contextmanager
def tls_tunnel(url: str, files: Certificates) -> Iterator[str]:
    """The same for bytes of any kind, with no login: the address of a listener before the server of a URL."""
    target = urlsplit(url)
    context, listener = _context(files), socket.create_server(("127.0.0.1", 0))

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def serve(plain: socket.socket) -> None:
        if (client := _entered(context, plain)) is None:
            return
        with suppress(OSError), client:
            onward = socket.create_connection((target.hostname or "", target.port or 0))
            back = threading.Thread(target=pump, args=(onward, client), daemon=True)
            back.start()
            pump(client, onward)
            back.join()
            onward.close()

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


def _entered(context: ssl.SSLContext, plain: socket.socket) -> ssl.SSLSocket | None:
    """The connection of a client that is let in. One that is not gets to read the reason before it is closed: what it
    has already sent is read, or the close would be a reset that overtakes the reason.
    """
    kept = plain.dup()
    try:
        return context.wrap_socket(plain, server_side=True)
    except OSError:
        with suppress(OSError):
            kept.shutdown(socket.SHUT_WR)
            kept.settimeout(5)
            while kept.recv(65536):
                pass
        return None
    finally:
        kept.close()


def _context(files: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.broker, files.broker_key)
    context.load_verify_locations(files.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    return context
