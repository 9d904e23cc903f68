"""Spark's classes as a class-data archive, made once at the installation: `python -m jobs.spark.class_archive JARS`.

Without it a JVM that starts loads and checks some 15,000 classes again. With it, Spark is there after 4.0 s
instead of 6.6 s, and its first work done after 4.1 s more instead of 5.4 s (docs/benchmarks.md). A JVM that finds an
archive made by another Java, or for other jars, runs without it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from driftless.errors import SourceUnavailable
from jobs.spark.consumer import JvmConsumer
from jobs.spark.private import jvm_of, running_gateway
from jobs.spark.projection import RecordProjection
from jobs.spark.session import ARCHIVE, session
from jobs.spark.source import LogSource

_ROWS = "cast(id as string) as key", "to_json(named_struct('id', id, 'name', cast(id as string))) as value"
_PARSED = "key", "from_json(value, 'id long, name string') as r"
_SHOWN = "key", "to_json(named_struct('id', r.id, 'at', cast(timestamp_micros(r.id) as string))) as document"


def make(jars: Sequence[Path], path: Path = ARCHIVE) -> None:
    """Run what a follower's slices run, and have the JVM write the classes that it took when it ends.

    `jars`: of Spark's Kafka source, in the order in which `session` will be given them.
    """
    if not jars:
        raise ValueError("Spark's Kafka source is missing")
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    spark = session(jars, java_options=f'"-XX:ArchiveClassesAtExit={fresh}"')

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    shown = spark.range(1_000).selectExpr(*_ROWS).selectExpr(*_PARSED).selectExpr(*_SHOWN)
    for codegen in ("true", "false"):
        spark.conf.set("spark.sql.codegen.wholeStage", codegen)
        shown.toArrow()
        shown.mapInArrow(same, "key string, document string").toArrow()
        shown.groupBy("key").agg({"document": "max"}).count()
    _read_small_slices(spark)
    gateway = running_gateway()
    assert gateway is not None
    jvm = gateway.proc
    spark.stop()
    jvm.stdin.close()  # the JVM ends, and writes the archive, when nobody talks to it any more
    jvm.wait(300)
    fresh.replace(path)


def _read_small_slices(spark: SparkSession) -> None:
    jvm = jvm_of(spark)
    clients = jvm.org.apache.kafka.clients.consumer
    settings = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.isolation.level": "read_committed"}
    source = LogSource("none", settings, ("CAST(value AS STRING) AS value", "CAST(key AS STRING) AS key"), _PARSED)
    given = jvm.java.util.ArrayList()
    given.add(clients.ConsumerRecord("none", 0, 0, b"1", b'{"id": 1, "name": "x"}'))
    RecordProjection(spark, source).table(given)
    with suppress(SourceUnavailable):  # nobody listens there
        next(JvmConsumer(spark, source, seconds=1.0).polls({0: 0}, {0: 1}))


if __name__ == "__main__":
    try:
        make([Path(jar) for jar in sys.argv[1].split(",") if jar])
    except Exception as exc:  # noqa: BLE001 - nothing needs it, so nothing about it may stop an installation
        print(f"Spark will start more slowly: its archive could not be made: {exc}", file=sys.stderr)
