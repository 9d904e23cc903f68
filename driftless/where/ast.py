"""A condition as a tree. driftless/where/parser.py reads the text into it and refuses what is not in it."""

from __future__ import annotations

from dataclasses import dataclass

from driftless.where.literals import Literal, Pattern


@dataclass(frozen=True)
class Name:
    """A column, as Postgres would look it up. `at`: where it stands in the text."""

    text: str
    at: int


@dataclass(frozen=True)
class Compare:
    """`=`, `<>`, `<`, `<=`, `>` or `>=` of a column with a literal or with another column."""

    column: Name
    operator: str
    other: Name | Literal


@dataclass(frozen=True)
class Among:
    column: Name
    values: tuple[Literal, ...]


@dataclass(frozen=True)
class Like:
    column: Name
    pattern: Pattern


@dataclass(frozen=True)
class IsNull:
    column: Name


@dataclass(frozen=True)
class Truth:
    """A boolean column as a condition."""

    column: Name


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


Test = Compare | Among | Like | IsNull | Truth
Condition = Test | Is | Not | Junction
