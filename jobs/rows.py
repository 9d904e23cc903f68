"""From records of a table's topic to rows for a row store, as Spark SQL: the JSON text of each column by itself."""

from __future__ import annotations

from driftless.registry import TopicLog
from driftless.table import Table
from jobs.decode import BROKEN, LACKING, column_of, json_sql, key_sql, lacking_sql, row_schema, value_sql, version_sql
from jobs.sqltext import literal, quote

FIXED = ("partition", "offset", "key", "version", "gate", "gone")
"""Columns before those of the table, which are c0, c1, ..."""


def rows_sql(table: Table, log: TopicLog, *, unavailable: str = "") -> tuple[list[str], list[str]]:
    """Two steps of `selectExpr` over Kafka's columns with headers, ending in FIXED and each column's JSON text.

    `gate`: where the transaction before the row's own ended in the source's log: what has read the end of a later one
    has every row of it. -1 for a row that was read by a snapshot, which is of no transaction. A record that cannot be
    decoded fails the batch with its place. `table`: with the columns that are wanted, and the key's.
    """
    keys = [column_of(table, name) for name in table.key]
    parse = [
        f"from_json(CAST(key AS STRING), {row_schema(keys)}) AS k",
        f"from_json(CAST(value AS STRING), {row_schema(list(table.columns))}) AS r",
        "value IS NULL AS gone",
        f"{version_sql(log)} AS version",
        f"concat({literal(log.topic)}, '/', `partition`, '/', `offset`) AS place",
        f"{lacking_sql(table, unavailable)} AS lacking",
        f"{_header('op')} AS op",
        f"{_header('seq')} AS seq",
        "`partition`",
        "`offset`",
    ]
    missing = " OR ".join(f"k.{quote(name)} IS NULL" for name in table.key)
    broken = (
        f"NOT gone AND (r IS NULL OR r.{BROKEN} IS NOT NULL), "
        "raise_error(concat(place, ': the row cannot be decoded: the table may have changed'))"
    )
    lacking = f"lacking, raise_error(concat(place, ': {LACKING}'))"
    shape = [
        "`partition`",
        "`offset`",
        f"CASE WHEN k IS NULL OR {missing} THEN raise_error(concat(place, ': the key cannot be decoded')) "
        f"ELSE {key_sql(keys)} END AS key",
        "version",
        "CASE WHEN op = 'r' THEN -1L ELSE coalesce(CAST(get_json_object(seq, '$[0]') AS BIGINT), 0L) END AS gate",
        f"if({broken}, if({lacking}, gone)) AS gone",
        *(f"{_cell(table, column.name)} AS c{number}" for number, column in enumerate(table.columns)),
    ]
    return parse, shape


def _header(name: str) -> str:
    return f"CAST(get(filter(headers, h -> h.key = {literal(name)}), 0).value AS STRING)"


def _cell(table: Table, name: str) -> str:
    value = value_sql(column_of(table, name), f"r.{quote(name)}")
    return f"if(r.{quote(name)} IS NULL, NULL, {json_sql(value)})"
