"""Each example of docs/streams.md: `check` takes its SQL, which gives of the page's events the documents it says."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from driftless.config.models import Config
from driftless.facts.event_source import EventSource
from driftless.facts.lookups import Lookup, column_types
from driftless.facts.streams import AnalysedStream, StreamBuild
from driftless.streams.event_types import spark_types
from driftless.table import Column, Table
from driftless.views.resolve import CapturedTables, resolve
from driftless.views.sample import shape
from jobs.streams.lookups.looked_up import looked_up_rows
from jobs.streams.patterns.rows import pattern_rows
from jobs.streams.rows.event_rows import event_rows_sql
from jobs.streams.rows.keyed import OFFSET, PARTITION
from jobs.streams.rows.reasons import REASON
from jobs.streams.rows.version_rows import GONE, SINCE, TOLD
from jobs.streams.sql.analysis import analyse
from jobs.streams.sql.documents import results
from jobs.streams.sql.query import query_session
from jobs.streams.sql.timed import timed_rows
from tests.docs.test_docs import blocks
from tests.driftless.config.test_config import GOOD, load_text
from tests.support.files import ROOT

PAGE = ROOT / "docs" / "streams.md"
ALL = blocks(PAGE)
EXAMPLES = [(block, after) for block, after in pairwise(ALL) if block.kind == "sql"]
DECLARED = next(block.text for block in ALL if block.kind == "yaml" and "searches" in block.text)
PATTERNS = next(block.text for block in ALL if block.kind == "yaml" and "patterns:" in block.text)
READING = next(block.text for block in ALL if block.kind == "yaml" and "busiest_minute:" in block.text)
VIEWED = next(block.text for block in ALL if block.kind == "yaml" and "root: page_minute" in block.text)
URL = "http://127.0.0.1:59200"
LOOKING = next(block.text for block in ALL if block.kind == "yaml" and "with:" in block.text)
ROWS = [line.split(maxsplit=1) for line in next(block.text for block in ALL if block.kind == "rows").splitlines()]
ACCOUNTS = Table("public", "accounts", (Column("id", "int8"), Column("plan", "text")), ("id",))
DAY = "2026-03-01"


def _config(folder: Path, sql: str, key: list[str]) -> Config:
    lookup = LOOKING[LOOKING.index("    with:") :]
    declared = DECLARED.replace("    lateness: 15m\n", f"    lateness: 15m\n{lookup}", 1)
    good = GOOD.replace("    public.products:\n", "    public.products:\n    public.accounts:\n")
    return load_text(folder, good + declared + PATTERNS + f"streams:\n  s: {json.dumps({'sql': sql, 'key': key})}\n")


def _versions(spark: SparkSession) -> DataFrame:
    """The page's rows of accounts."""
    known = []
    for number, (since, text) in enumerate(ROWS):
        row = json.loads(text)
        at = f"{DAY}T{since}+00:00" if since != "snapshot" else "1970-01-01T00:00:00+00:00"
        ms = int(datetime.fromisoformat(at).timestamp() * 1000)
        known.append((0, number, ms, None, False, row["id"], row["plan"]))
    columns = f"`partition` int, `offset` bigint, {SINCE} bigint, {TOLD} timestamp, {GONE} boolean"
    return spark.createDataFrame(known, f"{columns}, id bigint, plan string")


def _views(spark: SparkSession, config: Config, lookups: tuple[Lookup, ...] = ()) -> dict[str, list[str]]:
    """The page's events as views, and matches of its patterns. Why the others are left out."""
    lines = [line.split(maxsplit=2) for line in next(b.text for b in ALL if b.kind == "events").splitlines()]
    reasons: dict[str, list[str]] = {}
    known = {}
    for name, events in config.events.items():
        source = EventSource("", "", {}, events.columns, events.time.event, None, events.lateness_ms)
        records = [
            (n, value.encode(), f"{DAY} {received}Z") for n, (each, received, value) in enumerate(lines) if each == name
        ]
        rows = spark.createDataFrame(records, "offset bigint, value binary, received string")
        place = ("0 AS partition", "`offset`")
        rows = rows.selectExpr(*place, "value", "CAST(received AS TIMESTAMP) AS timestamp")
        for step in event_rows_sql(source, placed=True):
            rows = rows.selectExpr(*step)
        reasons[name] = [row[REASON] for row in rows.where(f"{REASON} IS NOT NULL").collect()]
        rows = rows.where(f"{REASON} IS NULL").drop(REASON)
        known[name] = rows.withColumnsRenamed({"partition": PARTITION, "offset": OFFSET})
        shown, named = known[name], [*events.columns]
        for lookup in (each for each in lookups if each.events == name):
            types, of_table = spark_types(events.columns), spark_types(column_types(ACCOUNTS))
            shown = looked_up_rows(shown, _versions(spark), lookup, events.time.event, types, of_table)
            named.append(lookup.name)
        shown.select(*named).createOrReplaceTempView(name)
    for name, declared in config.patterns.items():
        of = config.events[declared.events]
        matched = pattern_rows(known[declared.events], declared.pattern, of.time.event, spark_types(of.columns))
        matched.createOrReplaceTempView(name)
    return reasons


