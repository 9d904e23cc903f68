"""Types that a column of an event may have, by the names that Postgres has for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from driftless.table import Column
from driftless.types import DECIMAL, refusal, rule_of

_NUMERIC = re.compile(r"numeric\s*(?:\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\))?")
_DIGITS = 38
"""The most that Spark's decimals hold."""


@dataclass(frozen=True)
class EventType:
    """`spark`: what the column is computed with. `postgres`: its name in pg_type, as documents have it."""

    spark: str
    postgres: str


_PLAIN = {
    "boolean": EventType("BOOLEAN", "bool"),
    "smallint": EventType("SMALLINT", "int2"),
    "integer": EventType("INT", "int4"),
    "bigint": EventType("BIGINT", "int8"),
    "text": EventType("STRING", "text"),
    "uuid": EventType("STRING", "uuid"),
    "date": EventType("DATE", "date"),
    "timestamptz": EventType("TIMESTAMP", "timestamptz"),
}
_APPROXIMATE = ("real", "float", "float4", "float8", "double", "double precision")
MOMENT = "timestamptz"
"""The type of a column that says when something was."""
_OF_COLUMNS = {
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "boolean": "boolean",
    "date": "date",
    DECIMAL: "numeric",
    "timestamp": MOMENT,
    "timestamp_ntz": MOMENT,
}
"""By what a column of a table is computed with. A `timestamp` is taken as of UTC."""
_TEXTS = ("same", "json", "plain json")
"""Forms of a column whose documents have its own text."""


def event_type(written: str) -> EventType:
    """The type of that name. Raises ValueError, with a text for the operator, where there is none."""
    name = written.strip().lower()
    if name in _PLAIN:
        return _PLAIN[name]
    if name in _APPROXIMATE:
        raise ValueError(
            f"`{written}` cannot be proven: sums of such numbers depend on the order of the events; "
            "declare `numeric(18,4)`, with the digits that you need"
        )
    found = _NUMERIC.fullmatch(name)
    if found is None:
        known = ", ".join([*_PLAIN, "numeric", "numeric(p,s)"])
        raise ValueError(f"`{written}` is no type of an event's column; known: {known}")
    digits, behind = int(found[1] or _DIGITS), int(found[2] or 0) if found[1] else 18
    if not 0 < digits <= _DIGITS or behind > digits:
        raise ValueError(f"`{written}`: at most {_DIGITS} digits, and not more behind the point than in all")
    return EventType(f"DECIMAL({digits},{behind})", "numeric")


def spark_types(columns: Mapping[str, str]) -> dict[str, str]:
    """By column, what Spark computes it with."""
    return {name: event_type(written).spark for name, written in columns.items()}


def shown_columns(columns: Mapping[str, str], sent: str | None, *, once: bool) -> dict[str, str]:
    """The columns that a query sees. `once`: of events that are alike one counts, so when each was sent is hidden."""
    return {name: written for name, written in columns.items() if not (once and name == sent)}


def event_type_of(column: Column) -> str | None:
    """The type of an event's column that holds what a column of a table does; None where none does."""
    rule = rule_of(column)
    if rule is None or refusal(column) is not None or column.array:
        return None
    if rule.typed in _OF_COLUMNS:
        return _OF_COLUMNS[rule.typed]
    if rule.typed != "string" or rule.form not in _TEXTS:
        return None
    return "uuid" if column.type == "uuid" else "text"
