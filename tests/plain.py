"""Rows of the same records by Spark's expressions and by Arrow."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import pyarrow as pa
from pyspark.sql import SparkSession

from driftless.registry import Epoch, TopicLog
from driftless.table import Table
from jobs.apply import LogSource
from jobs.plainrows import plain_rows
from jobs.rows import records_sql, rows_sql
from jobs.steps import Steps, planning
from tests.both_ways import TOPIC, Record, as_java

UNAVAILABLE = "__gone"
LOG = TopicLog(TOPIC, "id", 2, (Epoch(1, {0: 0, 1: 0}, ""), Epoch(3, {0: 2, 1: 1}, "")))


def by_spark(spark: SparkSession, table: Table, records: Iterable[Record]) -> pa.Table:
    sql = rows_sql(table, LOG, unavailable=UNAVAILABLE)
    return stepped(spark, sql.parse, sql.shape, records)


def by_arrow(spark: SparkSession, table: Table, records: Iterable[Record]) -> pa.Table | None:
    """None where it leaves them to Spark."""
    decoded = plain_rows(table, UNAVAILABLE)
    assert decoded is not None
    return decoded.rows(stepped(spark, *records_sql(LOG), records))


def stepped(spark: SparkSession, parse: tuple[str, ...], shape: tuple[str, ...], records: Iterable[Record]) -> pa.Table:
    """What two steps make of records."""
    return _steps(spark, parse, shape).rows([as_java(spark, list(records))])


@cache
def _steps(spark: SparkSession, parse: tuple[str, ...], shape: tuple[str, ...]) -> Steps:
    return Steps(planning(spark), LogSource(TOPIC, {"includeHeaders": "true"}, parse, shape))
