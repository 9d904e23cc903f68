"""Transactions of Kafka that stay open: whatever was committed behind one cannot be read before it ends."""

from __future__ import annotations

import time
from collections.abc import Mapping

from driftless.kafka.client import Kafka

OPEN_SECONDS = 20.0
"""How long one may be open before that is told: the connector ends each within a second."""


class OpenTransactionMonitor:
    """Cheap to ask again and again."""

    def __init__(self, kafka: Kafka, topics: Mapping[str, int]) -> None:
        """`topics`: with the number of their partitions."""
        self._kafka = kafka
        self._topics = topics
        self._look_at = 0.0
        self._held: dict[tuple[str, int], tuple[int, float]] = {}

    def blocked_by(self, said: str) -> str:
        """What keeps committed records from being read, where something does for long. `said`: the last answer."""
        now = time.monotonic()
        if now < self._look_at:
            return said
        self._look_at = now + OPEN_SECONDS / 4
        longest: tuple[float, str] = (0.0, "")
        committed = self._kafka.all_committed_ends(self._topics)
        written = self._kafka.written_ends(self._topics)
        for topic, ends in committed.items():
            for p, end in ends.items():
                place = (topic, p)
                if written[topic][p] <= end:
                    self._held.pop(place, None)
                    continue
                known = self._held.get(place)
                if known is None or known[0] != end:
                    known = self._held[place] = (end, now)
                longest = max(longest, (now - known[1], f"{topic}/{p}"))
        if longest[0] < OPEN_SECONDS:
            return ""
        return (
            f"a transaction of Kafka has been open on {longest[1]} for {longest[0]:.0f} s: what was committed after it "
            "cannot be read; find who writes there with `kafka-transactions.sh`, which can abort it"
        )