@pytest.mark.parametrize("place", range(len(EXAMPLES)), ids=lambda place: f"line {EXAMPLES[place][0].line}")
def test_an_example_gives_the_documents_that_it_says(spark: SparkSession, tmp_path: Path, place: int) -> None:
    declared, said = EXAMPLES[place]
    assert said.kind == "json"
    wanted = json.loads(said.text)
    key = [name for name in wanted[0] if name in ("minute", "began", "user_id", "id", "search", "click")]
    key += ["plan"] if "plan" in wanted[0] and "began" in wanted[0] else []
    config = _config(tmp_path, declared.text, key)
    analysed = analyse(spark, config, "s", {ACCOUNTS.full_name: ACCOUNTS})
    assert isinstance(analysed, AnalysedStream), analysed
    session = query_session(spark)
    _views(session, config, analysed.lookups)
    build = StreamBuild("s", 1, declared.text, {}, analysed.table, "", 1, closes=analysed.closes)
    build = replace(build, join=analysed.join, reach=analysed.reach, patterns=analysed.patterns)
    if analysed.lookups:
        clicks = EventSource("", "", {}, {}, config.events["clicks"].time.event, None, 0)
        build = replace(build, events={"clicks": clicks}, lookups=analysed.lookups)
    found = results("s", timed_rows(session, build).toArrow(), key)
    assert sorted((json.loads(each.document) for each in found), key=str) == sorted(wanted, key=str)


def test_the_streams_that_read_a_stream_give_what_the_page_says(spark: SparkSession, tmp_path: Path) -> None:
    first = next(number for number, block in enumerate(ALL) if block.text == READING) + 1
    config = load_text(tmp_path, GOOD + DECLARED + READING)
    for name, said in zip(("busiest_minute", "busy_minutes"), ALL[first : first + 2], strict=True):
        analysed = analyse(spark, config, name)
        assert isinstance(analysed, AnalysedStream), analysed
        assert (analysed.events, analysed.closes) == (("clicks",), "window")
        session = query_session(spark)
        _views(session, config)
        build = StreamBuild(name, 1, config.sql_of(name), {}, analysed.table, "", 1, closes=analysed.closes)
        found = results(name, timed_rows(session, build).toArrow(), analysed.table.key)
        assert [json.loads(each.document) for each in found] == json.loads(said.text)


def test_check_takes_the_first_example(spark: SparkSession, tmp_path: Path) -> None:
    text = next(block.text for block in ALL if block.kind == "yaml").partition("followers:")[0]
    analysed = analyse(spark, load_text(tmp_path, GOOD + text), "page_minute")
    assert isinstance(analysed, AnalysedStream)
    assert (analysed.events, analysed.closes) == (("clicks",), "window")


def test_the_example_of_a_view_is_one(spark: SparkSession, tmp_path: Path) -> None:
    """Its root is the stream of the first example, which has the columns that it names."""
    first = next(block.text for block in ALL if block.kind == "yaml").partition("followers:")[0]
    views, _, followers = VIEWED.partition("followers:\n")
    text = GOOD.replace("views:\n", views, 1).replace("followers:\n", f"followers:\n{followers}", 1) + first
    text = text.replace("    public.products:\n", "    public.products:\n    public.pages:\n").replace(
        "${SEARCH_URL}", URL
    )
    config = load_text(tmp_path, text)
    analysed = analyse(spark, config, "page_minute")
    assert isinstance(analysed, AnalysedStream)
    pages = Table("public", "pages", (Column("slug", "text"), Column("title", "text")), ("slug",))
    known = {table.full_name: table for table in (analysed.table, pages)}
    view, wrong = resolve("page_report", config.views["page_report"], CapturedTables(known, lambda _: [("slug",)]))
    assert view is not None, wrong
    assert shape(view) == {"minute": "timestamptz", "page": "text", "views": "int8", "about": {"title": "text"}}


def test_what_the_page_says_is_left_out_is(spark: SparkSession, tmp_path: Path) -> None:
    assert _views(query_session(spark), _config(tmp_path, "SELECT 1", ["a"])) == {
        "clicks": ["late", "invalid"],
        "searches": [],
    }
