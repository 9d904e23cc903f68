"""What a broker says while it restarts is something that passes."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, TopicPartition

from driftless.config import KafkaConfig
from driftless.errors import SourceError, SourceUnavailable
from driftless.kafka import Kafka, kafka_error


@pytest.mark.parametrize(
    "code", [KafkaError.FENCED_LEADER_EPOCH, KafkaError.LEADER_NOT_AVAILABLE, KafkaError._TRANSPORT]
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
    answer.set_result(SimpleNamespace(offset=-1001))

    def list_offsets(
        wanted: dict[TopicPartition, object], **_: object
    ) -> dict[TopicPartition, Future[SimpleNamespace]]:
        return dict.fromkeys(wanted, answer)

    monkeypatch.setattr(kafka, "_admin", SimpleNamespace(list_offsets=list_offsets))
    with pytest.raises(SourceUnavailable, match="no offset of t/0"):
        kafka.committed_ends("t", 1)
