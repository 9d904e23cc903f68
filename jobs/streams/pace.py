"""How often the queries of one process look for events, so that small batches do not take the machine from others."""

from __future__ import annotations

import threading
from typing import ClassVar

from pyspark.sql.streaming.listener import StreamingQueryProgress

SHARE = 0.35
"""Of all cores, what the queries of a process take together while few events come: a batch costs what Spark needs to
plan and commit it, about a third of a second of one core, however few events it has.
"""
FEW_EVENTS = 2_000
LONGEST_SECONDS = 5.0


class QueryPace:
    """Of one query. It counts while it is entered. `cores`: those of all executors."""

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _active: ClassVar[int] = 0

    def __init__(self, cores: int) -> None:
        self._share = SHARE * cores
        self._busy = self._rested = 0.0

    def __enter__(self) -> QueryPace:
        self._count(1)
        return self

    def __exit__(self, *_: object) -> None:
        self._count(-1)

    @classmethod
    def _count(cls, change: int) -> None:
        with cls._lock:
            cls._active += change

    def ended(self, told: StreamingQueryProgress) -> None:
        """Take in how long a batch took. One of many events is followed by the next at once."""
        took = max(0.0, told.batchDuration / 1000 - self._rested)
        self._busy = took if told.numInputRows < FEW_EVENTS else 0.0

    def rest(self, stop: threading.Event) -> None:
        """Wait for as long as keeps all queries of the process within their share, or until `stop` is set."""
        self._rested = min(LONGEST_SECONDS, self._busy * max(0.0, self._active / self._share - 1))
        stop.wait(self._rested)
