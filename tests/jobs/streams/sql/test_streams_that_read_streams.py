"""A stream that reads streams: what its SQL becomes, what `check` makes of it, and which of its mistakes it tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from driftless.errors import ConfigError
from driftless.facts.streams import AnalysedStream, WindowEnds
from jobs.streams.sql.analysis import analyse
from tests.driftless.config.test_config import GOOD, load_text
from tests.jobs.streams.sql.test_analysis import EVENTS

MINUTES = "SELECT window.start AS minute, page, count(*) AS n FROM clicks GROUP BY window(at, '1 minute'), page"
BY_HOUR = "FROM minutes GROUP BY window(window_time, '1 hour')"
HOURS = "SELECT window.start AS hour, page, max(n) AS n FROM minutes GROUP BY window(window_time, '1 hour'), page"
WITHIN = (
    "SELECT window.start AS hour, page, max(n) AS n FROM (SELECT window(at, '1 minute') AS w, page, count(*) AS n "
    "FROM clicks GROUP BY 1, 2) GROUP BY window(w, '1 hour'), page"
)


def found(spark: SparkSession, folder: Path, streams: dict[str, tuple[str, str]], events: str = EVENTS) -> Any:
    """What the last one is made of."""
    text = GOOD + events + "streams:\n"
    for name, (sql, key) in streams.items():
        indented = sql.replace("\n", "\n      ")
        text += f"  {name}:\n    sql: |\n      {indented}\n    key: {key}\n"
    return analyse(spark, load_text(folder, text), [*streams][-1])


def test_it_is_what_one_query_would_be(spark: SparkSession, tmp_path: Path) -> None:
    both = {"minutes": (MINUTES, "[minute, page]"), "hours": (HOURS, "[hour, page]")}
    analysed = found(spark, tmp_path, both)
    assert isinstance(analysed, AnalysedStream), analysed
    assert analysed == found(spark, tmp_path, {"hours": (WITHIN, "[hour, page]")})
    assert analysed.reach == 3_660_000
    named = HOURS.replace("FROM minutes", "FROM m").replace("SELECT", "with m as (SELECT * FROM minutes)\nSELECT", 1)
    assert found(spark, tmp_path, both | {"hours": (named, "[hour, page]")}) == analysed


def test_one_that_picks_results_closes_with_them(spark: SparkSession, tmp_path: Path) -> None:
    busy = "SELECT minute, page, n FROM minutes WHERE n > 2"
    analysed = found(spark, tmp_path, {"minutes": (MINUTES, "[minute, page]"), "busy": (busy, "[minute, page]")})
    assert isinstance(analysed, AnalysedStream), analysed
    assert (analysed.closes, analysed.ends) == ("window", WindowEnds(60_000, 60_000, 60_000))
    third = "SELECT window.start AS hour, count(*) AS n FROM busy GROUP BY window(window_time, '1 hour')"
    streams = {"minutes": (MINUTES, "[minute, page]"), "busy": (busy, "[minute, page]"), "s": (third, "[hour]")}
    analysed = found(spark, tmp_path, streams)
    assert isinstance(analysed, AnalysedStream), analysed
    assert (analysed.closes, analysed.reach) == ("window", 3_660_000)


def test_a_stream_that_counts_nothing_is_read_by_its_events_time(spark: SparkSession, tmp_path: Path) -> None:
    carts = "SELECT id, page, at FROM clicks WHERE page = 'cart'"
    counted = "SELECT window.start AS minute, count(*) AS n FROM carts GROUP BY window(at, '1 minute')"
    analysed = found(spark, tmp_path, {"carts": (carts, "[id]"), "s": (counted, "[minute]")})
    assert isinstance(analysed, AnalysedStream), analysed
    assert (analysed.closes, analysed.reach) == ("window", 0)


@pytest.mark.parametrize(
    ("sql", "key", "what"),
    [
        (
            "SELECT 1 AS a,\n  no FROM minutes GROUP BY window(window_time, '1 hour')",
            "[a]",
            "line 2, column 3 of the SQL",
        ),
        (
            "SELECT m.minute, m.page, c.id FROM minutes m JOIN clicks c\nON c.page = m.page AND c.at BETWEEN "
            "m.window_time AND m.window_time + INTERVAL 1 MINUTE",
            "[id, minute]",
            "line 1, column 46 of the SQL: a JOIN with results of a stream",
        ),
        (
            "SELECT window.start AS m, now() AS a FROM minutes GROUP BY window(window_time, '1 hour')",
            "[m]",
            "column 27",
        ),
        ("SELECT count(*) AS n FROM minutes", "[n]", "must be grouped by `window(...)`"),
        (
            "SELECT minute, n FROM minute WHERE n > 1",
            "[minute]",
            "no events `minute`; did you mean `minutes`?",
        ),
    ],
)
def test_its_mistakes_have_their_places_in_its_own_sql(
    spark: SparkSession, tmp_path: Path, sql: str, key: str, what: str
) -> None:
    mistakes = found(spark, tmp_path, {"minutes": (MINUTES, "[minute, page]"), "s": (sql, key)})
    assert isinstance(mistakes, list), mistakes
    assert any(what in mistake.what for mistake in mistakes), mistakes


def test_no_stream_reads_sessions(spark: SparkSession, tmp_path: Path) -> None:
    visits = (
        "SELECT session_window.start AS began, page, count(*) AS n FROM clicks GROUP BY session_window(at, '5 s'), page"
    )
    long = "SELECT began, page, n FROM visits WHERE n > 2"
    mistakes = found(spark, tmp_path, {"visits": (visits, "[began, page]"), "s": (long, "[began, page]")})
    assert isinstance(mistakes, list), mistakes
    assert "by `window(...)` or `session_window(...)` itself" in mistakes[0].what


def test_streams_that_read_each_other_in_a_circle_are_refused(tmp_path: Path) -> None:
    text = GOOD + EVENTS + "streams:\n"
    for name, of in (("a", "b"), ("b", "c"), ("c", "b")):
        text += f"  {name}: {{sql: SELECT id FROM {of}, key: [id]}}\n"
    with pytest.raises(ConfigError) as caught:
        load_text(tmp_path, text)
    assert "streams.c.sql: streams that read each other in a circle: `c` -> `b` -> `c`" in str(caught.value)
