"""Rows of the same records by Spark's expressions and by Arrow, and who writes such records."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pyarrow as pa
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from driftless.facts.epochs import Epoch, TopicLog
from driftless.kafka.client import Kafka, Setting
from driftless.table import Table
from jobs.decode.arrow_documents import plain_documents
from jobs.decode.arrow_rows import plain_rows
from jobs.decode.documents import writes_sql
from jobs.decode.rows import rows_sql
from jobs.spark.arrow import records_as_they_are
from tests.jobs.both_ways import TOPIC, Record, in_java, stepped

UNAVAILABLE = "__gone"
LOG = TopicLog(TOPIC, "id", 2, (Epoch(1, {0: 0, 1: 0}, ""), Epoch(3, {0: 2, 1: 1}, "")))


def transactional(kafka: Kafka) -> Producer:
    """A producer that can begin."""
    settings: dict[str, Setting] = {"transactional.id": uuid.uuid4().hex, "linger.ms": 5}
    producer = kafka.producer(**settings)
    producer.init_transactions(30)
    return producer


def by_spark(spark: SparkSession, table: Table, records: Sequence[Record]) -> pa.Table:
    sql = rows_sql(table, LOG, unavailable=UNAVAILABLE)
    return stepped(spark, sql.parse, sql.shape, records)


def documents_by_spark(
    spark: SparkSession, table: Table, fields: dict[str, str], records: Sequence[Record]
) -> pa.Table:
    parse, shape = writes_sql(table, fields, LOG, unavailable=UNAVAILABLE)
    return stepped(spark, tuple(parse), tuple(shape), records)


def documents_by_arrow(
    spark: SparkSession, table: Table, fields: dict[str, str], records: Sequence[Record]
) -> pa.Table | None:
    """None where it leaves them to Spark."""
    decoded = plain_documents(table, fields, LOG, unavailable=UNAVAILABLE)
    assert decoded is not None
    return decoded.rows(records_as_they_are(spark, headers=decoded.headers).table(in_java(spark, records)))


def by_arrow(spark: SparkSession, table: Table, records: Sequence[Record]) -> pa.Table | None:
    """None where it leaves them to Spark."""
    decoded = plain_rows(table, LOG, UNAVAILABLE)
    assert decoded is not None
    return decoded.rows(records_as_they_are(spark, headers=True).table(in_java(spark, records)))
