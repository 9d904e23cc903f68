"""Values of rows in SQLite: what is compared and put in order there, made of a value's JSON text.

Each expression takes `x`, the JSON text or null, and gives integers or texts that SQLite compares as Postgres compares
the values: texts by their bytes, numbers by texts of our making that hold every digit.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
import struct
from decimal import Decimal
from functools import lru_cache

from driftless.table import Column
from driftless.views.shard import shard_of
from driftless.where.literals import Kind, Pattern, Value
from jobs.decode.where_sql import numeric_order

_NOT_FINITE = {"NaN", "Infinity", "-Infinity"}


def register(connection: sqlite3.Connection) -> None:
    """Make the functions known that the expressions call."""
    connection.create_function("df_numeric", 1, _numeric, deterministic=True)
    connection.create_function("df_float", 2, _float, deterministic=True)
    connection.create_function("df_moment", 1, _moment, deterministic=True)
    connection.create_function("df_shard", 2, _shard, deterministic=True)
    connection.create_function("df_like", 2, _like, deterministic=True)


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
                return literal(_moment(str(value)) or "")
            case "time":
                return literal(re.sub(r"\.?0+$", "", str(value)) if "." in str(value) else str(value))
        return literal(str(value))

    def like(self, column: Column, pattern: Pattern) -> str:
        written = "".join({None: ".*", "": "."}.get(part) or re.escape(str(part)) for part in pattern)
        return f"df_like({self._texts[column.name]} ->> '$', {literal(written)})"


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _shard(key: str | int | None, shards: int) -> int | None:
    return None if key is None else shard_of(str(key), shards)


def _numeric(text: str | None) -> str | None:
    return None if text is None else numeric_order(Decimal(text.strip('"')))


def _float(text: str | None, single: int) -> str | None:
    """A real is compared as the double that it is, not as its decimal digits."""
    if text is None:
        return None
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


def _moment(text: str | None) -> str | None:
    """A date or timestamp in UTC, as documents or literals spell it, as a text that sorts by time."""
    if text is None:
        return None
    if text.endswith("infinity"):
        return "-" if text.startswith("-") else "~"
    found = _PARTS.fullmatch(text)
    if found is None:
        raise ValueError("this is no date or timestamp")
    year, day, clock, fraction, early = found.groups()
    number = _YEARS + (1 - int(year) if early else int(year))
    return f"{number}{day} {clock or ''}.{(fraction or '').rstrip('0')}"


@lru_cache(maxsize=64)
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)


def _like(text: str | None, pattern: str) -> int | None:
    return None if text is None else int(_pattern(pattern).fullmatch(text) is not None)


def document_hash(document: str | None) -> int | None:
    """So long that two documents of one root do not meet in it by chance. None of none."""
    if document is None:
        return None
    return int.from_bytes(hashlib.blake2b(document.encode(), digest_size=8).digest(), signed=True)
