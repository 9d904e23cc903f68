"""What a broker says while it restarts is something that passes; and a topic has an end while it is written."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import TypeVar

import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from driftless.config.models import KafkaConfig
from driftless.errors import SourceError, SourceUnavailable
from driftless.kafka.client import Kafka
from driftless.kafka.errors import kafka_error
from stack import Endpoints, Stack
from tests.support import run
from tests.support.machine import until

T = TypeVar("T")


@pytest.mark.parametrize(
    "code",
    [KafkaError.FENCED_LEADER_EPOCH, KafkaError.LEADER_NOT_AVAILABLE, KafkaError._TRANSPORT, KafkaError._NOENT],
)
def test_an_answer_of_a_restarting_broker_may_pass(code: int) -> None:
    assert isinstance(kafka_error(KafkaError(code), "here:1"), SourceUnavailable)


def test_a_refusal_does_not_pass() -> None:
    error = kafka_error(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), "here:1")
    assert isinstance(error, SourceError)
    assert not isinstance(error, SourceUnavailable)


def test_a_partition_without_a_leader_has_no_end_rather_than_one_before_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen: after a broker's kill the client answers -1001 without an error."""
    kafka = Kafka(KafkaConfig(bootstrap="127.0.0.1:1"))
    answer: Future[SimpleNamespace] = Future()
    answer.set_result(SimpleNamespace(offset=-1001, leader_epoch=None))

    def offsets_for_times(wanted: list[TopicPartition], **_: object) -> list[TopicPartition]:
        return [TopicPartition(place.topic, place.partition, -1001) for place in wanted]

    def list_offsets(
        wanted: dict[TopicPartition, object], **_: object
    ) -> dict[TopicPartition, Future[SimpleNamespace]]:
        return dict.fromkeys(wanted, answer)

    asker = SimpleNamespace(offsets_for_times=offsets_for_times, poll=lambda _: None)
    monkeypatch.setattr(kafka, "_askers", {"read_committed": asker})
    monkeypatch.setattr(kafka, "_admin", SimpleNamespace(list_offsets=list_offsets))
    with pytest.raises(SourceUnavailable, match="no offset of t/0"):
        kafka.committed_ends("t", 1)


@pytest.mark.server
def test_a_client_that_lost_its_way_is_not_asked_again(endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: beside a broker that slept for 25 s, librdkafka's client got no answer ever after."""
    monkeypatch.setattr("driftless.kafka.client.TIMEOUT", 1.0)
    kafka = Kafka(KafkaConfig(bootstrap=endpoints.kafka))
    monkeypatch.setattr(kafka, "_admin", AdminClient({"bootstrap.servers": "127.0.0.1:1"}, logger=logging.getLogger()))
    with pytest.raises(SourceUnavailable):
        kafka.topics()
    monkeypatch.setattr("driftless.kafka.client.TIMEOUT", 15.0)
    assert "no-such-topic" not in kafka.topics()
    assert kafka.topic("no-such-topic") is None


@pytest.mark.server
def test_topics_that_were_made_a_moment_ago_have_ends(endpoints: Endpoints) -> None:
    """Seen: a consumer is refused while the broker does not know of them, and remembers that they are not there."""
    kafka = Kafka(KafkaConfig(bootstrap=endpoints.kafka))
    kafka.topics()
    for _ in range(5):
        names = [f"new-{uuid.uuid4().hex[:8]}" for _ in range(10)]
        with pytest.raises(SourceError):
            kafka.committed_ends(names[0], 2)
        for name in names:
            kafka.create(name, 2, {})
        for ask in (kafka.written_ends, kafka.leaders):
            assert soon(partial(ask, dict.fromkeys(names, 2))) == {name: {0: 0, 1: 0} for name in names}
        kafka.delete(*names)


@pytest.fixture
def broker() -> Iterator[Stack]:
    """A broker that may be killed while other tests use theirs."""
    stack = Stack(f"{run.STACK}-broker", servers=("kafka",))
    stack.up()
    yield stack
    stack.destroy()


@pytest.mark.server
def test_a_client_from_before_a_broker_was_killed_gets_ends_again(broker: Stack) -> None:
    """The broker's leader epochs have risen since, and the client keeps the old ones for minutes if left alone."""
    kafka = Kafka(KafkaConfig(bootstrap=broker.up().kafka))
    kafka.create("t", 2, {})
    soon(partial(kafka.committed_ends, "t", 2))
    broker.kill("kafka")
    with pytest.raises(SourceUnavailable):
        kafka.committed_ends("t", 2)
    broker.start("kafka")
    assert soon(partial(kafka.committed_ends, "t", 2)) == {0: 0, 1: 0}


def soon(ask: Callable[[], T], seconds: float = 30) -> T:
    """The answer, once the brokers have one."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except SourceUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


@pytest.mark.server
@pytest.mark.timeout(60)
def test_a_topic_that_is_written_all_the_time_is_read_to_its_end(endpoints: Endpoints) -> None:
    """To the end as it was at the beginning: between two records the client never finds itself at an end."""
    kafka, topic = Kafka(KafkaConfig(bootstrap=endpoints.kafka)), f"written-{uuid.uuid4().hex[:8]}"
    ended = threading.Event()
    kafka.create(topic, 1, {})
    producer, written = kafka.producer(), count()

    def write() -> None:
        while not ended.wait(0.002):
            producer.produce(topic, str(next(written)).encode())
            producer.flush(10)

    def end() -> int:
        return kafka.written_ends({topic: 1})[topic][0]

    thread = threading.Thread(target=write)
    thread.start()
    try:
        until("some records", lambda: end() > 100, 30)
        before = end()
        found = [int(message.value() or b"-1") for message in kafka.read_to_end(topic)]
    finally:
        ended.set()
        thread.join()
        kafka.delete(topic)
    assert len(found) >= before
    assert found == list(range(len(found)))
