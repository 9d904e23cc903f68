"""The frontier: from markers in the log to source positions that a follower can claim."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from math import inf

from confluent_kafka import Consumer, KafkaException, TopicPartition

from driftless import names
from driftless.control.strangers import Tally
from driftless.control.topic import Control
from driftless.errors import SourceError, SyncError
from driftless.facts.epochs import TopicLog
from driftless.facts.state import State
from driftless.facts.trust import Trust
from driftless.kafka.client import TAIL, Kafka, Offsets
from driftless.kafka.errors import unreadable
from driftless.marker import Marker, Stranger, Truncation
from jobs.brokers.open_transactions import OPEN_SECONDS, OpenTransactionMonitor
from jobs.log.resnapshots import Readings
from jobs.threads.background import Background

_log = logging.getLogger(__name__)
_KEPT = 512
TELL_SECONDS = 1.0
"""How often followers hear of markers that nobody waits for: each asks where all their logs end."""
POLL_SECONDS = 0.5
"""How often it is looked for new readings where no marker comes: one that comes is heard of at once."""


@dataclass(frozen=True)
class Frontier:
    """Who has applied `ends` of a topic has applied every commit at or before the marker's LSN."""

    marker: Marker
    ends: Mapping[str, Offsets]
    written: float = inf
    """When the marker was written to Kafka, by the clock of the Connect worker."""


class Pending:
    """A follower's frontiers that it has not reached yet. When too many wait, every second one is forgotten:
    positions are then claimed in larger steps, never wrongly.

    `lsn`, `read`: where the epoch that it follows begins. No position is claimed beyond a later TRUNCATE, or a later
    reading of all tables: what is gone since is still there; nor one from before the reading that it began with.
    """

    def __init__(self, topic: str, partitions: int, lsn: int = 0, read: float = 0.0) -> None:
        self.topic = topic
        self.partitions = partitions
        self.lsn = lsn
        self.read = read
        self._lock = threading.Lock()
        self._waiting: deque[Frontier] = deque()
        self.heed: Callable[[Marker], None] = lambda _: None
        """Called with the marker of each new one."""

    def add(self, frontier: Frontier) -> None:
        with self._lock:
            if len(self._waiting) >= _KEPT:
                self._waiting = deque(list(self._waiting)[1::2])
            self._waiting.append(frontier)
        self.heed(frontier.marker)

    @property
    def none(self) -> bool:
        """Whether no position waits to be claimed."""
        with self._lock:
            return not self._waiting

    @property
    def ends(self) -> Offsets:
        """Where the log had been written to when the next marker was read; empty where no position waits."""
        with self._lock:
            return dict(self._waiting[0].ends[self.topic]) if self._waiting else {}

    def reached(self, positions: Offsets, most: float = inf) -> Marker | None:
        """The newest marker whose ends these positions have passed, none beyond the LSN `most`; None where no further
        one is. It is awaited where one of those before it is.
        """
        marker: Marker | None = None
        with self._lock:
            for passed in self._passed(positions):
                if passed.lsn > most:
                    break
                marker = _later(marker, self._waiting.popleft().marker)
        return marker

    def passed(self, positions: Offsets) -> list[Marker]:
        """All markers whose ends these positions have passed. They stay until they are `reached`."""
        with self._lock:
            return self._passed(positions)

    def _passed(self, positions: Offsets) -> list[Marker]:
        def passed(frontier: Frontier) -> bool:
            return all(positions[p] >= end for p, end in frontier.ends[self.topic].items())

        return [frontier.marker for frontier in takewhile(passed, self._waiting)]


def _later(before: Marker | None, marker: Marker) -> Marker:
    """A marker in place of one before it."""
    return replace(marker, awaited=marker.awaited or (before is not None and before.awaited))


