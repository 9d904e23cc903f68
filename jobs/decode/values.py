"""The value of a column in a record of a table's topic, as Spark SQL: for documents, for keys, for rows.

It is what `to_jsonb(column)` gives in UTC. Each conversion is one of the forms of driftless/types.py and yields either
a Spark value that `to_json` writes right, or finished JSON text. Those of the less common types are in
jobs/decode/type_conversions.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from driftless.table import Column, Table
from driftless.types import NULLED_ARRAYS, TypeRule, rule_of
from jobs.decode.spark_sql import NULLS, SEVERAL, literal, quote, refuse
from jobs.decode.type_conversions import Value, element, form_value

BROKEN = "_broken".ljust(64, "_")
"""Where Spark puts the text of a record that does not fit its schema. Longer than the name of a column can be."""


def column_of(table: Table, name: str) -> Column:
    column = table.column(name)
    if column is None:
        raise ValueError(f"{table.full_name} has no column {name}")
    return column


def _rule(column: Column) -> TypeRule:
    rule = rule_of(column)
    if rule is None:
        raise ValueError(f"no rule for the type {column.type} of the column {column.name}")
    return rule


def row_schema(columns: list[Column]) -> str:
    parts = []
    for column in columns:
        log = _rule(column).log
        parts.append(f"{quote(column.name)} {f'array<{log}>' if column.array else log}")
    return literal(", ".join([*parts, f"{BROKEN} string"])) + f", map('columnNameOfCorruptRecord', '{BROKEN}')"


def key_sql(columns: list[Column]) -> str:
    """One column: its value's text. Several: a compact JSON array of their values."""
    if len(columns) == 1:
        value = value_sql(columns[0], f"k.{quote(columns[0].name)}")
        return f"CAST({value.sql} AS STRING)"
    parts = [cell_sql(column, f"k.{quote(column.name)}") for column in columns]
    return "concat('[', concat_ws(',', " + ", ".join(parts) + "), ']')"


def cell_sql(column: Column, sql: str) -> str:
    """JSON text of a column's value that is not null."""
    rule, value = _rule(column), value_sql(column, sql)
    if rule.form == "same" and rule.log != "string" and not column.array:
        return f"CAST({value.sql} AS STRING)"  # a number or a boolean is its own JSON
    return json_sql(value)


def json_sql(value: Value) -> str:
    """JSON text of one value that is not null."""
    # to_json writes objects and arrays only: cut the brackets of an array of one.
    return value.sql if value.json else f"regexp_replace(to_json(array({value.sql})), '^.|.$', '')"


def member(name: str) -> str:
    """`"name":` as JSON."""
    return json.dumps(name, ensure_ascii=False) + ":"


def value_sql(column: Column, sql: str) -> Value:
    rule = _rule(column)
    if not column.array:
        return _scalar(rule.form, sql, column)
    array, one = elements_sql(column, sql, "x")
    if rule.form == "same":
        return Value(array, json=False)
    shown = _scalar(rule.form, one, column)
    if not shown.json:
        return Value(f"transform({array}, x -> {shown.sql})", json=False)
    pieces = f"transform({array}, x -> coalesce({shown.sql}, 'null'))"
    return Value(f"concat('[', array_join({pieces}, ','), ']')", json=True)


def text_sql(column: Column, sql: str) -> str:
    """What a document shows of a value, or of an element of an array, without the quotation marks of a string."""
    return _scalar(_rule(column).form, sql, column).sql


def elements_sql(column: Column, sql: str, name: str) -> tuple[str, str]:
    """An array's elements, and one of them, called `name`, as the same type has it outside of arrays."""
    return _of_one_dimension(column, sql), element(_rule(column).form, name)


_JAVA_ARRAY = r"^\[+L[\w.$]+;@[0-9a-f]+$"
"""What Debezium writes for an element that is an array itself: the name that Java gives it, and none of its values."""


def _of_one_dimension(column: Column, sql: str) -> str:
    """Postgres keeps an array of any number of dimensions in a column that was declared with one."""
    if column.type in NULLED_ARRAYS and column.kind == "b":
        lost, why = f"size({sql}) > 0 AND forall({sql}, x -> x IS NULL)", NULLS
    else:
        lost, why = f"exists({sql}, x -> startswith(x, '[') AND x RLIKE {literal(_JAVA_ARRAY)})", SEVERAL
    return f"CASE WHEN {lost} THEN {refuse(column.name, why)} ELSE {sql} END"


