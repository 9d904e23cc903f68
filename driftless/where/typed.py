"""Terms and conditions with the kind of each value: what Postgres and the row store are given to compute.

A whole number is computed with as a numeric without a fraction, so that nothing overflows; but two of them are divided
as Postgres divides whole numbers. Text is compared by its bytes; a `char` is text without the blanks at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal as Choice

from driftless.table import Column, Table
from driftless.where.ast import (
    Among,
    AmongElements,
    Case,
    Compare,
    Condition,
    Is,
    IsNull,
    Junction,
    Like,
    Name,
    Not,
    Operation,
    Term,
    Truth,
)
from driftless.where.literals import ORDERED, Kind, Literal, Pattern, Value, compared, kind_of

ValueKind = Kind | Choice["float4", "jsonb"]
_TEXTS = {"text", "bpchar"}
_NUMBERS = {"int8", "numeric"}
_FLOATS = {"float4", "float8"}
_SPELLED = {"text", "enum", "int8", "numeric", "uuid", "bool"}
"""What `||` takes: its text rests on no setting."""


class Misfit(ValueError):
    """What cannot be computed of this table, and where it stands in the text."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__(what)
        self.at = at


@dataclass(frozen=True)
class TypedColumn:
    column: Column
    kind: ValueKind


@dataclass(frozen=True)
class TypedLiteral:
    value: Value
    kind: ValueKind


@dataclass(frozen=True)
class TypedOperation:
    """As `Operation`; `function` is `div` where whole numbers are divided."""

    function: str
    arguments: tuple[TypedTerm, ...]
    kind: ValueKind


@dataclass(frozen=True)
class TypedCase:
    branches: tuple[tuple[TypedCondition, TypedTerm], ...]
    otherwise: TypedTerm | None
    kind: ValueKind


@dataclass(frozen=True)
class TypedCompare:
    """`kind`: how the two are compared."""

    left: TypedTerm
    operator: str
    right: TypedTerm
    kind: ValueKind


@dataclass(frozen=True)
class TypedElements:
    left: TypedTerm
    array: Column
    kind: ValueKind


@dataclass(frozen=True)
class TypedLike:
    left: TypedTerm
    pattern: Pattern


@dataclass(frozen=True)
class TypedIsNull:
    """`column`: of a column as it is, whatever its type."""

    left: TypedTerm | None = None
    column: Column | None = None


@dataclass(frozen=True)
class TypedTruth:
    left: TypedTerm


@dataclass(frozen=True)
class TypedIs:
    condition: TypedCondition
    value: bool


@dataclass(frozen=True)
class TypedNot:
    condition: TypedCondition


@dataclass(frozen=True)
class TypedJunction:
    word: str
    parts: tuple[TypedCondition, ...]


TypedTerm = TypedColumn | TypedLiteral | TypedOperation | TypedCase
TypedCondition = (
    TypedCompare | TypedElements | TypedLike | TypedIsNull | TypedTruth | TypedIs | TypedNot | TypedJunction
)


def computes(term: Term) -> bool:
    """Whether it is more than a column or a literal."""
    return isinstance(term, Operation | Case)


def typed(term: Term, table: Table, beside: ValueKind | None = None) -> TypedTerm:
    """Raises Misfit for the first that does not fit. `beside`: of what the term stands beside, for a literal."""
    match term:
        case Name():
            column = column_of(term, table)
            kind = _kind(column)
            if kind is None:
                raise Misfit(term.at, f"{column.called}, which no expression takes")
            return TypedColumn(column, kind)
        case Literal():
            return _literal(term, beside)
        case Case():
            return _case(term, table)
    return _call(term, table)


