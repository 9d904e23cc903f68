"""What the topics of a stream still keep of the events that it was computed from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from driftless.facts.streams import StreamBuild
from driftless.kafka.client import Kafka, Offsets


@dataclass(frozen=True)
class KeptEvents:
    """`begin`: the first events that are left. `gone`: topics that lack some that were read. `begin_ms`: windows that
    began before then may have had such events; 0 where none is gone.
    """

    begin: Mapping[str, Offsets]
    gone: frozenset[str]
    begin_ms: int


def kept_events(kafka: Kafka, build: StreamBuild, read: Mapping[str, Offsets]) -> KeptEvents:
    """Of the events up to `read`."""
    begin, lost, begin_ms = {}, set[str](), 0
    for source in build.events.values():
        first = kafka.beginnings(source.topic, len(read[source.topic]))
        floors = {p: source.floors.get(p, 0) for p in read[source.topic]}
        begin[source.topic] = {p: max(floor, first[p]) for p, floor in floors.items()}
        gone = [p for p, floor in floors.items() if first[p] > floor]
        begin_ms = max([begin_ms, *(kafka.time_of(source.topic, p, first[p]) for p in gone)])
        lost |= {source.topic} if gone else set()
    return KeptEvents(begin, frozenset(lost), begin_ms)
