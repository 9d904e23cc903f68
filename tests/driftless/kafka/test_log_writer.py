"""Writing a log of ours: one transaction for each call, and what an operator is told where Kafka refuses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from driftless.errors import Fenced, SourceError, SourceUnavailable
from driftless.kafka.client import Kafka
from driftless.kafka.log_writer import LogWriter, Record

Delivered = Callable[[KafkaError, None], None]
RECORDS: list[Record] = [(b"1", b"{}", [("kind", b"document")]), (b"2", None, [("kind", b"tombstone")])]


class Brokers:
    """Stands for Kafka and its producer: what was called, in order. `refusal`: of every commit. `lost`: why no record
    arrives.
    """

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.refusal: int | None = None
        self.lost: int | None = None

    def fencing_producer(self, id_: str, **settings: object) -> Brokers:
        self.calls.append((id_, settings["partitioner"]))
        return self

    def begin_transaction(self) -> None:
        self.calls.append("begin")

    def produce(
        self, topic: str, value: bytes | None, key: bytes, headers: list[tuple[str, bytes]], on_delivery: Delivered
    ) -> None:
        self.calls.append((topic, key, value, headers[0][1]))
        if self.lost is not None:
            on_delivery(KafkaError(self.lost), None)

    def commit_transaction(self, _: float) -> None:
        if self.refusal is not None:
            raise KafkaException(KafkaError(self.refusal))
        self.calls.append("commit")


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def log(brokers: Brokers) -> LogWriter:
    return LogWriter(cast("Kafka", brokers), "shop.view.order.1", 2, "shop.view.order.1.0", "view order")


def test_what_is_given_in_one_call_is_one_transaction(brokers: Brokers, log: LogWriter) -> None:
    log.write(RECORDS)
    assert brokers.calls == [
        ("shop.view.order.1.0", "murmur2_random"),
        "begin",
        ("shop.view.order.1", b"1", b"{}", b"document"),
        ("shop.view.order.1", b"2", None, b"tombstone"),
        "commit",
    ]


@pytest.mark.parametrize(
    ("code", "kind", "what"),
    [
        (KafkaError._FENCED, Fenced, "another runner took over the view `order`"),
        (KafkaError.MSG_SIZE_TOO_LARGE, SourceError, r"shop\.view\.order\.1 takes no record of the size"),
        (KafkaError._TIMED_OUT, SourceUnavailable, r"Kafka at shop\.view\.order\.1 cannot be reached"),
    ],
)
def test_a_refusal_says_what_it_means(
    brokers: Brokers, log: LogWriter, code: int, kind: type[SourceError], what: str
) -> None:
    brokers.refusal = code
    with pytest.raises(kind, match=what) as caught:
        log.write(RECORDS)
    assert caught.value.hint
    assert "commit" not in brokers.calls


@pytest.mark.parametrize(
    ("lost", "kind", "what"),
    [
        (KafkaError._MSG_TIMED_OUT, SourceUnavailable, r"Kafka at shop\.view\.order\.1 cannot be reached"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, SourceError, r"Kafka at shop\.view\.order\.1: "),
        (KafkaError.INVALID_PRODUCER_EPOCH, Fenced, "another runner took over the view `order`"),
    ],
)
def test_why_records_did_not_arrive_counts_and_not_that_the_commit_says_so(
    brokers: Brokers, log: LogWriter, lost: int, kind: type[SourceError], what: str
) -> None:
    """A broker that is away for longer than a record is tried makes the commit fail with a number of records."""
    brokers.lost, brokers.refusal = lost, KafkaError._INCONSISTENT
    with pytest.raises(kind, match=what) as caught:
        log.write(RECORDS)
    assert type(caught.value) is kind
    brokers.lost = brokers.refusal = None
    log.write(RECORDS)
    assert brokers.calls[-1] == "commit"
