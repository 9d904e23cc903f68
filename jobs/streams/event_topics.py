"""The topics that a stream reads: whether they are those that it was begun with, and how far they are written."""

from __future__ import annotations

from driftless.errors import SourceError, SourceUnavailable
from driftless.facts.epochs import MENDED
from driftless.facts.streams import StreamBuild
from driftless.kafka.client import Kafka, Offsets


def same_topics(kafka: Kafka, build: StreamBuild) -> None:
    """Raise SourceError where a topic is another one than the build was begun with."""
    for source in build.sources.values():
        found = kafka.topic(source.topic)
        if found is None:
            hint = "the application that writes events makes it" if source.captured is None else MENDED
            raise SourceUnavailable(f"Kafka has no topic {source.topic}", hint=hint)
        if found.id != source.topic_id:
            raise SourceError(
                f"the topic {source.topic} was recreated: events that were counted are not in it",
                hint="run `driftless apply`: it begins another build of the stream",
            )


def written_ends(kafka: Kafka, build: StreamBuild) -> dict[str, Offsets]:
    """Where they have been written to, with partitions that came later."""
    counts = {}
    for topic in build.topics:
        found = kafka.topic(topic)
        if found is None:
            raise SourceUnavailable(f"Kafka has no topic {topic}")
        counts[topic] = found.partitions
    return kafka.written_ends(counts)
