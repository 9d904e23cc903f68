"""`python -m tests.chain.commands.doomed_stream STEP COMMAND...`: the command, killed at one step of publishing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import driftless.kafka.log_writer
from cli import main
from jobs.streams.publisher import StreamPublisher
from tests.chain.commands.doomed import die
from tests.chain.commands.doomed_view import produce_and_die

STEPS: dict[str, tuple[str, str]] = {
    "before documents are published": ("publish", "before"),
    "before their transaction is committed": ("publish", "in"),
    "after they are published": ("publish", "after"),
    "before a tick is written": ("tick", "before"),
    "after a tick is written": ("tick", "after"),
}
"""Step -> what is called there, and when."""


def doom(step: str) -> None:
    """Have the process die at the first such call that has something to do."""
    method, when = STEPS[step]
    call: Callable[..., Any] = getattr(StreamPublisher, method)

    @wraps(call)
    def wrapped(self: Any, *arguments: Any) -> Any:
        works = method == "tick" or bool(arguments[3])
        if works and when == "before":
            die()
        if works and when == "in":
            setattr(driftless.kafka.log_writer, "produce", produce_and_die)  # noqa: B010 - it is not exported
        found = call(self, *arguments)
        if works and when == "after":
            die()
        return found

    setattr(StreamPublisher, method, wrapped)


if __name__ == "__main__":
    doom(sys.argv[1])
    sys.argv = ["driftless", *sys.argv[2:]]
    main()
