"""From records of a log to (key, version, document), as Spark SQL: no Python sees a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from driftless.facts.epochs import TopicLog
from driftless.table import Table
from jobs.decode.records import decoded_sql, faults_sql, version_sql, whole_key_sql
from jobs.decode.spark_sql import literal, quote
from jobs.decode.values import column_of, member, value_sql


@dataclass(frozen=True)
class Filter:
    """Which rows have a document: a condition on the fields of a decoded row, `r`, and the columns that it reads."""

    sql: str
    columns: frozenset[str]


def writes_sql(
    table: Table,
    fields: Mapping[str, str],
    log: TopicLog,
    where: Filter | None = None,
    *,
    unavailable: str = "",
    since: Mapping[str, int] | None = None,
) -> tuple[list[str], list[str]]:
    """Two steps of `selectExpr` over Kafka's columns, ending in `key`, `version`, `document` (null: delete).

    A record that cannot be decoded, or whose key lacks a column, fails the batch with its topic, partition and
    offset; it never becomes a document of nulls. `fields`: name in the document -> column. A row of which `where` is
    not true is a delete at its own version: the row before it may have had a document. `unavailable`: the text of a
    value that the source's log left out, which fails the batch too. `since`: of driftless/facts/column_history.py; a
    record without a column that it must have fails the batch as well.
    """
    read = {*fields.values(), *(where.columns if where else ())}
    wanted = [column for column in table.columns if column.name in read]
    known = since or {}
    shape = [
        f"{whole_key_sql(table)} AS key",
        "version",
        f"CASE WHEN gone THEN NULL {faults_sql(wanted, known)} "
        f"{f'WHEN NOT coalesce({where.sql}, false) THEN NULL ' if where else ''}"
        f"ELSE {_document(table, fields)} END AS document",
    ]
    return decoded_sql(table, wanted, log, unavailable, known), shape


def documents_sql(log: TopicLog) -> tuple[list[str], list[str]]:
    """The same for a view's own topic, whose records are documents already."""
    text = "CAST(value AS STRING) AS document"
    return ["CAST(key AS STRING) AS key", f"{version_sql(log)} AS version", text], ["key", "version", "document"]


def _document(table: Table, fields: Mapping[str, str]) -> str:
    """The document's JSON text: one `to_json` for what Spark writes right, and finished pieces after it."""
    plain, finished = [], []
    for name, column_name in fields.items():
        value = value_sql(column_of(table, column_name), f"r.{quote(column_name)}")
        if value.json:
            finished.append(f"{literal(member(name))}, coalesce({value.sql}, 'null')")
        else:
            plain.append(f"{literal(name)}, {value.sql}")
    struct = f"to_json(named_struct({', '.join(plain)}), map('ignoreNullFields', 'false'))"
    if not finished:
        return struct
    if not plain:
        return "concat('{', " + ", ',', ".join(finished) + ", '}')"
    return "concat('{', " + ", ',', ".join(finished) + f", ',', substring({struct}, 2))"
