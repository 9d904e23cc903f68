"""Writing to the control topic: one producer for all writes of a process, and a new one after an error."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from driftless.control.topic import Control
from driftless.errors import SourceError, SourceUnavailable
from driftless.kafka import record_writer as module
from driftless.kafka.client import Kafka

Delivered = Callable[[KafkaError | None, Any], None]


class Producer:
    """Delivers when it is polled, in the order in which it was given records. `error`: of every record."""

    def __init__(self, error: KafkaError | None, *, silent: bool) -> None:
        self.sent: list[tuple[bytes, bytes | None]] = []
        self._error = error
        self._silent = silent
        self._waiting: list[Delivered] = []

    def list_topics(self, topic: str, timeout: float) -> None:
        assert (topic, timeout > 0) == ("shop.control", True)

    def produce(self, topic: str, value: bytes | None, key: bytes, on_delivery: Delivered) -> None:
        assert topic == "shop.control"
        self.sent.append((key, value))
        self._waiting.append(on_delivery)

    def poll(self, _seconds: float) -> None:
        waiting, self._waiting = ([], self._waiting) if self._silent else (self._waiting, [])
        for number, tell in enumerate(waiting):
            tell(self._error, SimpleNamespace(timestamp=lambda number=number: (1, 1000 * (10 + number))))


class Brokers:
    def __init__(self) -> None:
        self.opened: list[Producer] = []
        self.error: KafkaError | None = None
        self.silent = False

    def producer(self, **_settings: object) -> Producer:
        self.opened.append(Producer(self.error, silent=self.silent))
        return self.opened[-1]


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def control(brokers: Brokers) -> Control:
    return Control(cast(Kafka, brokers), "shop")


def test_all_writes_go_by_one_producer(brokers: Brokers, control: Control) -> None:
    assert control.write({"a": {"n": 1}, "b": None}) == 11.0
    assert control.write({"a": {"n": 2}}) == 10.0
    (producer,) = brokers.opened
    assert producer.sent == [(b"a", b'{"n":1}'), (b"b", None), (b"a", b'{"n":2}')]


def test_nothing_to_write_opens_none(brokers: Brokers, control: Control) -> None:
    assert control.write({}) == 0.0
    assert brokers.opened == []


def test_after_an_error_the_next_write_goes_by_another_one(brokers: Brokers, control: Control) -> None:
    brokers.error = KafkaError(KafkaError._MSG_TIMED_OUT)
    with pytest.raises(SourceError):
        control.write({"a": {}})
    brokers.error = KafkaError(KafkaError._TRANSPORT)
    with pytest.raises(SourceUnavailable):
        control.write({"a": {}})
    brokers.error = None
    assert control.write({"a": {}}) == 10.0
    assert len(brokers.opened) == 3


def test_what_is_not_written_in_time_is_an_error(
    brokers: Brokers, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.01)
    brokers.silent = True
    with pytest.raises(SourceError, match=r"shop\.control: Kafka did not take 2 records within 0 s"):
        control.write({"a": {}, "b": {}})
    brokers.silent = False
    assert control.write({"a": {}}) == 10.0
