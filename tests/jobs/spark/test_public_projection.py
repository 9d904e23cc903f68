"""Records through a log's two steps by what Spark makes public: what the JVM keeps of them."""

from __future__ import annotations

import gc

from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from jobs.spark.public import HELD_BYTES, TableProjection
from jobs.spark.source import LogSource
from tests.jobs.both_ways import TOPIC, in_arrow

TABLES = 12


def test_the_jvm_keeps_some_megabytes_of_records_that_were_decoded_and_no_more(spark: SparkSession) -> None:
    """Python itself may collect its garbage much later."""
    projection = TableProjection(spark, LogSource(TOPIC, {}, ("value",), ("value",)))
    records = in_arrow([(b"1", bytes(1_000_000), None, 0, offset) for offset in range(4)])
    assert projection.empty.num_rows == 0
    gc.collect()
    gc.disable()
    try:
        before = _kept_for_python()
        projection.table(records)
        each = _kept_for_python() - before
        for _ in range(TABLES - 1):
            assert projection.table(records).num_rows == 4
        kept = _kept_for_python() - before
    finally:
        gc.enable()
    assert each > 0
    assert kept <= each * (HELD_BYTES // records.nbytes + 2)
    assert HELD_BYTES // records.nbytes + 2 < TABLES


def _kept_for_python() -> int:
    """Objects of the JVM's: frames among them, with their records."""
    return sum(isinstance(found, JavaObject) for found in gc.get_objects())
