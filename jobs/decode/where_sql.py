"""A `where` over the log's columns, in Spark SQL.

Each kind is compared by something that Spark orders as Postgres orders the values: whole numbers and microseconds as
they are in the log, text by its bytes, numerics by a text of our making, since no type of Spark holds them all.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from driftless.table import Column, Table
from driftless.where.clause import Where
from driftless.where.literals import Kind, Pattern, Value
from jobs.decode.documents import Filter
from jobs.decode.spark_sql import literal, quote
from jobs.decode.values import moment_order

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WIDEST = 1_000_000
"""More than the digits of any numeric: 131072 before the point, 16383 behind it."""
_FOREVER = (1 << 63) - 1


def log_filter(where: Where, table: Table) -> Filter:
    """The condition on the fields of a decoded row, `r`."""
    return Filter(where.sql(table, LogDialect()), where.columns)


class LogDialect:
    """Columns and literals over a decoded row of the log. `row`: what the row is called in the statement."""

    def __init__(self, row: str = "r") -> None:
        self._row = row

    def column(self, column: Column) -> str:
        return f"{self._row}.{quote(column.name)}"

    def operand(self, column: Column, kind: Kind) -> str:
        name = self.column(column)
        match kind:
            case "numeric":
                return numeric_sql(f"CAST({name} AS STRING)")
            case "float8":
                # A real is compared as the double that it is, not as its decimal digits.
                return (
                    f"CAST(CAST({name} AS FLOAT) AS DOUBLE)" if column.type == "float4" else f"CAST({name} AS DOUBLE)"
                )
            case "bpchar":
                return f"rtrim({name})"
            case "date" | "timestamp":
                return moment_order(kind, name)
            case "timestamptz":
                return _zoned_order(name)
        return name

    def value(self, kind: Kind, value: Value) -> str:
        match kind:
            case "int8":
                return f"CAST('{value}' AS BIGINT)"
            case "numeric":
                return literal(numeric_order(Decimal(str(value))))
            case "float8":
                return f"CAST('{value}' AS DOUBLE)"
            case "bool":
                return str(value)
            case "date" | "timestamp" | "timestamptz" | "time":
                return f"{_since_1970(kind, str(value))}L"
        return literal(str(value))

    def like(self, column: Column, pattern: Pattern) -> str:
        # Not Spark's LIKE, which takes a character beyond U+FFFF for two where the pattern has one in it.
        written = {None: ".*", "": "."}
        text = "".join(written.get(part) or _plain(str(part)) for part in pattern)
        return f"{self.column(column)} RLIKE {literal(f'(?s)^{text}' + chr(92) + 'z')}"


def _zoned_order(sql: str) -> str:
    """Microseconds. What Spark cannot read is beyond its last year, 294247, or no record of Debezium's."""
    late = f"WHEN startswith({sql}, '+') THEN {_FOREVER - 1}L"
    broken = "ELSE raise_error('a timestamptz in the log cannot be read')"
    return (
        f"CASE {sql} WHEN 'infinity' THEN {_FOREVER}L WHEN '-infinity' THEN -{_FOREVER}L ELSE coalesce("
        f"unix_micros(try_cast({sql} AS TIMESTAMP)), CASE WHEN {sql} IS NULL THEN NULL {late} {broken} END) END"
    )


def _plain(character: str) -> str:
    """A character as a regular expression that matches it alone."""
    return f"\\x{{{ord(character):X}}}"


def _since_1970(kind: Kind, text: str) -> int:
    """Days or microseconds, as the log has them; infinity beyond all of them."""
    if text.endswith("infinity"):
        return -_FOREVER if text.startswith("-") else _FOREVER
    match kind:
        case "date":
            return (date.fromisoformat(text) - _EPOCH.date()).days
        case "time" if text == "24:00:00":
            return 86_400_000_000
        case "time":
            text = f"1970-01-01 {text}"
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


def numeric_order(value: Decimal) -> str:
    """A text for a numeric: texts sort by their bytes as Postgres sorts the numerics, and equal ones have equal texts.

    Sign, then the power of ten before the first digit, then the digits without zeros at the end; for negative numbers
    all of it turned round, with an end mark above every digit.
    """
    if value.is_nan():
        return "5"
    if value.is_infinite():
        return "0" if value < 0 else "4"
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    if not text:
        return "2"
    power = len(text) + int(exponent)
    text = text.rstrip("0")
    if sign:
        return f"1{_WIDEST - power:07}{text.translate(str.maketrans('0123456789', '9876543210'))}:"
    return f"3{_WIDEST + power:07}{text}"


def numeric_sql(text: str) -> str:
    """`numeric_order` of a column, in Spark. The lambdas give names to what is used more than once."""

    def let(value: str, name: str, body: str) -> str:
        return f"transform(array({value}), {name} -> {body})[0]"

    power = "x + CASE WHEN w <> '' THEN length(w) ELSE length(ltrim('0', f)) - length(f) END"
    backwards = "translate(d, '0123456789', '9876543210')"
    ordered = (
        "CASE WHEN d = '' THEN '2' "
        f"WHEN startswith(t, '-') THEN concat('1', lpad(CAST({_WIDEST} - p AS STRING), 7, '0'), {backwards}, ':') "
        f"ELSE concat('3', lpad(CAST({_WIDEST} + p AS STRING), 7, '0'), d) END"
    )
    exponent = "CASE WHEN contains(t, 'E') THEN CAST(substring_index(t, 'E', -1) AS INT) ELSE 0 END"
    fraction = "CASE WHEN contains(m, '.') THEN substring_index(m, '.', -1) ELSE '' END"
    body = let("rtrim('0', ltrim('0', concat(w, f)))", "d", let(power, "p", ordered))
    body = let("ltrim('0', substring_index(m, '.', 1))", "w", let(fraction, "f", body))
    body = let("ltrim('-', substring_index(t, 'E', 1))", "m", let(exponent, "x", body))
    special = "WHEN 'NAN' THEN '5' WHEN 'POSITIVE_INFINITY' THEN '4' WHEN 'NEGATIVE_INFINITY' THEN '0'"
    return let(text, "t", f"CASE t {special} ELSE {body} END")
