"""What every reading of a table's topic begins with, as Spark SQL: the record decoded, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from driftless.facts.epochs import TopicLog
from driftless.table import Column, Table
from driftless.version import OFFSET_BITS
from jobs.decode.spark_sql import RENAMED, literal, quote
from jobs.decode.values import BROKEN, column_of, key_sql, member, row_schema

LACKING = "a large value is missing that an UPDATE left alone: replica identity is not full"


def decoded_sql(
    table: Table, columns: list[Column], log: TopicLog, unavailable: str, since: Mapping[str, int]
) -> list[str]:
    """The first of two steps of `selectExpr` over Kafka's columns: the key `k`, the row `r` with these columns, its
    `version` and `place`, and what `faults_sql` looks at.
    """
    return [
        f"from_json(CAST(key AS STRING), {row_schema([column_of(table, name) for name in table.key])}) AS k",
        f"from_json(CAST(value AS STRING), {row_schema(columns)}) AS r",
        "value IS NULL AS gone",
        f"{version_sql(log)} AS version",
        f"concat({literal(log.topic)}, '/', `partition`, '/', `offset`) AS place",
        f"{_lacking(table, unavailable)} AS lacking",
        *(["value AS raw"] if since else []),
        *(["headers"] if any(since.values()) else []),
    ]


def whole_key_sql(table: Table) -> str:
    """The key's text; fails the batch with the record's place where it cannot be decoded, or lacks a column."""
    missing = " OR ".join(f"k.{quote(name)} IS NULL" for name in table.key)
    key = key_sql([column_of(table, name) for name in table.key])
    return f"CASE WHEN k IS NULL OR {missing} THEN {_refuse('the key cannot be decoded')} ELSE {key} END"


def faults_sql(columns: Iterable[Column], since: Mapping[str, int]) -> str:
    """The branches of a CASE that fail the batch with the record's place, for rows that are not gone.

    `since`: a record lacks a column of these, and must not, by driftless/facts/column_history.py.
    """
    faults = [
        (f"r IS NULL OR r.{BROKEN} IS NOT NULL", "the row cannot be decoded: the table may have changed"),
        ("lacking", LACKING),
        *(
            (_absent(column, since[column.name]), f"the row has no column {column.name}, {RENAMED}")
            for column in columns
            if column.name in since
        ),
    ]
    return " ".join(f"WHEN {condition} THEN {_refuse(why)}" for condition, why in faults)


def version_sql(log: TopicLog) -> str:
    """A record's version, as `TopicLog.version` says."""
    epoch = f"{log.newest.number}L"
    if log.ends:
        cases = [
            f"WHEN `partition` = {partition} AND `offset` < {end} THEN {number}L"
            for number, ends in log.ends
            for partition, end in ends.items()
        ]
        epoch = f"CASE {' '.join(cases)} ELSE {epoch} END"
    return f"shiftleft({epoch}, {OFFSET_BITS}) | `offset`"


def _refuse(why: str) -> str:
    return f"raise_error(concat(place, {literal(f': {why}')}))"


def _absent(column: Column, known: int) -> str:
    """Whether a record lacks a column that it must have since the position `known`."""
    absent = f"r.{quote(column.name)} IS NULL AND NOT contains(CAST(raw AS STRING), {literal(member(column.name))})"
    if not known:
        return absent
    changed = "get(filter(headers, h -> h.key = 'lsn'), 0).value"
    return f"{absent} AND coalesce(try_cast(CAST({changed} AS STRING) AS BIGINT), 0L) > {known}L"


def _lacking(table: Table, unavailable: str) -> str:
    """Whether a value is missing that the UPDATE left alone: as text, or in the hexadecimal digits of a bytea."""
    if not unavailable or not table.needs_full_identity:
        return "false"
    texts = (unavailable, unavailable.encode().hex())
    return " OR ".join(f"contains(CAST(value AS STRING), {literal(text)})" for text in texts)
