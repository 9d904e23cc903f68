"""What keeps positions from being claimed is told, and told no more when it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from driftless.errors import SourceUnavailable
from driftless.facts.state import State
from driftless.kafka.client import Kafka, Offsets
from driftless.marker import Marker
from jobs.log import frontier
from jobs.log.frontier import FrontierReader


@dataclass
class Message:
    """One marker, as Debezium writes it."""

    def error(self) -> None:
        return None

    def key(self) -> bytes:
        return b'{"prefix": "driftless"}'

    def value(self) -> bytes:
        return b'{"op": "m", "source": {"lsn": 7, "ts_us": 5000000, "txId": 1}}'

    def offset(self) -> int:
        return 0

    def timestamp(self) -> tuple[int, int]:
        return 1, 5000


class Consumer:
    """Gives one message, again for each life."""

    def __init__(self) -> None:
        self._left = [Message()]

    def assign(self, places: object) -> None: ...

    def poll(self, seconds: float) -> Message | None:
        time.sleep(min(seconds, 0.01))
        return self._left.pop() if self._left else None

    def consume(self, most: int, seconds: float) -> list[Message]:  # noqa: ARG002
        return []

    def close(self) -> None: ...


@dataclass
class Brokers:
    """Kafka without records, but for the marker."""

    ends: dict[str, int] = field(default_factory=dict)

    def consumer(self, **_: object) -> Consumer:
        return Consumer()

    def beginnings(self, topic: str, partitions: int) -> Offsets:  # noqa: ARG002
        return {0: 0}

    def all_committed_ends(self, topics: dict[str, int]) -> dict[str, Offsets]:
        return {topic: {0: 0} for topic in topics}

    def written_ends(self, topics: dict[str, int]) -> dict[str, Offsets]:
        return {topic: {0: self.ends.get(topic, 0)} for topic in topics}


def soon(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    return true()


def test_readings_that_cannot_be_accounted_for_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a transaction is open in the log of one table, the followers of all others wait too."""
    monkeypatch.setattr(frontier, "OPEN_SECONDS", 0.5)
    reader = FrontierReader(cast("Kafka", Brokers()), "shop")
    open_still = [SourceUnavailable("shop.items: a transaction is still open after 0.5 s")]

    def account(written: float) -> None:
        assert written == 5.0
        if open_still:
            raise open_still[0]

    monkeypatch.setattr(cast("Any", reader)._control, "read", lambda: State({}))
    readings = cast("Any", reader)._readings
    monkeypatch.setattr(readings, "hear", lambda: True)
    monkeypatch.setattr(readings, "account", account)
    reader.start()
    try:
        assert soon(lambda: bool(reader.blocked_by)), "it is not reported"
        told = "follower positions cannot advance: shop.items: a transaction is still open after 0.5 s"
        assert (reader.blocked_by, reader.newest) == (told, None)
        open_still.clear()
        assert soon(lambda: not reader.blocked_by), "it is still reported"
        assert reader.newest == Marker(7, 5.0)
    finally:
        reader.stop()
        reader.join(5)
