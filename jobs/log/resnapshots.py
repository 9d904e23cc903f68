"""Where Debezium has re-snapshotted all tables, an epoch of each begins: no record tells what was deleted before."""

from __future__ import annotations

import logging
import math
from typing import Any

from confluent_kafka import Message

from driftless import names
from driftless.control.initial_snapshot import InitialSnapshot, next_initial_snapshot
from driftless.control.topic import Control
from driftless.facts.epochs import TopicLog
from driftless.kafka.client import Kafka, Offsets
from jobs.log.truncation import DECIDED_SECONDS, header_lsn

_log = logging.getLogger(__name__)
WHY = "the connector has re-snapshotted all tables"


class Readings:
    """What the notification topic tells, and the epochs that follow from it. Whoever computes them, they are the same.

    Not to be shared between threads, but for `covers`.
    """

    def __init__(self, kafka: Kafka, pipeline: str) -> None:
        self._kafka = kafka
        self._control = Control(kafka, pipeline)
        self._topic = names.notification_topic(pipeline)
        self._heard = 0
        self._newest: InitialSnapshot | None = None
        self._accounted: InitialSnapshot | None = None
        self._harmless = frozenset[str]()
        """Topics whose epoch had begun with or after the newest reading, though it does not say so."""

    def hear(self) -> bool:
        """Read what is new; False where some of it is not decided yet."""
        written = self._kafka.written_ends({self._topic: 1})[self._topic][0]
        if written == self._heard:
            return True
        end = self._kafka.committed_ends(self._topic, 1)[0]
        begin = self._heard if self._heard <= end else 0
        begin = max(begin, self._kafka.beginnings(self._topic, 1)[0])
        for message in self._kafka.read_to_end(self._topic, begin=begin, isolation="read_committed"):
            self._newest = next_initial_snapshot(self._newest, message.value())
        self._heard = end
        return end >= written

    def covers(self, topic: str, read: float) -> bool:
        """Whether a log may be followed to its end that began with the reading at `read`: no newer one has begun."""
        newest = self._newest
        return newest is None or newest.begun <= read or (newest == self._accounted and topic in self._harmless)

    def account(self, written: float) -> None:
        """Register the epochs of the newest reading, once it has ended and a marker was written after it."""
        newest = self._newest
        if newest is None or newest == self._accounted or newest.ended is None or written < newest.ended:
            return
        state = self._control.read()
        logs = {name: TopicLog.from_json(fact.value) for name, fact in state.by_prefix("epochs").items()}
        behind = {name: log for name, log in logs.items() if log.newest.read < newest.begun}
        read: dict[str, dict[str, Any]] = {name: state.get(f"read/{name}") or {} for name in behind}
        floors = {}
        for name, log in behind.items():
            known = read[name].get("at", 0.0) >= newest.begun
            awaited = newest.begun > read[name].get("after", math.inf)
            floors[name] = None if known else self._floors(log, newest, awaited=awaited)
        lsn = max((self._lsn(behind[name], found) for name, found in floors.items() if found is not None), default=0)
        facts: dict[str, dict[str, object] | None] = {}
        for name, found in floors.items():
            if found is None:
                facts[f"read/{name}"] = {**read[name], "at": newest.ended}
            else:
                _log.warning("%s: %s: a new epoch begins", name, WHY)
                facts |= {**behind[name].begin(found, WHY, lsn, newest.ended).fact(name), f"read/{name}": None}
        if facts:
            self._control.write(facts)
        self._harmless = frozenset(behind[name].topic for name, found in floors.items() if found is None)
        self._accounted = newest

    def _floors(self, log: TopicLog, reading: InitialSnapshot, *, awaited: bool) -> Offsets | None:
        """The first offset of each partition that the reading wrote; None where nothing of the epoch lies before.

        `awaited`: followers wait for an epoch that begins with it, whatever lies before.
        """
        self._kafka.decided_ends(log.topic, log.partitions, DECIDED_SECONDS)
        floors = self._kafka.offsets_at(log.topic, log.partitions, reading.begun)
        first = {p: self._first(log, p, log.floor[p], floor) for p, floor in floors.items() if floor > log.floor[p]}
        if not awaited and all(message is None for message in first.values()):
            return None
        return {p: max(floor, log.floor[p]) for p, floor in floors.items()}

    def _lsn(self, log: TopicLog, floors: Offsets) -> int:
        """The source's position that the rows were read at, if there are any."""
        ends = self._kafka.committed_ends(log.topic, log.partitions)
        for p, floor in floors.items():
            message = self._first(log, p, floor, ends[p])
            headers = dict((message and message.headers()) or [])
            if headers.get("op") == b"r" and (lsn := header_lsn(headers)):
                return lsn
        return 0

    def _first(self, log: TopicLog, partition: int, begin: int, end: int) -> Message | None:
        """The first record of [begin, end) that is there still."""
        return next(self._kafka.read_between(log.topic, {partition: begin}, {partition: end}), None)
