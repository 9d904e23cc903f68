"""`python -m tests.chain.commands.doomed STEP GENERATION COMMAND...`: the command, killed at one step of a
generation.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from cli import main
from driftless.control.lease import Lease
from jobs.follow.generation_worker import GenerationWorker
from sinks.opensearch.sink import OpenSearchSink
from sinks.redis.sink import RedisSink

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
    if what == "slice":
        _kill(GenerationWorker, "_apply", lambda follow, *_: follow.job.generation == generation)
    elif what == "record":
        _kill(Lease, "write", lambda lease, facts, **_: _promoted(facts, f"generation/{lease.follower}/{generation}"))
    else:
        for sink in (OpenSearchSink, RedisSink):
            _kill(sink, what, lambda _, number, *__, **___: number == generation, when)


def _kill(owner: type, method: str, mine: Callable[..., bool], when: str = "after") -> None:
    """Replace a method by one that dies in the calls that are `mine`."""
    call = getattr(owner, method)

    @wraps(call)
    def wrapped(*arguments: Any, **more: Any) -> Any:
        doomed = mine(*arguments, **more)
        if doomed and when == "before":
            die()
        found = call(*arguments, *([lambda _: die()] if doomed and when == "in" else []), **more)
        if doomed and when == "after":
            die()
        return found

    setattr(owner, method, wrapped)


def _promoted(facts: Any, key: str) -> bool:
    return bool(facts.get(key)) and facts[key]["promoted_at"] is not None


if __name__ == "__main__":
    doom(sys.argv[1], int(sys.argv[2]))
    sys.argv = ["driftless", *sys.argv[3:]]
    main()
