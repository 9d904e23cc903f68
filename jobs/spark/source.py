"""Where a log is read and what is made of its records; and a slice of it as a job of Spark's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import expr

from driftless.kafka.client import Kafka, Offsets
from jobs.spark.arrow import ArrowRows

DRIVER_OFFSETS = 2_000
"""Up to here the driver writes: starting a Python worker costs more than the work (220 ms against 75 ms)."""
FETCH_BYTES = 128 << 10
"""Of each partition in one answer of the broker's, or one batch. Rows of 1 MB of one word are 4 KB each there, and a
poll gives all of them that have come: 32 MB of each partition. Of the usual 1 MB, it would be 250.
"""
COMMITTED = "committed"
"""A column of `timed` sources: microseconds since 1970 at which the source committed a change; null where the record
does not say so.
"""
_COMMITTED_SQL = "try_cast(CAST(get(filter(headers, h -> h.key = 'ts'), 0).value AS STRING) AS BIGINT)"


@dataclass(frozen=True)
class LogSource:
    """Where to read and how to make documents of it (see jobs/decode/documents.py). `options`: the Kafka source's.

    `arrow`: makes the same documents without Spark, of what is usual; None where only `parse` and `shape` do. `kafka`:
    the same brokers by Kafka's own client, for where nothing private of Spark's may be used.
    """

    topic: str
    options: Mapping[str, str] = field(repr=False)
    parse: tuple[str, ...]
    shape: tuple[str, ...]
    arrow: ArrowRows | None = field(default=None, compare=False)
    kafka: Kafka | None = field(default=None, repr=False, compare=False)

    @property
    def headers(self) -> bool:
        """Whether the headers of records are asked for."""
        return self.options.get("includeHeaders") == "true"

    @cached_property
    def timed(self) -> LogSource:
        """The same with one more column, COMMITTED."""
        options = {**self.options, "includeHeaders": "true"}
        parse = (*self.parse, f"{_COMMITTED_SQL} AS {COMMITTED}")
        return replace(self, options=options, parse=parse, shape=(*self.shape, COMMITTED), arrow=None)

    @cached_property
    def columns(self) -> tuple[list[Column], list[Column]]:
        """The two steps, parsed once: parsing them again took a tenth of a small batch's CPU."""
        return [expr(sql) for sql in self.parse], [expr(sql) for sql in self.shape]


def read_slice(
    spark: SparkSession, source: LogSource, begin: Offsets, end: Offsets, *, largest: int | None = None
) -> DataFrame:
    """Writes (schema WRITES) of exactly the offsets [begin, end) of each partition.

    `largest`: bytes of a record. What is larger has true in a last column `large`, and nothing else of it is right.
    """
    moved = sorted(p for p in end if end[p] > begin[p])
    reader = spark.read.format("kafka").options(**source.options)
    reader = reader.option("assign", json.dumps({source.topic: moved}))
    for name, offsets in (("startingOffsets", begin), ("endingOffsets", end)):
        reader = reader.option(name, json.dumps({source.topic: {str(p): offsets[p] for p in moved}}))
    parse, shape = source.columns
    if largest is None:
        return reader.load().select(*parse).select(*shape)
    measured = reader.load().withColumn("large", expr(f"coalesce(octet_length(value), 0) > {largest:d}"))
    small = measured.withColumn("value", expr("if(large, CAST(NULL AS BINARY), value)"))
    return small.select(*parse, "large").select(*shape, "large")


def kafka_options(kafka: Kafka, follower: str) -> dict[str, str]:
    """The Kafka source's options. They hold secrets: never print or log them."""
    return {
        **{f"kafka.{key}": value for key, value in kafka.java_settings().items()},
        "kafka.isolation.level": "read_committed",
        # A tail that ends in a transaction's mark would wait for it 500 ms.
        "kafka.fetch.max.wait.ms": "10",
        "kafka.max.partition.fetch.bytes": str(FETCH_BYTES),
        # One name for all batches, so that executors keep their consumers; no offset is ever committed.
        "kafka.group.id": f"driftless-{follower}",
        "failOnDataLoss": "true",
    }
