"""Records of one topic, read by a consumer of Kafka that stays open in Spark's JVM: a small slice needs no job."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from driftless.errors import SourceError, SourceUnavailable
from driftless.kafka.client import TIMEOUT, Offsets
from jobs.spark.memory import no_memory, out_of_memory
from jobs.spark.private import gateway_of, jvm_of
from jobs.spark.refused import refusal
from jobs.spark.source import DRIVER_OFFSETS, LogSource

T = TypeVar("T")
_POLL_MILLISECONDS = 500
_GONE = {"OffsetOutOfRangeException", "NoOffsetForPartitionException"}
BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
_LARGE = 1 << 20
"""Bytes of records that the JVM must not keep for long."""
POLL_BYTES = 16 << 20
"""About how many bytes one poll gives. Kafka bounds a poll by records alone: their number follows from their size."""


@dataclass(frozen=True)
class Poll:
    """What one poll gave. `records`: a Java collection, or, of a ClientConsumer, a table with the Kafka source's
    columns; None where only marks that end transactions were passed.

    `size`: about how many bytes they have. `reached`: how far that is.
    """

    records: Any
    size: float
    reached: Offsets


class JvmConsumer:
    """What a topic holds between offsets. Opened when it is first asked, and again after an error.

    Not to be shared between threads at one time.
    """

    def __init__(
        self, spark: SparkSession, source: LogSource, *, poll: int = DRIVER_OFFSETS, seconds: float = TIMEOUT
    ) -> None:
        """`poll`: how many records Kafka may give at a time. `seconds`: how long it is waited for."""
        self._seconds = seconds
        self._spark = spark
        self._java = jvm_of(spark)
        self._topic = source.topic
        kafka = {key.removeprefix("kafka."): value for key, value in source.options.items() if key.startswith("kafka.")}
        self._settings = {
            **kafka,
            "key.deserializer": BYTES,
            "value.deserializer": BYTES,
            "enable.auto.commit": "false",
            "auto.offset.reset": "none",
        }
        self._most = self._poll = poll
        self._consumed: Any = None
        self._counted = self._mean = 0.0
        self._unweighed = 0
        self._consumer: Any = None
        self._places: dict[int, Any] = {}
        self._at: Offsets = {}

    def polls(self, begin: Offsets, end: Offsets) -> Iterator[Poll]:
        """Every committed record from `begin` to `end` or somewhat further. The caller may stop after any poll.

        Raises SourceUnavailable for what may pass, SourceError where records are gone, and OutOfMemory.
        """
        self._ask(lambda: self._go_to(begin))
        at, deadline = begin, time.monotonic() + self._seconds
        while any(at[p] < offset for p, offset in end.items()):
            if time.monotonic() > deadline:
                self.close()
                raise SourceUnavailable(
                    f"Kafka did not answer within {self._seconds:.0f} s while {self._topic} was read"
                )
            before, found = at, self._ask(self._next)
            at = found.reached
            if at != before:
                yield found
                deadline = time.monotonic() + self._seconds

    def let_go(self, poll: Poll) -> None:
        """Its records are not used any more: Python's collector would let the JVM keep them for seconds."""
        if poll.size > _LARGE:
            gateway_of(self._spark).detach(poll.records)

    def close(self) -> None:
        consumer, self._consumer, self._at = self._consumer, None, {}
        if consumer is not None:
            with suppress(Py4JJavaError):
                consumer.close(self._java.java.time.Duration.ZERO)

    def _ask(self, ask: Callable[[], T]) -> T:
        """What is asked of Kafka's client; closed after an error, since what was polled would be missing next time."""
        try:
            return ask()
        except Py4JJavaError as exc:
            self.close()
            if out_of_memory(exc):
                raise no_memory(self._spark, f"reading {self._topic}") from exc
            name, said = exc.java_exception.getClass().getSimpleName(), exc.java_exception.getMessage()
            what = f"reading {self._topic}: {name}: {said}"
            if name in _GONE:
                raise SourceError(what, hint="the broker lost records; `driftless check` says which") from exc
            raise refusal(str(exc)) or SourceUnavailable(what) from exc
        except Exception:
            self.close()
            raise

    def _next(self) -> Poll:
        some = self._consumer.poll(self._java.java.time.Duration.ofMillis(_POLL_MILLISECONDS))
        records = None if some.isEmpty() else some
        size = 0.0 if records is None else self._weighed(records)
        # Positions, since the marks that end transactions are no records.
        self._at = {p: self._consumer.position(place) for p, place in self._places.items()}
        found = Poll(records, size, dict(self._at))
        self._adapt()
        return found

    def _weighed(self, some: Any) -> float:
        """About how many bytes a poll gave, by the consumer's count: that lags where a poll ends within a fetch."""
        before, self._counted = self._counted, float(self._consumed.metricValue() if self._consumed else 0)
        size = self._counted - before
        if self._most == self._poll and size <= POLL_BYTES:
            return size
        count = int(some.count())
        self._unweighed += count
        if size:
            self._mean, self._unweighed = size / self._unweighed, 0
        return count * self._mean

    def _adapt(self) -> None:
        """Have the next polls give as many records as their size allows, by that of the last ones that were large."""
        most = max(1, min(self._poll, int(POLL_BYTES / max(1.0, self._mean))))
        if not self._most / 2 <= most <= 2 * self._most:
            at = dict(self._at)
            self.close()
            self._most = most
            self._go_to(at)

    def _go_to(self, begin: Offsets) -> None:
        if self._consumer is None:
            self._open()
        if begin.keys() != self._at.keys():
            self._assign(sorted(begin))
        for p, offset in begin.items():
            if self._at[p] != offset:
                self._consumer.seek(self._places[p], offset)
                self._at[p] = offset

    def _open(self) -> None:
        client = f"driftless-{uuid.uuid4().hex[:12]}"
        settings = {**self._settings, "client.id": client, "max.poll.records": str(self._most)}
        kafka = self._java.org.apache.kafka
        self._consumer = kafka.clients.consumer.KafkaConsumer(self._java_map(settings))
        tags = self._java_map({"client-id": client})
        name = kafka.common.MetricName("bytes-consumed-total", "consumer-fetch-manager-metrics", "", tags)
        self._consumed, self._counted, self._unweighed = self._consumer.metrics().get(name), 0.0, 0

    def _assign(self, partitions: list[int]) -> None:
        places = self._java.java.util.ArrayList()
        self._places = {p: self._java.org.apache.kafka.common.TopicPartition(self._topic, p) for p in partitions}
        for place in self._places.values():
            places.add(place)
        self._consumer.assign(places)
        self._at = dict.fromkeys(partitions, -1)

    def _java_map(self, settings: dict[str, str]) -> Any:
        found = self._java.java.util.HashMap()
        for key, value in settings.items():
            found.put(key, value)
        return found
