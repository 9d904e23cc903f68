"""What a stream's SQL means, by Spark's own analyser, before anything is begun: its columns, and its mistakes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
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

from driftless.config.event_types import event_type
from driftless.config.models import Config
from driftless.config.streams import EventsConfig, StreamConfig
from driftless.facts.streams import CHANGES, SESSION, WINDOW, AnalysedStream, WindowEnds, stream_table
from driftless.suggest import did_you_mean
from driftless.table import Column
from driftless.where.words import spark_words
from jobs.decode.spark_sql import quote
from jobs.streams.sql.keys import left_out_of_key
from jobs.streams.sql.query import MODES, NEVER, plan_text, query_session, timed_sql

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
_CLOCK = "another answer at another time; use the events' own time"
_CHANCE = "another answer each time"
_ORDER = "another answer in another order of the events"
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("now", "current_timestamp", "current_date", "curdate", "localtimestamp"), _CLOCK),
    **dict.fromkeys(("rand", "random", "randn", "uuid", "shuffle", "randstr", "uniform"), _CHANCE),
    **dict.fromkeys(("monotonically_increasing_id", "spark_partition_id", "input_file_name"), _CHANCE),
    **dict.fromkeys(("first", "first_value", "last", "last_value", "any_value", "mode"), f"{_ORDER}; use min or max"),
    **dict.fromkeys(("max_by", "min_by"), f"{_ORDER} where two are equal; use max or min of a struct"),
    **dict.fromkeys(("collect_list", "array_agg", "listagg", "string_agg"), f"{_ORDER}; use sort_array(collect_set())"),
    **dict.fromkeys(("approx_percentile", "percentile_approx", "approx_top_k"), f"{_ORDER}: it is no exact number"),
    **dict.fromkeys(("double", "float", "real"), f"{_ORDER}, once such numbers are added; use decimal"),
    **dict.fromkeys(("collect_set",), f"{_ORDER}; put it within sort_array"),
    **dict.fromkeys(("stddev", "stddev_pop", "stddev_samp", "std", "variance", "var_pop", "var_samp"), f"{_ORDER}"),
    **dict.fromkeys(("corr", "covar_pop", "covar_samp", "skewness", "kurtosis", "regr_slope", "regr_r2"), f"{_ORDER}"),
    "limit": f"{_ORDER}; use HAVING, or a key that holds what you want",
    "tablesample": _CHANCE,
    "watermark": "what is late is said by `lateness` of the events",
}
_BARE = ("current_timestamp", "current_date", "localtimestamp", "watermark", "double", "float", "real", "tablesample")
"""Those that are written without brackets, too."""
_NUMBERED = ("limit",)
"""Those that a number follows: a column may have such a name."""


@dataclass(frozen=True)
class Mistake:
    """`field` of the stream in sync.yaml."""

    field: str
    what: str


def analyse(spark: SparkSession, config: Config, name: str) -> AnalysedStream | list[Mistake]:
    """What a stream of the configuration is made of, or what is wrong with it."""
    stream = config.streams[name]
    mistakes = [Mistake("sql", what) for what in refused(stream.sql)]
    session = query_session(spark)
    session.conf.set("spark.sql.debug.maxToStringFields", "10000")  # of plans that are read here
    events = _named(stream.sql, config.events)
    for each in events:
        _empty_view(session, each, config.events[each])
    try:
        rows = session.sql(stream.sql)
    except PySparkException as exc:
        return [*mistakes, Mistake("sql", _told(exc, stream.sql, config))]
    try:
        closes = _closes(session, stream.sql)
        timed = timed_sql(stream.sql, closes)
    except ValueError as exc:
        return [*mistakes, Mistake("sql", str(exc))]
    mistakes += _of_columns(stream, rows)
    if closes and not mistakes:
        missing = left_out_of_key(plan_text(rows, "Analyzed"), stream.key)
        why = "is not in it, and the SQL groups by it: two results may have one key"
        mistakes += [Mistake("key", f"`{column}` {why}") for column in missing]
    mistakes += [Mistake("sql", what) for what in _of_joins(stream.sql, closes)]
    if stream.emit == CHANGES and closes != WINDOW:
        what = "a session may be joined to another one by a later event" if closes else "each result is final at once"
        mistakes.append(Mistake("emit", f"{what}: only windows can be published with every change; leave it out"))
    mode, used = MODES[stream.emit], {each: config.events[each] for each in events}
    if not mistakes and (why := _unsupported(session, timed, mode, used)):
        mistakes.append(Mistake("sql", why))
    if mistakes:
        return mistakes
    columns = tuple(Column(f.name, _POSTGRES[type(f.dataType)]) for f in rows.schema.fields)
    read = tuple(each for each in events if _is_read(session, stream.sql, each))
    table, ends = stream_table(name, columns, stream.key), _ends(session, stream.sql)
    if any(config.events[each].correct_ms for each in read) and (why := _uncorrectable(stream.sql, closes, ends)):
        return [Mistake("sql", f"late events cannot correct it, as `late: {{correct: ...}}` of its events asks: {why}")]
    return AnalysedStream(table, read, pyspark.__version__, closes, ends)


def _closes(spark: SparkSession, sql: str) -> str:
    """By what its results become final. Raises ValueError, with a text for the operator, where that cannot be told."""
    words = {word.text.lower() for word, after in pairwise(spark_words(sql)) if after.text == "(" and not word.quoted}
    for column in (WINDOW, SESSION):
        if column in words:
            timed = timed_sql(sql, column)
            with suppress(PySparkException):
                spark.sql(timed)
                return column
    if words & {WINDOW, SESSION}:
        raise ValueError("its outermost SELECT must be grouped by `window(...)` or `session_window(...)` itself")
    return ""


def _ends(spark: SparkSession, sql: str) -> WindowEnds | None:
    """Where windows end, found out by making those of one moment; None where the query has not one kind of them."""
    words, found = spark_words(sql), set[str]()
    for number, (word, after) in enumerate(pairwise(words)):
        if word.quoted or word.text.lower() not in (WINDOW, SESSION) or after.text != "(":
            continue
        if word.text.lower() == SESSION:
            return None
        depth, comma = 0, None
        for other in words[number + 1 :]:
            depth += {"(": 1, ")": -1}.get(other.text, 0) if not other.quoted else 0
            if other.text == "," and depth == 1 and comma is None:
                comma = other.start
            if depth == 0:
                found.add(" ".join(sql[comma : other.start].split()) if comma is not None else "")
                break
    if len(found) != 1:
        return None
    one = f"FROM VALUES (timestamp_millis(0)) AS one(at) GROUP BY window(at {found.pop()})"
    with suppress(PySparkException):
        made = spark.sql(f"SELECT unix_millis(window.start) AS begin, unix_millis(window.end) AS end {one}").collect()
        ends, size = sorted(row["end"] for row in made), made[0]["end"] - made[0]["begin"]
        return WindowEnds(ends[1] - ends[0] if len(ends) > 1 else size, ends[0], size)
    return None


def _uncorrectable(sql: str, closes: str, ends: WindowEnds | None) -> str:
    """Why it cannot be said which results a late event may change; empty where it can."""
    words = [word.text.lower() for word in spark_words(sql) if not word.quoted]
    if closes == SESSION and ("having" in words or words.count("select") > 1):
        return "a session that HAVING or an inner SELECT hides cannot be looked for"
    if closes == WINDOW and ends is None:
        return "it has windows of several kinds"
    return ""


def _of_joins(sql: str, closes: str) -> Iterator[str]:
    """What this version cannot prove yet."""
    words = [word for word in spark_words(sql) if not word.quoted]
    for number, word in enumerate(words):
        if word.text.lower() != "join":
            continue
        before = {each.text.lower() for each in words[max(0, number - 2) : number]}
        if outer := before & {"left", "right", "full", "outer", "semi", "anti"}:
            yield f"{_place(sql, word.start)}: {min(outer).upper()} JOIN of events: this version cannot do that yet"
        elif closes:
            yield f"{_place(sql, word.start)}: windows over a JOIN of events: this version cannot do that yet"


def refused(sql: str) -> Iterator[str]:
    """Where it is not the same at any time, in any order: the proof would fail by chance."""
    words = spark_words(sql)
    for number, (word, after) in enumerate(zip(words, [*words[1:], None], strict=True)):
        name = word.text.lower()
        if name == "collect_set" and number > 1 and words[number - 2].text.lower() == "sort_array":
            continue
        called = name in _BARE or (after is not None and after.text == "(")
        called = called or (name in _NUMBERED and after is not None and after.text.isdigit())
        if name in _REFUSED and called and not word.quoted:
            yield f"{_place(sql, word.start)}: `{word.text}` gives {_REFUSED[name]}"


def _named(sql: str, events: Mapping[str, EventsConfig]) -> list[str]:
    """Events whose names stand in it, if only as a column's."""
    words = {word.text.lower() for word in spark_words(sql)}
    return [name for name in events if name in words]


