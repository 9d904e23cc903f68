"""What is computed of a row: typed terms and conditions as functions of the JSON texts of its columns.

Values are held as Decimal (numbers), bool, and str: text as it is, and everything else as its document shows it. None
is null, and unknown as a condition.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from driftless import exact
from driftless.table import Table
from driftless.where.clause import compute, parse
from driftless.where.literals import Value
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
    typed_condition,
)
from jobs.decode.where_sql import numeric_order
from jobs.views.values import numerics
from jobs.views.values.sqlite_values import double_order, like_pattern, matches, moment_order

Row = Sequence[str | None]
Term = Callable[[Row], Any]
Condition = Callable[[Row], bool | None]

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "+": numerics.add,
    "-": numerics.subtract,
    "*": numerics.multiply,
    "/": numerics.divide,
    "div": numerics.divide_whole,
    "%": numerics.remainder,
}
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_UPPER = {lower: upper for upper, lower in _LOWER.items()}
_MOMENTS = ("date", "timestamp", "timestamptz")


@dataclass(frozen=True)
class Computed:
    """A value that is computed. `value`: of a row. `kind`: of the value."""

    value: Term
    kind: ValueKind

    def shown(self, row: Row) -> str | None:
        """Its JSON text."""
        return shown(self.value(row), self.kind)

    def order(self, row: Row) -> Any:
        """What sorts as the values do."""
        return ordered(self.value(row), self.kind)


@lru_cache(maxsize=256)
def computed(text: str, table: Table) -> Computed:
    """The texts of a row are in the order of the table's columns."""
    term = compute(text).typed(table)
    return Computed(_Compiler(table).term(term), term.kind)


@lru_cache(maxsize=256)
def condition(text: str, table: Table) -> Condition:
    return _Compiler(table).condition(typed_condition(parse(text).condition, table))


def shown(value: Any, kind: ValueKind) -> str | None:
    """The JSON text of a value."""
    if value is None:
        return None
    match kind:
        case "int8" | "numeric":
            return numerics.as_json(value)
        case "bool":
            return "true" if value else "false"
        case "jsonb" | "float4" | "float8":
            return str(value)
    return json.dumps(value, ensure_ascii=False)


def ordered(value: Any, kind: ValueKind) -> Any:
    """What compares as Postgres compares the values."""
    if value is None:
        return None
    match kind:
        case "int8" | "numeric":
            return numeric_order(value)
        case "float4" | "float8":
            return double_order(value, single=kind == "float4")
        case "date" | "timestamp" | "timestamptz":
            return moment_order(value)
    return value


class _Compiler:
    def __init__(self, table: Table) -> None:
        self._places = {column.name: number for number, column in enumerate(table.columns)}

    def term(self, term: TypedTerm) -> Term:
        match term:
            case TypedColumn(column, kind):
                place, read = self._places[column.name], _reader(kind, padded=column.type == "bpchar")
                return lambda row: None if (text := row[place]) is None else read(text)
            case TypedLiteral(value, kind):
                held = _literal(value, kind)
                return lambda _: held
            case TypedOperation():
                return self._call(term)
            case TypedCase(branches, otherwise, _):
                parts = [(self.condition(when), self.term(value)) for when, value in branches]
                return _chosen(parts, None if otherwise is None else self.term(otherwise))

    def condition(self, part: TypedCondition) -> Condition:
        match part:
            case TypedJunction(word, parts):
                return _junction(word == "AND", [self.condition(below) for below in parts])
            case TypedNot(below):
                inner = self.condition(below)
                return lambda row: None if (answer := inner(row)) is None else not answer
            case TypedIs(below, wanted):
                inner = self.condition(below)
                return lambda row: inner(row) is wanted
            case TypedIsNull(term, column):
                if column is not None:
                    place = self._places[column.name]
                    return lambda row: row[place] is None
                assert term is not None
                value = self.term(term)
                return lambda row: value(row) is None
            case TypedTruth(term):
                return self.term(term)
            case TypedLike(term, pattern):
                value, compiled = self.term(term), like_pattern(pattern)
                return lambda row: None if (text := value(row)) is None else matches(text, compiled)
            case TypedElements():
                return self._elements(part)
            case TypedCompare(left, sign, right, _):
                return _compared(self._ordered(left), self._ordered(right), _COMPARISONS[sign])

    def _ordered(self, term: TypedTerm) -> Term:
        value, kind = self.term(term), term.kind
        if isinstance(term, TypedLiteral):
            held = ordered(value(()), kind)
            return lambda _: held
        return lambda row: ordered(value(row), kind)

    def _elements(self, part: TypedElements) -> Condition:
        value, place, read = self._ordered(part.left), self._places[part.array.name], _reader(part.kind, padded=False)

        def found(row: Row) -> bool | None:
            text, wanted = row[place], value(row)
            if text is None:
                return None
            elements = exact.read(text)
            if not elements:
                return False
            if wanted is None:
                return None
            texts = [None if e is None else str(e) if isinstance(e, exact.Number) else json.dumps(e) for e in elements]
            if any(t is not None and ordered(read(t), part.kind) == wanted for t in texts):
                return True
            return None if None in texts else False

        return found

    def _call(self, call: TypedOperation) -> Term:
        given = [self.term(argument) for argument in call.arguments]
        if call.function in _ARITHMETIC:
            return _of_two(_ARITHMETIC[call.function], *given)
        match call.function:
            case "negate":
                return _of_one(numerics.negate, given[0])
            case "lower":
                return _of_one(lambda text: text.translate(_LOWER), given[0])
            case "upper":
                return _of_one(lambda text: text.translate(_UPPER), given[0])
            case "length":
                return _of_one(lambda text: Decimal(len(text)), given[0])
            case "||":
                first, second = (_spelled(argument.kind) for argument in call.arguments)
                return _of_two(lambda left, right: first(left) + second(right), *given)
            case "replace":
                return _replaced(*given)
            case "coalesce":
                return lambda row: next((found for term in given if (found := term(row)) is not None), None)
            case "nullif":
                left, right = map(self._ordered, call.arguments)
                same = _compared(left, right, operator.eq)
                return lambda row: None if same(row) else given[0](row)
            case "->":
                return _of_two(_step, *given)
            case "->>":
                return _of_two(lambda found, step: _text_of(_step(found, step)), *given)
        raise AssertionError(call.function)


