"""From records of a table's log to events: each row that was added is one, once, whatever became of it later."""

from __future__ import annotations

from driftless.facts.event_source import CapturedEvents, EventSource
from driftless.table import Column
from jobs.decode.spark_sql import literal, quote
from jobs.decode.values import row_schema, text_sql
from jobs.streams.rows.reasons import CHANGED, DELETED, INVALID, REPEATED

_ROW, _OP, _TIME, _MOVED, _GONE = "_row", "_op", "_time", "_moved", "_gone"
_OLD_KEY = "__debezium.oldkey"
"""What Debezium puts beside the row that an UPDATE of its key adds."""


def captured_sql(source: EventSource, rows: CapturedEvents) -> tuple[list[str], tuple[str, str, str]]:
    """A step of `selectExpr` over Kafka's columns with headers, and what follows from it: the declared columns as a
    struct of texts; when it was received, in milliseconds, null for what a snapshot has read; why it is no event, null
    where it is one.
    """
    parsed = [
        "`partition`",
        "`offset`",
        f"from_json(CAST(value AS STRING), {row_schema([*rows.columns])}) AS {_ROW}",
        f"{header_sql('op')} AS {_OP}",
        f"{header_sql('ts')} AS {_TIME}",
        f"exists(headers, h -> h.key = {literal(_OLD_KEY)}) AS {_MOVED}",
        f"value IS NULL AS {_GONE}",
    ]
    no_event = (
        f"CASE WHEN {_GONE} THEN '{DELETED}' WHEN {_OP} = 'u' OR {_MOVED} THEN '{CHANGED}' "
        f"WHEN {_OP} = 'r' AND ({_repeated(rows)}) THEN '{REPEATED}' "
        f"WHEN coalesce({_OP} NOT IN ('c', 'r'), true) THEN '{INVALID}' END"
    )
    received = f"CASE WHEN {_OP} = 'c' THEN CAST(floor(try_cast({_TIME} AS BIGINT) / 1000) AS BIGINT) END"
    return parsed, (_members(source, rows), received, no_event)


def _members(source: EventSource, rows: CapturedEvents) -> str:
    found = {column.name: column for column in rows.columns}
    others = [name for name in source.columns if name not in found]
    payload = ""
    if others:
        members = ", ".join(f"{quote(name)} STRING" for name in others)
        payload = f"from_json({_text(found[rows.payload])}, {literal(members)})"
    parts = (
        f"{literal(name)}, {_text(found[name]) if name in found else f'{payload}.{quote(name)}'}"
        for name in source.columns
    )
    return f"named_struct({', '.join(parts)})"


def _text(column: Column) -> str:
    return f"CAST({text_sql(column, f'{_ROW}.{quote(column.name)}')} AS STRING)"


def _repeated(rows: CapturedEvents) -> str:
    """Of rows that a snapshot has read: those of a later one, and those that the log has had before."""
    beyond = [f"`partition` = {p:d} AND `offset` >= {offset:d}" for p, offset in rows.until.items()]
    twice = [
        f"`partition` = {p:d} AND `offset` IN ({', '.join(map(str, offsets))})"
        for p, offsets in rows.repeated.items()
        if offsets
    ]
    return " OR ".join([*beyond, *twice]) or "false"


def header_sql(name: str) -> str:
    """The text of a record's header."""
    return f"CAST(get(filter(headers, h -> h.key = {literal(name)}), 0).value AS STRING)"
