"""`where` of a view, and what it computes: over a table's columns, and the same in Postgres and in the followers.

driftless/where/parser.py reads the text into the small tree of driftless/where/ast.py. What a literal means is in
driftless/where/literals.py. A dialect (driftless/where/postgres.py, jobs/decode/where_sql.py for the log in Spark)
says how columns and literals of each kind are written; the rest is SQL that both understand alike. What computes
something is compiled from the tree of driftless/where/typed.py, for Postgres and for the row store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from driftless.suggest import did_you_mean
from driftless.table import Column, Table
from driftless.types import refusal
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
    Test,
    Truth,
)
from driftless.where.literals import ORDERED, Kind, Literal, Pattern, Value, compared, kind_of
from driftless.where.typed import Misfit, TypedCondition, TypedTerm, column_of, computes, typed, typed_condition

_TEXTS = ("text", "bpchar")


class WhereRefused(ValueError):
    """What cannot be admitted, each as `column 8: what`."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class Dialect(Protocol):
    """How columns and literals are written, so that a comparison has the meaning that it has in Postgres."""

    def column(self, column: Column) -> str:
        """The column as it is, for IS NULL and as a condition."""

    def operand(self, column: Column, kind: Kind) -> str:
        """The column as a side of a comparison of this kind."""

    def value(self, kind: Kind, value: Value) -> str:
        """A literal as the other side."""

    def like(self, column: Column, pattern: Pattern) -> str:
        """The column LIKE the pattern."""


@dataclass(frozen=True)
class Where:
    """A condition that is well formed. Whether it fits the table's columns, `refusals` tells."""

    text: str
    condition: Condition

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(name.text for name in _names(self.condition))

    @property
    def computes(self) -> bool:
        """Whether it takes more than columns and literals as they are."""
        return any(map(_computes, _tests(self.condition)))

    def refusals(
        self,
        table: Table,
        *,
        excluded: Sequence[str] = (),
        labels: Mapping[str, Sequence[str]] | None = None,
        gone: Mapping[tuple[str, str], str] | None = None,
    ) -> list[str]:
        """Every mistake that only the catalogue can tell, in the text's order.

        `labels`: those of enum columns. `gone`: (table, column) that there was before -> the end of what is said of it.
        """
        found: set[tuple[int, str]] = set()
        for test in _tests(self.condition):
            missing = _all_missing(_names(test), table, excluded, gone)
            found.update(missing or (_misfit(test, table) if _computes(test) else _misfits(test, table)))
            if not missing:
                found.update(_labels(test, labels or {}))
        return [f"{place(self.text, at)}: {what}" for at, what in sorted(found)]

    def sql(self, table: Table, dialect: Dialect) -> str:
        """The condition for a table that it fits, where it computes nothing."""
        return _sql(self.condition, table, dialect)

    def typed(self, table: Table) -> TypedCondition:
        """The same as a tree, for a table that it fits."""
        return typed_condition(self.condition, table)

    def orders_text(self, table: Table) -> bool:
        """Whether text is compared by its order, which is that of the bytes in the database's encoding."""
        return _order_text(self.condition, table)


@dataclass(frozen=True)
class Computation:
    """A value that is computed of a row, well formed. Whether it fits the table's columns, `refusals` tells."""

    text: str
    term: Term

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(name.text for name in _names(self.term))

    def refusals(
        self,
        table: Table,
        *,
        excluded: Sequence[str] = (),
        gone: Mapping[tuple[str, str], str] | None = None,
    ) -> list[str]:
        """As those of `Where`."""
        found = _all_missing(_names(self.term), table, excluded, gone)
        if found and isinstance(self.term, Name):
            found = [
                (at, f"{what}; the text {self.term.text} is written `\"'{self.term.text}'\"`") for at, what in found
            ]
        if not found:
            try:
                typed(self.term, table)
            except Misfit as exc:
                found = [(exc.at, str(exc))]
        return [f"{place(self.text, at)}: {what}" for at, what in sorted(set(found))]

    def typed(self, table: Table) -> TypedTerm:
        """The same for a table that it fits."""
        return typed(self.term, table)

    def orders_text(self, table: Table) -> bool:
        """As that of `Where`."""
        return _order_text(self.term, table)


