"""A stream's SQL with two columns more: between which moments everything lies that a result is made of."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from driftless.facts.streams import CHANGES, JOIN, LOOKUP, MATCH, SESSION, WINDOW, JoinTimes, StreamBuild
from driftless.streams.spark_words import outermost, spark_words
from jobs.decode.spark_sql import quote
from jobs.streams.patterns.rows import AT, BEGAN

FROM, TO = "_from", "_to"
UNMOVED = "spark_partition_id() < 0"
"""With OR, keeps a condition on sessions where it stands. Spark 4.2 moves one on `session_window` below the merging of
sessions, and then asks it of each event as if that were a session of its own.
"""


def timed_sql(sql: str, closes: str, join: JoinTimes | None = None, reach: int = 0, event: str = "") -> str:
    """The query with FROM and TO, in milliseconds: before FROM no event can be that changes the result, and at TO it is
    closed. TO is the end of its window. Of an outer join, it is when an event happened that found no other; null where
    two met, which is final at once. Of events with rows of tables, both are when the event happened, by its column
    `event`. The query is as it is where nothing closes.

    A session can be longer than it seems by at most its gap, and so by what it lasts. HAVING is asked of whole
    sessions. Raises ValueError, with a text for the operator, where it has no one outermost SELECT.
    """
    if not closes:
        return sql
    words = spark_words(sql)
    for word in outermost(words, "union", "except", "intersect", "minus"):
        raise ValueError(f"several queries with {word.text.upper()} at the outside: make a stream of each")
    places, conditions = (
        [word.start + len(word.text) for word in outermost(words, text)] for text in ("select", "having")
    )
    if len(places) != 1:
        raise ValueError("it must be one query, which begins with SELECT, or WITH and SELECT")
    first, end = _times(closes, join, reach, event)
    if closes == SESSION and conditions:
        sql = f"{sql[: conditions[-1]]} {UNMOVED} OR ({sql[conditions[-1] :]}\n)"
    return f"{sql[: places[0]]} {first} AS {FROM}, {end} AS {TO}, {sql[places[0] :].lstrip()}"


def _times(closes: str, join: JoinTimes | None, reach: int, event: str) -> tuple[str, str]:
    """What FROM and TO are in SQL."""
    if closes == JOIN:
        assert join is not None
        wait = join.wait_ms
        left, right = f"unix_millis({join.left})", f"unix_millis({join.right})"
        end = (
            f"CASE WHEN {right} IS NULL THEN {left} + {join.left_ms - wait} "
            f"WHEN {left} IS NULL THEN {right} + {join.right_ms - wait} END"
        )
        return f"least({left}, {right}) - {reach}", end
    if closes == MATCH:
        return f"unix_millis({BEGAN})", f"unix_millis({AT})"
    if closes == LOOKUP:
        return (f"unix_millis({quote(event)})",) * 2
    begin, end = f"unix_millis({closes}.start)", f"unix_millis({closes}.end)"
    first = begin if closes == WINDOW else f"2 * {begin} - {end}"
    return (f"{first} - {reach}" if reach else first), end


def timed_rows(spark: SparkSession, build: StreamBuild) -> DataFrame:
    """What the build's SQL gives over the views that are there, with FROM and TO where results close; of those alone of
    which the log has all events.
    """
    rows = spark.sql(timed_sql(build.sql, build.closes, build.join, build.reach, build.looked_up_at))
    return only(rows, build, f"{FROM} >= {build.begin_ms:d}") if build.closes else rows


def only(rows: DataFrame, build: StreamBuild, where: str) -> DataFrame:
    """Those rows of results for which a condition on FROM and TO holds."""
    return rows.where(f"{UNMOVED} OR ({where})" if build.closes == SESSION else where)


def closed_batch(
    spark: SparkSession, build: StreamBuild, closed_ms: int, begin_ms: int, *, after_ms: int = 0
) -> DataFrame:
    """The rows of which no event is from before `begin_ms`, and whose window ends after `after_ms`. Those of them that
    are closed at `closed_ms`, unless every change of one is published.
    """
    rows = timed_rows(spark, build)
    if not build.closes:
        return rows
    where = f"{FROM} >= {begin_ms:d} AND ({TO} IS NULL OR {TO} > {after_ms:d})"
    return only(rows, build, where if build.emit == CHANGES else f"{where} AND ({TO} IS NULL OR {TO} <= {closed_ms:d})")
