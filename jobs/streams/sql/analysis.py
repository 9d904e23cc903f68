"""What a stream's SQL means, by Spark's own analyser, before anything is begun: its columns, and its mistakes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyspark
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from driftless.config.models import Config
from driftless.config.streams import EventsConfig, StreamConfig
from driftless.facts.lookups import Lookup, column_types
from driftless.facts.streams import (
    CHANGES,
    JOIN,
    LOOKUP,
    MATCH,
    SESSION,
    WINDOW,
    AnalysedStream,
    WindowEnds,
    stream_table,
)
from driftless.streams.event_types import spark_types
from driftless.streams.patterns import Pattern
from driftless.streams.spark_words import is_called_outermost, spark_words
from driftless.suggest import did_you_mean
from driftless.table import Column, Table
from jobs.decode.spark_sql import quote
from jobs.streams.lookups.faults import lookup_faults
from jobs.streams.lookups.looked_up import looked_up_rows, lookup_type
from jobs.streams.patterns.rows import pattern_rows, pattern_types
from jobs.streams.rows.copies import without_copies
from jobs.streams.rows.keyed import NEVER, OFFSET, PARTITION
from jobs.streams.rows.version_rows import empty_versions
from jobs.streams.sql.joins import UNBOUND, join_times, joins, unprovable
from jobs.streams.sql.pattern_faults import pattern_faults
from jobs.streams.sql.place import first_sentence, own_begin, place
from jobs.streams.sql.plan_columns import approximate, left_out_of_key
from jobs.streams.sql.query import MODES, plan_text, query_session
from jobs.streams.sql.refusals import refused, sums_of_fractions
from jobs.streams.sql.timed import timed_sql

_POSTGRES = {
    BooleanType: "bool",
    ByteType: "int2",
    ShortType: "int2",
    IntegerType: "int4",
    LongType: "int8",
    FloatType: "float4",
    DoubleType: "float8",
    DecimalType: "numeric",
    StringType: "text",
    DateType: "date",
    TimestampType: "timestamptz",
    StructType: "jsonb",
    ArrayType: "jsonb",
    MapType: "jsonb",
}
"""What a column of the result is called as a column of a table."""


@dataclass(frozen=True)
class Mistake:
    """`field` of the stream in sync.yaml."""

    field: str
    what: str


def analyse(
    spark: SparkSession, config: Config, name: str, tables: Mapping[str, Table] | None = None
) -> AnalysedStream | list[Mistake]:
    """What a stream of the configuration is made of, or what is wrong with it. `config`: with the columns of events.
    `tables`: those that events have rows of, as schema.table.
    """
    stream = config.streams[name]
    sql = config.sql_of(name)
    mistakes = [Mistake("sql", what) for what in refused(sql)]
    session = query_session(spark)
    session.conf.set("spark.sql.debug.maxToStringFields", "10000")  # of plans that are read here
    patterns = {each: config.patterns[each].pattern for each in _named(sql, config.patterns)}
    named = {*_named(sql, config.events), *(pattern.events for pattern in patterns.values())}
    events = [each for each in config.events if each in named]
    types = {each: spark_types(config.events[each].shown) for each in events}
    lookups = [*_lookups(sql, config, events, tables or {})]
    for lookup, of_table in lookups:
        types[lookup.events] |= {lookup.name: lookup_type(lookup, of_table)}
    for each in events:
        _empty_view(session, each, types[each])
    faults = [
        Mistake("sql", f"the pattern `{each}`, {what}")
        for each, pattern in patterns.items()
        for what in pattern_faults(session, pattern, types[pattern.events])
    ]
    if faults:
        return faults
    types |= {each: pattern_types(pattern, types[pattern.events]) for each, pattern in patterns.items()}
    for each in patterns:
        _empty_view(session, each, types[each])
    try:
        rows = session.sql(sql)
    except PySparkException as exc:
        return [*mistakes, Mistake("sql", _told(exc, sql, config))]
    patterns = {each: pattern for each, pattern in patterns.items() if _is_read(session, sql, each)}
    joined = joins(sql, config.events)
    if own := own_begin(sql):
        what = "a JOIN with results of a stream: this version cannot do that"
        starts = [join.word.start for join in joined if join.word.start >= own]
        mistakes += [Mistake("sql", f"{place(sql, start)}: {what}") for start in starts]
    looked_up = tuple(lookup for lookup, _ in lookups)
    refusals = lookup_faults(stream, looked_up, is_joined=bool(joined), is_pattern=bool(patterns))
    mistakes += [Mistake(*fault) for fault in refusals]
    at = config.events[looked_up[0].events].time.event if looked_up else ""
    try:
        closes = _closes(session, sql, patterns) or _looked_up_closes(session, sql, at)
        timed = timed_sql(sql, closes, event=at)
    except ValueError as exc:
        return [*mistakes, Mistake("sql", str(exc))]
    mistakes += [Mistake("sql", what) for what in sums_of_fractions(session, sql)]
    mistakes += _of_columns(stream, rows)
    plan = plan_text(rows, "Analyzed")
    if closes in (WINDOW, SESSION) and not mistakes:
        missing = left_out_of_key(plan, stream.key)
        why = "is not in it, and the SQL groups by it: two results may have one key"
        mistakes += [Mistake("key", f"`{column}` {why}") for column in missing]
    mistakes += [Mistake("sql", what) for what in unprovable(sql, joined, closes, is_pattern=bool(patterns))]
    if stream.emit == CHANGES and closes != WINDOW:
        what = (
            "a session may be joined to another one by a later event"
            if closes == SESSION
            else "each result is final at once"
        )
        mistakes.append(Mistake("emit", f"{what}: only windows can be published with every change; leave it out"))
    if mistakes:
        return mistakes
    try:
        used = {each: config.events[each] for each in events}
        tried = _tried(session, timed, MODES[stream.emit], used, patterns, lookups, whole=bool(joined))
        join = join_times(tried, joined)
    except ValueError as exc:
        return [Mistake("sql", str(exc))]
    finally:
        for each in types:
            _empty_view(session, each, types[each])
    closes = closes or (JOIN if join is not None and joined[0].outer else "")
    columns = tuple(Column(f.name, _POSTGRES[type(f.dataType)]) for f in rows.schema.fields)
    of_patterns = {pattern.events for pattern in patterns.values()}
    read = tuple(each for each in events if each in of_patterns or _is_read(session, sql, each))
    table, windows = stream_table(name, columns, stream.key), _windows(session, sql)
    is_chain = closes in (WINDOW, SESSION) and plan.count("Aggregate [") > 1
    ends = windows[0] if closes == WINDOW and len(windows) == 1 else None
    reach = (join.wait_ms if join and closes else 0) + (_depth(windows, plan) if is_chain else 0)
    reach += max((pattern.span for pattern in patterns.values()), default=0)
    found = AnalysedStream(
        table, read, pyspark.__version__, closes, ends, join, reach, patterns, approximate(plan), looked_up
    )
    if any(config.events[each].correct_ms for each in read) and (why := _uncorrectable(sql, found, is_chain=is_chain)):
        return [Mistake("sql", f"late events cannot correct it, as `late: {{correct: ...}}` of its events asks: {why}")]
    return found


def _closes(spark: SparkSession, sql: str, patterns: Mapping[str, Pattern]) -> str:
    """By what its results become final. Raises ValueError, with a text for the operator, where that cannot be told."""
    words = _calls(sql)
    for column in (WINDOW, SESSION):
        # What an inner SELECT gives of sessions, a condition outside of it would be asked of each event.
        if column in words and (column == WINDOW or is_called_outermost(sql, column)):
            timed = timed_sql(sql, column)
            with suppress(PySparkException):
                spark.sql(timed)
                if column == WINDOW and SESSION in words:
                    raise ValueError("windows over sessions: a session may have begun at any time before its window")
                return column
    if words & {WINDOW, SESSION}:
        raise ValueError("its outermost SELECT must be grouped by `window(...)` or `session_window(...)` itself")
    if not patterns:
        return ""
    try:
        spark.sql(timed_sql(sql, MATCH))
    except PySparkException as exc:
        if exc.getCondition() == "MISSING_AGGREGATION":
            return ""  # Spark says what groups lack
        raise ValueError(f"name the pattern `{min(patterns)}` alone, in the outermost FROM") from exc
    return MATCH


def _looked_up_closes(spark: SparkSession, sql: str, event: str) -> str:
    """The same of events with rows of tables, whose time is `event`; empty where they have none."""
    if not event:
        return ""
    try:
        spark.sql(timed_sql(sql, LOOKUP, event=event))
    except PySparkException as exc:
        if exc.getCondition() == "MISSING_AGGREGATION":
            return ""  # Spark says what groups lack
        raise ValueError(
            f"a result is final by `{event}`: its outermost SELECT must read from what has this column"
        ) from exc
    return LOOKUP


def _windows(spark: SparkSession, sql: str) -> list[WindowEnds]:
    """Each kind of windows in it, but for sessions: where they end, found out by making those of one moment."""
    words, kinds, found = spark_words(sql), set[str](), list[WindowEnds]()
    for number, (word, after) in enumerate(pairwise(words)):
        if word.quoted or word.text.lower() != WINDOW or after.text != "(":
            continue
        depth, comma = 0, None
        for other in words[number + 1 :]:
            depth += {"(": 1, ")": -1}.get(other.text, 0) if not other.quoted else 0
            if other.text == "," and depth == 1 and comma is None:
                comma = other.start
            if depth == 0:
                kinds.add(" ".join(sql[comma : other.start].split()) if comma is not None else "")
                break
    for kind in sorted(kinds):
        one = f"FROM VALUES (timestamp_millis(0)) AS one(at) GROUP BY window(at {kind})"
        with suppress(PySparkException):
            shown = "unix_millis(window.start) AS begin, unix_millis(window.end) AS end"
            made = spark.sql(f"SELECT {shown} {one}").collect()
            ends, size = sorted(row["end"] for row in made), made[0]["end"] - made[0]["begin"]
            found.append(WindowEnds(ends[1] - ends[0] if len(ends) > 1 else size, ends[0], size))
    return found


def _depth(windows: list[WindowEnds], plan: str) -> int:
    """For how long before windows of windows events may be part of them, in milliseconds."""
    sizes = [kind.size for kind in windows] or [0]
    return max(sum(sizes), (plan.count("Aggregate [") - 1) * max(sizes))


def _calls(sql: str) -> set[str]:
    """The names of all functions that are called in it."""
    return {word.text.lower() for word, after in pairwise(spark_words(sql)) if after.text == "(" and not word.quoted}


def _uncorrectable(sql: str, found: AnalysedStream, *, is_chain: bool) -> str:
    """Why it cannot be said which results a late event may change; empty where it can."""
    words = [word.text.lower() for word in spark_words(sql) if not word.quoted]
    if found.closes == SESSION and ("having" in words or words.count("select") > 1):
        return "a session that HAVING or an inner SELECT hides cannot be looked for"
    if found.closes == SESSION and (found.join is not None or found.patterns):
        return "it has sessions of what joins or patterns give"
    if found.closes == WINDOW and found.ends is None and not is_chain:
        return "it has windows of several kinds"
    return ""


def _named(sql: str, known: Iterable[str]) -> list[str]:
    """Those names that stand in it, if only as a column's."""
    words = {word.text.lower() for word in spark_words(sql)}
    return [name for name in known if name in words]


