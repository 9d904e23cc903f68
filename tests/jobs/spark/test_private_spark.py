"""Spark's private classes behind one door: what is said where it stays closed, and that decoding is the same then."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from jobs.spark import private
from jobs.spark.private import PUBLIC_ONLY, is_private_spark_usable, report_private_spark
from jobs.spark.projection import RecordProjection
from jobs.spark.public import RECORDS
from jobs.spark.source import LogSource
from tests.jobs.both_ways import TOPIC, Record, stepped
from tests.jobs.spark.test_batches import SQL, row


@pytest.fixture(autouse=True)
def _looked_at_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(PUBLIC_ONLY, raising=False)
    private._lacking.cache_clear()
    yield
    private._lacking.cache_clear()


def said(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        report_private_spark(spark)
    return [record.getMessage() for record in caplog.records]


def test_the_door_is_open_and_nothing_is_said_with_the_spark_that_is_pinned(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    assert said(spark, caplog) == []
    assert is_private_spark_usable(spark)


def test_an_operator_can_close_it(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PUBLIC_ONLY, "1")
    assert said(spark, caplog) == [
        "this driftless speaks to Spark 4.2; DRIFTLESS_PUBLIC_SPARK_ONLY is set: "
        "it reads by public jobs, which is slower"
    ]
    assert not is_private_spark_usable(spark)
    monkeypatch.setenv(PUBLIC_ONLY, "0")
    assert is_private_spark_usable(spark)


@pytest.mark.parametrize("version", ["4.1", "4.20", "4.3"])
def test_another_version_closes_it(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(private, "VERSION", version)
    assert said(spark, caplog) == [
        f"this driftless speaks to Spark {version}; found {spark.version}: it reads by public jobs, which is slower"
    ]
    assert not is_private_spark_usable(spark)


def test_a_class_or_method_that_is_gone_closes_it_and_is_named(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = {
        "org.apache.spark.api.python.PythonRDD": {"serveIterator": 3},
        "scala.jdk.javaapi.CollectionConverters": {"asScala": 1, "asScalaNoMore": 1},
        "org.apache.spark.sql.Gone": {"x": 0},
    }
    monkeypatch.setattr(private, "_METHODS", needed)
    assert said(spark, caplog) == [
        f"this driftless speaks to Spark 4.2; found {spark.version} without "
        "org.apache.spark.api.python.PythonRDD.serveIterator, scala.jdk.javaapi.CollectionConverters.asScalaNoMore, "
        "org.apache.spark.sql.Gone: it reads by public jobs, which is slower"
    ]
    assert not is_private_spark_usable(spark)


def in_a_table(records: Sequence[Record]) -> pa.Table:
    rows = [
        {
            "key": key,
            "value": value,
            "headers": None if headers is None else [{"key": name, "value": content} for name, content in headers],
            "partition": partition,
            "offset": offset,
        }
        for key, value, headers, partition, offset in records
    ]
    return pa.Table.from_pylist(rows, RECORDS)


def test_rows_and_errors_are_the_same_when_it_is_closed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [row(n, None if n % 3 == 1 else b"{" if n == 50 else row(n)[1]) for n in range(60)]
    by_private = partial(stepped, spark, SQL.parse, SQL.shape)
    wanted = by_private(records[:50])
    with pytest.raises(PySparkException, match=r"shop\.public\.t/1/50: the row cannot be decoded"):
        by_private(records)
    monkeypatch.setenv(PUBLIC_ONLY, "1")
    projection = RecordProjection(spark, LogSource(TOPIC, {"includeHeaders": "true"}, SQL.parse, SQL.shape))
    assert projection.empty.num_rows == 0
    assert projection.table(in_a_table(records[:50])).equals(wanted)
    with pytest.raises(PySparkException, match=r"shop\.public\.t/1/50: the row cannot be decoded"):
        projection.table(in_a_table(records))
