"""Writes a log whose documents driftless puts together: its topic, and the one producer that may write there."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException, Message

from driftless.errors import Fenced, SourceError
from driftless.kafka.client import TIMEOUT, Kafka, Setting, Topic, produce
from driftless.kafka.errors import is_fencing, kafka_error
from driftless.kafka.topic_settings import MAX_MESSAGE_BYTES, log_settings

Record = tuple[bytes, bytes | None, list[tuple[str, bytes]]]
"""Key, value (None: a delete), headers."""

Beside = tuple[str, bytes, bytes]
"""Topic, key, value."""


def create_log(
    kafka: Kafka, topic: str, partitions: int, retention: float, more: Mapping[str, str] | None = None
) -> Topic:
    """The topic of a log, made where it is missing. `retention`: milliseconds for which it keeps deletes. `more`:
    settings that logs of its kind have.
    """
    kafka.create(topic, partitions, {**log_settings(retention), **(more or {})})
    deadline = time.monotonic() + TIMEOUT
    while (found := kafka.topic(topic)) is None:  # a broker may not have heard of it yet
        if time.monotonic() > deadline:
            raise SourceError(
                f"Kafka made the topic {topic}, and does not have it any more",
                hint="see whether something deletes topics there; then run `driftless apply` again",
            )
        time.sleep(0.1)
    return found


class LogWriter:
    """Opening it fences whoever wrote before. What is given in one call is there whole, or not at all.

    How far the log is, its owner says in the control topic: see `FollowedLog.progress`.
    """

    def __init__(self, kafka: Kafka, topic: str, partitions: int, id_: str, owner: str) -> None:
        """`id_`: of the producer; each shard of a log has its own. `owner`: the log's kind and name: `view order`."""
        self._kafka = kafka
        self._topic = topic
        self._partitions = partitions
        self._owner = owner
        settings: dict[str, Setting] = {
            "transaction.timeout.ms": int(TIMEOUT * 1000),
            # As Kafka's own clients spread keys; librdkafka's default differs.
            "partitioner": "murmur2_random",
            "compression.type": "lz4",
            "delivery.report.only.error": True,
        }
        self._undelivered: KafkaError | None = None
        """Why the first record of the last call that did not arrive has not."""
        with self._explained():
            self._producer = kafka.fencing_producer(id_, **settings)

    def write(self, records: Iterable[Record], beside: Iterable[Beside] = ()) -> None:
        """Write these records in one transaction. `beside`: what is written to other topics in the same."""
        self._undelivered = None
        with self._explained():
            self._producer.begin_transaction()
            for key, value, headers in records:
                produce(self._producer, self._topic, key, value, headers=headers, on_delivery=self._heed)
            for topic, name, text in beside:
                produce(self._producer, topic, name, text, on_delivery=self._heed)
            self._producer.commit_transaction(TIMEOUT)

    def _heed(self, error: KafkaError | None, _: Message) -> None:
        self._undelivered = self._undelivered or error

    def written(self) -> Iterator[Message]:
        """Every record that is in the log, of one key in their order."""
        return self._kafka.read_to_end(self._topic, partitions=self._partitions, isolation="read_committed")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Kafka's errors as ours."""
        try:
            yield
        except KafkaException as exc:
            error: KafkaError = exc.args[0]
            if error.code() == KafkaError._INCONSISTENT and self._undelivered is not None:
                error = self._undelivered  # the commit only says that there was one
            if is_fencing(error):
                kind, _, name = self._owner.partition(" ")
                raise Fenced(
                    f"another runner took over the {kind} `{name}`",
                    hint=f"only one process may run a {kind}; stop one of the two",
                ) from exc
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                raise SourceError(
                    f"{self._topic} takes no record of the size that it was made for",
                    hint=f"set its max.message.bytes to {MAX_MESSAGE_BYTES}, then restart `driftless run`",
                ) from exc
            raise kafka_error(error, self._topic) from exc