def _lookups(
    sql: str, config: Config, events: Iterable[str], tables: Mapping[str, Table]
) -> Iterator[tuple[Lookup, dict[str, str]]]:
    """The tables that it names, of which events have rows, with Spark's types of their columns."""
    for each in events:
        for name in _named(sql, config.events[each].lookups):
            declared = config.events[each].lookups[name]
            table = tables[declared.table]
            yield Lookup.of(each, name, declared, table), spark_types(column_types(table))


def _empty_view(spark: SparkSession, name: str, types: Mapping[str, str]) -> None:
    schema = ", ".join(f"{quote(column)} {kind}" for column, kind in types.items())
    spark.createDataFrame([], schema).createOrReplaceTempView(name)


def _is_read(spark: SparkSession, sql: str, name: str) -> bool:
    """Whether it reads these events or matches: then it means nothing without them."""
    view = spark.table(name)
    spark.catalog.dropTempView(name)
    try:
        spark.sql(sql)
    except AnalysisException:
        return True
    else:
        return False
    finally:
        view.createOrReplaceTempView(name)


def _of_columns(stream: StreamConfig, rows: DataFrame) -> Iterator[Mistake]:
    names = [field.name for field in rows.schema.fields]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        yield Mistake("sql", f"gives two columns `{twice[0]}`: name each otherwise, with AS")
    for field in rows.schema.fields:
        if type(field.dataType) not in _POSTGRES or not _plain(field.dataType):
            yield Mistake("sql", f"the column `{field.name}` is a {field.dataType.simpleString()}: no document has one")
    for name in stream.key:
        if name not in names:
            yield Mistake("key", f"`{name}` is no column of the result{did_you_mean(name, names)}")


