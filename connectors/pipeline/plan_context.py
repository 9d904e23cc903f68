"""Where a plan looks and acts, and what one of its steps is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from connectors.debezium.connect import Connect
from connectors.postgres.client import Postgres
from driftless.control.topic import Control
from driftless.kafka.client import Kafka


@dataclass(frozen=True)
class Action:
    """One step: what it is (`create`, `change`), of what, and for the database the SQL that a DBA could run instead.

    `together`: does the steps that follow each other and name it in one go, given the `part` of each, in place of `do`.
    """

    verb: str
    what: str
    detail: str = ""
    sql: str | None = None
    do: Callable[[], None] = field(default=lambda: None, compare=False)
    together: Callable[[Sequence[Any]], object] | None = field(default=None, compare=False)
    part: Any = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.verb} {self.what}{': ' + self.detail if self.detail else ''}"


@dataclass
class PlanContext:
    """Where a plan looks and acts. `report`: shows how far it is. `tell`: says what somebody has to know, and stays."""

    source: Postgres
    admin: Postgres
    kafka: Kafka
    connect: Connect
    control: Control
    report: Callable[[str], None] = field(default=lambda _: None)
    tell: Callable[[str], None] = field(default=lambda _: None)

    def execute(self, statements: Sequence[str]) -> None:
        """Run the statements of several steps, each by itself, with the rights of `admin_dsn`."""
        self.admin.execute(*statements)

    def write(self, facts: Sequence[Mapping[str, dict[str, object] | None]]) -> None:
        """Write facts of several steps into the control topic, in their order."""
        merged: dict[str, dict[str, object] | None] = {}
        for some in facts:
            merged |= some
        self.control.write(merged)


def steps(actions: Sequence[Action]) -> Iterator[tuple[list[Action], Callable[[], object]]]:
    """The actions in their order, those that are done in one go together; and what does them."""
    for _, group in groupby(actions, key=lambda action: action.together or id(action)):
        some = list(group)
        together, parts = some[0].together, [action.part for action in some]
        yield some, some[0].do if together is None else bind(together, parts)


def bind(call: Callable[..., object], *arguments: object) -> Callable[[], None]:
    """What an action does: this call, later."""

    def do() -> None:
        call(*arguments)

    return do
