"""A stream that cannot keep up: what it leaves unread, where its events say that it may."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pyspark.sql import SparkSession

from driftless.facts.event_source import SkippedRange
from driftless.facts.streams import StreamBuild
from driftless.kafka.client import Kafka, Offsets
from jobs.spark.source import kafka_options
from jobs.streams.event_topics import written_ends
from jobs.streams.log.skipped import SkippedEvents
from jobs.streams.sql.query import skipped_count

_log = logging.getLogger(__name__)


def is_overloaded(build: StreamBuild, behind_ms: int) -> bool:
    """Whether a stream that is so far behind leaves events unread."""
    return any(0 < source.behind < behind_ms for source in build.events.values())


def skip_events(
    spark: SparkSession, kafka: Kafka, build: StreamBuild, planned: Mapping[str, Offsets], before: SkippedEvents
) -> SkippedEvents:
    """Leave out what lies between the last batch that was planned and the ends of the topics, but for the share that is
    read all the same. The query must not run meanwhile.
    """
    ends = written_ends(kafka, build)
    ranges = {}
    for source in build.events.values():
        if source.behind:
            read = planned.get(source.topic, source.floors)
            found = [
                SkippedRange(p, read.get(p, 0), end, source.sample)
                for p, end in sorted(ends[source.topic].items())
                if read.get(p, 0) < end
            ]
            ranges[source.topic] = tuple(found)
    options = kafka_options(kafka, f"stream-{build.stream}")
    count = sum(skipped_count(spark, topic, options, some) for topic, some in ranges.items() if some)
    _log.warning("stream %s/%d: it cannot keep up: %s events are left unread", build.stream, build.number, f"{count:,}")
    return before.with_more(ranges, count)
