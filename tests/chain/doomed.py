"""`python -m tests.chain.doomed STEP GENERATION COMMAND...`: the command, killed at one step of a generation."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from driftless.cli import main
from driftless.lease import Lease
from jobs.follow import Follow
from sinks.opensearch import OpenSearchSink
from sinks.redis import RedisSink

STEPS = {
    "before its place is made": ("create", "before"),
    "when its place is made": ("create", "after"),
    "after a slice": ("slice", "after"),
    "before a checkpoint": ("save", "before"),
    "after a checkpoint": ("save", "after"),
    "after it was counted": ("count", "after"),
    "before the switch": ("promote", "before"),
    "in the switch": ("promote", "in"),
    "after the switch": ("promote", "after"),
    "when the switch is recorded": ("record", "after"),
    "before it is dropped": ("drop", "before"),
    "after it was dropped": ("drop", "after"),
}
"""Step -> what is called there, by either sink, the loop or the lease, and when."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def doom(step: str, generation: int) -> None:
    """Have the process die at a step of this generation, and of no other."""
    what, when = STEPS[step]
    if what == "record":
        _die_when_it_is_recorded(generation)
        return
    if what == "slice":
        _die_after_a_slice(generation)
        return
    for sink in (OpenSearchSink, RedisSink):
        setattr(sink, what, _deadly(getattr(sink, what), when, generation))


def _deadly(call: Callable[..., Any], when: str, generation: int) -> Callable[..., Any]:
    @wraps(call)
    def wrapped(self: object, number: int, *arguments: Any, **more: Any) -> Any:
        mine = number == generation
        if mine and when == "before":
            die()
        if mine and when == "in":
            return call(self, number, lambda _: die())
        found = call(self, number, *arguments, **more)
        if mine:
            die()
        return found

    return wrapped


def _die_after_a_slice(generation: int) -> None:
    apply = Follow._apply

    def wrapped(self: Follow, *arguments: Any) -> Any:
        found = apply(self, *arguments)
        if self.job.generation == generation:
            die()
        return found

    Follow._apply = wrapped  # type: ignore[method-assign,assignment]


def _die_when_it_is_recorded(generation: int) -> None:
    write = Lease.write

    def wrapped(self: Lease, facts: Any, **more: Any) -> None:
        write(self, facts, **more)
        fact = facts.get(f"generation/{self.follower}/{generation}")
        if fact and fact["promoted_at"] is not None:
            die()

    Lease.write = wrapped  # type: ignore[method-assign]


if __name__ == "__main__":
    doom(sys.argv[1], int(sys.argv[2]))
    sys.argv = ["driftless", *sys.argv[3:]]
    main()
