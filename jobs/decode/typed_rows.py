"""From records of a table's topic to rows of typed columns, as Spark SQL: what is computed with, and not shown.

Which type a column has is said in driftless/types.py, beside the form in which a document shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from driftless.facts.epochs import TopicLog
from driftless.table import Column, Table
from driftless.types import DECIMAL, rule_of
from jobs.decode.records import decoded_sql, faults_sql, whole_key_sql
from jobs.decode.spark_sql import literal, quote, refuse
from jobs.decode.values import DAYS, MICROS, Scale, elements_sql, text_sql
from jobs.decode.where_sql import numeric_sql

BEYOND_YEARS = "a moment that is not of the years 1 to 9999"
BEYOND_DIGITS = "a numeric that 20 digits before the point and 18 behind it do not hold"


def typed_rows_sql(
    table: Table,
    columns: Iterable[Column],
    log: TopicLog,
    *,
    unavailable: str = "",
    since: Mapping[str, int] | None = None,
) -> tuple[list[str], list[str]]:
    """Two steps of `selectExpr` over Kafka's columns, ending in `partition`, `offset`, `key`, `version` and `row`: a
    struct of `columns` by their names, each of the type that `typed` says, or null: a delete.

    A value is exactly what Postgres has. A record with one that its type cannot hold, such as an infinite timestamp,
    fails the batch with the name of the column, as does one that cannot be decoded, with its place. `unavailable` and
    `since`: as of `writes_sql`.
    """
    wanted, known = list(columns), since or {}
    fields = ", ".join(f"{literal(column.name)}, {typed_sql(column, f'r.{quote(column.name)}')}" for column in wanted)
    shape = [
        "`partition`",
        "`offset`",
        f"{whole_key_sql(table)} AS key",
        "version",
        f"CASE WHEN gone THEN NULL {faults_sql(wanted, known)} ELSE named_struct({fields}) END AS row",
    ]
    return [*decoded_sql(table, wanted, log, unavailable, known), "`partition`", "`offset`"], shape


def typed_sql(column: Column, sql: str) -> str:
    """A column's value of its type; `sql` gives what the log has of it. An array is one of Spark's of that type."""
    if not column.array:
        return _scalar(column, sql)
    array, one = elements_sql(column, sql, "x")
    return f"transform(transform({array}, x -> {one}), x -> {_scalar(column, 'x')})"


def _scalar(column: Column, sql: str) -> str:
    rule = rule_of(column)
    assert rule is not None
    match rule.typed:
        case "boolean":
            return sql
        case "binary":
            return f"unhex({sql})"
        case "string":
            return f"CAST({text_sql(column, sql)} AS STRING)"
        case "date":
            return _between(column, sql, DAYS, f"date_from_unix_date(CAST({sql} AS INT))")
        case "timestamp_ntz":
            return _between(column, sql, MICROS, f"CAST(timestamp_micros({sql}) AS TIMESTAMP_NTZ)")
        case "timestamp":
            beyond = f"{sql} NOT RLIKE '^[0-9]{{4}}-' OR startswith({sql}, '0000')"
            return f"CASE WHEN {beyond} THEN {refuse(column.name, BEYOND_YEARS)} ELSE CAST({sql} AS TIMESTAMP) END"
        case kind if kind == DECIMAL:
            return _decimal(column, sql)
        case kind:
            return f"CAST({sql} AS {kind})"


def _between(column: Column, sql: str, scale: Scale, typed: str) -> str:
    """Beyond the years that Spark's calendar has are Postgres' other years, and infinity."""
    beyond = f"{sql} < {scale.year_1} OR {sql} >= {scale.year_10000}"
    return f"CASE WHEN {beyond} THEN {refuse(column.name, BEYOND_YEARS)} ELSE {typed} END"


def _decimal(column: Column, sql: str) -> str:
    """Spark rounds what has more digits behind the point."""
    held = f"try_cast({sql} AS {DECIMAL})"
    exact = f"coalesce({numeric_sql(sql)} = {numeric_sql(f'CAST({held} AS STRING)')}, false)"
    return (
        f"CASE WHEN {sql} IS NULL THEN NULL "
        f"WHEN {sql} RLIKE '^-?[0-9]{{1,20}}([.][0-9]{{1,18}})?$' THEN {held} "
        f"WHEN {exact} THEN {held} ELSE {refuse(column.name, BEYOND_DIGITS)} END"
    )