@lru_cache(maxsize=256)
def parse(text: str) -> Where:
    """Read a condition; raises WhereRefused with every mistake that can be told without the table."""
    from driftless.where.parser import read  # its library takes 0.2 s to import, and few commands need it

    condition, problems = read(text)
    if condition is None or problems:
        raise _refused(text, problems)
    return Where(text, condition)


@lru_cache(maxsize=256)
def compute(text: str) -> Computation:
    """Read a value that is computed; raises WhereRefused as `parse`."""
    from driftless.where.parser import read_term

    term, problems = read_term(text)
    if term is None or problems:
        raise _refused(text, problems)
    return Computation(text, term)


def _refused(text: str, problems: Iterable[tuple[int, str]]) -> WhereRefused:
    return WhereRefused(*(f"{place(text, at)}: {what}" for at, what in sorted(set(problems))))


def place(text: str, at: int) -> str:
    """`column 8`, or `line 2, column 8` where there are several lines; both count from 1."""
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    return f"line {line}, column {column}" if "\n" in text.strip() else f"column {column}"


def _tests(condition: Condition) -> Iterator[Test]:
    match condition:
        case Junction(_, parts):
            for part in parts:
                yield from _tests(part)
        case Is(part) | Not(part):
            yield from _tests(part)
        case _:
            yield condition


def _within(part: Term | Condition) -> Iterator[Term | Test]:
    """Every term and test in it, itself among them."""
    match part:
        case Junction(_, parts):
            for each in parts:
                yield from _within(each)
            return
        case Is(condition) | Not(condition):
            yield from _within(condition)
            return
    yield part
    match part:
        case Operation(_, arguments):
            inside: list[Term | Condition] = [*arguments]
        case Case(branches, otherwise):
            inside = [each for branch in branches for each in branch]
            inside += [] if otherwise is None else [otherwise]
        case Compare(left, _, right):
            inside = [left, right]
        case AmongElements(left, array):
            inside = [left, array]
        case Among(left) | Like(left) | IsNull(left) | Truth(left):
            inside = [left]
        case _:
            inside = []
    for inner in inside:
        yield from _within(inner)


def _names(part: Term | Condition) -> Iterator[Name]:
    yield from (found for found in _within(part) if isinstance(found, Name))


def _order_text(part: Term | Condition, table: Table) -> bool:
    return any(
        isinstance(test, Compare) and test.operator not in ("=", "<>") and _kind(test.left, table) in _TEXTS
        for test in _within(part)
    )


def _computes(test: Test) -> bool:
    other = computes(test.right) or isinstance(test.left, Literal) if isinstance(test, Compare) else False
    return computes(test.left) or other or isinstance(test, AmongElements)


def _misfit(test: Test, table: Table) -> Iterator[tuple[int, str]]:
    try:
        typed_condition(test, table)
    except Misfit as exc:
        yield exc.at, str(exc)


def _kind(term: Term, table: Table) -> str:
    return str(kind_of(_column(table, term)) if isinstance(term, Name) else typed(term, table).kind)


def _literals(test: Test) -> tuple[Literal, ...]:
    match test:
        case Among(_, values):
            return values
        case Compare(_, _, Literal() as literal):
            return (literal,)
    return ()


def _column(table: Table, name: Term) -> Column:
    assert isinstance(name, Name), "a test that computes is held against typed_condition"
    return column_of(name, table)


def _all_missing(
    names: Iterable[Name], table: Table, excluded: Sequence[str], gone: Mapping[tuple[str, str], str] | None
) -> list[tuple[int, str]]:
    return [(name.at, what) for name in names if (what := _missing(name.text, table, excluded, gone or {}))]


