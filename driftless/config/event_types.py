"""Types that a column of an event may have, by the names that Postgres has for them."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
