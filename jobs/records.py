"""Records of one topic, read by a consumer of Kafka that stays open in Spark's JVM: a small slice needs no job."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from driftless.errors import SourceError, SourceUnavailable
from driftless.kafka import TIMEOUT, Offsets
from jobs.apply import DRIVER_OFFSETS, LogSource

_POLL_MILLISECONDS = 500
_GONE = {"OffsetOutOfRangeException", "NoOffsetForPartitionException"}
_BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"


class Records:
    """What a topic holds between offsets. Opened when it is first asked, and anew after an error.

    Not to be shared between threads at one time.
    """

    def __init__(
        self, spark: SparkSession, source: LogSource, *, poll: int = DRIVER_OFFSETS, seconds: float = TIMEOUT
    ) -> None:
        """`poll`: how many records Kafka may give at a time. `seconds`: how long it is waited for."""
        self._seconds = seconds
        self._jvm: Any = spark._jvm
        self._topic = source.topic
        kafka = {key.removeprefix("kafka."): value for key, value in source.options.items() if key.startswith("kafka.")}
        self._settings = {
            **kafka,
            "key.deserializer": _BYTES,
            "value.deserializer": _BYTES,
            "enable.auto.commit": "false",
            "auto.offset.reset": "none",
            "max.poll.records": str(poll),
        }
        self._consumer: Any = None
        self._places: dict[int, Any] = {}
        self._at: Offsets = {}

    def read(self, begin: Offsets, end: Offsets) -> tuple[list[Any], Offsets]:
        """Every committed record from `begin` to `end` or somewhat further, as Java collections; and how far that is.

        Raises SourceUnavailable for what may pass, and SourceError where records are gone.
        """
        found: list[Any] = []

        def take(records: Any) -> bool:
            found.append(records)
            return True

        return found, self.each(begin, end, take)

    def each(self, begin: Offsets, end: Offsets, take: Callable[[Any], bool], *, most: float = inf) -> Offsets:
        """The same, given to `take` as it comes, until that says no or some `most` offsets are read."""
        try:
            return self._each(begin, end, take, most)
        except Py4JJavaError as exc:
            self.close()
            name, said = exc.java_exception.getClass().getSimpleName(), exc.java_exception.getMessage()
            what = f"reading {self._topic}: {name}: {said}"
            if name in _GONE:
                raise SourceError(what, hint="the broker lost records; `driftless check` says which") from exc
            raise SourceUnavailable(what) from exc
        except Exception:  # of `take` too: what was polled would be missing from the next read
            self.close()
            raise

    def close(self) -> None:
        consumer, self._consumer, self._at = self._consumer, None, {}
        if consumer is not None:
            with suppress(Py4JJavaError):
                consumer.close(self._jvm.java.time.Duration.ZERO)

    def _each(self, begin: Offsets, end: Offsets, take: Callable[[Any], bool], most: float) -> Offsets:
        self._go_to(begin)
        deadline = time.monotonic() + self._seconds
        go_on = True
        while go_on and any(self._at[p] < offset for p, offset in end.items()):
            if time.monotonic() > deadline:
                raise SourceUnavailable(
                    f"Kafka gave no answer within {self._seconds:.0f} s while reading {self._topic}"
                )
            some = self._consumer.poll(self._jvm.java.time.Duration.ofMillis(_POLL_MILLISECONDS))
            go_on = some.isEmpty() or take(some)
            # Positions, since the marks that end transactions are no records.
            at = {p: self._consumer.position(place) for p, place in self._places.items()}
            if at != self._at:
                self._at, deadline = at, time.monotonic() + self._seconds
            go_on = go_on and sum(at.values()) - sum(begin.values()) < most
        return dict(self._at)

    def _go_to(self, begin: Offsets) -> None:
        if self._consumer is None:
            self._consumer = self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(self._java_settings())
        if begin.keys() != self._at.keys():
            self._assign(sorted(begin))
        for p, offset in begin.items():
            if self._at[p] != offset:
                self._consumer.seek(self._places[p], offset)
                self._at[p] = offset

    def _assign(self, partitions: list[int]) -> None:
        places = self._jvm.java.util.ArrayList()
        self._places = {p: self._jvm.org.apache.kafka.common.TopicPartition(self._topic, p) for p in partitions}
        for place in self._places.values():
            places.add(place)
        self._consumer.assign(places)
        self._at = dict.fromkeys(partitions, -1)

    def _java_settings(self) -> Any:
        settings = self._jvm.java.util.HashMap()
        for key, value in self._settings.items():
            settings.put(key, value)
        return settings
