"""From records of a table's log to versions of its rows: which of them are one, since when, and what they hold."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from driftless.facts.event_source import CapturedEvents, EventSource
from driftless.table import Column
from jobs.streams.rows.version_rows import GONE, SINCE, TOLD, version_rows

COLUMNS = (Column("id", "int8"), Column("title", "text"), Column("price", "numeric"), Column("Made at", "timestamptz"))
TYPES = {"id": "bigint", "title": "text", "price": "numeric", "Made at": "timestamptz"}
SOURCE = EventSource.of_versions("t", TYPES, CapturedEvents("public.t", COLUMNS, "", 1))
COMMITTED, LOGGED = 1_760_000_000_000, 1_760_000_000_500
VALUE = {"id": 5, "title": "ü", "price": "1.50", "Made at": "2025-10-09T08:53:18.000001Z"}
Header = tuple[str, bytes]


def headers(op: str, ms: int = COMMITTED) -> list[Header]:
    return [("op", op.encode()), ("ts", str(ms * 1000 + 999).encode()), ("lsn", b"2")]


def read(spark: SparkSession, value: object, heads: list[Header] | None) -> DataFrame:
    text = None if value is None else json.dumps(value).encode()
    record = (b'{"id":5}', text, heads, 1, 7, datetime.fromtimestamp(LOGGED / 1000, UTC))
    schema = "key binary, value binary, headers array<struct<key: string, value: binary>>, partition int, "
    records = spark.createDataFrame([record], f"{schema} offset bigint, timestamp timestamp")
    return version_rows(records, SOURCE, ("id",))


def versions(spark: SparkSession, value: object, heads: list[Header] | None) -> list[dict[str, Any]]:
    return [row.asDict() for row in read(spark, value, heads).collect()]


@pytest.mark.parametrize(("op", "since"), [("c", COMMITTED), ("u", COMMITTED), ("r", 0)])
def test_a_row_holds_since_its_commit_and_one_of_a_snapshot_always(spark: SparkSession, op: str, since: int) -> None:
    (found,) = versions(spark, VALUE, headers(op))
    assert (found["partition"], found["offset"], found[SINCE], found[GONE]) == (1, 7, since, False)
    assert (found["id"], found["title"], found["price"]) == (5, "ü", Decimal("1.50"))


def test_a_delete_has_the_key_alone(spark: SparkSession) -> None:
    (found,) = versions(spark, None, headers("d"))
    assert (found["id"], found["title"], found[SINCE], found[GONE]) == (5, None, COMMITTED, True)


@pytest.mark.parametrize(
    ("value", "heads"),
    [(None, None), (VALUE, None), (VALUE, headers("t")), (None, headers("u")), (VALUE, headers("d"))],
)
def test_what_is_no_change_of_a_row_is_left_out(spark: SparkSession, value: object, heads: list[Header] | None) -> None:
    assert versions(spark, value, heads) == []


def test_what_the_type_cannot_hold_is_null(spark: SparkSession) -> None:
    (found,) = versions(spark, {**VALUE, "price": "NAN", "Made at": "infinity"}, headers("c"))
    assert (found["price"], found["Made at"], found["title"]) == (None, None, "ü")


@pytest.mark.parametrize(("op", "told"), [("r", LOGGED), ("c", COMMITTED)])
def test_no_version_is_older_for_spark_than_when_it_was_known(spark: SparkSession, op: str, told: int) -> None:
    """It drops what is older than the ticks: what a snapshot has read counts from the beginning, and came now."""
    assert read(spark, VALUE, headers(op)).selectExpr(f"unix_millis({TOLD}) AS told").collect()[0]["told"] == told
