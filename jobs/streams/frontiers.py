"""Up to which moment all events of a stream's topics have been read: what a tick says."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from driftless.kafka.client import Offsets
from driftless.marker import Marker

PROBE_SECONDS = 1.0
"""How often the brokers are asked what time it is, and how far their topics are."""
SLACK_MS = 1_000
"""A broker whose clock is behind that of the one that was asked may stamp an event with an earlier moment."""
_KEPT = 256

Reach = Mapping[str, Offsets]
"""Topic -> partition -> offset."""


@dataclass(frozen=True)
class Moment:
    """`seconds` since 1970. `marker`: of the source, where some events are its own."""

    seconds: float
    marker: Marker | None = None


class EventFrontiers:
    """Moments, each with where the topics had been written to by then. For one thread.

    What a topic takes later is stamped later: whoever has read up to there has every event that was received before the
    moment. Decided or not, since a transaction that is under way may hold such events.
    """

    def __init__(self, now: Callable[[], Moment | None], written: Callable[[], Reach]) -> None:
        """`now`: a moment before which no event is received that is not in the topics when it is asked for; None while
        there is none. `written`: where the topics have been written to.
        """
        self._now = now
        self._written = written
        self._probe_at = 0.0
        self._waiting: deque[tuple[int, Marker | None, Reach]] = deque()
        self.begun_ms = 0
        """The first moment that was asked for; 0 before."""
        self.reached_ms = 0
        """Every event that was received before then has been read."""
        self.marker: Marker | None = None
        """The source's, of that moment."""

    @property
    def behind_ms(self) -> int:
        """For how long everything has not been read; 0 before all has been once."""
        return self._waiting[-1][0] - self.reached_ms if self._waiting and self.reached_ms else 0

    def newest_within(self, planned: Reach) -> int:
        """The newest moment before which all events are within what has been planned to be read; 0 for none."""
        return max((moment for moment, _, written in self._waiting if _has(planned, written)), default=0)

    def look(self, read: Reach) -> bool:
        """Whether `reached_ms` has risen, where what lies before `read` has been read."""
        if time.monotonic() >= self._probe_at:
            self._probe_at = time.monotonic() + PROBE_SECONDS
            now = self._now()  # first: what is written afterwards is stamped later
            if now is None:
                return False
            moment = int(now.seconds * 1000) - SLACK_MS
            self.begun_ms = self.begun_ms or moment
            self._waiting.append((moment, now.marker, self._written()))
            if len(self._waiting) > _KEPT:
                self._waiting = deque(list(self._waiting)[1::2])  # the newest stays
        risen = False
        while self._waiting and _has(read, self._waiting[0][2]):
            moment, marker, _ = self._waiting.popleft()
            if moment > self.reached_ms:
                self.reached_ms, self.marker, risen = moment, marker, True
        return risen


def _has(read: Reach, written: Reach) -> bool:
    """Whether all of it has been read; a partition that nobody has read from is at its beginning."""
    return all(read.get(topic, {}).get(p, 0) >= end for topic, ends in written.items() for p, end in ends.items())
