"""The two ways to run a stream's SQL: as a query of Spark Structured Streaming that goes on, and as a batch.

Windows close by ticks, never by events: the watermark comes from the ticks alone, and a tick is written once all events
up to its moment have been read (jobs/streams/frontiers.py). So the same windows come of any batches.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import col, count, expr, when
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from driftless.errors import SourceError
from driftless.facts.event_source import EventSource, SkippedRange
from driftless.facts.streams import CHANGES, FINAL, StreamBuild
from driftless.kafka.client import Offsets
from driftless.streams.event_types import spark_types
from jobs.decode.spark_sql import literal, quote
from jobs.streams.lookups.looked_up import looked_up_rows, lookup_type
from jobs.streams.patterns.rows import pattern_rows
from jobs.streams.rows.captured_rows import header_sql
from jobs.streams.rows.copies import without_copies
from jobs.streams.rows.event_rows import empty_columns, event_rows_sql
from jobs.streams.rows.keyed import NEVER, OFFSET, PARTITION
from jobs.streams.rows.reasons import COUNTED, LATE, REASON
from jobs.streams.rows.version_rows import version_rows
from jobs.streams.sql.timed import timed_rows

TICK = "_tick"
BARRIER = f"{TICK} IS NULL OR spark_partition_id() < 0"
"""Takes ticks out above the watermark. No rule of Spark's moves a filter past it: one that did would take ticks out
before the watermark has seen them, and no window of an idle source would ever close."""
MOST_OFFSETS = 200_000
"""Offsets of each topic in one batch: bounds its memory."""
MODES = {FINAL: "append", CHANGES: "update"}
"""What Spark calls it."""
TRIGGER = "200 milliseconds"
"""How often it is looked for events and ticks, by a query that does not rest (jobs/streams/pace.py)."""
SETTINGS = {
    "spark.sql.streaming.multipleWatermarkPolicy": "max",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.minBatchesToRetain": "10",
}


def query_session(spark: SparkSession) -> SparkSession:
    """A session of its own: its views have the names of events, and queries are set otherwise than jobs."""
    session = spark.newSession()
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    if not str(spark.sparkContext.master).startswith("local"):
        session.conf.set("spark.sql.shuffle.partitions", str(max(2, spark.sparkContext.defaultParallelism)))
    return session


def start(
    spark: SparkSession,
    build: StreamBuild,
    options: Mapping[str, str],
    ticks: tuple[str, int],
    folder: Path,
    publish: Callable[[DataFrame, int], None],
) -> StreamingQuery:
    """Begin the query, or go on with its checkpoint in `folder`. `ticks`: their topic, and the first that counts.

    Raises SourceError where the plan would not let ticks through.
    """
    topic, first = ticks
    known = dict[str, DataFrame]()
    for name, source in build.events.items():
        rows = _event_rows(_source_stream(spark, source, options), source, placed=True).observe(name, *_counts())
        in_time = rows.where(f"{REASON} IS NULL").select(*_columns(source), *_places())
        kept = in_time.selectExpr("*", f"CAST(NULL AS BOOLEAN) AS {TICK}")
        told = _stream(spark, {**options, "failOnDataLoss": "false"}, topic, {0: first}).load()
        at = f"timestamp_millis(CAST(CAST(value AS STRING) AS BIGINT)) AS {quote(source.event)}"
        nowhere = (f"CAST(NULL AS INT) AS {PARTITION}", f"CAST(NULL AS BIGINT) AS {OFFSET}")
        ticked = told.selectExpr(at, *empty_columns(source), *nowhere, f"true AS {TICK}")
        event = source.event
        whole = kept.withWatermark(event, NEVER).unionByName(
            ticked.withWatermark(event, f"{build.lateness + 1} milliseconds")
        )
        known[name] = _each_once(whole.where(BARRIER).drop(TICK), source)
    versions = {name: _source_stream(spark, source, options) for name, source in build.tables.items()}
    _name_views(build, known, versions)
    writer = timed_rows(spark, build).writeStream.outputMode(MODES[build.emit]).foreachBatch(publish)
    return writer.option("checkpointLocation", str(folder)).trigger(processingTime=TRIGGER).start()


def ended_batches(query: StreamingQuery, seen: int) -> Iterator[StreamingQueryProgress]:
    """What Spark tells of the batches that have ended since the batch `seen`. While it waits for events, it also tells
    of the batch that is to come, as if that had read nothing.
    """
    return (told for told in query.recentProgress if told.batchId > seen and "addBatch" in told.durationMs)


def assert_barrier(query: StreamingQuery) -> bool:
    """Whether the plan of the last batch has been looked at. Raises SourceError where a filter stands between ticks and
    their watermark: the barrier alone may take ticks out, above it.
    """
    plan = plan_text(query)
    if not plan:
        return False
    for watermark, below in branches(plan):
        if NEVER not in watermark and any("Filter" in line for line in below):
            raise SourceError(
                "Spark would take ticks out before they close a window: "
                f"{next(line.strip() for line in below if 'Filter' in line):.200}",
                hint="this Spark is not the one that driftless was written for: install the version of its lock file",
            )
    return True


_REMEMBERS = re.compile(r"^[\s:|+\-]*(\w*Join|\w*Aggregate|\w*Deduplicate\w*|Distinct)", re.MULTILINE)
"""Operators of Spark's that keep something of an event for others."""


