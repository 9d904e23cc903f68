"""From records to events: types, times and reasons, each a function of the record alone."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from driftless.facts.event_source import EventSource
from jobs.streams.rows.event_rows import event_rows_sql

COLUMNS = {
    "id": "bigint",
    "small": "smallint",
    "page": "text",
    "price": "numeric(6,2)",
    "whole": "numeric",
    "vip": "boolean",
    "day": "date",
    "at": "timestamptz",
    "sent": "timestamptz",
}
RECEIVED = 1_760_000_000_000
LATENESS = 10_000


def row(
    spark: SparkSession, value: bytes | None, *, sent: str | None = "sent", received: int = RECEIVED
) -> dict[str, Any]:
    """What one record becomes, its time in milliseconds."""
    source = EventSource("clicks", "id", {0: 0}, COLUMNS, "at", sent, LATENESS)
    rows = spark.createDataFrame([(value, received)], "value binary, ms bigint")
    rows = rows.selectExpr("value", "timestamp_millis(ms) AS timestamp")
    for step in event_rows_sql(source):
        rows = rows.selectExpr(*step)
    (found,) = rows.selectExpr("*", "unix_millis(at) AS ms").collect()
    return dict(found.asDict())


def event(**members: object) -> bytes:
    return json.dumps(members).encode()


def test_members_have_their_declared_types_and_others_are_not_read(spark: SparkSession) -> None:
    written = event(id=7, small=-3, page="ü", price=1.5, whole="12345.000000000000000001", vip=True, day="2026-01-31")
    found = row(spark, written[:-1] + b', "at": 1759999999000, "more": {"a": [1]}}')
    assert (found["id"], found["small"], found["page"], found["vip"]) == (7, -3, "ü", True)
    assert (found["price"], found["whole"]) == (Decimal("1.50"), Decimal("12345.000000000000000001"))
    assert str(found["day"]) == "2026-01-31"
    assert (found["ms"], found["_reason"]) == (RECEIVED - 1000, None)


@pytest.mark.parametrize(
    ("at", "ms"),
    [
        (RECEIVED - 5, RECEIVED - 5),
        (str(RECEIVED - 5), RECEIVED - 5),
        ("2025-10-09T08:53:15Z", 1_759_999_995_000),
        ("2025-10-09T10:53:15.250+02:00", 1_759_999_995_250),
    ],
)
def test_a_moment_is_a_text_or_milliseconds(spark: SparkSession, at: object, ms: int) -> None:
    assert row(spark, event(at=at))["ms"] == ms


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"no json",
        b"[1]",
        b"{}",
        event(at=None),
        event(at="yesterday"),
        event(at=-1),
        event(at=RECEIVED, id="seven"),
        event(at=RECEIVED, id=1.5),
        event(at=RECEIVED, small=40_000),
        event(at=RECEIVED, price=1.234),
        event(at=RECEIVED, price=12_345.0),
        event(at=RECEIVED, vip="perhaps"),
        event(at=RECEIVED, day="31.1.2026"),
    ],
)
def test_what_is_no_event_is_invalid_and_never_rounded_or_made_null(spark: SparkSession, value: bytes | None) -> None:
    assert row(spark, value)["_reason"] == "invalid"


def test_lateness_is_judged_to_the_millisecond_and_equality_is_in_time(spark: SparkSession) -> None:
    reasons = {off: row(spark, event(at=RECEIVED - LATENESS - off))["_reason"] for off in (-1, 0, 1)}
    assert reasons == {-1: None, 0: None, 1: "late"}


def test_no_event_happens_after_it_is_received(spark: SparkSession) -> None:
    found = row(spark, event(at=RECEIVED + 86_400_000))
    assert (found["ms"], found["_reason"]) == (RECEIVED, None)


@pytest.mark.parametrize(("off", "corrected"), [(2_000, False), (-2_000, False), (2_001, True), (-2_001, True)])
def test_a_devices_clock_is_corrected_where_it_is_off_by_more_than_two_seconds(
    spark: SparkSession, off: int, corrected: bool
) -> None:
    """The device says when it sent the event, by the clock that it has."""
    at = RECEIVED - 3_000
    found = row(spark, event(at=at - off, sent=RECEIVED - off))
    assert found["ms"] == (at if corrected else at - off)
    assert row(spark, event(at=at - off, sent=RECEIVED - off), sent=None)["ms"] == at - off


def test_a_device_that_is_a_day_behind_has_no_late_events(spark: SparkSession) -> None:
    day = 86_400_000
    assert row(spark, event(at=RECEIVED - day - 1_000, sent=RECEIVED - day))["_reason"] is None
    assert row(spark, event(at=RECEIVED - day - 1_000))["_reason"] == "late"


def test_a_moment_is_the_same_whatever_the_zone_of_the_machine() -> None:
    assert datetime.fromtimestamp(RECEIVED / 1000, UTC).isoformat() == "2025-10-09T08:53:20+00:00"
