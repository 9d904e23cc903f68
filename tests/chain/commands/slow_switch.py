"""`python -m tests.chain.commands.slow_switch SECONDS COMMAND...`: the command, whose switches in Redis pause in
each slice.
"""

from __future__ import annotations

import sys
import time
from functools import partial

import sinks.redis.generations
from cli import main
from driftless.sink import Progress
from sinks.redis.generations import Generations

SLICE = 20


def slow_down(seconds: float) -> None:
    promote = Generations.promote

    def slowly(self: Generations, generation: int, progress: Progress) -> None:
        promote(self, generation, partial(_pause, progress, seconds))

    sinks.redis.generations._PAGE = SLICE
    Generations.promote = slowly  # type: ignore[method-assign]


def _pause(progress: Progress, seconds: float, done: int) -> None:
    progress(done)
    time.sleep(seconds)


if __name__ == "__main__":
    slow_down(float(sys.argv[1]))
    sys.argv = ["driftless", *sys.argv[2:]]
    main()
