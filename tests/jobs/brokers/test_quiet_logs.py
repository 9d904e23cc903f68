"""A log that is still is waited for by a consumer, on a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Producer

from driftless.config.models import KafkaConfig
from driftless.errors import SyncError
from driftless.kafka.client import Kafka
from jobs.brokers.quiet_logs import ConsumedLogs
from stack import Endpoints
from tests.support.machine import until

pytestmark = pytest.mark.server


@dataclass
class Watching:
    kafka: Kafka
    logs: ConsumedLogs
    producer: Producer
    moved: list[str]
    failed: list[SyncError]
    topics: list[str] = field(default_factory=list)

    def topic(self) -> str:
        """A new one, with two partitions and two records."""
        name = f"quiet-{uuid.uuid4().hex[:8]}"
        self.kafka.create(name, 2, {})
        self.topics.append(name)
        self.put(name, 0)
        self.put(name, 1)
        return name

    def put(self, topic: str, partition: int, value: bytes = b"v") -> None:
        self.producer.produce(topic, value, b"k", partition)
        self.producer.flush(30)

    def watch(self, topic: str) -> None:
        self.logs.watch(topic, self.kafka.committed_ends(topic, 2))


@pytest.fixture
def watching(endpoints: Endpoints) -> Iterator[Watching]:
    kafka = Kafka(KafkaConfig(bootstrap=endpoints.kafka))
    moved, failed = list[str](), list[SyncError]()
    found = Watching(kafka, ConsumedLogs(kafka, moved.append, failed.append), kafka.producer(), moved, failed)
    found.logs.start()
    yield found
    found.logs.stop()
    found.logs.join(30)
    assert not found.logs.is_alive()
    assert not failed
    kafka.delete(*found.topics)


def test_the_first_record_is_told_and_no_other(watching: Watching) -> None:
    still, other = watching.topic(), watching.topic()
    watching.watch(still)
    watching.watch(other)
    watching.put(other, 1)
    until("the record to be reported", lambda: watching.moved == [other])
    for _ in range(20):
        watching.put(other, 0)
    watching.put(still, 0)
    until("the other log to be reported", lambda: watching.moved == [other, still])


def test_one_that_is_left_is_not_told_and_is_watched_again_from_there(watching: Watching) -> None:
    one, other = watching.topic(), watching.topic()
    watching.watch(one)
    watching.watch(other)
    watching.logs.leave(one)
    watching.put(one, 0)
    watching.put(other, 0)
    until("the other log to be reported", lambda: watching.moved == [other])
    watching.watch(one)
    watching.watch(other)
    watching.put(other, 1)
    until("the other log to be reported again", lambda: watching.moved == [other, other])
    watching.put(one, 1)
    until("the first log to be reported", lambda: watching.moved == [other, other, one])


def test_what_a_transaction_writes_is_told_when_it_has_ended(watching: Watching) -> None:
    one, other = watching.topic(), watching.topic()
    watching.watch(one)
    watching.watch(other)
    producer = watching.kafka.fencing_producer(f"quiet-{uuid.uuid4().hex}")
    producer.begin_transaction()
    producer.produce(one, b"v", b"k", 0)
    producer.flush(30)
    watching.put(other, 0)
    until("the committed record to be reported", lambda: watching.moved == [other])
    producer.commit_transaction(30)
    until("the transaction's record to be reported", lambda: watching.moved == [other, one])
