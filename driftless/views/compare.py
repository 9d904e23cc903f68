"""Which columns can be compared where rows are joined, and by what rows are put in order.

Two values are equal here just where Postgres says so, and where their texts in the log say so: a type of which one
value has several texts (`1 day` and `24:00:00`, `1.0` and `1.00` inside of a json) is in none of these lists.
"""

from __future__ import annotations

from driftless.table import Column
from driftless.where.literals import kind_of

_BY_TEXT = frozenset(
    {"name", "char", "bytea", "inet", "cidr", "macaddr", "macaddr8", "oid", "pg_lsn", "xid8", "tid", "bit"}
)
"""Types with one text for each value, beside the kinds of `where`."""
_SORTED_BY_TEXT = _BY_TEXT | {"citext", "ltree", "timetz"}
"""As the last key of an order, where any order does that is the same everywhere."""


def equality(column: Column) -> str | None:
    """The class within which columns can be compared by `=`; None where they cannot."""
    if column.array:
        return None
    match kind_of(column):
        case "int8" | "numeric":
            return "number"
        case "enum":
            return f"enum {column.type}"
        case "float8":
            return None
        case None:
            plain = column.kind == "b" and not column.own and not (column.type == "bit" and column.length < 1)
            return column.type if plain and column.type in _BY_TEXT else None
        case kind:
            return kind


def form(column: Column, other: Column) -> str:
    """By what two columns of one class are compared: `int8` and `numeric`, or the values' texts."""
    kinds = {kind_of(column), kind_of(other)}
    if kinds == {"int8"}:
        return "int8"
    if kinds <= {"int8", "numeric"}:
        return "numeric"
    return str(kind_of(column) or "text")


def order(column: Column) -> str | None:
    """The kind by which `order_by` can put rows in order; None where Postgres' order cannot be told from the log."""
    kind = kind_of(column)
    return None if kind == "enum" else kind


def last_order(column: Column) -> str | None:
    """The same of a key's column, which comes last: by the text of the value where there is nothing better."""
    kind = order(column)
    if kind is not None or column.array:
        return kind
    return "text" if column.kind == "e" or column.type in _SORTED_BY_TEXT else None
