"""What the topics of a stream still keep of the events that it was computed from."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from driftless.facts.streams import StreamBuild
from driftless.kafka.client import Kafka, Offsets
from driftless.kafka.topic_settings import COMPACTION_LAG, FOREVER


@dataclass(frozen=True)
class KeptEvents:
    """`begin`: the first events that are left. `gone`: topics that lack some that were read. `begin_ms`: windows that
    began before then may have had such events; 0 where none is gone.
    """

    begin: Mapping[str, Offsets]
    gone: frozenset[str]
    begin_ms: int


def _kept_since(kafka: Kafka, topic: str) -> int:
    """Since when a table's log has every row that was ever in it, in milliseconds; 0 for ever."""
    lag = int(kafka.topic_settings(topic).get(COMPACTION_LAG, FOREVER))
    return max(0, int(time.time() * 1000) - lag)


def kept_events(kafka: Kafka, build: StreamBuild, read: Mapping[str, Offsets]) -> KeptEvents:
    """Of the events up to `read`."""
    begin, lost, begin_ms = {}, set[str](), 0
    for source in build.sources.values():
        first = kafka.beginnings(source.topic, len(read[source.topic]))
        floors = {p: source.floors.get(p, 0) for p in read[source.topic]}
        begin[source.topic] = {p: max(floor, first[p]) for p, floor in floors.items()}
        gone = [p for p, floor in floors.items() if first[p] > floor]
        begin_ms = max([begin_ms, *(kafka.time_of(source.topic, p, first[p]) for p in gone)])
        lost |= {source.topic} if gone else set()
        if source.captured is not None and (since_ms := _kept_since(kafka, source.topic)):
            old = any(0 <= kafka.time_of(source.topic, p, floor) < since_ms for p, floor in floors.items())
            begin_ms, lost = (max(begin_ms, since_ms), lost | {source.topic}) if old else (begin_ms, lost)
    return KeptEvents(begin, frozenset(lost), begin_ms)