def _chosen(branches: list[tuple[Condition, Term]], otherwise: Term | None) -> Term:
    def found(row: Row) -> Any:
        value = next((value for when, value in branches if when(row)), otherwise)
        return None if value is None else value(row)

    return found


def _of_one(function: Callable[[Any], Any], term: Term) -> Term:
    return lambda row: None if (value := term(row)) is None else function(value)


def _of_two(function: Callable[[Any, Any], Any], left: Term, right: Term) -> Term:
    def found(row: Row) -> Any:
        first, second = left(row), right(row)
        return None if first is None or second is None else function(first, second)

    return found


def _replaced(text: Term, old: Term, new: Term) -> Term:
    def found(row: Row) -> str | None:
        before, from_, to = text(row), old(row), new(row)
        if before is None or from_ is None or to is None:
            return None
        return str(before).replace(from_, to) if from_ else str(before)

    return found


def _compared(left: Term, right: Term, compare: Callable[[Any, Any], bool]) -> Condition:
    return _of_two(compare, left, right)


def _junction(all_: bool, parts: list[Condition]) -> Condition:
    def found(row: Row) -> bool | None:
        unknown = False
        for part in parts:
            answer = part(row)
            if answer is None:
                unknown = True
            elif answer is not all_:
                return answer
        return None if unknown else all_

    return found


def _reader(kind: ValueKind, *, padded: bool) -> Callable[[str], Any]:
    """From a column's JSON text. `padded`: of a `char`, whose blanks at the end do not count."""
    match kind:
        case "int8" | "numeric":
            return numerics.read
        case "bool":
            return "true".__eq__
        case "jsonb" | "float4" | "float8":
            return lambda text: text
    return (lambda text: str(json.loads(text)).rstrip(" ")) if padded else json.loads


def _literal(value: Value, kind: ValueKind) -> Any:
    match kind:
        case "float4" | "float8":
            return numerics.as_json(numerics.read(repr(value).removesuffix(".0")))
        case "timestamp" | "timestamptz" | "time":
            text, zone, _ = str(value).partition("+")
            text = text.rstrip("0").rstrip(".") if "." in text else text
            return text.replace(" ", "T") + (zone and "+00:00")
    return value


def _spelled(kind: ValueKind) -> Callable[[Any], str]:
    match kind:
        case "int8" | "numeric":
            return numerics.write
        case "bool":
            return lambda value: "true" if value else "false"
    return str


def _step(found: str, step: str | int) -> str | None:
    """What stands at a name of an object or a place of an array, as JSON text; None where nothing does.

    Postgres takes what is neither for an array of itself.
    """
    value = exact.read(found)
    if not isinstance(value, dict | list):
        value = [value]
    match value:
        case dict() if isinstance(step, str) and step in value:
            return _json(value[step])
        case list() if isinstance(step, int) and -len(value) <= step < len(value):
            return _json(value[step])
    return None


def _text_of(found: str | None) -> str | None:
    """As `->>` gives it: a text without its quotes, and no text for null."""
    if found is None or found == "null":
        return None
    return str(json.loads(found)) if found.startswith('"') else found


def _json(value: Any) -> str:
    """As Postgres writes jsonb, numbers by their digits."""
    match value:
        case exact.Number():
            return str(value)
        case dict():
            members = (f"{json.dumps(name, ensure_ascii=False)}: {_json(part)}" for name, part in value.items())
            return "{" + ", ".join(members) + "}"
        case list():
            return "[" + ", ".join(map(_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
