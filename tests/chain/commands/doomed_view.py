"""`python -m tests.chain.commands.doomed_view STEP COMMAND...`: the command, killed at one step of building a view."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import driftless.kafka.log_writer
from cli import main
from jobs.views.builder import Builder
from jobs.views.publish import Publisher
from jobs.views.store.sqlite import SqliteRows
from tests.chain.commands.doomed import die

STEPS: dict[str, tuple[type, str, str]] = {
    "before rows are taken in": (SqliteRows, "apply", "before"),
    "when rows are taken in": (SqliteRows, "apply", "after"),
    "when documents are given out": (SqliteRows, "assemble", "after"),
    "before they are published": (Publisher, "publish", "before"),
    "before their transaction is committed": (Publisher, "publish", "in"),
    "after they are published": (Publisher, "publish", "after"),
    "when that is noted": (SqliteRows, "published", "after"),
    "when all are": (Builder, "_claim", "after"),
}
"""Step -> what is called there, and when."""


def doom(step: str) -> None:
    """Have the process die at the first such call that has something to do."""
    owner, method, when = STEPS[step]
    if when == "in":
        setattr(driftless.kafka.log_writer, "produce", produce_and_die)  # noqa: B010 - the module does not export it
        return
    call: Callable[..., Any] = getattr(owner, method)

    @wraps(call)
    def wrapped(self: Any, *arguments: Any, **more: Any) -> Any:
        if when == "before" and _has_work(method, self, arguments):
            die()
        found = call(self, *arguments, **more)
        if when == "after" and (found if method == "assemble" else _has_work(method, self, arguments)):
            die()
        return found

    setattr(owner, method, wrapped)


def _has_work(method: str, self: Any, arguments: tuple[Any, ...]) -> bool:
    match method:
        case "apply":
            return any(rows for _, rows in arguments[0])
        case "_claim":
            return self.progress.published > 0 and self.progress.frontier is not None and self._clean
        case _:
            return bool(arguments[0])


def produce_and_die(producer: Any, topic: str, key: bytes, value: bytes | None, **more: Any) -> None:
    """The record is in the log, and its transaction will never be committed."""
    producer.produce(topic, value, key, **more)
    producer.flush(30)
    die()


if __name__ == "__main__":
    doom(sys.argv[1])
    sys.argv = ["driftless", *sys.argv[2:]]
    main()
