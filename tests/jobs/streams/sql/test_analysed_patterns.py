"""What Spark's analyser says of a stream that reads matches of a pattern."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from driftless.facts.streams import AnalysedStream
from tests.jobs.streams.sql.test_analysis import CORRECTED, EVENTS, found

BEGINS = "SELECT began AS minute, page FROM calm"
CALM = """patterns:
  calm:
    events: clicks
    by: [page]
    steps: [{name: seen, where: id > 7}, {unless: id < 3, within: 10s}]
"""


def test_matches_of_a_pattern_are_read_as_events_are(spark: SparkSession, tmp_path: Path) -> None:
    events = EVENTS + CALM
    analysed = found(spark, tmp_path, "SELECT began AS minute, page, seen.id, at FROM calm", events=events)
    assert isinstance(analysed, AnalysedStream), analysed
    assert (analysed.closes, analysed.events, analysed.reach) == ("match", ("clicks",), 10_000)
    assert analysed.patterns["calm"].by == ("page",)
    types = {column.name: column.type for column in analysed.table.columns}
    assert types == {"minute": "timestamptz", "page": "text", "id": "int8", "at": "timestamptz"}

    windows = "SELECT window.start AS minute, page, count(*) AS n FROM calm GROUP BY window(at, '1 hour'), page"
    analysed = found(spark, tmp_path, windows, events=events)
    assert isinstance(analysed, AnalysedStream), analysed
    assert (analysed.closes, analysed.reach) == ("window", 10_000)


@pytest.mark.parametrize(
    ("sql", "pattern", "said"),
    [
        (BEGINS, ("id > 7", "idd > 7"), "`where` of step 1: A column, variable, or"),
        (
            BEGINS,
            ("id > 7", "rand() > 7"),
            "`where` of step 1: line 1, column 1 of the SQL: `rand` gives another answer",
        ),
        (BEGINS, ("id < 3", "max(id) < 3"), "`unless` of step 2: "),
        (BEGINS, ("[page]", "[pag]"), "the pattern `calm`, by: there is no column `pag`; did you mean `page`?"),
        (f"SELECT minute, page FROM ({BEGINS})", ("", ""), "name the pattern `calm` alone, in the outermost FROM"),
        (
            "SELECT c.id AS minute, m.page FROM calm m JOIN clicks c ON m.page = c.page AND m.at = c.at",
            ("", ""),
            "name the pattern `calm` alone, in the outermost FROM",
        ),
        (
            "SELECT window.start AS minute, m.page FROM calm m JOIN clicks c ON m.page = c.page AND m.at = c.at "
            "GROUP BY window(m.at, '1 hour'), m.page",
            ("", ""),
            "line 1, column 51 of the SQL: matches of a pattern in a JOIN: this version cannot do that",
        ),
        ("SELECT page, count(*) AS minute FROM calm GROUP BY page", ("", ""), "no group is ever final: group by"),
    ],
)
def test_what_is_wrong_with_a_pattern_is_told(
    spark: SparkSession, tmp_path: Path, sql: str, pattern: tuple[str, str], said: str
) -> None:
    mistakes = found(spark, tmp_path, sql, events=EVENTS + CALM.replace(*pattern, 1))
    assert isinstance(mistakes, list), mistakes
    assert said in mistakes[0].what


def test_late_events_correct_a_pattern_but_no_sessions_of_its_matches(spark: SparkSession, tmp_path: Path) -> None:
    analysed = found(spark, tmp_path, BEGINS, events=CORRECTED + CALM)
    assert isinstance(analysed, AnalysedStream), analysed
    sessions = "SELECT session_window.start AS minute, page FROM calm GROUP BY session_window(at, '5 seconds'), page"
    (mistake,) = found(spark, tmp_path, sessions, events=CORRECTED + CALM)
    assert "it has sessions of what joins or patterns give" in mistake.what
