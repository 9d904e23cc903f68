"""The conversions of the less common types (driftless/types.py), each an expression of Spark SQL.

The plain ones are in jobs/decode/values.py. What arrives is written there as seen in Debezium's records.
"""

from __future__ import annotations

from dataclasses import dataclass

from driftless.table import Column
from jobs.decode.postgres_text import bound, json_of_text, literal, utc


@dataclass(frozen=True)
class Value:
    """A column's expression. `json`: it is JSON text already and must not be escaped again."""

    sql: str
    json: bool


def form_value(form: str, sql: str, column: Column) -> Value:
    """The value of a column that may be null."""
    text = _text_of_hex(sql)
    match form:
        case "hex":
            return Value(text, json=False)
        case "zoned hex":
            return Value(utc(text), json=False)
        case "zoned text":
            return Value(utc(sql), json=False)
        case "composite":
            return _known(sql, json_of_text(column, text), json=True)
        case "number":
            return Value(sql, json=True)
        case "whole numeric":
            # Of a negative scale Debezium makes a large one: two thousand zeros behind the point.
            return Value(
                f"CASE {sql} WHEN 'NAN' THEN '\"NaN\"' ELSE regexp_replace({sql}, '[.]0+$', '') END", json=True
            )
        case "digits":
            return Value(f"CAST({sql} AS STRING)", json=False)
        case "plain json":
            return Value(_last_of_each_key(f"translate({sql}, '\\n\\r', '  ')"), json=True)
        case "timetz":
            return Value(f"regexp_replace({sql}, 'Z$', '+00')", json=False)
        case "interval":
            return _known(sql, _interval(sql), json=False)
        case "one bit":
            return Value(f"CAST(CAST({sql} AS INT) AS STRING)", json=False)
        case "bits":
            return Value(_bits(sql, column.length), json=False)
        case "point":
            return Value(_point(sql), json=False)
        case "line":
            numbers = ", ',', ".join(_float(f"{sql}.{name}") for name in "abc")
            return Value(f"concat('{{', {numbers}, '}}')", json=False)
        case "circle":
            radius = _float(f"{sql}.radius")
            return Value(f"concat('<', {_point(f'{sql}.center')}, ',', {radius}, '>')", json=False)
    raise ValueError(f"unknown form {form}")


def _text_of_hex(sql: str) -> str:
    # Spark makes null of what is no hex: a type that Debezium writes otherwise must not vanish like that.
    wrong = "raise_error('a value that should have come as hex did not: this type is carried by a wrong rule')"
    return f"CASE WHEN {sql} IS NOT NULL AND unhex({sql}) IS NULL THEN {wrong} ELSE decode(unhex({sql}), 'UTF-8') END"


def _known(sql: str, shown: str, *, json: bool) -> Value:
    return Value(f"CASE WHEN {sql} IS NOT NULL THEN {shown} END", json)


