"""From records of a table's topic to rows for a row store, as Spark SQL: the JSON text of each column by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from driftless.facts.epochs import TopicLog
from driftless.table import Column, Table
from driftless.types import rule_of
from jobs.decode.records import decoded_sql, faults_sql, whole_key_sql
from jobs.decode.spark_sql import literal, quote
from jobs.decode.values import cell_sql, value_sql

FIXED = ("partition", "offset", "key", "version", "prev_commit_lsn", "gone")
"""Columns before those of the table, which are c0, c1, ..."""


@dataclass(frozen=True)
class RowsSql:
    """Two steps of `selectExpr` over Kafka's columns with headers, ending in FIXED and a text for each column.

    `plain`: the numbers of columns whose text is not JSON yet, but the string itself: making JSON of strings is ten
    times cheaper in the Python that takes them in.
    """

    parse: tuple[str, ...]
    shape: tuple[str, ...]
    plain: frozenset[int]


def rows_sql(table: Table, log: TopicLog, *, unavailable: str = "", since: Mapping[str, int] | None = None) -> RowsSql:
    """The rows of a table's log.

    `prev_commit_lsn`: where the transaction before the row's own ended in the source's log: what has read the end of a
    later one has every row of it. -1 for a row that was read by a snapshot, which is of no transaction. A record
    that cannot be decoded fails the batch with its place. `table`: with the columns that are wanted, and the key's.
    `since`: as of `writes_sql`.
    """
    columns, known = list(table.columns), since or {}
    parse = [
        *decoded_sql(table, columns, log, unavailable, known),
        f"{_header('op', '0')} AS op",
        f"{_header('seq', 'size(headers) - 1')} AS seq",
        "`partition`",
        "`offset`",
    ]
    shape = [
        "`partition`",
        "`offset`",
        f"{whole_key_sql(table)} AS key",
        "version",
        # The first of `["123","456"]`; `[null,"456"]` before any transaction has ended.
        "CASE WHEN op = 'r' THEN -1L "
        "ELSE coalesce(try_cast(substring_index(substring(seq, 3), '\"', 1) AS BIGINT), 0L) END AS prev_commit_lsn",
        f"CASE WHEN gone THEN gone {faults_sql(columns, known)} ELSE gone END AS gone",
        *(f"{_cell(column)} AS c{number}" for number, column in enumerate(columns)),
    ]
    plain = frozenset(number for number, column in enumerate(columns) if is_plain(column))
    return RowsSql(tuple(parse), tuple(shape), plain)


def _header(name: str, place: str) -> str:
    """A header's text. `place`: where it nearly always is; looking through all of them takes three times as long."""
    there = f"get(headers, {place})"
    found = f"get(filter(headers, h -> h.key = {literal(name)}), 0)"
    return f"CAST(CASE WHEN {there}.key = {literal(name)} THEN {there}.value ELSE {found}.value END AS STRING)"


def is_plain(column: Column) -> bool:
    rule = rule_of(column)
    return rule is not None and not column.array and (rule.log, rule.form) == ("string", "same")


def _cell(column: Column) -> str:
    here = f"r.{quote(column.name)}"
    if is_plain(column):
        return value_sql(column, here).sql
    return f"if({here} IS NULL, NULL, {cell_sql(column, here)})"
