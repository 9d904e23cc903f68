"""Writes the records of a topic of facts: the control topic, and the quarantine."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from driftless.kafka.client import TIMEOUT, Kafka, Setting, produce
from driftless.kafka.errors import kafka_error, not_taken


class RecordWriter:
    """What is given in one call is durable when that returns; some of it may be where it raises. For any thread.

    One producer for all calls: until a producer has met the broker, half a second passes.
    """

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._kafka = kafka
        self._topic = topic
        self._producer: Producer | None = None

    def write(self, records: Mapping[bytes, bytes | None]) -> float:
        """Write records by their keys; returns the broker's time."""
        if not records:
            return 0.0
        times: list[float] = []
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                errors.append(error)
            else:
                times.append(message.timestamp()[1] / 1000)

        producer = self._producer = self._producer or self._open()
        for key, value in records.items():
            produce(producer, self._topic, key, value, on_delivery=delivered)
        deadline = time.monotonic() + TIMEOUT
        while len(times) + len(errors) < len(records) and time.monotonic() < deadline:
            producer.poll(0.05)  # another thread's poll may be what tells of ours
        if len(times) == len(records):
            return max(times)
        self._producer = None  # the next one owes nothing to what this one could not send
        if errors:
            raise kafka_error(errors[0], self._topic)
        raise not_taken(self._topic, f"{len(records) - len(times)} records", TIMEOUT)

    def _open(self) -> Producer:
        settings: dict[str, Setting] = {"enable.idempotence": True, "message.timeout.ms": int(TIMEOUT * 1000)}
        producer = self._kafka.producer(**settings)
        try:
            producer.list_topics(self._topic, timeout=TIMEOUT)  # connects: else it looks for a broker after 500 ms
        except KafkaException as exc:
            raise kafka_error(exc.args[0], self._topic) from exc
        return producer