def remembers(rows: DataFrame) -> bool:
    """Whether a result may be made of several events."""
    return _REMEMBERS.search(plan_text(rows)) is not None


def plan_text(asked: StreamingQuery | DataFrame, stage: str = "Optimized") -> str:
    """The plan as Spark has it after a stage, Analyzed, Optimized or Physical; empty before there is one."""
    text = io.StringIO()
    with redirect_stdout(text):
        asked.explain(extended=True)
    return (
        text.getvalue()
        .partition(f"== {stage} {'' if stage == 'Physical' else 'Logical '}Plan ==")[2]
        .partition("\n==")[0]
    )


def branches(plan: str) -> list[tuple[str, list[str]]]:
    """Of each watermark in a plan's text, its line and those below it that belong to it."""
    lines = plan.splitlines()
    found = []
    for number, line in enumerate(lines):
        if "EventTimeWatermark" in line:
            depth = _depth(line)
            below = []
            for other in lines[number + 1 :]:
                if _depth(other) <= depth:
                    break
                below.append(other)
            found.append((line, below))
    return found


def _depth(line: str) -> int:
    return len(re.match(r"[\s:|+\-]*", line)[0])  # type: ignore[index]


def batch_views(
    spark: SparkSession,
    build: StreamBuild,
    options: Mapping[str, str],
    begin: Mapping[str, Offsets],
    end: Mapping[str, Offsets],
    late: Mapping[str, Offsets] | None = None,
    during: tuple[int, int] | None = None,
) -> None:
    """The events between two places of each topic as views, under their names in the SQL: what a query has read.
    `late`: up to where those count that are late. `during`: those alone that happened from then on, and before then, in
    milliseconds.
    """
    known = dict[str, DataFrame]()
    for name, source in build.events.items():
        records = _between(spark, source, options, begin[source.topic], end[source.topic])
        rows = _event_rows(records, source, placed=True)
        if during is not None:
            at = f"unix_millis({quote(source.event)})"
            rows = rows.where(f"{at} >= {during[0]:d} AND {at} < {during[1]:d}")
        counts = f"{REASON} IS NULL"
        if late is not None:
            counts += f" OR {REASON} = {literal(LATE)} AND {_is_before(late.get(source.topic, {}))}"
        known[name] = _each_once(rows.where(counts).select(*_columns(source), *_places()), source)
    versions = {
        name: _between(spark, source, options, begin[source.topic], end[source.topic])
        for name, source in build.tables.items()
    }
    _name_views(build, known, versions)


def _name_views(build: StreamBuild, known: Mapping[str, DataFrame], versions: Mapping[str, DataFrame]) -> None:
    """Give events and matches the names that they have in the SQL. `versions`: the logs of tables."""
    for name, rows in known.items():
        _looked_up(rows, build, name, versions).drop(PARTITION, OFFSET).createOrReplaceTempView(name)
    for name, pattern in build.patterns.items():
        source = build.events[pattern.events]
        matched = pattern_rows(known[pattern.events], pattern, source.event, spark_types(source.shown))
        matched.createOrReplaceTempView(name)


def _looked_up(rows: DataFrame, build: StreamBuild, name: str, versions: Mapping[str, DataFrame]) -> DataFrame:
    """Events with the rows of tables that they have."""
    source = build.events[name]
    types = spark_types(source.shown)
    for lookup in build.lookups:
        if lookup.events == name:
            table = build.tables[lookup.table]
            known, of_table = version_rows(versions[lookup.table], table, lookup.key), spark_types(table.columns)
            rows = looked_up_rows(rows, known, lookup, source.event, types, of_table)
            types |= {lookup.name: lookup_type(lookup, of_table)}
    return rows


def _is_before(ends: Offsets) -> str:
    """Whether a record lies before these places."""
    places = [f"(`partition` = {p:d} AND `offset` < {end:d})" for p, end in ends.items()]
    return f"({' OR '.join(places) or 'false'})"


def late_moments(
    spark: SparkSession, source: EventSource, options: Mapping[str, str], begin: Offsets, end: Offsets
) -> DataFrame:
    """Of events between two places that are late, but not too late: `partition`, `offset`, and when each counts as
    having happened, `at`, in milliseconds.
    """
    rows = _event_rows(_between(spark, source, options, begin, end), source, placed=True)
    at = f"unix_millis({quote(source.event)}) AS at"
    return rows.where(f"{REASON} = {literal(LATE)}").selectExpr("`partition`", "`offset`", at)


