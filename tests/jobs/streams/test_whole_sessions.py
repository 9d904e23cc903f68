"""A condition on a session is asked of the whole of it. Spark, left alone, asks it of each event by itself."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from driftless.facts.event_source import EventSource
from driftless.facts.streams import SESSION, StreamBuild, stream_table
from driftless.table import Column
from jobs.streams.sql.query import query_session
from jobs.streams.sql.timed import TO, only, timed_rows

SOURCE = EventSource("clicks", "id", {0: 0}, {"page": "text", "at": "timestamptz"}, "at", None, 0)
TABLE = stream_table("s", (Column("began", "int8"), Column("page", "text"), Column("n", "int8")), ("began", "page"))
SESSIONS = (
    "SELECT unix_millis(session_window.start) AS began, page, count(*) AS n FROM clicks "
    "GROUP BY session_window(at, '2 seconds'), page"
)
EVENTS = (101_000, 102_000, 103_000, 109_000, 120_000)
"""Sessions from 101 s to 105 s, of one event at 109 s, and of one at 120 s."""

ALL, LONG = {101_000: 3, 109_000: 1, 120_000: 1}, {101_000: 3}


def build(sql: str, begin_ms: int = 0) -> StreamBuild:
    return StreamBuild("s", 1, sql, {"clicks": SOURCE}, TABLE, "4", 1, closes=SESSION, begin_ms=begin_ms)


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    session = query_session(spark)
    rows = session.createDataFrame([(ms,) for ms in EVENTS], "ms bigint")
    rows.selectExpr("'a' AS page", "timestamp_millis(ms) AS at").createOrReplaceTempView("clicks")
    return session


def found(session: SparkSession, build: StreamBuild, where: str = "true") -> dict[int, int]:
    rows = only(timed_rows(session, build), build, where).collect()
    return {row["began"]: row["n"] for row in rows}


@pytest.mark.parametrize(
    ("having", "wanted"),
    [
        ("", ALL),
        ("HAVING unix_millis(session_window.end) - unix_millis(session_window.start) > 2500", LONG),
        ("HAVING session_window.end > timestamp_millis(104500) -- as it is", ALL),
        ("having began < 109000 or n > 2", LONG),
        ("HAVING max(unix_millis(at)) = 120000 AND count(*) = (1)", {120_000: 1}),
    ],
)
def test_having_is_asked_of_whole_sessions(session: SparkSession, having: str, wanted: dict[int, int]) -> None:
    assert found(session, build(f"{SESSIONS} {having}")) == wanted


def test_a_session_that_is_open_is_no_shorter_one_that_is_closed(session: SparkSession) -> None:
    assert found(session, build(SESSIONS), f"{TO} <= 104500") == {}
    assert found(session, build(SESSIONS), f"{TO} <= 105000") == LONG
    assert found(session, build(SESSIONS), f"{TO} > 104500 AND {TO} <= 111000") == {101_000: 3, 109_000: 1}


def test_a_session_that_may_have_begun_before_is_not_shown_without_its_begin(session: SparkSession) -> None:
    assert found(session, build(SESSIONS, begin_ms=102_500)) == {109_000: 1, 120_000: 1}
