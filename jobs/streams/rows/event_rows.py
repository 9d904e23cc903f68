"""From records of a topic of events to rows: typed columns, the event's time, and whether it is late.

All of it is made of the record alone. So a query that goes on, a replay of it and a batch have the same rows.
"""

from __future__ import annotations

from driftless.facts.event_source import EventSource
from driftless.streams.event_types import MOMENT, event_type
from jobs.decode.spark_sql import literal, quote
from jobs.streams.rows.captured_rows import captured_sql
from jobs.streams.rows.reasons import INVALID, LATE, REASON, TOO_LATE

SKEW_MS = 2_000
"""How much a device's clock may differ from the broker's before its events' times are corrected."""
_OLDEST_MS = 0
_RECEIVED, _OBJECT, _BAD, _RAW, _NO_EVENT = "_received", "_object", "_bad", "_raw", "_no_event"


def event_rows_sql(source: EventSource, *, placed: bool = False) -> list[list[str]]:
    """Steps of `selectExpr` over Kafka's columns, with headers where the topic is the log of a table, ending in the
    declared columns and `REASON`. With `placed`, also in `partition`, `offset`, and when it happened and was received,
    in milliseconds.

    The column of the event's time has it corrected: moved by what the device's clock was wrong at `sent`, and never
    after the event was received.
    """
    place = ["`partition`", "`offset`"] if placed else []
    parsed, no_event = list[list[str]](), list[str]()
    if source.captured is None:
        members = ", ".join(f"{quote(name)} STRING" for name in source.columns)
        texts, received = f"from_json(CAST(value AS STRING), {literal(members)})", "unix_millis(timestamp)"
    else:
        before, (texts, received, why) = captured_sql(source, source.captured)
        parsed, no_event = [before], [f"{why} AS {_NO_EVENT}"]
    decoded = [*place, f"{texts} AS {_OBJECT}", f"{received} AS {_RECEIVED}", *no_event]
    no_event = [_NO_EVENT] if no_event else []
    typed = [f"{_typed(name, kind)} AS {quote(name)}" for name, kind in source.columns.items()]
    bad = " OR ".join(
        f"({_OBJECT}.{quote(name)} IS NOT NULL AND {_typed(name, kind)} IS NULL)"
        for name, kind in source.columns.items()
        if event_type(kind).spark != "STRING"
    )
    shaped = [*place, *typed, f"({bad or 'false'}) AS {_BAD}", _RECEIVED, *no_event]
    columns = [quote(name) for name in source.columns]
    timed = [*place, *columns, _BAD, _RECEIVED, *no_event, f"{_corrected(source)} AS {_RAW}"]
    event = quote(source.event)
    others = [c for c in columns if c != event]
    at = f"timestamp_millis(least({_RAW}, {_RECEIVED})) AS {event}"
    too_late = f"WHEN {_RECEIVED} - {_RAW} > {source.lateness + source.correct} THEN '{TOO_LATE}' "
    too_late = too_late if source.correct else ""
    reason = (
        f"CASE {f'WHEN {_NO_EVENT} IS NOT NULL THEN {_NO_EVENT} ' if no_event else ''}"
        f"WHEN {_BAD} OR {_RAW} IS NULL OR {_RAW} < {_OLDEST_MS} THEN '{INVALID}' "
        f"{too_late}WHEN {_RECEIVED} - {_RAW} > {source.lateness} THEN '{LATE}' END AS {REASON}"
    )
    more = [*place, f"{_RAW} AS happened_ms", f"{_RECEIVED} AS received_ms"] if placed else []
    return [*parsed, decoded, shaped, timed, [*others, at, reason, *more]]


def empty_columns(source: EventSource) -> list[str]:
    """The declared columns but for the event's time, of a row that is no event."""
    return [
        f"CAST(NULL AS {event_type(kind).spark}) AS {quote(name)}"
        for name, kind in source.shown.items()
        if name != source.event
    ]


def schema_sql(source: EventSource) -> str:
    """The columns that a query sees, as a schema of Spark's."""
    return ", ".join(f"{quote(name)} {event_type(kind).spark}" for name, kind in source.columns.items())


def _typed(name: str, kind: str) -> str:
    return typed_sql(f"{_OBJECT}.{quote(name)}", kind)


def typed_sql(text: str, kind: str) -> str:
    """A text as a value of a type; null where it cannot be one."""
    spark = event_type(kind).spark
    if spark == "STRING":
        return text
    if kind.strip().lower() == MOMENT:
        return (
            f"CASE WHEN {text} RLIKE '^-?[0-9]{{1,15}}$' THEN timestamp_millis(CAST({text} AS BIGINT)) "
            f"ELSE try_cast({text} AS TIMESTAMP) END"
        )
    if spark.startswith("DECIMAL"):
        # A cast would round what has more digits.
        held = f"try_cast({text} AS {spark})"
        return f"CASE WHEN {held} = try_cast({text} AS DECIMAL(38,18)) THEN {held} END"
    return f"try_cast({text} AS {spark})"


def _corrected(source: EventSource) -> str:
    """The event's time in milliseconds, with what the device's clock was wrong taken from it."""
    event = f"unix_millis({quote(source.event)})"
    if source.sent is None:
        return event
    off = f"{_RECEIVED} - unix_millis({quote(source.sent)})"
    return f"{event} + CASE WHEN abs({off}) > {SKEW_MS} THEN {off} ELSE 0 END"
