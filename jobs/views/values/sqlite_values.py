"""Values of rows in SQLite: what is compared and put in order there, made of a value's JSON text.

Each expression takes `x`, the JSON text or null, and gives integers or texts that SQLite compares as Postgres compares
the values: texts by their bytes, numbers by texts of our making that hold every digit.
"""

from __future__ import annotations

import hashlib
import re
import struct
from decimal import Decimal
from functools import lru_cache

from driftless.table import Column
from driftless.where.literals import Kind, Pattern, Value
from jobs.decode.where_sql import numeric_order


def equal_sql(form: str, x: str) -> str:
    """What equal values have in common, for a form of driftless/views/compare.py."""
    match form:
        case "numeric":
            return f"df_numeric({x})"
        case "bpchar":
            return f"rtrim({x} ->> '$', ' ')"
        case "int8":
            return f"CAST({x} AS INTEGER)"  # its text is its JSON, and to parse that takes a quarter of a fill
    return f"({x} ->> '$')"


def order_sql(kind: str, column: Column, x: str) -> str:
    """What sorts as the values do."""
    match kind:
        case "float8":
            return f"df_float({x}, {int(column.type == 'float4')})"
        case "date" | "timestamp" | "timestamptz":
            return f"df_moment({x} ->> '$')"
    return equal_sql(kind, x)


class SqliteWhere:
    """`where` over the JSON texts of a row. `texts`: column -> the text's place in the statement."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts

    def column(self, column: Column) -> str:
        x = self._texts[column.name]
        # A json that is the word null is no null.
        return f"({x} ->> '$')" if column.type == "bool" else x

    def operand(self, column: Column, kind: Kind) -> str:
        return order_sql(kind, column, self._texts[column.name])

    def value(self, kind: Kind, value: Value) -> str:
        match kind:
            case "int8" | "bool":
                return str(int(value))
            case "numeric":
                return literal(numeric_order(Decimal(str(value))))
            case "float8":
                return literal(numeric_order(Decimal(float(value))))
            case "date" | "timestamp" | "timestamptz":
                return literal(moment_order(str(value)))
            case "time":
                return literal(re.sub(r"\.?0+$", "", str(value)) if "." in str(value) else str(value))
        return literal(str(value))

    def like(self, column: Column, pattern: Pattern) -> str:
        return f"df_like({self._texts[column.name]} ->> '$', {literal(like_pattern(pattern))})"


_NOT_FINITE = {"NaN", "Infinity", "-Infinity"}


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def like_pattern(pattern: Pattern) -> str:
    """As a regular expression."""
    return "".join({None: ".*", "": "."}.get(part) or re.escape(str(part)) for part in pattern)


def matches(text: str, pattern: str) -> bool:
    return _compiled(pattern).fullmatch(text) is not None


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)


def double_order(text: str, *, single: bool) -> str:
    """A real is compared as the double that it is, not as its decimal digits."""
    bare = text.strip('"')
    if bare in _NOT_FINITE:
        return numeric_order(Decimal(bare))
    value = float(bare)
    if single:
        value = struct.unpack("f", struct.pack("f", value))[0]
    return numeric_order(Decimal(value))


_PARTS = re.compile(r"(\d+)(-\d\d-\d\d)(?:[T ](\d\d:\d\d:\d\d)(?:\.(\d+))?(?:\+00(?::00)?)?)?( BC)?")
_YEARS = 20_000_000
"""Added to a year, from 4713 BC to 5874897, so that all have as many digits."""


def moment_order(text: str) -> str:
    """A date or timestamp in UTC, as documents or literals spell it, as a text that sorts by time."""
    if text.endswith("infinity"):
        return "-" if text.startswith("-") else "~"
    found = _PARTS.fullmatch(text)
    if found is None:
        raise ValueError("this is no date or timestamp")
    year, day, clock, fraction, early = found.groups()
    number = _YEARS + (1 - int(year) if early else int(year))
    return f"{number}{day} {clock or ''}.{(fraction or '').rstrip('0')}"


def document_hash(document: str | None) -> int | None:
    """So long that two documents of one root do not meet in it by chance. None of none."""
    if document is None:
        return None
    return int.from_bytes(hashlib.blake2b(document.encode(), digest_size=8).digest(), signed=True)
