"""Spark's classes as a class-data archive, made once at the installation: `python -m jobs.archive`.

Without it a JVM that starts loads and checks some 15,000 classes anew. With it, Spark is there after 4.0 s
instead of 6.6 s, and its first work done after 4.1 s more instead of 5.4 s (docs/benchmarks.md). A JVM that finds an
archive made by another Java, or for other jars, runs without it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import SparkContext

from jobs.spark import ARCHIVE, session

_ROWS = "cast(id as string) as key", "to_json(named_struct('id', id, 'name', cast(id as string))) as value"
_PARSED = "key", "from_json(value, 'id long, name string') as r"
_SHOWN = "key", "to_json(named_struct('id', r.id, 'at', cast(timestamp_micros(r.id) as string))) as document"


def make(path: Path = ARCHIVE) -> None:
    """Run what a follower's slices run, and have the JVM write the classes that it took when it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    spark = session([], java_options=f'"-XX:ArchiveClassesAtExit={fresh}"')

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    shown = spark.range(1_000).selectExpr(*_ROWS).selectExpr(*_PARSED).selectExpr(*_SHOWN)
    for codegen in ("true", "false"):
        spark.conf.set("spark.sql.codegen.wholeStage", codegen)
        shown.toArrow()
        shown.mapInArrow(same, "key string, document string").toArrow()
        shown.groupBy("key").agg({"document": "max"}).count()
    gateway = SparkContext._gateway
    assert gateway is not None
    jvm = gateway.proc
    spark.stop()
    jvm.stdin.close()  # the JVM ends, and writes the archive, when nobody talks to it any more
    jvm.wait(300)
    fresh.replace(path)


if __name__ == "__main__":
    try:
        make()
    except Exception as exc:  # noqa: BLE001 - nothing needs it, so nothing about it may stop an installation
        print(f"Spark will start more slowly: its archive could not be made: {exc}", file=sys.stderr)
