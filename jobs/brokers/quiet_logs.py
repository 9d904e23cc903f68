"""Logs that are still: one consumer waits for the next record of all of them, and it costs nothing to wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from confluent_kafka import Consumer, TopicPartition

from driftless.errors import SyncError
from driftless.kafka.client import Kafka, Offsets, Setting
from jobs.threads.background import Background

POLL_SECONDS = 0.1
"""How often it looks whether it is to watch other logs: a record that comes ends the wait."""
_SETTINGS: dict[str, Setting] = {
    # A log that moves is left after its first record: of what else there is, as little as possible is to come.
    "fetch.message.max.bytes": 1 << 10,
    # With the least of these, the client does not ask for a second after a record: then a log that has just been
    # left and is watched again would be heard of so much later.
    "queued.min.messages": 1_000,
    "fetch.queue.backoff.ms": 10,
}


class QuietLogs(Protocol):
    """Tells when a log that is still moves again; see ConsumedLogs."""

    def watch(self, topic: str, ends: Offsets) -> None:
        """Wait for the first record of a topic from `ends` on, and then for none of it any more."""

    def leave(self, topic: str) -> None:
        """Wait for this topic no more."""


class ConsumedLogs(Background):
    """Any thread may call. 30 logs take 5 ms of CPU a second; asking where they end takes 1 ms each time.

    It reports records alone: not the mark that ends a transaction without any, and not always a topic that is deleted.
    When the client reports an error in a topic, it reports the topic once: whoever then asks Kafka gets the error.
    """

    def __init__(self, kafka: Kafka, moved: Callable[[str], None], failed: Callable[[SyncError], None]) -> None:
        """`moved`: is called, by the thread, with a topic that has a new record."""
        super().__init__("quiet logs", failed)
        self._kafka = kafka
        self._moved = moved
        self._lock = threading.Lock()
        self._asked: dict[str, Offsets] = {}
        """From where on topics are to be watched; of one that is to be left, nothing."""
        self._watched: dict[str, Offsets] = {}
        self._ended = threading.Event()

    def watch(self, topic: str, ends: Offsets) -> None:
        with self._lock:
            self._asked[topic] = ends

    def leave(self, topic: str) -> None:
        self.watch(topic, {})

    def work(self) -> None:
        consumer = self._kafka.consumer(**_SETTINGS)
        try:
            while not self._ended.is_set():
                self._heed(consumer)
                message = consumer.poll(POLL_SECONDS)
                topic = None if message is None else message.topic()
                if topic is not None:
                    self._assign(consumer, topic, {})
                    self._moved(topic)
        finally:
            consumer.close()

    def _heed(self, consumer: Consumer) -> None:
        """Do what was asked for. No other thread may: its call may never return while this one polls."""
        with self._lock:
            asked, self._asked = self._asked, {}
        for topic, ends in asked.items():
            self._assign(consumer, topic, ends)

    def _assign(self, consumer: Consumer, topic: str, ends: Offsets) -> None:
        if before := self._watched.pop(topic, {}):
            consumer.incremental_unassign([TopicPartition(topic, p) for p in before])
        if ends:
            self._watched[topic] = ends
            consumer.incremental_assign([TopicPartition(topic, p, offset) for p, offset in ends.items()])

    def stop(self) -> None:
        """Let it end, without waiting for that."""
        self._ended.set()
