"""How each Postgres type travels: what Debezium writes, and the form in which `to_jsonb` shows it.

This is the whole list. A column of a type that is not here is refused (the column, not its table).
"""

from __future__ import annotations

from dataclasses import dataclass

from driftless.table import Column


@dataclass(frozen=True)
class TypeRule:
    """`log`: the JSON type in the log, as Spark names it. `form`: the conversion, implemented in jobs/decode.py."""

    log: str
    form: str


_INTEGER = TypeRule("bigint", "same")
_TEXT = TypeRule("string", "same")
_FLOAT = TypeRule("string", "float")

RULES: dict[str, TypeRule] = {
    "int2": _INTEGER,
    "int4": _INTEGER,
    "int8": _INTEGER,
    "bool": TypeRule("boolean", "same"),
    "text": _TEXT,
    "varchar": _TEXT,
    "bpchar": _TEXT,
    "uuid": _TEXT,
    "inet": _TEXT,
    "cidr": _TEXT,
    "macaddr": _TEXT,
    "numeric": TypeRule("string", "numeric"),
    "float4": _FLOAT,
    "float8": _FLOAT,
    "timestamp": TypeRule("bigint", "timestamp"),
    "timestamptz": TypeRule("string", "timestamptz"),
    "date": TypeRule("bigint", "date"),
    "time": TypeRule("bigint", "time"),
    "json": TypeRule("string", "json"),
    "jsonb": TypeRule("string", "json"),
    "bytea": TypeRule("string", "bytea"),
}

"""Not here, though they look plain: `name`, which Debezium 3.7 leaves out of changes (only a snapshot has it)."""

_LOST_IN_ARRAYS = {
    "time": "of which the log keeps milliseconds alone",
    "enum": "and the log loses every such array that holds a null",
}
"""Elements that Debezium 3.7 changes or loses without a word, though it carries them rightly on their own."""


def rule_of(column: Column) -> TypeRule | None:
    """The rule of a column's type, or of its elements' type; None where the column is refused."""
    if column.generated:
        return None
    return _TEXT if column.kind == "e" else RULES.get(column.type)


def refusal(column: Column) -> str | None:
    """Why a column cannot be followed, in words for the operator; None where it can."""
    if column.generated:
        return "is generated, and the log does not carry generated columns"
    if column.dimensions > 1:
        return "is an array of several dimensions, which the log does not carry whole"
    lost = _LOST_IN_ARRAYS.get("enum" if column.kind == "e" else column.type)
    if column.array and lost is not None:
        return f"is an array of {column.type}, {lost}"
    if rule_of(column) is None:
        return f"has the type {column.type}{'[]' if column.array else ''}, which cannot be carried without loss yet"
    return None
