"""From records of a table's log to events: which of them are events, when they were received, and what they hold."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from driftless.facts.event_source import CapturedEvents, EventSource
from driftless.table import Column
from jobs.streams.rows.event_rows import event_rows_sql

COLUMNS = (
    Column("id", "int8"),
    Column("kind", "text"),
    Column("price", "numeric"),
    Column("at", "timestamptz"),
    Column("payload", "jsonb"),
)
TYPES = {"id": "bigint", "kind": "text", "price": "numeric", "at": "timestamptz"}
TABLE = CapturedEvents("public.t", COLUMNS[:4], "", 1, {0: 100, 1: 100}, {0: (7, 9)})
OUTBOX = CapturedEvents("public.t", (COLUMNS[0], COLUMNS[4]), "payload", 1, {0: 0})
COMMITTED = 1_760_000_000_000
AT = "2025-10-09T08:53:18Z"
AT_MS = 1_759_999_998_000
LATENESS = 10_000

Header = tuple[str, bytes]


def headers(op: str, ms: int = COMMITTED, *more: Header) -> list[Header]:
    return [*more, ("op", op.encode()), ("ts", str(ms * 1000 + 999).encode()), ("lsn", b"2")]


def row(
    spark: SparkSession,
    value: object,
    heads: list[Header] | None,
    offset: int = 1,
    rows: CapturedEvents = TABLE,
    types: dict[str, str] = TYPES,
) -> dict[str, Any]:
    """What one record becomes, its time in milliseconds."""
    source = EventSource("t", "id", {0: 0}, types, "at", None, LATENESS, 0, rows)
    text = None if value is None else json.dumps(value).encode()
    schema = "key binary, value binary, headers array<struct<key: string, value: binary>>, partition int, offset bigint"
    found = spark.createDataFrame([(b"{}", text, heads, 0, offset)], schema)
    for step in event_rows_sql(source, placed=True):
        found = found.selectExpr(*step)
    (read,) = found.selectExpr("*", "unix_millis(at) AS ms").collect()
    return dict(read.asDict())


VALUE = {"id": 5, "kind": "ü", "price": "1.50", "at": AT}


def test_a_row_that_was_added_is_an_event_that_was_received_when_it_was_committed(spark: SparkSession) -> None:
    found = row(spark, VALUE, headers("c"))
    assert (found["id"], found["kind"], found["price"]) == (5, "ü", Decimal("1.50"))
    assert (found["ms"], found["received_ms"], found["_reason"]) == (AT_MS, COMMITTED, None)
    assert row(spark, VALUE, headers("c", AT_MS + LATENESS))["_reason"] is None
    assert row(spark, VALUE, headers("c", AT_MS + LATENESS + 1))["_reason"] == "late"
    assert row(spark, VALUE, headers("c", AT_MS - 3_000))["ms"] == AT_MS - 3_000, "its clock is ahead"


def test_what_a_snapshot_has_read_is_never_late_and_counts_once(spark: SparkSession) -> None:
    found = row(spark, {**VALUE, "at": "1999-01-01T00:00:00Z"}, headers("r"))
    assert (found["received_ms"], found["_reason"]) == (None, None)
    for offset, reason in ((6, None), (7, "repeated"), (8, None), (9, "repeated"), (99, None), (100, "repeated")):
        assert row(spark, VALUE, headers("r"), offset)["_reason"] == reason, offset
    assert row(spark, VALUE, headers("c"), 7)["_reason"] is None, "it is not of a snapshot"


@pytest.mark.parametrize(
    ("value", "heads", "reason"),
    [
        (VALUE, headers("u"), "changed"),
        (VALUE, headers("c", COMMITTED, ("__debezium.oldkey", b"{}")), "changed"),
        (None, headers("d"), "deleted"),
        (None, None, "deleted"),
        (VALUE, None, "invalid"),
        (VALUE, headers("t"), "invalid"),
        ({**VALUE, "at": None}, headers("c"), "invalid"),
        ({**VALUE, "at": "infinity"}, headers("c"), "invalid"),
        ({**VALUE, "price": "NAN"}, headers("c"), "invalid"),
        ([1], headers("c"), "invalid"),
    ],
)
def test_what_is_no_event_says_why(spark: SparkSession, value: object, heads: list[Header] | None, reason: str) -> None:
    assert row(spark, value, heads)["_reason"] == reason


def test_an_outbox_has_columns_of_its_own_and_members_of_its_payload(spark: SparkSession) -> None:
    types = {"id": "bigint", "page": "text", "at": "timestamptz"}
    payload = json.dumps({"id": 9, "page": "home", "at": AT})
    found = row(spark, {"id": 5, "payload": payload}, headers("c"), rows=OUTBOX, types=types)
    assert (found["id"], found["page"], found["ms"], found["_reason"]) == (5, "home", AT_MS, None)
    assert row(spark, {"id": 5, "payload": "[1]"}, headers("c"), rows=OUTBOX, types=types)["_reason"] == "invalid"
