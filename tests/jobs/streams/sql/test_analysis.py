"""What Spark's analyser says of a stream's SQL, as mistakes with their places."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from driftless.facts.streams import AnalysedStream, WindowEnds
from driftless.table import Table
from jobs.streams.sql.analysis import analyse
from tests.driftless.config.test_config import GOOD, load_text

EVENTS = """events:
  clicks:
    topic: app.clicks
    columns: {id: bigint, page: text, price: 'numeric(10,2)', at: timestamptz}
    time: {event: at}
  views:
    topic: app.views
    columns: {id: bigint, at: timestamptz}
    time: {event: at}
"""
GROUPED = "FROM clicks GROUP BY window(at, '1 minute'), page"
START = "SELECT window.start AS minute, page"


JOINED = "JOIN views v ON c.id = v.id AND v.at BETWEEN c.at AND c.at + INTERVAL 4 SECONDS"
SESSIONS = "FROM clicks GROUP BY session_window(at, '5 seconds'), page"
CORRECTED = EVENTS.replace("    time: {event: at}\n", "    time: {event: at}\n    late: {correct: 1h}\n", 1)


def found(
    spark: SparkSession,
    folder: Path,
    sql: str,
    key: str = "[minute, page]",
    emit: str = "final",
    events: str = EVENTS,
    tables: Mapping[str, Table] | None = None,
) -> Any:
    written = sql.replace("\n", "\n      ")
    stream = f"streams:\n  s:\n    sql: |\n      {written}\n    key: {key}\n    emit: {emit}\n"
    text = GOOD + events + stream
    return analyse(spark, load_text(folder, text), "s", tables)


def test_columns_key_and_events_are_found(spark: SparkSession, tmp_path: Path) -> None:
    sql = (
        f"{START}, count(*) AS views, sum(price) AS paid, max(struct(at, id)).id AS last {GROUPED} HAVING count(*) > 1"
    )
    analysed = found(spark, tmp_path, sql)
    assert isinstance(analysed, AnalysedStream)
    assert analysed.events == ("clicks",), "`views` is a column here"
    assert analysed.table.key == ("minute", "page")
    types = {column.name: column.type for column in analysed.table.columns}
    assert types == {"minute": "timestamptz", "page": "text", "views": "int8", "paid": "numeric", "last": "int8"}


@pytest.mark.parametrize(
    ("inner", "outer", "reach"),
    [
        ("'1 minute'", "'5 minutes'", 360_000),
        ("'5 minutes'", "'5 minutes'", 300_000),
        ("'2 hours', '1 hour'", "'2 hours', '1 hour'", 7_200_000),
    ],
)
def test_windows_of_windows_have_events_of_before_them(
    spark: SparkSession, tmp_path: Path, inner: str, outer: str, reach: int
) -> None:
    minutes = f"SELECT window(at, {inner}) AS w, page, count(*) AS n FROM clicks GROUP BY 1, 2"
    sql = f"SELECT window.start AS minute, page, max(n) AS n FROM ({minutes}) GROUP BY window(w, {outer}), page"
    analysed = found(spark, tmp_path, sql)
    assert isinstance(analysed, AnalysedStream), analysed
    assert analysed.reach == reach


def test_columns_that_are_not_exact_are_known(spark: SparkSession, tmp_path: Path) -> None:
    about = "approx_count_distinct(id) AS a, approx_count_distinct(id, 0.01) + 1 AS b"
    about += ", theta_sketch_estimate(theta_sketch_agg(id)) AS c, percentile(price, 0.9) AS p, count(*) AS n"
    analysed = found(spark, tmp_path, f"{START}, {about} {GROUPED}")
    assert isinstance(analysed, AnalysedStream), analysed
    assert analysed.approximate == {"a": 0.05, "b": 0.01, "c": 0.0156}


def test_hopping_windows_and_subqueries_are_taken(spark: SparkSession, tmp_path: Path) -> None:
    inner, window = (
        "(SELECT at, upper(page) AS page FROM clicks WHERE page <> 'now()')",
        "window(at, '2 hours', '1 hour')",
    )
    sorts = "sort_array(collect_set(page)) AS all, sort_array(collect_list(page)) AS some"
    sql = f"{START}, {sorts} FROM {inner} GROUP BY {window}, page"
    assert isinstance(found(spark, tmp_path, sql), AnalysedStream)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (f"{START}, now() AS n {GROUPED}", "line 1, column 38 of the SQL: `now` gives another answer at another time"),
        (f"{START},\n  rand() AS r {GROUPED}", "line 2, column 3 of the SQL: `rand` gives another answer each time"),
        (f"{START}, first(id) AS f {GROUPED}", "line 1, column 38 of the SQL: `first` gives another answer in another"),
        (f"{START}, collect_set(id) AS f {GROUPED}", "`collect_set` gives another answer in another order"),
        (f"{START}, sum(CAST(id AS DOUBLE)) AS f {GROUPED}", "`DOUBLE` gives another answer in another order"),
        (f"{START} {GROUPED} LIMIT 10", "`LIMIT` gives another answer in another order"),
        (
            "SELECT at AS minute, page FROM clicks TABLESAMPLE (5 PERCENT)",
            "`TABLESAMPLE` gives another answer each time",
        ),
        (f"{START}, stddev(id) AS f {GROUPED}", "`stddev` gives another answer in another order"),
        (
            f"{START}, pag {GROUPED}",
            "line 1, column 38 of the SQL: A column, variable, or function parameter with name",
        ),
        ("SELECT 1 AS minute, 2 AS page FROM click", "there are no events `click`; did you mean `clicks`?"),
        ("SELEC 1", "Syntax error at or near 'SELEC'"),
        ("SELECT page, count(*) AS minute FROM clicks GROUP BY page", "no group is ever final: group by `window("),
        (f"{START}, count(DISTINCT id) AS n {GROUPED}", "Spark cannot compute this as a stream: Distinct aggregations"),
        (f"{START} {GROUPED} ORDER BY 1", "Spark cannot compute this as a stream: Sorting is not supported"),
        (f"{START}, theta_sketch_agg(id) AS h {GROUPED}", "the column `h` is a binary: no document has one"),
        (f"{START}, 1 AS page {GROUPED}", "gives two columns `page`"),
        (f"SELECT minute, page FROM ({START} {GROUPED})", "its outermost SELECT must be grouped by `window(...)`"),
        (
            f"SELECT minute, page FROM (SELECT session_window, session_window.start AS minute, page {SESSIONS}) "
            "WHERE unix_millis(minute) <> 0",  # Spark would ask it of each event
            "its outermost SELECT must be grouped by `window(...)` or `session_window(...)` itself",
        ),
        (
            f"{START} FROM (SELECT session_window(at, '1 s') AS w, page FROM clicks GROUP BY 1, 2) "
            "GROUP BY window(w, '1 hour'), page",
            "windows over sessions: a session may have begun at any time before its window",
        ),
        (f"{START} {GROUPED} UNION ALL {START} {GROUPED}", "several queries with UNION at the outside"),
        (
            f"{START}, hll_sketch_estimate(hll_sketch_agg(id)) AS n {GROUPED}",
            "`hll_sketch_agg` gives another answer in",
        ),
        (
            f"{START}, sum(id / 3) AS f {GROUPED}",
            "line 1, column 38 of the SQL: `sum` of binary fractions gives another",
        ),
        (f"{START},\n avg(sqrt(id)) AS f {GROUPED}", "line 2, column 2 of the SQL: `avg` of binary fractions gives an"),
        (
            f"SELECT c.id AS minute, c.page FROM clicks c LEFT SEMI {JOINED}",
            "line 1, column 55 of the SQL: SEMI JOIN of events: use LEFT JOIN, and `WHERE b.id IS NULL`",
        ),
        (
            f"SELECT v.id AS minute, c.page FROM (SELECT * FROM clicks) c LEFT {JOINED}",
            "line 1, column 66 of the SQL: an outer JOIN: name events on both sides, in the outermost FROM",
        ),
        (
            f"SELECT c.id AS minute, c.page FROM clicks c LEFT {JOINED} JOIN views w ON w.id = c.id AND w.at = c.at",
            "line 1, column 50 of the SQL: an outer JOIN beside another JOIN: this version cannot do that; join two",
        ),
        ("SELECT c.id AS minute, c.page FROM clicks c JOIN views v ON c.id = v.id", "the JOIN does not say how long"),
        (
            "SELECT c.id AS minute, c.page FROM clicks c LEFT JOIN views v ON c.id = v.id AND v.at > c.at",
            "the JOIN does not say how long after one event the other may happen",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(spark: SparkSession, tmp_path: Path, sql: str, said: str) -> None:
    mistakes = found(spark, tmp_path, sql)
    assert isinstance(mistakes, list)
    assert said in mistakes[0].what


@pytest.mark.parametrize(
    ("sql", "closes"),
    [
        (f"{START} {GROUPED}", "window"),
        (f"WITH c AS (SELECT * FROM clicks) {START} FROM c GROUP BY window(at, '1 day'), page", "window"),
        (
            "SELECT session_window.end AS minute, page FROM clicks GROUP BY session_window(at, '5 seconds'), page",
            "session_window",
        ),
        ("SELECT at AS minute, page FROM clicks WHERE id > 7", ""),
        ("SELECT c.id AS minute, v.id AS page FROM clicks c JOIN views v ON c.id = v.id AND c.at = v.at", ""),
        (f"SELECT c.id AS minute, v.id AS page FROM clicks c RIGHT {JOINED}", "join"),
    ],
)
def test_it_is_known_by_what_a_result_becomes_final(spark: SparkSession, tmp_path: Path, sql: str, closes: str) -> None:
    analysed = found(spark, tmp_path, sql)
    assert isinstance(analysed, AnalysedStream), analysed
    assert analysed.closes == closes


@pytest.mark.parametrize(
    ("sql", "closes", "times"),
    [
        (f"SELECT c.id AS minute, v.id AS page FROM clicks c {JOINED}", "", (4_001, 1, "`c`.`at`", "`v`.`at`")),
        (
            f"SELECT c.id AS minute, 1 AS page FROM clicks AS c\nFULL OUTER {JOINED}",
            "join",
            (4_001, 1, "`c`.`at`", "`v`.`at`"),
        ),
        (
            "SELECT a.id AS minute, b.id AS page FROM clicks a LEFT JOIN clicks b ON a.id = b.id AND "
            "b.at > a.at - INTERVAL 10 SECONDS AND b.at < a.at + INTERVAL 1 MINUTE WHERE b.id IS NULL",
            "join",
            (60_000, 10_000, "`a`.`at`", "`b`.`at`"),
        ),
        (
            "SELECT clicks.id AS minute, views.id AS page FROM clicks RIGHT JOIN views ON clicks.id = views.id AND "
            "clicks.at = views.at",
            "join",
            (0, 0, "`clicks`.`at`", "`views`.`at`"),
        ),
        (
            f"{START}, count(v.id) AS n FROM clicks c LEFT {JOINED} GROUP BY window(c.at, '1 minute'), page",
            "window",
            (4_001, 1, "`c`.`at`", "`v`.`at`"),
        ),
        (
            f"{START} FROM (SELECT c.* FROM clicks c {JOINED}) GROUP BY window(at, '1 minute'), page",
            "window",
            (4_001, 1, "", ""),
        ),
        (f"{START} FROM clicks c LEFT {JOINED} GROUP BY window(c.at, '1 minute'), page", "window", None),
        (f"{START} {GROUPED}", "window", None),
    ],
)
def test_it_is_known_for_how_long_a_join_waits(
    spark: SparkSession, tmp_path: Path, sql: str, closes: str, times: tuple[int, int, str, str] | None
) -> None:
    analysed = found(spark, tmp_path, sql)
    assert isinstance(analysed, AnalysedStream), analysed
    assert analysed.closes == closes
    join = analysed.join
    assert (None if join is None else (join.left_ms, join.right_ms, join.left, join.right)) == times


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        (f"SELECT session_window.start AS minute, page {SESSIONS}", ""),
        (f"{START} {GROUPED} HAVING count(*) > 1", ""),
        (f"SELECT session_window.start AS minute, page {SESSIONS} HAVING count(*) > 1", "a session that HAVING"),
        (
            "SELECT session_window.start AS minute, page FROM (SELECT * FROM clicks WHERE id > 1) "
            "GROUP BY session_window(at, '5 seconds'), page",
            "a session that HAVING",
        ),
        (
            "SELECT window(w, '1 hour').start AS minute, page FROM (SELECT window(at, '1 minute') AS w, page "
            "FROM clicks GROUP BY window(at, '1 minute'), page) GROUP BY window(w, '1 hour'), page",
            "",
        ),
        (
            "SELECT window.start AS minute, page FROM (SELECT window(at, '2 hours', '1 hour') AS w, page "
            "FROM clicks GROUP BY 1, 2) GROUP BY window(w, '2 hours', '1 hour'), page",
            "",
        ),
    ],
)
def test_what_late_events_cannot_correct_is_refused(spark: SparkSession, tmp_path: Path, sql: str, why: str) -> None:
    assert isinstance(found(spark, tmp_path, sql), AnalysedStream), "it is well without corrections"
    analysed = found(spark, tmp_path, sql, events=CORRECTED)
    if not why:
        assert isinstance(analysed, AnalysedStream)
        return
    (mistake,) = analysed
    assert mistake.field == "sql"
    assert (
        f"late events cannot correct it, as `late: {{correct: ...}}` of its events asks: {why}"
        in mistake.what.replace("it has ", "")
    )


@pytest.mark.parametrize(
    ("sql", "key", "missing"),
    [
        (f"{START} {GROUPED}", "[minute, page]", []),
        (f"{START} {GROUPED} HAVING count(*) > 1", "[minute]", ["page"]),
        (f"{START} {GROUPED}", "[page]", ["window"]),
        (f"SELECT unix_millis(window.end) AS m, page AS p, count(*) AS n {GROUPED}", "[m, p]", []),
        (f"SELECT unix_millis(window.end) AS m, upper(page) AS p, count(*) AS n {GROUPED}", "[m, p]", ["page"]),
        (f"SELECT session_window.start AS minute, 'a, page' AS c, page AS d {SESSIONS}", "[minute, c]", ["page"]),
        (f"SELECT session_window.start AS minute, 'a, page' AS c, page AS d {SESSIONS}", "[minute, d]", []),
        (
            "SELECT window.start AS m, lower(page) AS p FROM clicks GROUP BY window(at, '1 hour'), lower(page)",
            "[m, p]",
            [],
        ),
        ("SELECT id, page FROM clicks", "[page]", []),
    ],
)
def test_a_key_that_two_results_may_have_is_refused(
    spark: SparkSession, tmp_path: Path, sql: str, key: str, missing: list[str]
) -> None:
    analysed = found(spark, tmp_path, sql, key)
    if not missing:
        assert isinstance(analysed, AnalysedStream), analysed
        return
    assert [(each.field, each.what) for each in analysed] == [
        ("key", f"`{name}` is not in it, and the SQL groups by it: two results may have one key") for name in missing
    ]


@pytest.mark.parametrize("emit", ["final", "changes"])
def test_when_copies_were_sent_is_seen_where_each_of_them_counts(
    spark: SparkSession, tmp_path: Path, emit: str
) -> None:
    sent = EVENTS.replace("    time: {event: at}\n", "    time: {event: at, sent: told}\n    copies: count\n", 1)
    sent = sent.replace("at: timestamptz}", "at: timestamptz, told: timestamptz}", 1)
    once, sql = sent.replace("copies: count", "copies: drop"), f"{START}, max(told) AS told {GROUPED}"
    assert isinstance(found(spark, tmp_path, sql, emit=emit, events=sent), AnalysedStream)
    (mistake,) = found(spark, tmp_path, sql, emit=emit, events=once)
    assert "`told` cannot be resolved" in mistake.what
    assert isinstance(found(spark, tmp_path, f"{START} {GROUPED}", emit=emit, events=once), AnalysedStream)


def test_a_key_that_is_no_column_is_told(spark: SparkSession, tmp_path: Path) -> None:
    (mistake,) = found(spark, tmp_path, f"{START} {GROUPED}", "[minut, page]")
    assert (mistake.field, mistake.what) == ("key", "`minut` is no column of the result; did you mean `minute`?")


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (
            "SELECT session_window.end AS minute, page FROM clicks GROUP BY session_window(at, '5 s'), page",
            "a session may",
        ),
        ("SELECT at AS minute, page FROM clicks", "each result is final at once"),
    ],
)
def test_only_windows_are_published_with_every_change(spark: SparkSession, tmp_path: Path, sql: str, said: str) -> None:
    (mistake,) = found(spark, tmp_path, sql, emit="changes")
    assert (mistake.field, said in mistake.what) == ("emit", True)
    assert isinstance(found(spark, tmp_path, f"{START} {GROUPED}", emit="changes"), AnalysedStream)


@pytest.mark.parametrize(
    ("window", "ends"),
    [
        ("window(at, '1 minute')", WindowEnds(60_000, 60_000, 60_000)),
        ("window(at, '2 minutes', '30 seconds')", WindowEnds(30_000, 30_000, 120_000)),
        ("WINDOW(at,\n '1 hour', '1 hour', '5 minutes')", WindowEnds(3_600_000, 300_000, 3_600_000)),
        ("window(at, '7 days')", WindowEnds(604_800_000, 604_800_000, 604_800_000)),
        ("session_window(at, '5 s')", None),
    ],
)
def test_it_is_known_where_windows_end(
    spark: SparkSession, tmp_path: Path, window: str, ends: WindowEnds | None
) -> None:
    name = window.split("(")[0].lower()
    analysed = found(spark, tmp_path, f"SELECT {name}.start AS minute, page FROM clicks GROUP BY {window}, page")
    assert isinstance(analysed, AnalysedStream), analysed
    assert analysed.ends == ends


@pytest.mark.parametrize(
    ("begin", "end", "lies"),
    [(60_000, 119_999, False), (60_000, 120_000, True), (59_999, 60_000, True), (-1, 0, True), (0, 59_999, False)],
)
def test_an_end_lies_after_the_begin_and_up_to_the_end(begin: int, end: int, lies: bool) -> None:
    assert WindowEnds(60_000, 60_000, 60_000).lies_between(begin, end) is lies
    assert WindowEnds(60_000, 7).lies_between(begin + 7, end + 7) is lies
