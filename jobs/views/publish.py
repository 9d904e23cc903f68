"""A build's documents into its topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from driftless import names
from driftless.facts.builds import Build
from driftless.kafka.client import Kafka
from driftless.kafka.log_writer import LogWriter, Record


class Publisher:
    """The documents of one shard of a build, as its log has them; see `LogWriter` for what is guaranteed."""

    def __init__(self, kafka: Kafka, pipeline: str, build: Build, shard: int = 0) -> None:
        assert build.log is not None
        id_ = names.lease_id(pipeline, f"{names.view_lease(build.view.name)}.{build.number}.{shard}")
        self._log = LogWriter(kafka, build.log.topic, build.log.partitions, id_, f"view {build.view.name}")

    def publish(self, writes: Iterable[tuple[str, str | None]], time: float | None) -> None:
        """Documents by key, None for one that is gone. `time`: of the oldest commit that they show, by the source's
        clock, in seconds since 1970; None where that is not known.
        """
        self._log.write(_records(writes, None if time is None else str(round(time * 1e6)).encode()))

    def published(self) -> Iterator[tuple[str, str | None]]:
        """Every document that has been published, key by key, newest last. A key that is no text is a stranger's."""
        for message in self._log.written():
            key, value = message.key(), message.value()
            with suppress(UnicodeDecodeError):
                if key is not None:
                    yield key.decode(), None if value is None else value.decode(errors="replace")


def _records(writes: Iterable[tuple[str, str | None]], stamp: bytes | None) -> Iterator[Record]:
    headers = [] if stamp is None else [("ts", stamp)]
    for key, document in writes:
        kind = b"tombstone" if document is None else b"document"
        yield key.encode(), None if document is None else document.encode(), [("kind", kind), *headers]
