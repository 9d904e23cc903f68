"""What a literal of a `where` means beside a column: by the column's type, as Postgres would take it.

Only forms whose meaning rests on no setting of a session (time zone, DateStyle) and no rounding are taken.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Literal as Choice

from driftless.table import Column

Kind = Choice[
    "int8",
    "numeric",
    "float8",
    "text",
    "bpchar",
    "enum",
    "uuid",
    "bool",
    "date",
    "timestamp",
    "timestamptz",
    "time",
]
"""How two values are compared; but for enums, the name of the Postgres type that compares them so."""
Pattern = tuple[str | None, ...]
"""Of LIKE: characters, `""` for any one of them and None for any number."""
Value = int | float | Decimal | str | bool

_KINDS: dict[str, Kind] = {
    "int2": "int8",
    "int4": "int8",
    "int8": "int8",
    "numeric": "numeric",
    "float4": "float8",
    "float8": "float8",
    "text": "text",
    "varchar": "text",
    "bpchar": "bpchar",
    "uuid": "uuid",
    "bool": "bool",
    "date": "date",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
    "time": "time",
}
ORDERED: frozenset[Kind] = frozenset(_KINDS.values()) - {"bool"}
"""Kinds that have < and >. An enum's order is the order of its labels in the catalogue, which the log lacks."""

_NUMBER = re.compile(r"-?\d+(\.\d*)?([eE][+-]?\d+)?")
_NOT_FINITE = {"nan": "NaN", "infinity": "Infinity", "inf": "Infinity", "-infinity": "-Infinity", "-inf": "-Infinity"}
_INT8 = range(-(1 << 63), 1 << 63)
# What Postgres' numeric holds: digits before and behind the point.
_NUMERIC_WHOLE, _NUMERIC_FRACTION = 131_072, 16_383
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{32}")
_DAY = r"\d{4}-\d\d-\d\d"
_CLOCK = r"\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?"
_ZONE = r"(?:Z|[+-]\d\d(?::?\d\d)?)"
_FORMS: dict[Kind, tuple[re.Pattern[str], str]] = {
    "date": (re.compile(_DAY), "'2024-02-29'"),
    "time": (re.compile(_CLOCK), "'10:30:00'"),
    "timestamp": (re.compile(rf"{_DAY}(?:[ T]{_CLOCK})?"), "'2024-02-29 10:30:00'"),
    "timestamptz": (re.compile(rf"{_DAY}[ T]{_CLOCK}{_ZONE}"), "'2024-02-29 10:30:00+00', with its zone"),
}


@dataclass(frozen=True)
class Literal:
    """`text`: a number with its sign, or what stands between the quotes. `at`: where it stands."""

    text: str
    form: Choice["string", "number", "boolean"]
    at: int


def kind_of(column: Column) -> Kind | None:
    """How values of the column are compared; None where only IS NULL is the same everywhere."""
    if column.array:
        return None
    return "enum" if column.kind == "e" else _KINDS.get(column.type)


def compared(column: Column, literals: Sequence[Literal]) -> tuple[Kind, list[Value]]:
    """How the column is compared with all of these, and their values. ValueError, in words, for one that does not fit.

    Beside a fraction, or a number beyond bigint, Postgres compares a whole number as numeric.
    """
    kind = kind_of(column)
    if kind is None:
        raise ValueError("can only be tested with IS NULL and IS NOT NULL")
    values = [_value(kind, literal) for literal in literals]
    if kind == "int8" and not all(isinstance(value, int) for value in values):
        return "numeric", [Decimal(str(value)) for value in values]
    return kind, values


def _value(kind: Kind, literal: Literal) -> Value:
    match kind:
        case "int8" | "numeric" | "float8":
            return _number(kind, literal)
        case "bool":
            if literal.form != "boolean":
                raise ValueError("so compare it with TRUE or FALSE, or write it alone")
            return literal.text == "true"
    if literal.form != "string":
        raise ValueError("so the literal stands in quotes")
    match kind:
        case "text" | "enum":
            return literal.text
        case "bpchar":
            return literal.text.rstrip(" ")
        case "uuid":
            if not _UUID.fullmatch(literal.text):
                raise ValueError("and this is no uuid: 32 hexadecimal digits, as Postgres shows them")
            return str(uuid.UUID(literal.text))
    return _moment(kind, literal.text)


def _number(kind: Kind, literal: Literal) -> Value:
    if literal.form == "string" and literal.text.lower() in _NOT_FINITE and kind != "int8":
        text = _NOT_FINITE[literal.text.lower()]
        return Decimal(text) if kind == "numeric" else float(text)
    if literal.form == "string" and _NUMBER.fullmatch(literal.text):
        raise ValueError("so the number stands without quotes")
    if literal.form != "number":
        raise ValueError("and this is no number")
    exact = Decimal(literal.text)
    if exact and (exact.adjusted() >= _NUMERIC_WHOLE or -int(exact.as_tuple().exponent) > _NUMERIC_FRACTION):
        raise ValueError("and this number has more digits than a numeric")
    if kind == "float8":
        value = float(exact)
        if exact and (value == 0 or value in (float("inf"), float("-inf"))):
            raise ValueError("and this number is beyond double precision")
        return value
    if kind == "int8" and re.fullmatch(r"-?\d+", literal.text) and int(literal.text) in _INT8:
        return int(literal.text)
    return exact


def _moment(kind: Kind, text: str) -> str:
    """The one spelling that both sides read: UTC, a blank between day and time, six digits of a second."""
    form, example = _FORMS[kind]
    if text in ("infinity", "-infinity") and kind != "time":
        return text
    if kind == "time" and re.fullmatch(r"24:00(:00(\.0{1,6})?)?", text):
        return "24:00:00"
    if not form.fullmatch(text):
        raise ValueError(f"and its literals are written {example}")
    try:
        if kind == "date":
            return date.fromisoformat(text).isoformat()
        moment = datetime.fromisoformat(f"1970-01-01 {text}" if kind == "time" else text)
        if kind == "timestamptz":
            moment = moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"and there is no such {'time' if kind == 'time' else 'day or time'}") from None
    written = moment.isoformat(" ", "microseconds")
    return written[11:] if kind == "time" else written


def like_pattern(text: str) -> Pattern | None:
    """None where a backslash at the end has nothing behind it, which Postgres refuses."""
    found: list[str | None] = []
    characters = iter(text)
    for character in characters:
        if character == "\\":
            escaped = next(characters, None)
            if escaped is None:
                return None
            found.append(escaped)
        else:
            found.append({"%": None, "_": ""}.get(character, character))
    return tuple(found)
