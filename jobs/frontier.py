"""The frontier: from markers in the log to source positions that a follower can claim."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from driftless import names
from driftless.errors import SourceError
from driftless.kafka import Kafka, Offsets
from driftless.marker import Marker, parse_marker

_log = logging.getLogger(__name__)
_KEPT = 512


@dataclass(frozen=True)
class Frontier:
    """Who has applied `ends` of a topic has applied every commit at or before the marker's LSN."""

    marker: Marker
    ends: Mapping[str, Offsets]


class Pending:
    """A follower's frontiers that it has not reached yet. When too many wait, every second one is forgotten:
    positions are then claimed in larger steps, never wrongly.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._lock = threading.Lock()
        self._waiting: deque[Frontier] = deque()

    def add(self, frontier: Frontier) -> None:
        with self._lock:
            if len(self._waiting) >= _KEPT:
                self._waiting = deque(list(self._waiting)[1::2])
            self._waiting.append(frontier)

    def reached(self, positions: Offsets) -> Marker | None:
        """The newest marker whose ends these positions have passed; None where no further one is."""
        marker = None
        with self._lock:
            while self._waiting and all(positions[p] >= end for p, end in self._waiting[0].ends[self._topic].items()):
                marker = self._waiting.popleft().marker
        return marker


class FrontierReader(threading.Thread):
    """Reads markers and hands each follower the frontier that follows from it.

    Ends are asked for after the marker was read, and without regard to transactions: the commit of the very
    transaction that carried the marker may not have reached the other partitions yet, so their committed ends
    could still lie before rows that the marker promises. What has been written lies behind them.
    """

    def __init__(self, kafka: Kafka, pipeline: str, topics: Mapping[str, int]) -> None:
        super().__init__(name="frontiers", daemon=True)
        self._kafka = kafka
        self._topic = names.message_topic(pipeline)
        self._topics = dict(topics)
        self._pending: list[Pending] = []
        self._stop = threading.Event()

    def follow(self, topic: str) -> Pending:
        """Frontiers for a follower of this topic. Call before `start`."""
        pending = Pending(topic)
        self._pending.append(pending)
        return pending

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        while not self._stop.is_set():
            consumer = self._kafka.consumer()
            try:
                self._read(consumer)
            except (SourceError, KafkaException) as exc:
                _log.info("markers cannot be read, trying again: %s", exc)
                self._stop.wait(1.0)
            finally:
                consumer.close()

    def _read(self, consumer: Consumer) -> None:
        # The newest marker that is there already counts too: a follower can be built while the source is down.
        end = self._kafka.committed_ends(self._topic, 1)[0]
        begin = self._kafka.beginnings(self._topic, 1)[0]
        consumer.assign([TopicPartition(self._topic, 0, max(begin, end - 64))])
        while not self._stop.is_set():
            messages = consumer.consume(1000, 0.2)
            for message in messages:
                error = message.error()
                if error is not None and not error.retriable():
                    raise SourceError(f"{self._topic}: {error.str()}")
            found = (parse_marker(m.value() or b"{}") for m in messages if m.error() is None)
            markers = [marker for marker in found if marker is not None]
            if markers:
                frontier = Frontier(markers[-1], self._kafka.written_ends(self._topics))
                for pending in self._pending:
                    pending.add(frontier)