def typed_condition(condition: Condition, table: Table) -> TypedCondition:
    """Raises Misfit for the first that does not fit."""
    match condition:
        case Junction(word, parts):
            return TypedJunction(word, tuple(typed_condition(part, table) for part in parts))
        case Not(part):
            return TypedNot(typed_condition(part, table))
        case Is(part, value):
            return TypedIs(typed_condition(part, table), value)
        case IsNull(Name() as name):
            return TypedIsNull(column=column_of(name, table))
        case IsNull(left):
            return TypedIsNull(typed(left, table))
        case Truth(left):
            term = typed(left, table)
            if term.kind != "bool":
                raise Misfit(left.at, f"this is {_told(term)}, no condition by itself")
            return TypedTruth(term)
        case Like(left, pattern):
            term = typed(left, table)
            if term.kind != "text":
                raise Misfit(left.at, f"this is {_told(term)}, and LIKE is for text and varchar")
            return TypedLike(term, pattern)
        case Among(left, values):
            term = typed(left, table)
            same: list[TypedCondition] = [_compare(left, term, "=", value, table) for value in values]
            return TypedJunction("OR", tuple(same))
        case AmongElements(left, name):
            return _elements(left, name, table)
        case Compare(left, operator, right):
            first = typed(left, table, None if not isinstance(left, Literal) else typed(right, table).kind)
            return _compare(left, first, operator, right, table)


def _compare(left: Term, first: TypedTerm, operator: str, right: Term, table: Table) -> TypedCompare:
    if first.kind == "jsonb":
        raise Misfit(left.at, "jsonb has no order in the log: compare a text in it, by ->>")
    second = typed(right, table, first.kind)
    kinds = {first.kind, second.kind}
    kind = first.kind if len(kinds) == 1 else "numeric" if kinds <= _NUMBERS else "float8" if kinds <= _FLOATS else None
    if kind is None:
        what = f"this is {_told(second)}, compared with {_told(first)}: only values of one kind can be compared"
        raise Misfit(right.at, what)
    if operator not in ("=", "<>") and kind not in ORDERED | {"float4"}:
        raise Misfit(left.at, f"this is {_told(first)}: there is = and <> and IN, but no {operator}")
    return TypedCompare(first, operator, second, kind)


def _elements(left: Term, name: Name, table: Table) -> TypedElements:
    column = column_of(name, table)
    if not column.array:
        raise Misfit(name.at, f"{column.called}, and ANY is for a column that is an array")
    kind = _kind(replace(column, array=False))
    if kind not in ("text", "int8", "uuid", "bool", "date"):
        raise Misfit(name.at, f"{column.called}, whose elements cannot be compared in the log")
    term = typed(left, table, kind)
    if term.kind != kind:
        raise Misfit(left.at, f"this is {_told(term)}, and {column.called}: only values of one kind are compared")
    return TypedElements(term, column, kind)


def column_of(name: Name, table: Table) -> Column:
    """The column that a name means; raises Misfit where there is none."""
    column = table.column(name.text)
    if column is None:
        raise Misfit(name.at, f"{table.called} has no column {name.text}")
    return column


def _told(term: TypedTerm) -> str:
    """What it is, in words of Postgres."""
    return term.column.type if isinstance(term, TypedColumn) else term.kind


def _kind(column: Column) -> ValueKind | None:
    if column.type == "jsonb" and column.kind == "b" and not column.array:
        return "jsonb"
    if column.type == "float4" and not column.array:
        return "float4"
    kind = kind_of(column)
    return "text" if kind in _TEXTS else kind


def _literal(literal: Literal, beside: ValueKind | None) -> TypedLiteral:
    """By what it stands beside, as Postgres takes it; alone, by how it is written."""
    own: ValueKind = {"string": "text", "number": "numeric", "boolean": "bool"}[literal.form]  # type: ignore[assignment]
    if own == "numeric" and Decimal(literal.text) == int(Decimal(literal.text)) and literal.text.lstrip("-").isdigit():
        own = "int8"
    wanted = own if beside is None or beside == "jsonb" else beside
    if wanted == "int8" and own == "numeric":
        wanted = "numeric"
    if wanted == "enum" and own == "text":
        return TypedLiteral(literal.text, "enum")
    try:
        _, (value,) = compared(Column("", "float8" if wanted == "float4" else _TYPES.get(wanted, wanted)), [literal])
    except ValueError as exc:
        raise Misfit(literal.at, f"this stands beside {wanted}, {exc}") from None
    if wanted in _NUMBERS:
        number = Decimal(str(value))
        return TypedLiteral(number if number else number.copy_abs(), "int8" if own == "int8" else "numeric")
    return TypedLiteral(value, wanted)


