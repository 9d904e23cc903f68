"""Conditions and what is computed, as Postgres is given them.

Every literal is given its type, so that nothing rests on what Postgres would guess; text goes by its bytes.
"""

from __future__ import annotations

from decimal import Decimal

from driftless.table import Column, Table, quoted_column
from driftless.where.clause import Dialect, Where
from driftless.where.literals import Kind, Pattern, Value
from driftless.where.typed import (
    TypedCase,
    TypedColumn,
    TypedCompare,
    TypedCondition,
    TypedElements,
    TypedIs,
    TypedIsNull,
    TypedJunction,
    TypedLike,
    TypedLiteral,
    TypedNot,
    TypedOperation,
    TypedTerm,
    TypedTruth,
    ValueKind,
)

_COLLATION = ' COLLATE "C"'


def where_sql(where: Where, table: Table) -> str:
    """The condition for a table that it fits."""
    return condition_sql(where.typed(table)) if where.computes else where.sql(table, POSTGRES)


def term_sql(term: TypedTerm, row: str = "") -> str:
    """A value of the kind that `term` has; whole numbers are numerics. `row`: what a row is called in the statement."""
    match term:
        case TypedColumn(column, kind):
            return _leaf(_named(column, row), kind)
        case TypedLiteral(value, "jsonb"):
            return str(value) if isinstance(value, int) else f"CAST({text_literal(str(value))} AS text)"
        case TypedLiteral(value, kind):
            return _literal(value, kind)
        case TypedOperation(function, arguments):
            return _call(function, [term_sql(argument, row) for argument in arguments], arguments)
        case TypedCase(branches, otherwise):
            parts = [f"WHEN {condition_sql(when, row)} THEN {term_sql(value, row)}" for when, value in branches]
            last = "" if otherwise is None else f" ELSE {term_sql(otherwise, row)}"
            return f"(CASE {' '.join(parts)}{last} END)"


def condition_sql(condition: TypedCondition, row: str = "") -> str:
    match condition:
        case TypedJunction(word, parts):
            return "(" + f" {word} ".join(condition_sql(part, row) for part in parts) + ")"
        case TypedNot(part):
            return f"(NOT {condition_sql(part, row)})"
        case TypedIs(part, value):
            return f"({condition_sql(part, row)} IS {'TRUE' if value else 'FALSE'})"
        case TypedIsNull(None, Column() as column):
            return f"({_named(column, row)} IS NULL)"
        case TypedIsNull(term) if term is not None:
            return f"({term_sql(term, row)} IS NULL)"
        case TypedTruth(left):
            return term_sql(left, row)
        case TypedLike(left, pattern):
            return f"({term_sql(left, row)}{_COLLATION} LIKE {text_literal(like_sql(pattern))})"
        case TypedElements(left, array, kind):
            elements = f"CAST({_named(array, row)} AS {_type(kind)}[])"
            return f"({term_sql(left, row)} = ANY ({elements}{_COLLATION if kind == 'text' else ''}))"
        case TypedCompare(left, operator, right, kind):
            collation = _COLLATION if kind == "text" else ""
            return f"({term_sql(left, row)}{collation} {operator} {term_sql(right, row)})"
    raise AssertionError(condition)


def _named(column: Column, row: str) -> str:
    name = quoted_column(column.name)
    return f"{row}.{name}" if row else name


def _type(kind: ValueKind) -> str:
    return {"int8": "numeric", "float4": "float8", "enum": "text"}.get(kind, kind)


def _leaf(name: str, kind: ValueKind) -> str:
    match kind:
        case "text" | "enum":
            return f"(CAST({name} AS text){_COLLATION})"
        case "int8":
            return f"CAST({name} AS numeric)"
    return name


def _literal(value: Value, kind: ValueKind) -> str:
    text = f"{value:f}" if isinstance(value, Decimal) and value.is_finite() else str(value)
    return f"CAST({text_literal(text)} AS {_type(kind)})"


def _call(function: str, values: list[str], terms: tuple[TypedTerm, ...]) -> str:
    match function:
        case "negate":
            return f"(- {values[0]})"
        case "||":
            texts = [v if t.kind == "text" else f"CAST({v} AS text)" for v, t in zip(values, terms, strict=True)]
            return f"({texts[0]} || {texts[1]})"
        case "+" | "-" | "*" | "/" | "%" | "->" | "->>":
            return f"({values[0]} {function} {values[1]})"
        case "lower" | "upper":
            return f"{function}({values[0]}{_COLLATION})"
        case "replace":
            return f"replace({values[0]}{_COLLATION}, {values[1]}, {values[2]})"
        case "length":
            return f"CAST(length({values[0]}) AS numeric)"
    return f"{function}({', '.join(values)})"


class _Postgres:
    """Every literal is given its type, so that nothing rests on what Postgres would guess; text goes by its bytes."""

    def column(self, column: Column) -> str:
        return quoted_column(column.name)

    def operand(self, column: Column, kind: Kind) -> str:
        name = self.column(column)
        match kind:
            case "text" | "bpchar":
                return f"{name}{_COLLATION}"
            case "enum":
                # As text, a label that the type does not have is unequal, not an error.
                return f"CAST({name} AS text){_COLLATION}"
        return name

    def value(self, kind: Kind, value: Value) -> str:
        return f"CAST({text_literal(str(value))} AS {'text' if kind == 'enum' else kind})"

    def like(self, column: Column, pattern: Pattern) -> str:
        return f"{self.column(column)}{_COLLATION} LIKE {text_literal(like_sql(pattern))}"


def like_sql(pattern: Pattern) -> str:
    written = {None: "%", "": "_", "%": "\\%", "_": "\\_", "\\": "\\\\"}
    return "".join(written.get(part, str(part)) for part in pattern)


def text_literal(text: str) -> str:
    """The same with either setting of standard_conforming_strings."""
    quoted = "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
    return f" E{quoted}" if "\\" in text else quoted


POSTGRES: Dialect = _Postgres()
