"""What one client may take of the server: connections, time, bytes. Uvicorn bounds the headers of a request alone."""

from __future__ import annotations

from asyncio import TimerHandle, Transport
from typing import cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS = 256
"""Connections at once; one more is closed as soon as it is made. A browser has six, a Prometheus one."""
HEADER_BYTES = 16 << 10
PATIENCE_SECONDS = 10.0
"""After so long without any progress, a connection is closed: a request that is not finished, an answer not taken."""


class BoundedProtocol(H11Protocol):
    """One connection, which is looked at now and then, and closed where it does not get on."""

    _timer: TimerHandle | None = None
    _unsent = 0
    _waited = False

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            transport.abort()
            return
        self._timer = self.loop.call_later(PATIENCE_SECONDS, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self.transport.is_closing():
            super().data_received(data)

    def _look(self) -> None:
        """Close it where it stood still since the last look; look again later otherwise."""
        unsent, self._unsent = self._unsent, self.transport.get_write_buffer_size()
        waits = self._waits_for_client
        stuck = (unsent > 0 and self._unsent >= unsent) or (waits and self._waited)
        self._waited = waits
        if stuck or self.transport.is_closing():
            self.transport.abort()
            return
        self._timer = self.loop.call_later(PATIENCE_SECONDS, self._look)

    @property
    def _waits_for_client(self) -> bool:
        """Whether a request has been begun and is not whole, or none has come at all."""
        cycle = cast("object | None", self.cycle)
        return cycle is None or self.conn.their_state is h11.SEND_BODY
