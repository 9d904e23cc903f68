"""Corruptions put by hand into what a follower shows, and into a topic, as no follower would."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import redis
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.compare import OpenSearch, Redis


@dataclass
class InSearch:
    """Documents of generation 1 of an index, changed under the very version that they have."""

    store: OpenSearch

    def get(self, key: str) -> tuple[bytes, int]:
        """A document's own text, and its version."""
        found = self.store.call("GET", self._path(key))
        text = self.store.call("GET", self._path(key))["_source"]
        return json.dumps(text, default=_number).encode(), int(found["_version"])

    def change(self, key: str, **fields: Any) -> None:
        text, version = self.get(key)
        self.put(key, json.dumps({**json.loads(text), **fields}).encode(), version)

    def put(self, key: str, text: bytes, version: int | None = None) -> None:
        """Without a version as somebody else would."""
        at = "" if version is None else f"?version={version}&version_type=external_gte"
        self.store.send("PUT", self._path(key) + at, text)

    def drop(self, key: str) -> None:
        _, version = self.get(key)
        self.store.call("DELETE", self._path(key) + f"?version={version}&version_type=external_gte")

    def _path(self, key: str) -> str:
        return f"/{self.store.index}-1/_doc/{quote(key, safe='')}"


@dataclass
class InCache:
    """Documents under readers' names; the versions beside them stay."""

    store: Redis

    def get(self, key: str) -> bytes:
        with redis.Redis.from_url(self.store.url) as client:
            found: Any = client.get(self._name(key))
            assert found is not None
            return bytes(found)

    def change(self, key: str, **fields: Any) -> None:
        self.put(key, json.dumps({**json.loads(self.get(key)), **fields}).encode())

    def put(self, key: str, text: bytes) -> None:
        with redis.Redis.from_url(self.store.url) as client:
            client.set(self._name(key), text)

    def drop(self, key: str) -> None:
        with redis.Redis.from_url(self.store.url) as client:
            assert client.delete(self._name(key)) == 1

    def field(self, key: str, field: str, value: str | None) -> None:
        """Of a document that is a hash; None takes the field away."""
        with redis.Redis.from_url(self.store.url) as client:
            if value is None:
                assert client.hdel(self._name(key), field) == 1
            else:
                client.hset(self._name(key), field, value)

    def _name(self, key: str) -> str:
        return self.store.template.replace("{id}", key)


@dataclass
class InTopic:
    """Records written into a topic by a stranger."""

    bootstrap: str
    topic: str

    def newest(self, key: bytes) -> tuple[int, bytes | None]:
        """The partition that a key is in, and its newest value."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "test", "enable.auto.commit": False})
        found: tuple[int, bytes | None] | None = None
        try:
            for partition in consumer.list_topics(self.topic, timeout=15).topics[self.topic].partitions:
                first, end = consumer.get_watermark_offsets(TopicPartition(self.topic, partition), timeout=15)
                consumer.assign([TopicPartition(self.topic, partition, first)])
                while first < end and any(p.offset < end for p in consumer.position(consumer.assignment())):
                    message = consumer.poll(5)
                    if message is None:
                        break
                    if message.error() is None and message.key() == key:
                        found = (partition, message.value())
        finally:
            consumer.close()
        assert found is not None, f"{self.topic} has no record of {key!r}"
        return found

    def put(self, key: bytes, value: bytes | None, partition: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        producer.produce(self.topic, value, key, partition)
        assert producer.flush(15) == 0

    def change(self, key: bytes, **fields: Any) -> None:
        partition, value = self.newest(key)
        assert value is not None
        self.put(key, json.dumps({**json.loads(value), **fields}).encode(), partition)

    def drop(self, key: bytes) -> None:
        partition, _ = self.newest(key)
        self.put(key, None, partition)


def _number(value: Any) -> Any:
    return int(value) if value == value.to_integral_value() else float(value)
