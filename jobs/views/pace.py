"""How fast the documents of a large fan-out are published: no faster than a follower applies them.

What changes meanwhile lies behind them in the log, and would wait there until all of them are applied. In the row
store they hold up nobody.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from driftless.control.request import is_running
from driftless.facts.state import State

SLICE = 1_000
"""Documents of large fan-outs in one publication."""
AHEAD = 5_000
"""So many of them may be published that nobody has applied yet: as many as are applied until that is heard of."""
PATIENCE = 0.5
"""Seconds without any news after which the next slice is published all the same."""


class FanoutThrottle:
    """Of one build. Heard of by its viewer's thread, asked by its own."""

    def __init__(self) -> None:
        self._applied: int | None = None
        self._end = 0
        self._moved = 0.0

    def heard(self, applied: int | None) -> None:
        """How far the furthest follower is, in offsets from the log's floor; None where none keeps up with it."""
        if applied != self._applied:
            self._applied, self._moved = applied, time.monotonic()

    def published(self, end: int) -> None:
        """Documents of a large fan-out lie before this offset, counted as above."""
        self._end, self._moved = end, time.monotonic()

    def room(self, most: int) -> int:
        """How many may be published now; `most` where nobody would wait behind them."""
        applied = self._applied
        if applied is None:
            return most
        if self._end - applied <= AHEAD - SLICE or time.monotonic() - self._moved > PATIENCE:
            return min(SLICE, most)
        return 0


def furthest(state: State, view: str, build: int) -> int | None:
    """How far the furthest of the followers is that keep up with a build; a slow one must not hold up its siblings."""
    return max(_applied(state, view, build), default=None)


def _applied(state: State, view: str, build: int) -> Iterator[int]:
    for name, fact in state.by_prefix("generation").items():
        if (fact.value.get("view"), fact.value.get("build")) != (view, build):
            continue
        standing = state.get(f"follower/{name}")
        if standing and standing["state"] == "live" and is_running(state, name.rpartition("/")[0], state.now):
            yield int(str(standing["read_records"]))
