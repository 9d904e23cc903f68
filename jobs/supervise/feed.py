"""The control topic as a run knows it: read by one thread, looked at by all, and each is woken by what concerns it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from confluent_kafka import KafkaException, Message

from driftless.control.request import ControlReader
from driftless.control.topic import STRANGE, read_fact
from driftless.errors import SyncError
from driftless.facts.state import Fact, State
from jobs.threads.background import Background

_log = logging.getLogger(__name__)
POLL_SECONDS = 0.5
"""How often it is asked whether it is over: what arrives is heard of at once."""
Concerns = Callable[[str], bool]


class ControlFeed(Background):
    """The reader is the thread's own. `state` is replaced whole with everything that arrives, so that whoever looks at
    it sees one moment.

    What this process has written itself is known when it is written; what is read later never takes that back.
    """

    def __init__(self, reader: ControlReader, failed: Callable[[SyncError], None]) -> None:
        super().__init__("control topic", failed)
        self._reader = reader
        self._lock = threading.Lock()
        self._state = reader.state
        self._forgotten: dict[str, int] = {}
        """The offsets at which this process has forgotten facts."""
        self._listeners: list[tuple[Concerns, Callable[[], None]]] = []
        self._concerned: dict[str, list[Callable[[], None]]] = {}
        self._ended = threading.Event()

    @property
    def state(self) -> State:
        return self._state

    def listen(self, concerns: Concerns, wake: Callable[[], None]) -> None:
        """Call `wake`, in any thread, with every record whose key `concerns`: always the same for one key."""
        with self._lock:
            self._listeners.append((concerns, wake))
            self._concerned.clear()

    def take(self, messages: Iterable[Message], *, own: bool = True) -> None:
        """Take in records. `own`: this process wrote them."""
        with self._lock:
            arrived: dict[str, Fact | None] = {}
            for message in messages:
                key, offset = (message.key() or b"").decode(errors="replace"), message.offset() or 0
                known = arrived.get(key) or self._state.facts.get(key)
                if offset <= max(known.offset if known else -1, self._forgotten.get(key, -1)):
                    continue  # most of what is read: this process wrote it
                strange = arrived.get(STRANGE) or self._state.facts.get(STRANGE)
                name, fact = read_fact(message, {} if strange is None else {STRANGE: strange})
                arrived[name] = fact
                if fact is None and own:
                    self._forgotten[key] = offset
                elif fact is not None:
                    self._forgotten.pop(key, None)
            if not arrived:
                return
            self._state = self._state.having(arrived)
            concerned = {wake for key in arrived for wake in self._concerned_by(key)}
        for wake in concerned:
            wake()

    def _concerned_by(self, key: str) -> list[Callable[[], None]]:
        found = self._concerned.get(key)
        if found is None:
            found = self._concerned[key] = [wake for concerns, wake in self._listeners if concerns(key)]
        return found

    def work(self) -> None:
        with self._reader:
            while not self._ended.is_set():
                try:
                    self.take(self._reader.arrived(POLL_SECONDS), own=False)
                except (SyncError, KafkaException) as exc:
                    _log.info("the control topic cannot be read: %s", exc)
                    self._ended.wait(1.0)

    def stop(self) -> None:
        """Let it end, without waiting for that."""
        self._ended.set()
