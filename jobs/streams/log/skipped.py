"""Events that a stream left unread since it could not keep up: its own topic of batches says which ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from driftless.facts.event_source import SkippedRange
from driftless.facts.streams import StreamBuild
from driftless.kafka.client import Kafka
from jobs.streams.log.batch import newest_record, written

SKIPPED_KEY = b"skipped"
Ranges = Mapping[str, tuple[SkippedRange, ...]]
"""By topic."""


@dataclass(frozen=True)
class SkippedEvents:
    """Who computes the stream, as a query or as a batch, leaves out what these say. `events`: how many that are."""

    ranges: Ranges = field(default_factory=dict)
    events: int = 0

    def with_more(self, more: Ranges, events: int) -> SkippedEvents:
        """These, and others beyond them."""
        topics = self.ranges.keys() | more.keys()
        ranges = {topic: (*self.ranges.get(topic, ()), *more.get(topic, ())) for topic in sorted(topics)}
        return SkippedEvents(ranges, self.events + events)

    def to_text(self) -> bytes:
        ranges = {topic: [list(each) for each in some] for topic, some in self.ranges.items()}
        return written({"ranges": ranges, "events": self.events})

    @classmethod
    def from_text(cls, text: bytes) -> SkippedEvents:
        """Raises ValueError, KeyError, TypeError or AttributeError for what is none."""
        data = json.loads(text)
        ranges = {
            topic: tuple(SkippedRange(*map(int, each)) for each in some) for topic, some in data["ranges"].items()
        }
        return cls(ranges, int(data["events"]))


def newest_skipped(kafka: Kafka, batches: str) -> SkippedEvents:
    """What a build has left unread so far."""
    return newest_record(kafka, batches, SKIPPED_KEY, SkippedEvents.from_text) or SkippedEvents()


def without_skipped(build: StreamBuild, skipped: SkippedEvents) -> StreamBuild:
    """The build, whose sources leave these out."""
    events = {
        name: replace(source, skipped=skipped.ranges.get(source.topic, ())) for name, source in build.events.items()
    }
    return replace(build, events=events)