def _last_of_each_key(text: str) -> str:
    """Of a key that an object has twice, `to_jsonb` keeps the last: then the text is written again, else left as it is.

    Spark's VARIANT does that (spark.sql.variant.allowDuplicateKeys), but for the digits of long numbers, so it is
    used where keys went missing alone. What it refuses, as what is nested too deeply, stays as it is too.
    """
    anew = f"to_json(try_parse_json({text}))"
    key = literal(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*+:')
    fewer = f"regexp_count({text}, {key}) > regexp_count({anew}, {key})"
    # A number beyond what a double holds would become this word.
    finite = f"regexp_count({anew}, 'Infinity') <= regexp_count({text}, 'Infinity')"
    return f"CASE WHEN {fewer} AND {finite} THEN {anew} ELSE {text} END"


def _bits(sql: str, length: int) -> str:
    """Base64 of bytes, the lowest first and none for leading zeros -> as many bits as the column has."""
    byte = "lpad(conv(x, 16, 2), 8, '0')"
    bits = f"array_join(reverse(transform(regexp_extract_all(hex(unbase64({sql})), '..', 0), x -> {byte})), '')"
    return f"right(concat(repeat('0', {length}), {bits}), {length})"


def _point(sql: str) -> str:
    return f"concat('(', {_float(f'{sql}.x')}, ',', {_float(f'{sql}.y')}, ')')"


def _float(sql: str) -> str:
    """`1.0E15` -> `1e+15`: a number inside of a text, as Postgres spells it: plain from 1e-4 to below 1e15."""
    exponent = f"CAST(regexp_extract({sql}, 'E(.*)', 1) AS INT)"
    sign = f"if({exponent} < 0, '-', '+')"
    small = f"concat(regexp_replace({sql}, '(\\\\.0)?E.*', ''), 'e', {sign}, format_string('%02d', abs({exponent})))"
    plain = f"rtrim('.', rtrim('0', CAST(CAST({sql} AS DECIMAL(38, 22)) AS STRING)))"
    return (
        f"CASE WHEN {sql} LIKE '%N' OR {sql} LIKE '%y' THEN {sql} WHEN {sql} = '-0.0' THEN '-0' "
        f"WHEN {sql} = '0.0' THEN '0' WHEN contains({sql}, 'E') THEN "
        f"CASE WHEN {exponent} < -4 OR {exponent} >= 15 THEN {small} ELSE {plain} END "
        f"ELSE {plain} END"
    )


def _interval(sql: str) -> str:
    """`P-1Y0M2DT0H0M0S` -> `-1 years +2 days`: what follows a negative part shows its plus, time is there if needed."""
    return bound(f"split(regexp_replace({sql}, '[PTS]', ''), '[YMDH]')", _units)


def _units(parts: str) -> str:
    years, months, days, hours, minutes = (f"CAST(element_at({parts}, {n}) AS INT)" for n in range(1, 6))
    seconds = f"element_at({parts}, 6)"
    after_years = f"({years} < 0)"
    after_months = f"if({months} = 0, {after_years}, {months} < 0)"
    after_days = f"if({days} = 0, {after_months}, {days} < 0)"
    negative = f"({hours} < 0 OR {minutes} < 0 OR startswith({seconds}, '-'))"
    padded = f"regexp_replace(ltrim('-', {seconds}), '^([0-9])([.]|$)', '0$1$2')"
    clock = f"format_string('%02d:%02d:%s', abs({hours}), abs({minutes}), {padded})"
    return (
        f"concat_ws(' ', {_unit(years, 'year', 'false')}, {_unit(months, 'mon', after_years)}, "
        f"{_unit(days, 'day', after_months)}, "
        f"CASE WHEN ({years} = 0 AND {months} = 0 AND {days} = 0) "
        f"OR {hours} <> 0 OR {minutes} <> 0 OR {seconds} <> '0' "
        f"THEN concat(CASE WHEN {negative} THEN '-' WHEN {after_days} THEN '+' ELSE '' END, {clock}) END)"
    )


def _unit(count: str, name: str, after_negative: str) -> str:
    plus, plural = f"if({after_negative} AND {count} > 0, '+', '')", f"if({count} = 1, '', 's')"
    return f"CASE WHEN {count} <> 0 THEN concat({plus}, {count}, ' {name}', {plural}) END"


def element(form: str, sql: str) -> str:
    """An element of an array as the same type has it outside of arrays: there Debezium reads it another way."""
    match form:
        case "timestamp":
            gregorian = f"{sql} >= -12219292800000000 OR {sql} < -9000000000000000000"
            return f"CASE WHEN {sql} IS NULL OR {gregorian} THEN {sql} ELSE {_proleptic(sql)} END"
        case "timestamptz":
            return f"CASE WHEN {sql} = '+292269055-12-02T23:00:00.000000Z' THEN '-infinity' ELSE {sql} END"
    return sql


_DAY = 86_400_000_000


def _proleptic(sql: str) -> str:
    """Before 15 October 1582 the driver takes a written day for one of Julius Caesar's calendar; this takes it back."""

    def fields(day: str) -> str:
        return bound(f"(4 * {day} + 3) div 1461", lambda year: months(f"({day} - (1461 * {year}) div 4)", year))

    def months(days: str, year: str) -> str:
        return bound(f"(5 * {days} + 2) div 153", lambda month: date(days, year, month))

    def date(days: str, year: str, month: str) -> str:
        parts = (
            f"{year} - 4800 + {month} div 10",
            f"{month} + 3 - 12 * ({month} div 10)",
            f"{days} - (153 * {month} + 2) div 5 + 1",
        )
        return f"unix_date(make_date({', '.join(f'CAST({part} AS INT)' for part in parts)}))"

    # Days since 1 March 4801 BC of that calendar, from which its months and leap years are regular.
    day = f"({sql} - pmod({sql}, {_DAY})) div {_DAY} + 2472670"
    return f"CAST({bound(day, fields)} AS BIGINT) * {_DAY} + pmod({sql}, {_DAY})"
