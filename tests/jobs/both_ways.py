"""Records through a log's two steps: by a job, as a large slice is read, and without one, as a small slice is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from jobs.spark.private import is_private_spark_usable, jvm_of
from jobs.spark.projection import RecordProjection
from jobs.spark.public import RECORDS
from jobs.spark.source import LogSource

TOPIC = "shop.public.t"
WAYS = ["0", "1"]
"""Of PUBLIC_ONLY: logs are read with what Spark keeps private, and with what is public alone."""
Header = tuple[str, bytes]
Record = tuple[bytes | None, bytes | None, Sequence[Header] | None, int, int]
"""Key, value, headers, partition, offset."""


def both_ways(spark: SparkSession, parse: Sequence[str], shape: Sequence[str], records: Sequence[Record]) -> pa.Table:
    """What the records become; raises what the job raises, once the other way has raised the same."""
    found = _outcome(lambda: stepped(spark, tuple(parse), tuple(shape), records))
    kind = "key binary, value binary, headers array<struct<key: string, value: binary>>, partition int, offset bigint"
    frame = spark.createDataFrame(records, kind)
    wanted = _outcome(frame.selectExpr(*parse).selectExpr(*shape).toArrow)
    if isinstance(wanted, Exception):
        assert type(found) is type(wanted), found
        assert str(found).split("SQLSTATE")[0] == str(wanted).split("SQLSTATE")[0]
        raise wanted
    assert isinstance(wanted, pa.Table)
    assert wanted.equals(found), f"{found.to_pylist()} != {wanted.to_pylist()}"
    return wanted


def stepped(spark: SparkSession, parse: tuple[str, ...], shape: tuple[str, ...], records: Sequence[Record]) -> pa.Table:
    """What the two steps make of records, as a small slice is read."""
    given = in_java(spark, records) if is_private_spark_usable(spark) else in_arrow(records)
    return _projection(spark, parse, shape).table(given)


@cache
def _projection(spark: SparkSession, parse: tuple[str, ...], shape: tuple[str, ...]) -> RecordProjection:
    return RecordProjection(spark, LogSource(TOPIC, {"includeHeaders": "true"}, parse, shape))


def _outcome(call: Any) -> Any:
    try:
        return call()
    except Exception as exc:  # noqa: BLE001
        return exc


def in_arrow(records: Sequence[Record]) -> pa.Table:
    """A table with the Kafka source's columns."""
    rows = [
        {
            "key": key,
            "value": value,
            "headers": [{"key": name, "value": content} for name, content in headers] if headers else None,
            "partition": partition,
            "offset": offset,
        }
        for key, value, headers, partition, offset in records
    ]
    return pa.Table.from_pylist(rows, RECORDS)


def in_java(spark: SparkSession, records: Sequence[Record]) -> Any:
    """A list of Kafka's own records."""
    jvm = jvm_of(spark)
    clients = jvm.org.apache.kafka
    listed = jvm.java.util.ArrayList()
    for key, value, headers, partition, offset in records:
        given = clients.common.header.internals.RecordHeaders()
        for name, content in headers or ():
            given.add(name, content)
        no_time = clients.common.record.TimestampType.NO_TIMESTAMP_TYPE
        nothing = jvm.java.util.Optional.empty()
        listed.add(
            clients.clients.consumer.ConsumerRecord(
                TOPIC, partition, offset, -1, no_time, -1, -1, key, value, given, nothing
            )
        )
    return listed
