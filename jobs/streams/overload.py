"""A stream that cannot keep up: what it leaves unread, where its events say that it may."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from pyspark.sql import SparkSession

from driftless.facts.event_source import EventSource, SkippedRange
from driftless.facts.streams import StreamBuild
from driftless.kafka.client import Kafka, Offsets
from jobs.spark.source import kafka_options
from jobs.streams.log.skipped import SkippedEvents
from jobs.streams.sql.query import skipped_count

_log = logging.getLogger(__name__)
LOOK_SECONDS = 1.0
"""How often it is asked how old the oldest unread event is, where the stream is behind."""


class OverloadCheck:
    """Whether a build has left events unread for longer than they may be. For one thread."""

    def __init__(self, kafka: Kafka, build: StreamBuild, now: Callable[[], float]) -> None:
        """`now`: the brokers' time, in seconds since 1970."""
        self._kafka = kafka
        self._sources = [source for source in build.events.values() if source.behind]
        self._now = now
        self._look_at = 0.0

    def is_over(self, read: Mapping[str, Offsets], behind_ms: int) -> bool:
        """`read`: up to where it has read each topic. `behind_ms`: how far it is behind at most.

        What a transaction of Kafka that is open holds back is not the stream's to read yet, however long that takes.
        """
        if not any(source.behind < behind_ms for source in self._sources) or time.monotonic() < self._look_at:
            return False
        self._look_at = time.monotonic() + LOOK_SECONDS
        return any(self._unread_ms(source, read.get(source.topic, {})) > source.behind for source in self._sources)

    def _unread_ms(self, source: EventSource, read: Offsets) -> int:
        """How old the oldest event is that could have been read."""
        ends = self._kafka.committed_ends(source.topic, max(len(source.floors), len(read)))
        waiting = [(p, read.get(p, 0)) for p, end in ends.items() if read.get(p, 0) < end]
        now_ms = int(self._now() * 1000)
        return max((now_ms - self._kafka.time_of(source.topic, *place) for place in waiting), default=0)


def skip_events(
    spark: SparkSession, kafka: Kafka, build: StreamBuild, planned: Mapping[str, Offsets], before: SkippedEvents
) -> SkippedEvents:
    """Leave out what lies between the last batch that was planned and what can be read by now, but for the share that
    is read all the same. The query must not run meanwhile.
    """
    ranges = {}
    for source in build.events.values():
        if source.behind:
            read = planned.get(source.topic, source.floors)
            ends = kafka.committed_ends(source.topic, max(len(source.floors), len(read)))
            ranges[source.topic] = tuple(
                SkippedRange(p, read.get(p, 0), end, source.sample)
                for p, end in sorted(ends.items())
                if read.get(p, 0) < end
            )
    options = kafka_options(kafka, f"stream-{build.stream}")
    count = sum(skipped_count(spark, topic, options, some) for topic, some in ranges.items() if some)
    _log.warning("stream %s/%d: it cannot keep up: %s events are left unread", build.stream, build.number, f"{count:,}")
    return before.with_more(ranges, count)