def _scalar(form: str, sql: str, column: Column) -> Value:
    match form:
        case "same":
            return Value(sql, json=False)
        case "bytea":
            return Value(f"concat('\\\\x', {sql})", json=False)
        case "json":
            # The text must stay on one line for _bulk; outside of strings a line break is white space.
            return Value(f"translate({sql}, '\\n\\r', '  ')", json=True)
        case "numeric":
            special = "WHEN 'NAN' THEN '\"NaN\"' WHEN 'POSITIVE_INFINITY' THEN '\"Infinity\"' "
            return Value(f"CASE {sql} {special}WHEN 'NEGATIVE_INFINITY' THEN '\"-Infinity\"' ELSE {sql} END", json=True)
        case "float":
            return Value(
                f"CASE WHEN {sql} IN ('NaN', 'Infinity', '-Infinity') THEN concat('\"', {sql}, '\"') ELSE {sql} END",
                json=True,
            )
        case "timestamp":
            return Value(
                _moment(f"replace(CAST(timestamp_micros({sql}) AS STRING), ' ', 'T')", sql, MICROS), json=False
            )
        case "date":
            day = f"CAST(date_from_unix_date(CAST({sql} AS INT)) AS STRING)"
            return Value(_moment(day, sql, DAYS), json=False)
        case "time":
            clock = f"substring(CAST(timestamp_micros({sql}) AS STRING), 12)"
            return Value(f"CASE WHEN {sql} = 86400000000 THEN '24:00:00' ELSE {clock} END", json=False)
        case "timestamptz":
            return Value(_zoned(sql), json=False)
    return form_value(form, sql, column)


@dataclass(frozen=True)
class Scale:
    """Where the calendar ends, in a type's own unit since 1970: beyond it Debezium means infinity."""

    lowest: int
    year_1: int
    year_10000: int
    highest: int


# Postgres' own range: 4713 BC to 294276 AD for timestamps, 5874897 AD for dates. Debezium 3.7 writes infinity as the
# ends of a long for timestamps, and as days far below 4713 BC for dates (seen: -622191234 and -625821272).
MICROS = Scale(-210_866_803_200_000_000, -62_135_596_800_000_000, 253_402_300_800_000_000, 9_223_371_331_200_000_000)
DAYS = Scale(-2_440_588, -719_162, 2_932_897, 2_145_042_905)
_DATE_POSITIVE_INFINITY = -622_191_234


def _moment(text: str, sql: str, scale: Scale) -> str:
    """Postgres' spelling: infinity in words, no sign before large years, BC behind early ones."""
    return (
        f"CASE WHEN {sql} >= {scale.year_1} AND {sql} < {scale.year_10000} THEN {text} "
        f"WHEN {_forever(sql, scale)} THEN 'infinity' WHEN {sql} < {scale.lowest} THEN '-infinity' "
        f"WHEN {sql} >= {scale.year_10000} THEN substring({text}, 2) ELSE {_before_christ(text)} END"
    )


def moment_order(form: str, sql: str) -> str:
    """A date or timestamp of the log as a number that sorts as Postgres sorts them, infinity at the ends of a long."""
    scale = DAYS if form == "date" else MICROS
    last = (1 << 63) - 1
    return f"CASE WHEN {_forever(sql, scale)} THEN {last}L WHEN {sql} < {scale.lowest} THEN -{last}L ELSE {sql} END"


def _forever(sql: str, scale: Scale) -> str:
    return f"{sql} > {scale.highest}" + (f" OR {sql} = {_DATE_POSITIVE_INFINITY}" if scale is DAYS else "")


def _before_christ(text: str) -> str:
    """`-0043-03-15...` -> `0044-03-15... BC`: year 0 of ISO 8601 is 1 BC."""
    year = f"CAST(CAST(substring({text}, 2, 4) AS INT) + 1 AS STRING)"
    signed = f"concat(lpad({year}, 4, '0'), substring({text}, 6), ' BC')"
    return f"CASE WHEN {text} LIKE '-%' THEN {signed} ELSE concat('0001', substring({text}, 5), ' BC') END"


def _zoned(sql: str) -> str:
    """`2024-01-02T01:04:05.120000Z` -> `2024-01-02T01:04:05.12+00:00`; infinity is in words already."""
    bare = f"rtrim('Z', {sql})"
    bare = f"CASE WHEN contains({sql}, '.') THEN rtrim('.', rtrim('0', {bare})) ELSE {bare} END"
    early = f"regexp_replace({_before_christ(bare)}, ' BC$', '+00:00 BC')"
    return (
        f"CASE WHEN {sql} IS NULL OR endswith({sql}, 'infinity') THEN {sql} "
        f"WHEN startswith({sql}, '+') THEN concat(substring({bare}, 2), '+00:00') "
        f"WHEN startswith({sql}, '-') OR startswith({sql}, '0000') THEN {early} "
        f"ELSE concat({bare}, '+00:00') END"
    )
