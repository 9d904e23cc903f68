"""A build's documents into its topic, by the one producer that may write there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from confluent_kafka import KafkaError, KafkaException

from driftless import names
from driftless.errors import Fenced, SourceError
from driftless.facts.builds import Build
from driftless.kafka.client import TIMEOUT, Kafka, Setting, produce
from driftless.kafka.errors import is_fencing, kafka_error
from driftless.kafka.topic_settings import MAX_MESSAGE_BYTES


class Publisher:
    """Opening it fences whoever published before. What is given in one call is there whole, or not at all."""

    def __init__(self, kafka: Kafka, pipeline: str, build: Build, shard: int = 0) -> None:
        assert build.log is not None
        self._topic = build.log.topic
        self._partitions = build.log.partitions
        self._view = build.view.name
        self._kafka = kafka
        who = f"{names.view_lease(build.view.name)}.{build.number}.{shard}"
        settings: dict[str, Setting] = {
            "transaction.timeout.ms": int(TIMEOUT * 1000),
            # As Kafka's own clients spread keys; librdkafka's default differs.
            "partitioner": "murmur2_random",
            "compression.type": "lz4",
        }
        with self._told():
            self._producer = kafka.fencing_producer(names.lease_id(pipeline, who), **settings)

    def publish(self, writes: Iterable[tuple[str, str | None]], time: float) -> None:
        """Documents by key, None for one that is gone. `time`: of the source, seconds since 1970."""
        stamp = str(round(time * 1e6)).encode()
        with self._told():
            self._producer.begin_transaction()
            for key, document in writes:
                kind = b"tombstone" if document is None else b"document"
                headers = [("kind", kind), ("ts", stamp)]
                value = None if document is None else document.encode()
                produce(self._producer, self._topic, key.encode(), value, headers=headers)
            self._producer.commit_transaction(TIMEOUT)

    def published(self) -> Iterator[tuple[str, str | None]]:
        """Every document that has been published, key by key, newest last. A key that is no text is a stranger's."""
        for message in self._kafka.read_to_end(self._topic, partitions=self._partitions, isolation="read_committed"):
            key, value = message.key(), message.value()
            with suppress(UnicodeDecodeError):
                if key is not None:
                    yield key.decode(), None if value is None else value.decode(errors="replace")

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Kafka's errors as ours."""
        try:
            yield
        except KafkaException as exc:
            error: KafkaError = exc.args[0]
            if is_fencing(error):
                raise Fenced(
                    f"another runner took over the view `{self._view}`",
                    hint="only one process may run a view; stop one of the two",
                ) from exc
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                raise SourceError(
                    f"{self._topic} takes no record of the size that it was made for",
                    hint=f"set its max.message.bytes to {MAX_MESSAGE_BYTES}, then restart `driftless run`",
                ) from exc
            raise kafka_error(error, self._topic) from exc
