"""Events of a topic that streams are measured by, and what is measured of them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial

import psutil

from bench.pipeline import until
from driftless.facts.event_source import EventSource
from driftless.facts.streams import StreamBuild, stream_table
from driftless.kafka.client import Kafka
from driftless.table import Column
from jobs.streams.publisher import StreamPublisher

PARTITIONS, SPREAD_MS, LATENESS_MS = 4, 15 * 60_000, 3_600_000
COLUMNS = {"id": "bigint", "user_id": "bigint", "page": "text", "at": "timestamptz"}


@contextmanager
def written_events(
    kafka: Kafka, name: str, counts: Mapping[str, int], now: int, users: int
) -> Iterator[dict[str, str]]:
    """Topics of events of so many users, that happened in the last quarter of an hour, in no order."""
    topics = {events: f"{name}.{events}" for events in counts}
    chance, producer = random.Random(7), kafka.producer()
    for events, topic in topics.items():
        kafka.create(topic, PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
        until(f"the topic {topic}", partial(kafka.topic, topic))
        for n in range(counts[events]):
            event = {
                "id": n,
                "user_id": chance.randrange(users),
                "page": f"page {n % 997}",
                "at": now - chance.randrange(SPREAD_MS),
            }
            producer.produce(topic, json.dumps(event).encode())
            if n % 10_000 == 0:
                producer.flush(60)
        producer.flush(60)
    try:
        yield topics
    finally:
        kafka.delete(*topics.values(), *(topic for topic in kafka.topics() if topic.startswith(f"{name}.stream.")))


def stream_build(
    kafka: Kafka, stream: str, sql: str, closes: str, key: tuple[str, ...], topics: Mapping[str, str]
) -> StreamBuild:
    """A stream over these topics from their first events: `closes`, `key` as of a build."""
    events = {}
    for each, topic in topics.items():
        found = kafka.topic(topic)
        assert found is not None
        floors = dict.fromkeys(range(PARTITIONS), 0)
        events[each] = EventSource(topic, found.id, floors, COLUMNS, "at", None, LATENESS_MS)
    columns = (Column("began", "timestamptz"), *(Column(c, "int8") for c in ("user_id", "n", "last")))
    return StreamBuild(stream, 1, sql, events, stream_table(stream, columns, key), "", PARTITIONS, closes=closes)


def is_read(publisher: StreamPublisher, ends: Mapping[str, Mapping[int, int]]) -> bool:
    """Whether everything before these places has been read, and what came of it is published."""
    read = publisher.newest.read if publisher.newest is not None else {}
    return all(read.get(topic, {}).get(p, 0) >= end for topic, offsets in ends.items() for p, end in offsets.items())


def cpu_seconds() -> tuple[float, float]:
    """Seconds of this process, and of Spark's JVM."""
    here, others = psutil.Process(), 0.0
    for child in here.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            others += times.user + times.system
    mine = here.cpu_times()
    return mine.user + mine.system, others