def repeated_rows(
    spark: SparkSession, source: EventSource, options: Mapping[str, str], end: Offsets, most: int
) -> dict[int, tuple[int, ...]]:
    """Of the log of a table up to `end`, the rows that a snapshot has read though it has them before: partition ->
    offsets, of `most` rows at most.
    """
    records = _between(spark, source, options, source.floors, end)
    rows = records.selectExpr("`partition`", "`offset`", "key", f"{header_sql('op')} AS op").where("op IN ('c', 'r')")
    first = "min(`offset`) OVER (PARTITION BY `partition`, key) AS first"
    again = rows.selectExpr("*", first).where("op = 'r' AND `offset` > first").select("partition", "offset")
    found: dict[int, list[int]] = {}
    for row in again.limit(most).toArrow().to_pylist():
        found.setdefault(row["partition"], []).append(row["offset"])
    return {p: tuple(sorted(offsets)) for p, offsets in sorted(found.items())}


def left_out(
    spark: SparkSession, source: EventSource, options: Mapping[str, str], begin: Offsets, end: Offsets
) -> DataFrame:
    """The events between two places that no window counts: `partition`, `offset`, when each happened and was received,
    and the `reason`.
    """
    rows = _event_rows(_between(spark, source, options, begin, end), source, placed=True)
    shown = ("`partition`", "`offset`", "happened_ms", "received_ms", f"{REASON} AS reason")
    return rows.where(f"{REASON} IN ({', '.join(map(literal, COUNTED.values()))})").selectExpr(*shown)


def _between(
    spark: SparkSession, source: EventSource, options: Mapping[str, str], begin: Offsets, end: Offsets
) -> DataFrame:
    reader = spark.read.format("kafka").options(**_with_headers(source, options))
    reader = reader.option("assign", json.dumps({source.topic: sorted(end)}))
    reader = reader.option("startingOffsets", _written(source.topic, begin))
    return reader.option("endingOffsets", _written(source.topic, end)).load()


def _with_headers(source: EventSource, options: Mapping[str, str]) -> dict[str, str]:
    return dict(options) if source.captured is None else {**options, "includeHeaders": "true"}


def skipped_count(spark: SparkSession, topic: str, options: Mapping[str, str], ranges: Sequence[SkippedRange]) -> int:
    """How many records of a topic these ranges leave out. What they hold is not looked at."""
    begin, end = ({r.partition: getattr(r, edge) for r in ranges} for edge in ("begin", "end"))
    reader = spark.read.format("kafka").options(**options).option("assign", json.dumps({topic: sorted(end)}))
    reader = reader.option("startingOffsets", _written(topic, begin)).option("endingOffsets", _written(topic, end))
    return reader.load().where(skipped_sql(ranges)).count()


def skipped_sql(ranges: Sequence[SkippedRange]) -> str:
    """Whether a record is left unread. Of those that are not, the place alone decides, so it is the same each time."""
    one = "pmod(xxhash64(`partition`, `offset`), 10000)"
    return " OR ".join(
        f"(`partition` = {p:d} AND `offset` >= {begin:d} AND `offset` < {end:d} AND {one} >= {sample:d})"
        for p, begin, end, sample in ranges
    )


def _event_rows(records: DataFrame, source: EventSource, *, placed: bool = False) -> DataFrame:
    if source.skipped:
        records = records.where(f"NOT ({skipped_sql(source.skipped)})")
    for step in event_rows_sql(source, placed=placed):
        records = records.selectExpr(*step)
    return records


def _columns(source: EventSource) -> list[Column]:
    return [col(quote(name)) for name in source.shown]


def _each_once(rows: DataFrame, source: EventSource) -> DataFrame:
    return without_copies(rows, source.shown) if source.once else rows


def _places() -> list[Column]:
    return [col("partition").alias(PARTITION), col("offset").alias(OFFSET)]


def _counts() -> list[Column]:
    """How many events are left out, by reason."""
    return [count(when(expr(f"{REASON} = {literal(why)}"), True)).alias(why) for why in COUNTED.values()]


def _source_stream(spark: SparkSession, source: EventSource, options: Mapping[str, str]) -> DataFrame:
    reader = _stream(spark, _with_headers(source, options), source.topic, source.floors)
    found: DataFrame = reader.option("maxOffsetsPerTrigger", MOST_OFFSETS).load()
    return found


def _stream(spark: SparkSession, options: Mapping[str, str], topic: str, begin: Offsets):  # type: ignore[no-untyped-def]
    reader = spark.readStream.format("kafka").options(**options)
    return reader.option("subscribe", topic).option("startingOffsets", _written(topic, begin))


def _written(topic: str, offsets: Offsets) -> str:
    return json.dumps({topic: {str(p): offset for p, offset in offsets.items()}})
