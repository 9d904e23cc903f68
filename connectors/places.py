"""Where a plan looks and acts, and what one of its steps is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from connectors.connect import Connect
from connectors.postgres import Postgres
from driftless.control import Control
from driftless.kafka import Kafka


@dataclass(frozen=True)
class Action:
    """One step: what it is (`create`, `change`), of what, and for the database the SQL that a DBA could run instead."""

    verb: str
    what: str
    detail: str = ""
    sql: str | None = None
    do: Callable[[], None] = field(default=lambda: None, compare=False)

    def __str__(self) -> str:
        return f"{self.verb} {self.what}{': ' + self.detail if self.detail else ''}"


@dataclass
class Places:
    """Where a plan looks and acts."""

    source: Postgres
    admin: Postgres
    kafka: Kafka
    connect: Connect
    control: Control
    report: Callable[[str], None] = field(default=lambda _: None)


def bind(call: Callable[..., object], *arguments: object) -> Callable[[], None]:
    """What an action does: this call, later."""

    def do() -> None:
        call(*arguments)

    return do
