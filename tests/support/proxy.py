"""A TCP proxy that breaks connections the way networks do, on demand and so that a test can see that it did."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from tests.support.machine import until
from tests.support.network import Network, listen

FIRE_SECONDS = 60.0
"""How long a fault may take to be seen."""


class Proxy:
    """Stands between a client and a server on 127.0.0.1; the client uses `url`. For one in a `network` of its own it
    has the server's port.

    `lose_reply_to(mark)`: the next request that holds `mark` reaches the server, and when the server has answered, the
    connection is cut instead: it landed, and the answer was lost. `refuse`: as if the server were down, until `accept`.
    `hold`: requests are kept back until `let_go`. `delay`: seconds that every answer comes later. `truncate`: so many
    answers to come are cut off in the middle, with their connections. `faults` counts the answers lost, or cut off;
    `delayed` those that came late; `refuse` gives the connections that it cut.
    """

    def __init__(self, url: str, network: Network | None = None) -> None:
        self._target = urlsplit(url)
        self._network = network
        self._listener: socket.socket | None = None
        self._port = self._target.port or 0 if network else 0
        self._mark = b""
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self.faults = 0
        self.delay = 0.0
        self.delayed = 0
        self.truncate = 0

    def __enter__(self) -> Self:
        self.accept()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse()
        self._flowing.set()

    @property
    def url(self) -> str:
        user, at, _ = self._target.netloc.rpartition("@")
        return urlunsplit(self._target._replace(netloc=f"{user}{at}127.0.0.1:{self._port}"))

    @property
    def within(self) -> Sequence[str]:
        """Before a command, has it run where this proxy is reached."""
        return self._network.within if self._network else ()

    def lose_reply_to(self, mark: bytes) -> None:
        self._mark = mark

    def hold(self) -> None:
        self._flowing.clear()

    def let_go(self) -> None:
        self._flowing.set()

    @contextmanager
    def parted(self) -> Iterator[int]:
        """Nobody reaches the server meanwhile. Gives how many connections were cut: there must be some."""
        cut = self.refuse()
        try:
            yield cut
        finally:
            self.accept()
        assert cut, "nobody was connected"

    def answer_late(self, seconds: float, answers: int) -> int:
        """Return when at least so many answers have come so much later; how many they were."""
        before, self.delay = self.delayed, seconds
        try:
            until("answers to come late", lambda: self.delayed >= before + answers, FIRE_SECONDS)
        finally:
            self.delay = 0.0
        return self.delayed - before

    def cut_off(self, answers: int) -> None:
        """Return when so many answers have been cut off in the middle."""
        before, self.truncate = self.faults, answers
        until("answers to be cut off", lambda: self.faults >= before + answers, FIRE_SECONDS)

    def heal(self) -> None:
        """Do no harm any more."""
        self.delay, self.truncate, self._mark = 0.0, 0, b""
        self.let_go()
        if self._listener is None:
            self.accept()

    def accept(self) -> None:
        self._listener = (self._network.listen if self._network else listen)(self._port)
        self._port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, args=(self._listener,), daemon=True).start()

    def refuse(self) -> int:
        listener, self._listener = self._listener, None
        if listener:
            # A thread that waits in accept() keeps the socket alive after close(): wake it up first.
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            ends, self._open = self._open, set()
        for end in ends:
            _cut(end)
        return len(ends) // 2

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection((self._target.hostname or "", self._target.port or 0))
            except OSError:
                _cut(client)
                continue
            with self._lock:
                self._open |= {client, server}
            _Pair(self, client, server)

    def _cuts_off(self) -> bool:
        with self._lock:
            self.truncate -= (cuts := self.truncate > 0)
            self.faults += cuts  # whether or not anybody still waits for the half that is sent
            return cuts

    def _marked(self, seen: bytes) -> bool:
        """Whether this request is the one to lose; only once."""
        with self._lock:
            if not self._mark or self._mark not in seen:
                return False
            self._mark = b""
            return True


class _Pair:
    """One connection: a thread for each direction."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._lose = False
        threading.Thread(target=self._requests, daemon=True).start()
        threading.Thread(target=self._replies, daemon=True).start()

    def _requests(self) -> None:
        seen = b""
        try:
            while data := self._client.recv(1 << 16):
                self._proxy._flowing.wait(60)
                # A mark may come in two parts.
                seen = seen[-100:] + data
                if self._proxy._marked(seen):
                    self._lose = True
                self._server.sendall(data)
        except OSError:
            pass
        self._end()

    def _replies(self) -> None:
        try:
            while data := self._server.recv(1 << 16):
                if self._lose:
                    self._proxy.faults += 1
                    break
                if self._proxy.delay:
                    self._proxy.delayed += 1
                    time.sleep(self._proxy.delay)
                if self._proxy._cuts_off():
                    self._client.sendall(data[: len(data) // 2])
                    break
                self._client.sendall(data)
        except OSError:
            pass
        self._end()

    def _end(self) -> None:
        with self._proxy._lock:
            self._proxy._open -= {self._client, self._server}
        _cut(self._client)
        _cut(self._server)


def _cut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


@contextmanager
def broker_apart(kafka: str, others: Iterable[str]) -> Iterator[Proxy]:
    """The way to a broker in a network of its own, in which these other servers are reached too."""
    with ExitStack() as standing:
        network = standing.enter_context(Network())
        for url in others:
            standing.enter_context(Proxy(url, network))
        yield standing.enter_context(Proxy(f"kafka://{kafka}", network))