_TYPES: dict[ValueKind, str] = {"int8": "numeric"}  # a whole number in an expression may be beyond bigint


def _call(call: Operation, table: Table) -> TypedTerm:
    match call.function, call.arguments:
        case ("->" | "->>") as arrow, (of, step):
            term = typed(of, table)
            if term.kind != "jsonb":
                raise Misfit(of.at, f"this is {_told(term)}, and paths are read in jsonb alone")
            assert isinstance(step, Literal)
            taken = TypedLiteral(int(step.text) if step.form == "number" else step.text, "jsonb")
            return TypedOperation(arrow, (term, taken), "jsonb" if arrow == "->" else "text")
        case ("lower" | "upper" | "length") as function, (of,):
            term = typed(of, table, "text")
            _wanted(of, term, {"text"}, function)
            return TypedOperation(function, (term,), "int8" if function == "length" else "text")
        case "replace", terms:
            return TypedOperation(
                "replace", tuple(_wanted(t, typed(t, table, "text"), {"text"}, "replace") for t in terms), "text"
            )
        case "||", terms:
            found = tuple(_wanted(t, typed(t, table), _SPELLED, "||") for t in terms)
            if all(term.kind != "text" for term in found):
                raise Misfit(call.at, "one side of || is text")
            return TypedOperation("||", found, "text")
        case "coalesce", terms:
            return _unified("coalesce", terms, table)
        case "nullif", (left, right):
            alone = isinstance(left, Literal) and not isinstance(right, Literal)
            term = typed(left, table, typed(right, table).kind if alone else None)
            condition = _compare(left, term, "=", right, table)
            return TypedOperation(
                "nullif", (term, condition.right), "numeric" if condition.kind == "numeric" else term.kind
            )
    numbers = tuple(_wanted(t, typed(t, table, "numeric"), _NUMBERS, call.function) for t in call.arguments)
    kind: ValueKind = "int8" if all(number.kind == "int8" for number in numbers) else "numeric"
    return TypedOperation("div" if call.function == "/" and kind == "int8" else call.function, numbers, kind)


def _wanted(term: Term, found: TypedTerm, kinds: set[str], by: str) -> TypedTerm:
    if found.kind in kinds:
        return found
    word = "-" if by == "negate" else by
    takes = "text" if kinds == {"text"} else "whole numbers and numeric" if kinds == _NUMBERS else "text and numbers"
    raise Misfit(term.at, f"this is {_told(found)}, and {word} takes {takes}")


def _case(case: Case, table: Table) -> TypedCase:
    values = [value for _, value in case.branches] + ([] if case.otherwise is None else [case.otherwise])
    found = _unified("CASE", values, table)
    conditions = [typed_condition(condition, table) for condition, _ in case.branches]
    branches = tuple(zip(conditions, found.arguments[: len(conditions)], strict=True))
    return TypedCase(branches, None if case.otherwise is None else found.arguments[-1], found.kind)


def _unified(function: str, terms: Sequence[Term], table: Table) -> TypedOperation:
    """All of one kind, which literals among them take on."""
    kind = next((typed(term, table).kind for term in terms if not isinstance(term, Literal)), None)
    if kind is None and any(isinstance(term, Literal) and term.form == "number" for term in terms):
        kind = "numeric"
    found = [typed(term, table, kind) for term in terms]
    kinds = {term.kind for term in found}
    if kinds <= _NUMBERS:
        return TypedOperation(function, tuple(found), "int8" if kinds == {"int8"} else "numeric")
    other = next((number for number, term in enumerate(found) if term.kind != found[0].kind), None)
    if other is not None:
        what = f"this is {_told(found[other])}, beside {_told(found[0])}: {function} gives values of one kind"
        raise Misfit(terms[other].at, what)
    if any(isinstance(term, TypedLiteral) and term.kind == "float4" for term in found):
        raise Misfit(terms[0].at, "no literal can stand for a real: its digits are not those of a number")
    return TypedOperation(function, tuple(found), found[0].kind)