def _plain(kind: DataType) -> bool:
    """Whether all that it holds can stand in a document."""
    match kind:
        case StructType():
            return all(_plain(field.dataType) for field in kind.fields)
        case ArrayType():
            return _plain(kind.elementType)
        case MapType():
            return isinstance(kind.keyType, StringType) and _plain(kind.valueType)
    return type(kind) in _POSTGRES


def _tried(
    spark: SparkSession,
    sql: str,
    mode: str,
    events: Mapping[str, EventsConfig],
    patterns: Mapping[str, Pattern],
    lookups: Iterable[tuple[Lookup, dict[str, str]]],
    *,
    whole: bool,
) -> str:
    """Begin it as a query that goes on, over nothing, and end it. With `whole`, after a batch: then gives its plan.

    Raises ValueError, with a text for the operator, where Spark cannot run it so. It leaves other views behind.
    """
    known = dict[str, DataFrame]()
    for name, source in events.items():
        columns = [f"CAST(NULL AS {kind}) AS {quote(column)}" for column, kind in spark_types(source.shown).items()]
        columns += [f"CAST(NULL AS INT) AS {PARTITION}", f"CAST(NULL AS BIGINT) AS {OFFSET}"]
        rows = spark.readStream.format("rate").option("rowsPerSecond", 1).load().where("false").selectExpr(*columns)
        rows = rows.withWatermark(source.time.event, NEVER)
        known[name] = without_copies(rows, source.shown) if source.once else rows
        shown, types = known[name], spark_types(source.shown)
        for lookup, of_table in (each for each in lookups if each[0].events == name):
            versions = empty_versions(spark.readStream.format("rate").load(), of_table)
            shown = looked_up_rows(shown, versions, lookup, source.time.event, types, of_table)
            types |= {lookup.name: lookup_type(lookup, of_table)}
        shown.drop(PARTITION, OFFSET).createOrReplaceTempView(name)
    for name, pattern in patterns.items():
        source = events[pattern.events]
        matched = pattern_rows(known[pattern.events], pattern, source.time.event, spark_types(source.shown))
        matched.createOrReplaceTempView(name)
    folder = Path(tempfile.mkdtemp(prefix="driftless-check-"))
    try:
        writer = spark.sql(sql).writeStream.outputMode(mode).format("noop").option("checkpointLocation", str(folder))
        if not whole:
            writer.trigger(processingTime="1 hour").start().stop()
            return ""
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return plan_text(query, "Physical")
    except PySparkException as exc:
        if exc.getCondition() == "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION" and "watermark" in str(exc):
            raise ValueError(
                "no group is ever final: group by `window(TIME, SIZE)` or `session_window(TIME, GAP)` too"
            ) from exc
        if "an appropriate range condition" in str(exc):
            raise ValueError(UNBOUND) from exc
        raise ValueError(f"Spark cannot compute this as a stream: {first_sentence(exc)}") from exc
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _told(exc: PySparkException, sql: str, config: Config) -> str:
    """Spark's words, with the place in the SQL."""
    where, fragment = "", ""
    with suppress(Exception):
        for context in exc.getQueryContext():
            where, fragment = place(sql, context.startIndex()), context.fragment()
    said = first_sentence(exc)
    if exc.getCondition() == "TABLE_OR_VIEW_NOT_FOUND" and fragment:
        known = [*config.events, *config.patterns, *config.streams]
        said = f"there are no events `{fragment}`{did_you_mean(fragment, known)}"
    return f"{where}: {said}" if where else said
