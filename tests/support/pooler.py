"""What stands between clients and Postgres as a pooler does that gives all of them one session, a statement each.

Written as PgBouncer behaves with `pool_mode = transaction`: it names processes that the server does not have, and takes
no connection of the replication protocol.
"""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from psycopg.conninfo import conninfo_to_dict, make_conninfo

_SSL_REQUEST, _OTHER_PROCESS = 80877103, 4_000_000
_ENDS = (b"Q", b"S")
"""After these messages of a client the server answers, until it is ready for the next."""


@contextmanager
def pooled(dsn: str, *, shared: bool = True) -> Iterator[str]:
    """The DSN of a pooler before this server, until the block ends. `shared`: all clients have one session; else each
    has its own, as with `pool_mode = session`.
    """
    given = conninfo_to_dict(dsn)
    pooler = _Pooler((str(given["host"]), int(given["port"] or 5432)), shared=shared)
    threading.Thread(target=pooler.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield make_conninfo(dsn, host="127.0.0.1", port=pooler.server_address[1], sslmode="disable")
    finally:
        pooler.shutdown()
        pooler.server_close()


class _Pooler(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, server: tuple[str, int], *, shared: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Client)
        self._server, self._sessions = server, list[_Session]()
        self._shared = self._session() if shared else None

    def session(self) -> _Session:
        return self._shared or self._session()

    def _session(self) -> _Session:
        self._sessions.append(made := _Session(socket.create_connection(self._server, timeout=30)))
        return made

    def server_close(self) -> None:
        super().server_close()
        for session in self._sessions:
            session.connection.close()


@dataclass
class _Session:
    """`turn`: of the client that asks. `greeting`: what the server said to the first, once it was in."""

    connection: socket.socket
    turn: threading.Lock = field(default_factory=threading.Lock)
    greeting: bytes = b""


class _Client(socketserver.BaseRequestHandler):
    server: _Pooler

    def handle(self) -> None:
        with suppress(OSError):
            startup = self._startup()
            if b"\0replication\0" in startup:
                said = b"SFATAL\0C08P01\0Munsupported startup parameter: replication\0\0"
                self.request.sendall(b"E" + struct.pack("!I", len(said) + 4) + said)
                return
            session = self.server.session()
            with session.turn:
                if not session.greeting:
                    session.connection.sendall(startup)
                    session.greeting = self._logged_in(session.connection)
            self.request.sendall(session.greeting)
            while self._passed_on(session):
                pass

    def _startup(self) -> bytes:
        while True:
            (length,) = struct.unpack("!I", head := _exactly(self.request, 4))
            body = _exactly(self.request, length - 4)
            if struct.unpack("!I", body[:4])[0] != _SSL_REQUEST:
                return head + body
            self.request.sendall(b"N")

    def _logged_in(self, session: socket.socket) -> bytes:
        """What a client hears who is in; the first one proves to the server who it is."""
        heard = b""
        while not heard.endswith(b"Z\0\0\0\x05I"):
            kind, whole = _message(session)
            if kind == b"R" and whole[5:9] != bytes(4):
                self.request.sendall(whole)
                if whole[5:9] != struct.pack("!I", 12):  # the last word of SCRAM asks for no answer
                    session.sendall(_message(self.request)[1])
            elif kind == b"K":
                heard += b"K" + struct.pack("!III", 12, _OTHER_PROCESS, 1)
            else:
                heard += whole
        return heard

    def _passed_on(self, session: _Session) -> bool:
        """One statement, and its answer; False where the client goes."""
        asked, kind = b"", b""
        while kind not in _ENDS:
            kind, whole = _message(self.request)
            if kind == b"X":
                return False
            asked += whole
        with session.turn:
            session.connection.sendall(asked)
            while kind != b"Z":
                kind, whole = _message(session.connection)
                self.request.sendall(whole)
        return True


def _message(connection: socket.socket) -> tuple[bytes, bytes]:
    head = _exactly(connection, 5)
    return head[:1], head + _exactly(connection, struct.unpack("!I", head[1:])[0] - 4)


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        if not part:
            raise ConnectionResetError
        found += part
    return found
