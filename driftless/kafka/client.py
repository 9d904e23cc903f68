"""The one door to Kafka outside Spark: topics, offsets, and reading a small topic to its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from driftless.config.kafka_options import java_options
from driftless.config.kafka_security import KafkaSecurity, java, librdkafka
from driftless.config.models import KafkaConfig
from driftless.errors import ConfigError, SourceUnavailable
from driftless.kafka.errors import kafka_error, unreadable
from driftless.kafka.login import Complaints
from driftless.kafka.offset_spec import COMMITTED, EARLIEST, LATEST, UNCOMMITTED, admin_offsets
from driftless.kafka.topic_settings import MAX_MESSAGE_BYTES

Offsets = dict[int, int]
"""Partition -> offset."""
Setting = str | int | float | bool
_TO_END: dict[str, Setting] = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}
"""Of a reader that stops there. The last may be the mark that ends a transaction, for which the client would wait."""
TAIL: dict[str, Setting] = {"fetch.wait.max.ms": 500}
"""Of a reader that waits for what comes: a record ends the wait, and while none comes it asks twice a second."""
_WRITER: dict[str, Setting] = {"linger.ms": 0, "acks": "all", "message.max.bytes": MAX_MESSAGE_BYTES}
TIMEOUT = 15.0
_ASK_SECONDS = 2.0
"""How long a consumer is asked for offsets before the admin client is."""


@dataclass(frozen=True)
class Topic:
    """A topic as the brokers know it. `id` changes when a topic is deleted and made again under its old name."""

    name: str
    id: str
    partitions: int


class Kafka:
    """A connection to the brokers. Cheap to keep, safe to share between threads."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._askers: dict[str, Consumer] = {}
        """By isolation: they are asked for offsets, which costs a fifth of what the admin client takes for it."""
        self._complaints = Complaints()
        self.java_key: str | None = None
        """The key of `kafka.security` as the Java client can read it, where that is not as it was given."""
        try:
            self._admin = self._client()
        except KafkaException as exc:
            hint = "correct `kafka` in sync.yaml; librdkafka documents what `options` takes"
            raise ConfigError(f"kafka: {exc.args[0].str()}", hint=hint) from None

    def settings(self, **more: Setting) -> dict[str, Any]:
        """librdkafka's settings of this cluster, with the operator's `kafka.options` on top of ours."""
        base: dict[str, Any] = {"bootstrap.servers": self._config.bootstrap, "socket.timeout.ms": 10_000}
        told = {"error_cb": self._complaints.hear, "logger": self._complaints.logger}
        found = {**base, **more, **self._config.options, **librdkafka(self._config.security), **told}
        if "transaction.timeout.ms" in more:  # the client takes no longer one together with it
            found["socket.timeout.ms"] = min(int(found["socket.timeout.ms"]), int(more["transaction.timeout.ms"]))
        return found

    @property
    def security(self) -> KafkaSecurity | None:
        """What there is to log in with, and to trust."""
        return self._config.security

    def java_settings(self) -> dict[str, str]:
        """The Java client's properties of this cluster. They hold secrets: never print or log them."""
        base = {"bootstrap.servers": self._config.bootstrap, **java_options(self._config.options)}
        found = {**base, **java(self._config.security)}
        if self.java_key is not None:
            found |= {"ssl.keystore.key": self.java_key}
            found.pop("ssl.key.password", None)
        return found

    def log_in(self, seconds: float = TIMEOUT) -> None:
        """Connect. Raises SourceMisconfigured where brokers refuse that, and SourceUnavailable where none answers."""
        deadline = time.monotonic() + seconds
        with self.asking() as admin:
            while True:
                try:
                    admin.list_topics(timeout=2.0)
                except KafkaException:
                    admin.poll(0)
                    if refused := self._complaints.diagnosis(self._config):
                        raise refused from None
                    if time.monotonic() > deadline:
                        raise
                else:
                    return self._complaints.forget()

    def _client(self) -> AdminClient:
        return AdminClient(self.settings())

    @contextmanager
    def asking(self) -> Iterator[AdminClient]:
        """The client, with its exceptions as ours. One that got no answer is not asked again: it keeps the leaders that
        it knows for minutes, and librdkafka 2.16, beside a broker that slept for a while, may never find it again.
        """
        admin = self._admin
        try:
            yield admin
        except KafkaException as exc:
            error = kafka_error(exc.args[0], self._config.bootstrap)
            admin.poll(0)  # what the client has complained of meanwhile
            if isinstance(error, SourceUnavailable):
                error = self._complaints.refusal(self._config) or error
            with self._lock:
                if isinstance(error, SourceUnavailable) and self._admin is admin:
                    self._admin = self._client()
                    self._askers = {}
            raise error from exc

    def topics(self) -> set[str]:
        """Names of all topics."""
        with self.asking() as admin:
            return set(admin.list_topics(timeout=TIMEOUT).topics)

    def topic(self, name: str) -> Topic | None:
        """The topic as it is now, or None."""
        return self.described([name])[name]

    def described(self, names: Iterable[str]) -> dict[str, Topic | None]:
        """The same of several topics, all in one request."""
        found: dict[str, Topic | None] = {}
        with self.asking() as admin:
            futures = admin.describe_topics(TopicCollection(list(names)), request_timeout=TIMEOUT)
            for name, future in futures.items():
                try:
                    topic = future.result()
                    found[name] = Topic(name, str(topic.topic_id), len(topic.partitions))
                except KafkaException as exc:
                    if exc.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
                    found[name] = None
        return found

    def create(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Create a topic; one that exists already is left as it is."""
        with self.asking() as admin:
            topic = NewTopic(name, partitions, self._config.replication, config=dict(settings))
            try:
                admin.create_topics([topic], operation_timeout=TIMEOUT)[name].result()
            except KafkaException as exc:
                if exc.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def delete(self, *names: str) -> None:
        """Delete topics; one that does not exist is no error."""
        with self.asking() as admin:
            for future in admin.delete_topics(list(names), operation_timeout=TIMEOUT).values():
                try:
                    future.result()
                except KafkaException as exc:
                    if exc.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise

    def topic_settings(self, name: str) -> dict[str, str]:
        """Every setting in force for a topic."""
        with self.asking() as admin:
            resource = ConfigResource(ResourceType.TOPIC, name)
            entries = admin.describe_configs([resource], request_timeout=TIMEOUT)[resource].result()
            return {key: str(entry.value) for key, entry in entries.items()}

    def alter_topic(self, name: str, settings: Mapping[str, str]) -> None:
        """Set some of a topic's settings; the others stay."""
        with self.asking() as admin:
            entries = [
                ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()
            ]
            resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
            admin.incremental_alter_configs([resource], request_timeout=TIMEOUT)[resource].result()

    def beginnings(self, topic: str, partitions: int) -> Offsets:
        """The first offset that each partition still has."""
        return self.all_beginnings({topic: partitions})[topic]

    def all_beginnings(self, topics: Mapping[str, int]) -> dict[str, Offsets]:
        """The same of several topics, all in one request."""
        return self._offsets(topics, EARLIEST, COMMITTED)

    def committed_ends(self, topic: str, partitions: int) -> Offsets:
        """Where a read_committed reader must stop: nothing before it is still undecided."""
        return self.all_committed_ends({topic: partitions})[topic]

    def all_committed_ends(self, topics: Mapping[str, int]) -> dict[str, Offsets]:
        """The same of several topics, all in one request."""
        return self._offsets(topics, LATEST, COMMITTED)

    def decided_ends(self, topic: str, partitions: int, seconds: float = 60.0) -> Offsets:
        """Committed ends behind everything that has been written by now; waits so long for transactions to end."""
        written = self.written_ends({topic: partitions})[topic]
        deadline = time.monotonic() + seconds
        while True:
            ends = self.committed_ends(topic, partitions)
            if all(ends[p] >= end for p, end in written.items()):
                return ends
            if time.monotonic() > deadline:
                what = f"{topic}: a transaction of Kafka is still open after {seconds:g} s"
                raise SourceUnavailable(
                    what, hint="Kafka ends it within a minute if its writer is dead; then try again"
                )
            time.sleep(0.02)

    def written_ends(self, topics: Mapping[str, int]) -> dict[str, Offsets]:
        """Where the brokers have written to, decided or not: topic -> offsets, all in one request."""
        return self._offsets(topics, LATEST, UNCOMMITTED)

    def leaders(self, topics: Mapping[str, int]) -> dict[str, Offsets]:
        """The number that each partition's present leader has: it rises with every change of leaders, and restart."""
        found: dict[str, Offsets] = {topic: {} for topic in topics}
        for place in self._listed(topics, LATEST, UNCOMMITTED):
            found[place.topic][place.partition] = -1 if place.leader_epoch is None else place.leader_epoch
        return found

    def truncated(self, places: Mapping[tuple[str, int], tuple[int, int]]) -> list[tuple[str, int]]:
        """Of these partitions, each with the offset that it was read up to and the leader at that time, those that
        were cut off before there since; also where they have grown past it again.
        """
        consumer = self.consumer(**{"enable.partition.eof": True})
        cut, left = [], set(places)
        try:
            consumer.assign([TopicPartition(*place, offset, leader_epoch=e) for place, (offset, e) in places.items()])
            while left:
                message = consumer.poll(TIMEOUT)
                if message is None:
                    what = f"Kafka did not say within {TIMEOUT:.0f} s whether it has lost records"
                    raise SourceUnavailable(what)
                error, place = message.error(), (message.topic(), message.partition())
                if error is not None and error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION):
                    cut.append(place)
                elif error is not None and error.code() != KafkaError._PARTITION_EOF:
                    continue  # what may pass
                left.discard(place)
        finally:
            consumer.close()
        return sorted(place for place in cut if place in places)  # type: ignore[misc]

    def time_of(self, topic: str, partition: int, offset: int) -> int:
        """When the first record of a partition from an offset on was written, in milliseconds since 1970; the time of
        now where there is none yet.
        """
        ends = self.committed_ends(topic, partition + 1)
        places = {partition: offset}, {partition: ends[partition]}
        for message in self.read_between(topic, *places):
            return int(message.timestamp()[1])
        return int(time.time() * 1000)

    def offsets_at(self, topic: str, partitions: int, time: float) -> Offsets:
        """The first offset of each partition whose record is not older than `time`, in seconds since 1970."""
        ends = self.committed_ends(topic, partitions)
        found = self._offsets({topic: partitions}, int(time * 1000), COMMITTED, none=OFFSET_END)[topic]
        return {p: ends[p] if offset == OFFSET_END else offset for p, offset in found.items()}

    def _offsets(
        self, topics: Mapping[str, int], at: int, isolation: str, *, none: int | None = None
    ) -> dict[str, Offsets]:
        """`at`: milliseconds since 1970, or an end. `none`: what stands for no such offset, where that is an answer."""
        found: dict[str, Offsets] = {topic: {} for topic in topics}
        for place in self._listed(topics, at, isolation):
            if place.offset < 0 and place.offset != none:
                # A partition without a leader, as while a broker restarts, is answered with -1001 and no error.
                where = f"{place.topic}/{place.partition}"
                raise SourceUnavailable(f"Kafka at {self._config.bootstrap} has no offset of {where} for now")
            found[place.topic][place.partition] = place.offset
        return found

    def _listed(self, topics: Mapping[str, int], at: int, isolation: str) -> list[TopicPartition]:
        """The brokers' answer on each partition, all in one request.

        Where a consumer has not all of it, as of a topic that was made a moment ago, the admin client is asked: it
        looks for leaders again.
        """
        wanted = [TopicPartition(topic, p, at) for topic, count in topics.items() for p in range(count)]
        answers = self._ask_consumer(wanted, isolation) if wanted else []
        if answers is None:
            with self.asking() as admin:
                answers = admin_offsets(admin, wanted, isolation, TIMEOUT)
        return answers

    def _ask_consumer(self, wanted: list[TopicPartition], isolation: str) -> list[TopicPartition] | None:
        with self._lock:
            asker = self._askers.get(isolation) or self.consumer(**{"isolation.level": isolation})
            self._askers[isolation] = asker
        try:
            answers = asker.offsets_for_times(wanted, timeout=_ASK_SECONDS)
            if all(place.error is None and place.offset != OFFSET_INVALID for place in answers):
                return answers
        except KafkaException:
            pass
        finally:
            asker.poll(0)  # it has nothing to read: what it has complained of meanwhile
        with self._lock:
            self._askers = {}  # what it knows of leaders may be old, and it keeps that for minutes
        return None

    def consumer(self, **settings: Setting) -> Consumer:
        """A consumer that commits nothing and belongs to no group; assign it by hand."""
        base: dict[str, Setting] = {
            "group.id": "driftless",  # required by the client; nothing is committed and no group is joined
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
            "enable.partition.eof": False,
        }
        return Consumer(self.settings(**{**base, **settings}))

    def producer(self, **settings: Setting) -> Producer:
        return Producer(self.settings(**{**_WRITER, **settings}))

    def fencing_producer(self, id_: str, **settings: Setting) -> Producer:
        """One for transactions; every older one of the same id is fenced now. Raises KafkaException."""
        producer = self.producer(**settings, **{"transactional.id": id_})
        producer.list_topics(timeout=TIMEOUT)  # connects: where none is, the coordinator is asked for after 500 ms
        producer.init_transactions(TIMEOUT)
        return producer

    def read_to_end(
        self, topic: str, *, partitions: int = 1, begin: int | None = None, isolation: str = "read_uncommitted"
    ) -> Iterator[Message]:
        """Every record of a topic, from `begin` or its first to the end as it is now; of one key in their order."""
        first = self.beginnings(topic, partitions) if begin is None else {0: begin}
        ends = (
            self.committed_ends(topic, partitions)
            if isolation == "read_committed"
            else self.written_ends({topic: partitions})[topic]
        )
        yield from self.read_between(topic, first, ends, isolation=isolation)

    def read_between(
        self, topic: str, begin: Offsets, ends: Offsets, *, isolation: str = "read_committed"
    ) -> Iterator[Message]:
        """Every record of [begin, end) of each partition. To read_committed, nothing there may be undecided."""
        left = {p for p, end in ends.items() if begin[p] < end}
        if not left:
            return
        consumer = self.consumer(**_TO_END, **{"isolation.level": isolation})
        try:
            consumer.assign([TopicPartition(topic, p, begin[p]) for p in left])
            while left:
                message = consumer.poll(TIMEOUT)
                if message is None:
                    raise SourceUnavailable(f"Kafka did not answer within {TIMEOUT:.0f} s while {topic} was read")
                error, p, offset = message.error(), message.partition(), message.offset()
                at_end = error is not None and error.code() == KafkaError._PARTITION_EOF
                if error is not None and not at_end:
                    if error.retriable():
                        continue
                    raise unreadable(topic, error)
                assert p is not None
                assert offset is not None
                if not at_end and offset < ends[p]:
                    yield message
                # The client tells of the end only where a moment passes without a record, which may never come.
                over = at_end or offset + 1 >= ends[p]
                if over and p in left:
                    left.discard(p)
                    consumer.incremental_unassign([TopicPartition(topic, p)])
        finally:
            consumer.close()


def produce(producer: Producer, topic: str, key: bytes, value: bytes | None, **more: Any) -> None:
    """Give a producer one more record; where its queue is full, once there is room."""
    while True:
        try:
            return producer.produce(topic, value, key, **more)
        except BufferError:
            producer.poll(1.0)
