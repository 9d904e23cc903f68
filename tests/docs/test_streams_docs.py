"""Each example of docs/streams.md: `check` takes its SQL, which gives of the page's events the documents it says."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from driftless.config.models import Config
from driftless.facts.event_source import EventSource
from driftless.facts.streams import AnalysedStream, StreamBuild
from driftless.streams.event_types import spark_types
from jobs.streams.patterns.rows import OFFSET, PARTITION, pattern_rows
from jobs.streams.sql.analysis import analyse
from jobs.streams.sql.documents import results
from jobs.streams.sql.event_rows import event_rows_sql
from jobs.streams.sql.query import query_session
from jobs.streams.sql.reasons import REASON
from jobs.streams.sql.timed import timed_rows
from tests.docs.test_docs import blocks
from tests.driftless.config.test_config import GOOD, load_text
from tests.support.files import ROOT

PAGE = ROOT / "docs" / "streams.md"
ALL = blocks(PAGE)
EXAMPLES = [(block, after) for block, after in pairwise(ALL) if block.kind == "sql"]
DECLARED = next(block.text for block in ALL if block.kind == "yaml" and "searches" in block.text)
PATTERNS = next(block.text for block in ALL if block.kind == "yaml" and "patterns:" in block.text)
DAY = "2026-03-01"


def _config(folder: Path, sql: str, key: list[str]) -> Config:
    return load_text(folder, GOOD + DECLARED + PATTERNS + f"streams:\n  s: {json.dumps({'sql': sql, 'key': key})}\n")


def _views(spark: SparkSession, config: Config) -> dict[str, list[str]]:
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
        rows.select(*events.columns).createOrReplaceTempView(name)
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
    config = _config(tmp_path, declared.text, key)
    analysed = analyse(spark, config, "s")
    assert isinstance(analysed, AnalysedStream), analysed
    session = query_session(spark)
    _views(session, config)
    build = StreamBuild("s", 1, declared.text, {}, analysed.table, "", 1, closes=analysed.closes)
    build = replace(build, join=analysed.join, reach=analysed.reach, patterns=analysed.patterns)
    found = results("s", timed_rows(session, build).toArrow(), key)
    assert sorted((json.loads(each.document) for each in found), key=str) == sorted(wanted, key=str)


def test_check_takes_the_first_example(spark: SparkSession, tmp_path: Path) -> None:
    text = next(block.text for block in ALL if block.kind == "yaml").partition("followers:")[0]
    analysed = analyse(spark, load_text(tmp_path, GOOD + text), "page_minute")
    assert isinstance(analysed, AnalysedStream)
    assert (analysed.events, analysed.closes) == (("clicks",), "window")


def test_what_the_page_says_is_left_out_is(spark: SparkSession, tmp_path: Path) -> None:
    assert _views(query_session(spark), _config(tmp_path, "SELECT 1", ["a"])) == {
        "clicks": ["late", "invalid"],
        "searches": [],
    }