def _missing(name: str, table: Table, excluded: Sequence[str], gone: Mapping[tuple[str, str], str]) -> str | None:
    """Why the log has no such column; None where it has."""
    column = table.column(name)
    if column is not None:
        reason = refusal(column)
        return None if reason is None else f"{name} {reason}"
    if name in excluded:
        return f"{name} is excluded under source.tables, so the log does not have it"
    if (table.full_name, name) in gone:
        return f"{table.called} has no column {name}{gone[table.full_name, name]}"
    known = [other.name for other in table.columns]
    folded = [other for other in known if other.lower() == name.lower()]
    if folded:
        return f'{table.called} has no column {name}; did you mean `"{folded[0]}"`, in quotes?'
    return f"{table.called} has no column {name}{did_you_mean(name, known)}"


def _misfits(test: Test, table: Table) -> Iterator[tuple[int, str]]:
    """Where the operator or a literal does not fit the column's type."""
    name = test.left
    column = _column(table, name)
    kind, called = kind_of(column), column.called
    match test:
        case IsNull():
            if column.array and column.type == "numeric":
                yield name.at, f"{called}: one that holds a NaN is null in the log"
        case Truth():
            if kind != "bool":
                yield name.at, f"{called}, no condition by itself: compare it, or write IS NOT NULL"
        case Like():
            if kind != "text":
                yield name.at, f"{called}, and LIKE is for text and varchar"
        case _ if kind is None:
            yield name.at, f"{called}, which can only be tested with IS NULL and IS NOT NULL"
        case Among() if column.type == "float4":
            yield name.at, f"{called}, to which IN rounds its literals and = does not: write it with >= and <="
        case Compare(_, operator, _) if operator not in ("=", "<>") and kind not in ORDERED:
            yield name.at, f"{called}, which has no order in the log: there is = and <> and IN, but no {operator}"
        case Compare(_, _, Name() as name_of_other):
            other = _column(table, name_of_other)
            if kind_of(other) != kind or (kind == "enum" and other.type != column.type):
                yield name_of_other.at, f"{called} and {other.called}: only columns of one kind can be compared"
        case _:
            for literal in _literals(test):
                try:
                    compared(column, [literal])
                except ValueError as exc:
                    yield literal.at, f"{called}, {exc}"


def _labels(test: Test, labels: Mapping[str, Sequence[str]]) -> Iterator[tuple[int, str]]:
    """Literals that an enum column can never equal."""
    known = labels.get(test.left.text) if isinstance(test.left, Name) else None
    if known is None or not isinstance(test.left, Name):
        return
    for literal in _literals(test):
        if literal.form == "string" and literal.text not in known:
            yield literal.at, f"{test.left.text} has no such value{did_you_mean(literal.text, known)}"


def _sql(condition: Condition, table: Table, dialect: Dialect) -> str:
    match condition:
        case Junction(word, parts):
            return "(" + f" {word} ".join(_sql(part, table, dialect) for part in parts) + ")"
        case Not(part):
            return f"(NOT {_sql(part, table, dialect)})"
        case Is(part, value):
            return f"({_sql(part, table, dialect)} IS {'TRUE' if value else 'FALSE'})"
        case IsNull(name):
            return f"({dialect.column(_column(table, name))} IS NULL)"
        case Truth(name):
            return dialect.column(_column(table, name))
        case Like(name, pattern):
            return f"({dialect.like(_column(table, name), pattern)})"
    assert not isinstance(condition, AmongElements), "a test that computes is held against typed_condition"
    column = _column(table, condition.left)
    kind, values = compared(column, _literals(condition))
    left = dialect.operand(column, kind)
    match condition:
        case Among():
            return f"({left} IN ({', '.join(dialect.value(kind, value) for value in values)}))"
        case Compare(_, operator, Name() as other):
            return f"({left} {operator} {dialect.operand(_column(table, other), kind)})"
        case Compare(_, operator, _):
            return f"({left} {operator} {dialect.value(kind, values[0])})"
