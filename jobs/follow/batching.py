"""A log that is still being filled: a follower that nobody reads yet leaves what is new for a larger slice."""

from __future__ import annotations

import time
from collections.abc import Callable

from driftless.kafka.client import Offsets
from jobs.follow.progress import Progress
from jobs.log.frontier import Pending

ENOUGH = 50_000
"""Offsets of a slice that is not waited with: they keep the executors busy for seconds."""
STILL_SECONDS = 1.0
"""A log that has not grown for so long is filled."""


class BulkLoadBatcher:
    """Small slices cost more than one large one, and take their CPU from whoever fills the log."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends: Offsets = {}
        self._grown_at = 0.0

    def should_wait(self, progress: Progress, pending: Pending) -> bool:
        """Whether more is to come, and nobody waits for what is there; for who asks several times a second."""
        if progress.built or not pending.none:
            return False
        if progress.ends != self._ends:
            self._ends, self._grown_at = dict(progress.ends), self._clock()
        behind = sum(progress.ends[p] - position for p, position in progress.positions.items())
        growing = self._clock() - self._grown_at < STILL_SECONDS
        return growing and behind < ENOUGH