def _empty_view(spark: SparkSession, name: str, events: EventsConfig) -> None:
    schema = ", ".join(f"{quote(column)} {event_type(kind).spark}" for column, kind in events.columns.items())
    spark.createDataFrame([], schema).createOrReplaceTempView(name)


def _is_read(spark: SparkSession, sql: str, name: str) -> bool:
    """Whether it reads these events: then it means nothing without them."""
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


def _unsupported(spark: SparkSession, sql: str, mode: str, events: Mapping[str, EventsConfig]) -> str:
    """Why Spark cannot run it as a query that goes on; empty where it can. A query over nothing is begun, and ended."""
    for name, source in events.items():
        columns = [f"CAST(NULL AS {event_type(kind).spark}) AS {quote(c)}" for c, kind in source.columns.items()]
        rows = spark.readStream.format("rate").option("rowsPerSecond", 1).load().where("false").selectExpr(*columns)
        rows.withWatermark(source.time.event, NEVER).createOrReplaceTempView(name)
    folder = Path(tempfile.mkdtemp(prefix="driftless-check-"))
    try:
        writer = spark.sql(sql).writeStream.outputMode(mode).format("noop")
        writer.option("checkpointLocation", str(folder)).trigger(processingTime="1 hour").start().stop()
    except PySparkException as exc:
        if exc.getCondition() == "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION" and "watermark" in str(exc):
            return "no group is ever final: group by `window(TIME, SIZE)` or `session_window(TIME, GAP)` too"
        return f"Spark cannot compute this as a stream: {_message(exc)}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for name, source in events.items():
            _empty_view(spark, name, source)
    return ""


def _told(exc: PySparkException, sql: str, config: Config) -> str:
    """Spark's words, with the place in the SQL."""
    place, fragment = "", ""
    with suppress(Exception):
        for context in exc.getQueryContext():
            place, fragment = _place(sql, context.startIndex()), context.fragment()
    said = _message(exc)
    if exc.getCondition() == "TABLE_OR_VIEW_NOT_FOUND" and fragment:
        said = f"there are no events `{fragment}`{did_you_mean(fragment, config.events)}"
    return f"{place}: {said}" if place else said


def _message(exc: PySparkException) -> str:
    """The first sentence of what Spark says, without the name of the error."""
    line = next(line for line in str(exc).splitlines() if line.strip())
    return line.partition("] ")[2].partition(" SQLSTATE:")[0] or line


def _place(sql: str, start: int) -> str:
    before = sql[:start]
    return f"line {before.count(chr(10)) + 1}, column {start - before.rfind(chr(10))} of the SQL"