class FrontierReader(Background):
    """Reads markers and hands each follower the frontier that follows from it.

    Ends are asked for after the marker was read, and without regard to transactions: the commit of the very
    transaction that carried the marker may not have reached the other partitions yet, so their committed ends
    could still lie before rows that the marker promises. What has been written lies behind them.
    """

    def __init__(self, kafka: Kafka, pipeline: str, failed: Callable[[SyncError], None] = lambda _: None) -> None:
        """`failed`: is told of what has ended it; without it nobody can claim a further position."""
        super().__init__("frontiers", failed)
        self._kafka = kafka
        self._pipeline = pipeline
        self._topic = names.message_topic(pipeline)
        self._lock = threading.Lock()
        self._pending: list[Pending] = []
        self._newest: Frontier | None = None
        self._read_marker: Marker | None = None
        self._truncations: dict[str, Truncation] = {}
        self._readings = Readings(kafka, pipeline)
        self._open_transactions = OpenTransactionMonitor(kafka, {self._topic: 1, names.notification_topic(pipeline): 1})
        self._failing_at = 0.0
        self._ended = threading.Event()
        self._control = Control(kafka, pipeline)
        self._trust: Trust | None = None
        self._distrusted = threading.Event()
        self.blocked_by = ""
        """Why nobody can claim a further position, where that has been so for long."""
        self._told_at = -inf
        self.awaited = 0
        """The position of the newest marker that somebody waits for."""
        self.heard_by: list[Callable[[], None]] = []
        """Called when a TRUNCATE has been told of."""

    def follow(self, log: TopicLog) -> Pending:
        """Frontiers for one more follower of this log's newest epoch, beginning with the newest that is known."""
        pending = Pending(log.topic, log.partitions, log.newest.lsn, log.newest.read)
        with self._lock:
            self._pending.append(pending)
            if self._newest is not None:
                self._hand(pending, self._newest)
        return pending

    def _hand(self, pending: Pending, frontier: Frontier) -> None:
        truncation = self._truncations.get(pending.topic)
        emptied = truncation is not None and truncation.lsn > pending.lsn
        known = pending.read <= frontier.written and self._readings.covers(pending.topic, pending.read)
        if pending.topic in frontier.ends and known and not emptied:
            pending.add(frontier)

    def leave(self, pending: Pending) -> None:
        """No more frontiers for this one."""
        with self._lock:
            self._pending.remove(pending)

    @property
    def newest(self) -> Marker | None:
        """The newest marker that was read: every truncation before it is known."""
        return self._read_marker

    def truncation(self, log: TopicLog) -> Truncation | None:
        """The newest TRUNCATE of a log's table; None where the log's newest epoch begins there or later."""
        with self._lock:
            found = self._truncations.get(log.topic)
        return found if found is not None and found.lsn > log.newest.lsn else None

    def is_truncated(self, log: TopicLog) -> bool:
        """Whether a log's table was truncated since its newest snapshot was taken, however long ago that was."""
        snapshot = log.newest_snapshot
        with self._lock:
            found = self._truncations.get(log.topic)
        # Of a snapshot of all tables it is known when it was read, and not at which position.
        return found is not None and found.lsn > snapshot.lsn and found.time > snapshot.read

    def is_resnapshotted(self, log: TopicLog) -> bool:
        """Whether a log's table is being, or has been, re-snapshotted since its newest epoch began."""
        return not self._readings.covers(log.topic, log.newest.read)

    def heed(self, state: State) -> None:
        """Judge all messages once more where the pipeline believes others now. `state`: of the control topic."""
        trust = self._trust
        if trust is not None and trust != Trust.of(self._pipeline, state):
            self._distrusted.set()

    def stop(self) -> None:
        self._ended.set()

    def work(self) -> None:
        while not self._ended.is_set():
            consumer = self._kafka.consumer(**TAIL)
            try:
                self._read(consumer)
            except (SourceError, KafkaException) as exc:
                _log.info("markers cannot be read, trying again: %s", exc)
                now = time.monotonic()
                self._failing_at = self._failing_at or now
                if now - self._failing_at >= OPEN_SECONDS:
                    self._say(f"follower positions cannot advance: {exc}")
                self._ended.wait(1.0)
            finally:
                consumer.close()

    def _say(self, blocked_by: str) -> None:
        if bool(blocked_by) != bool(self.blocked_by):
            _log.warning("%s: %s", self._pipeline, blocked_by or "follower positions advance again")
        self.blocked_by = blocked_by

    def _read(self, consumer: Consumer) -> None:
        state = self._control.read()
        trust = Trust.of(self._pipeline, state)
        tally = Tally.of("messages", state, trust.digest)
        self._distrusted.clear()
        self._trust = trust
        # From the first record: a TRUNCATE of long ago counts too, and the newest marker that is there already, so that
        # a follower can be built while the source is down. Compaction keeps the topic short.
        consumer.assign([TopicPartition(self._topic, 0, self._kafka.beginnings(self._topic, 1)[0])])
        marker, written = None, 0.0
        while not self._ended.is_set() and not self._distrusted.is_set():
            first = consumer.poll(POLL_SECONDS)
            # `consume` would wait for as many as it is asked for.
            messages = [] if first is None else [first, *consumer.consume(1000, 0)]
            for message in messages:
                error = message.error()
                if error is not None and not error.retriable():
                    raise unreadable(self._topic, error)
            good = [m for m in messages if m.error() is None]
            found = [trust.parse(m.key(), m.value(), m.timestamp()[1] / 1000) for m in good]
            with self._lock:
                for told in found:
                    if isinstance(told, Truncation):
                        self._truncations[names.table_topic(self._pipeline, told.table)] = told
            for hear in self.heard_by if any(isinstance(told, Truncation) for told in found) else ():
                hear()
            for told, message in zip(found, good, strict=True):
                if isinstance(told, Marker):
                    marker, written = _later(marker, told), message.timestamp()[1] / 1000
                elif isinstance(told, Stranger):
                    tally.add(message.offset() or 0, message.timestamp()[1] / 1000, told.why)
            due = marker is None or marker.awaited or time.monotonic() >= self._told_at + TELL_SECONDS
            if self._readings.hear():  # all that was told before the marker is known
                if marker is not None:
                    self._readings.account(written)
                    self.awaited = marker.lsn if marker.awaited else self.awaited  # before anybody claims it
                    self._read_marker = marker
                if due:
                    self._tell(marker, written)
                    marker = None
            tally.write(self._control)
            if not self._failing_at:
                self._say(self._open_transactions.blocked_by(self.blocked_by))

    def _tell(self, marker: Marker | None, written: float) -> None:
        """Hand out the frontier of a new marker; or that of the newest, for a topic that was not followed before."""
        with self._lock:
            topics = {pending.topic: pending.partitions for pending in self._pending}
            newest = self._newest
        if marker is None and newest is not None and topics.keys() - newest.ends.keys():
            marker, written = newest.marker, newest.written
        if marker is None:
            return
        self._failing_at = 0.0
        self._told_at = time.monotonic()
        frontier = Frontier(marker, self._ends(topics) if topics else {}, written)
        with self._lock:
            self._newest = frontier
            for pending in self._pending:
                self._hand(pending, frontier)

    def _ends(self, topics: Mapping[str, int]) -> dict[str, Offsets]:
        """Of every topic that is there: one that was deleted must not hold up the followers of all others."""
        try:
            return self._kafka.written_ends(topics)
        except SourceError:
            found: dict[str, Offsets] = {}
            for topic, partitions in topics.items():
                with suppress(SourceError):
                    found |= self._kafka.written_ends({topic: partitions})
            if not found:
                raise
            return found
