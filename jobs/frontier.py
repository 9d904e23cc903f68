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
        self.topic = topic
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
            while self._waiting and all(positions[p] >= end for p, end in self._waiting[0].ends[self.topic].items()):
                marker = self._waiting.popleft().marker
        return marker


class FrontierReader(threading.Thread):
    """Reads markers and hands each follower the frontier that follows from it.

    Ends are asked for after the marker was read, and without regard to transactions: the commit of the very
    transaction that carried the marker may not have reached the other partitions yet, so their committed ends
    could still lie before rows that the marker promises. What has been written lies behind them.
    """

    def __init__(self, kafka: Kafka, pipeline: str) -> None:
        super().__init__(name="frontiers", daemon=True)
        self._kafka = kafka
        self._topic = names.message_topic(pipeline)
        self._lock = threading.Lock()
        self._topics: dict[str, int] = {}
        self._pending: list[Pending] = []
        self._newest: Frontier | None = None
        self._ended = threading.Event()

    def follow(self, topic: str, partitions: int) -> Pending:
        """Frontiers for one more follower of this topic, beginning with the newest that is known."""
        pending = Pending(topic)
        with self._lock:
            self._topics[topic] = partitions
            self._pending.append(pending)
            if self._newest is not None and topic in self._newest.ends:
                pending.add(self._newest)
        return pending

    def leave(self, pending: Pending) -> None:
        """No more frontiers for this one."""
        with self._lock:
            self._pending.remove(pending)

    def stop(self) -> None:
        self._ended.set()

    def run(self) -> None:
        while not self._ended.is_set():
            consumer = self._kafka.consumer()
            try:
                self._read(consumer)
            except (SourceError, KafkaException) as exc:
                _log.info("markers cannot be read, trying again: %s", exc)
                self._ended.wait(1.0)
            finally:
                consumer.close()

    def _read(self, consumer: Consumer) -> None:
        # The newest marker that is there already counts too: a follower can be built while the source is down.
        end = self._kafka.committed_ends(self._topic, 1)[0]
        begin = self._kafka.beginnings(self._topic, 1)[0]
        consumer.assign([TopicPartition(self._topic, 0, max(begin, end - 64))])
        while not self._ended.is_set():
            messages = consumer.consume(1000, 0.2)
            for message in messages:
                error = message.error()
                if error is not None and not error.retriable():
                    raise SourceError(f"{self._topic}: {error.str()}")
            found = (parse_marker(m.value() or b"{}") for m in messages if m.error() is None)
            markers = [marker for marker in found if marker is not None]
            self._tell(markers[-1] if markers else None)

    def _tell(self, marker: Marker | None) -> None:
        """Hand out the frontier of a new marker; or that of the newest, for a topic that was not followed before."""
        with self._lock:
            topics = dict(self._topics)
            newest = self._newest
        if marker is None and newest is not None and topics.keys() - newest.ends.keys():
            marker = newest.marker
        if marker is None:
            return
        frontier = Frontier(marker, self._kafka.written_ends(topics) if topics else {})
        with self._lock:
            self._newest = frontier
            for pending in self._pending:
                if pending.topic in frontier.ends:
                    pending.add(frontier)
