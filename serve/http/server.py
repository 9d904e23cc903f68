"""The HTTP server: one process of its own, which gives way to whatever else the machine does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from driftless.errors import ConfigError
from serve.http.limits import CONNECTIONS, HEADER_BYTES, BoundedProtocol

_NICE = 10
_END_SECONDS = 2


@dataclass(frozen=True)
class Listening:
    """Where it listens. `certificate`, `key`: for TLS; None without."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.certificate is None else 'https'}://{host}:{self.port}"

    def bound(self) -> socket.socket:
        """The socket. Raises ConfigError where it cannot be had, or the certificate cannot be used."""
        if self.certificate is not None:
            _check_pair(self.certificate, self.key)
        try:
            family, *_, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
            found = socket.socket(family, socket.SOCK_STREAM)
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
        except OSError as exc:
            why = exc.strerror or str(exc)
            raise ConfigError(
                f"cannot listen on {self.host}:{self.port}: {why}",
                hint="another program has it, or it is no address of this machine: choose with --host and --port",
            ) from None
        return found


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The command says what signals do."""
        yield


def answer(app: Starlette, place: Listening, listening: socket.socket, started: Callable[[], None]) -> None:
    """Answer until SIGINT or SIGTERM. `listening`: the bound socket of the place."""
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    with contextlib.closing(listening):
        asyncio.run(_until_told(_Server(configured(app, place)), listening, started))


def configured(app: Starlette, place: Listening | None = None) -> uvicorn.Config:
    """How the server is set; without TLS where no place is given."""
    return uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=64,
        limit_concurrency=CONNECTIONS + 1,
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=_END_SECONDS,
        ssl_certfile=place.certificate if place else None,
        ssl_keyfile=place.key if place else None,
    )


async def _until_told(server: uvicorn.Server, listening: socket.socket, started: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()

    def end() -> None:
        server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    loop.call_soon(started)
    await server.serve([listening])


def _check_pair(certificate: Path, key: Path | None) -> None:
    """Raise ConfigError where they are no certificate and its key."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except OSError as exc:  # of which SSLError is one
        hint = "name a PEM file with the certificate and its chain, and one with the key"
        raise ConfigError(f"--certificate {certificate}: {exc.strerror or exc}", hint=hint) from None
