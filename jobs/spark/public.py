"""Reading a log with nothing but what Spark makes public: by Kafka's own client, and DataFrames of what it gives.

For a Spark of another version than driftless was written against, or where the operator wants it so. A slice costs some
100 ms of CPU, nearly all of it to plan the same expressions again.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from pyspark.sql import SparkSession

from driftless.errors import SourceError, SourceUnavailable
from driftless.kafka.client import TIMEOUT, Offsets, Setting
from driftless.kafka.errors import kafka_error, unreadable
from jobs.spark.consumer import POLL_BYTES, Poll
from jobs.spark.source import DRIVER_OFFSETS, FETCH_BYTES, LogSource

_SETTINGS: dict[str, Setting] = {
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 10,  # the last may be the mark that ends a transaction, for which the client would wait
    "fetch.message.max.bytes": FETCH_BYTES,
}
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
RECORDS: pa.Schema = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", _HEADERS),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
    ]
)
"""What the Kafka source has of a record, as far as it is used."""
HELD_BYTES = 16 << 20
"""Of records in frames that are used no more. Such a frame is in a cycle of Py4J's, so the JVM keeps its records, twice
or more, until Python collects its garbage.
"""


class ClientConsumer:
    """What a topic holds between offsets, by Kafka's own client. Open only while it is read."""

    def __init__(self, source: LogSource, *, poll: int = DRIVER_OFFSETS, seconds: float = TIMEOUT) -> None:
        """`poll`: how many records there may be in one. `seconds`: how long Kafka is waited for."""
        self._source = source
        self._poll = poll
        self._seconds = seconds

    def polls(self, begin: Offsets, end: Offsets) -> Iterator[Poll]:
        """Every committed record from `begin` to `end` or somewhat further, some megabytes at a time. The caller may
        stop after any poll.

        Raises SourceUnavailable for what may pass, and SourceError where records are gone.
        """
        assert self._source.kafka is not None
        reached = dict(begin)
        if all(reached[p] >= offset for p, offset in end.items()):
            return
        consumer = self._source.kafka.consumer(**_SETTINGS)
        try:
            consumer.assign([TopicPartition(self._source.topic, p, offset) for p, offset in begin.items()])
            while any(reached[p] < offset for p, offset in end.items()):
                before = dict(reached)
                some, size = self._next(consumer, reached, end)
                if reached != before:
                    yield Poll(_table(some) if some else None, size, dict(reached))
        finally:
            consumer.close()

    def let_go(self, poll: Poll) -> None:
        """Python does, by itself."""

    def close(self) -> None:
        """Nothing is open."""

    def _next(self, consumer: Consumer, reached: Offsets, end: Offsets) -> tuple[list[Message], int]:
        """Records, and how many bytes they have; `reached` is moved to behind them."""
        some, size, deadline = list[Message](), 0, time.monotonic() + self._seconds
        while size < POLL_BYTES and len(some) < self._poll and any(reached[p] < offset for p, offset in end.items()):
            message = consumer.poll(max(0.0, deadline - time.monotonic()))
            if message is None:
                what = f"Kafka did not answer within {self._seconds:.0f} s while {self._source.topic} was read"
                raise SourceUnavailable(what)
            error, p, offset = message.error(), message.partition(), message.offset()
            if error is None and p is not None and offset is not None:
                some.append(message)
                size += len(message.value() or b"") + len(message.key() or b"")
                reached[p] = offset + 1
                deadline = time.monotonic() + self._seconds
            elif error is not None and error.code() == KafkaError._PARTITION_EOF and p is not None:
                reached[p] = max(reached[p], offset or 0)  # behind marks that end transactions, which are no records
            elif error is not None:
                self._judge(error)
        return some, size

    def _judge(self, error: KafkaError) -> None:
        """Raise what is not over before long: the client itself tries again."""
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            what = f"reading {self._source.topic}: {error.str()}"
            raise SourceError(what, hint="the broker lost records; `driftless check` says which")
        if not isinstance(kafka_error(error, self._source.options["kafka.bootstrap.servers"]), SourceUnavailable):
            raise unreadable(self._source.topic, error)


class TableProjection:
    """A log's two steps over a table of records: Spark plans them for each."""

    def __init__(self, spark: SparkSession, source: LogSource) -> None:
        self._spark = spark
        self._source = source
        self._held = 0

    @cached_property
    def empty(self) -> pa.Table:
        return self.table(RECORDS.empty_table())

    def table(self, records: pa.Table, _size: float = 0) -> pa.Table:
        """The rows that records become, in their order. Raises PySparkException for one that cannot be decoded."""
        parse, shape = self._source.columns
        if self._held > HELD_BYTES:
            gc.collect()
            self._held = 0
        self._held += records.nbytes
        return self._spark.createDataFrame(records).select(*parse).select(*shape).toArrow()


class RecordTableList:
    """Of a table with the Kafka source's columns."""

    def __init__(self, records: pa.Table) -> None:
        self._records = records

    def __len__(self) -> int:
        return int(self._records.num_rows)

    def some(self, first: int, last: int) -> Any:
        return self._records.slice(first, last - first)

    def place(self, number: int) -> tuple[int, int]:
        return self._records["partition"][number].as_py(), self._records["offset"][number].as_py()


def _table(messages: list[Message]) -> pa.Table:
    rows = [
        {
            "key": message.key(),
            "value": message.value(),
            "headers": _headers(message),
            "partition": message.partition(),
            "offset": message.offset(),
        }
        for message in messages
    ]
    return pa.Table.from_pylist(rows, RECORDS)


def _headers(message: Message) -> list[dict[str, Any]] | None:
    found: Any = message.headers()
    return [{"key": key, "value": value} for key, value in found] if found else None
