"""A condition as a tree. driftless/where/parser.py reads the text into it and refuses what is not in it.

What conditions compare are terms: a column, a literal, or what is computed of others.
"""

from __future__ import annotations

from dataclasses import dataclass

from driftless.where.literals import Literal, Pattern


@dataclass(frozen=True)
class Name:
    """A column, as Postgres would look it up. `at`: where it stands in the text."""

    text: str
    at: int


@dataclass(frozen=True)
class Operation:
    """A value that is computed: by an operator (`+ - * / % ||`, `-` of one), or by a function.

    `negate` is the minus sign before a term. `->` and `->>` have a step of the path as their second argument.
    """

    function: str
    arguments: tuple[Term, ...]
    at: int


@dataclass(frozen=True)
class Case:
    """The value beside the first condition that is true; null where none is and there is no `otherwise`."""

    branches: tuple[tuple[Condition, Term], ...]
    otherwise: Term | None
    at: int


@dataclass(frozen=True)
class Compare:
    """`=`, `<>`, `<`, `<=`, `>` or `>=` of two terms. Of a column and a literal, the column comes first."""

    left: Term
    operator: str
    right: Term


@dataclass(frozen=True)
class Among:
    left: Term
    values: tuple[Literal, ...]


@dataclass(frozen=True)
class AmongElements:
    """`= ANY`: whether a term equals an element of a column that is an array."""

    left: Term
    array: Name


@dataclass(frozen=True)
class Like:
    left: Term
    pattern: Pattern


@dataclass(frozen=True)
class IsNull:
    left: Term


@dataclass(frozen=True)
class Truth:
    """A boolean term as a condition."""

    left: Term


@dataclass(frozen=True)
class Is:
    """IS TRUE or IS FALSE."""

    condition: Condition
    value: bool


@dataclass(frozen=True)
class Not:
    condition: Condition


@dataclass(frozen=True)
class Junction:
    """Conditions joined by AND or OR."""

    word: str
    parts: tuple[Condition, ...]


Term = Name | Literal | Operation | Case
Test = Compare | Among | AmongElements | Like | IsNull | Truth
Condition = Test | Is | Not | Junction
