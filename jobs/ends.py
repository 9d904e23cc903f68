"""Where logs end, asked once for all followers of a process: each of them wants to know it many times a second."""

from __future__ import annotations

import threading
import time

from driftless.errors import SourceError
from driftless.kafka import Kafka, Offsets

FRESH_SECONDS = 0.015
"""How old an answer may be that is given again."""
_WANTED_SECONDS = 1.0
"""For so long, a topic that was asked about is asked about together with others."""
_ALONE_SECONDS = 5.0
"""For so long each asks by itself, where one topic may be what keeps all from being answered."""


class Ends:
    """Committed ends. Any thread may ask; an error is raised for who asked, and for nobody else."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._lock = threading.Lock()
        self._wanted: dict[str, tuple[int, float]] = {}
        self._found: dict[str, Offsets] = {}
        self._found_at = self._alone_until = 0.0

    def committed(self, topic: str, partitions: int) -> Offsets:
        """As Kafka's `committed_ends`, at most so old."""
        with self._lock:
            now = time.monotonic()
            if now >= self._alone_until:
                self._wanted[topic] = (partitions, now)
                try:
                    return self._together(topic, now)
                except SourceError:
                    self._alone_until = now + _ALONE_SECONDS
        return self._kafka.committed_ends(topic, partitions)

    def _together(self, topic: str, now: float) -> Offsets:
        if topic not in self._found or now - self._found_at > FRESH_SECONDS:
            self._wanted = {t: (n, at) for t, (n, at) in self._wanted.items() if now - at < _WANTED_SECONDS}
            self._found, self._found_at = {}, now
            self._found = self._kafka.all_committed_ends({t: n for t, (n, _) in self._wanted.items()})
        return self._found[topic]
