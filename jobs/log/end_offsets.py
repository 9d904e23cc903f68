"""Where logs end, asked once for all followers of a process: each of them wants to know it many times a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from driftless.errors import SourceError, SyncError
from driftless.kafka.client import Kafka, Offsets
from jobs.threads.background import Background, Bell

FRESH_SECONDS = 0.015
"""How old an answer may be that is given again."""
IDLE_SECONDS, IDLE_MOST, IDLE_GROWTH = 0.01, 0.1, 1.1
"""How long to wait before looking for changes again, and how long at most where looks have found none: each waits a
tenth longer than the one before, so a change is seen late by a tenth of the time that it was waited for.
"""
_WANTED_SECONDS = 1.0
"""For so long, a topic that was asked about is asked about together with others."""
_ALONE_SECONDS = 5.0
"""For so long each asks by itself, where one topic may be what keeps all from being answered."""
_FAILED_SECONDS = 0.5
"""After an error, whoever waits asks for himself; so long after it the next question is asked for all."""


@dataclass
class _Watch:
    """A log that somebody waits for. `seen`: of each that waits, where it has seen the log end. `last`: where it was
    seen to end last.
    """

    partitions: int
    seen: dict[Bell, Offsets] = field(default_factory=dict)
    last: Offsets = field(default_factory=dict)
    pause: float = IDLE_SECONDS
    at: float = 0.0

    def moved(self, ends: Offsets) -> None:
        """It ends elsewhere than last time: soon it may again."""
        self.last, self.pause = ends, IDLE_SECONDS


class Ends(Background):
    """Committed ends. Any thread may ask; an error is raised for who asked, and for nobody else.

    Those who have nothing to do wait: one thread asks for all of them, and wakes whose log has moved.
    """

    def __init__(self, kafka: Kafka, failed: Callable[[SyncError], None] = lambda _: None) -> None:
        super().__init__("ends of logs", failed)
        self._kafka = kafka
        self._lock = threading.Lock()
        self._wanted: dict[str, tuple[int, float]] = {}
        self._found: dict[str, tuple[Offsets, float]] = {}
        self._alone_until = 0.0
        self._watched: dict[str, _Watch] = {}
        self._changed = threading.Condition()
        self._ended = False

    def committed(self, topic: str, partitions: int) -> Offsets:
        """As Kafka's `committed_ends`, at most so old."""
        with self._lock:
            now = time.monotonic()
            if now >= self._alone_until:
                self._wanted[topic] = (partitions, now)
                try:
                    return self._together(topic, now)
                except SourceError:
                    self._alone_until = now + _ALONE_SECONDS
        return self._kafka.committed_ends(topic, partitions)

    def _together(self, topic: str, now: float) -> Offsets:
        found = self._found.get(topic)
        if found is None or now - found[1] > FRESH_SECONDS:
            self._wanted = {t: (n, at) for t, (n, at) in self._wanted.items() if now - at < _WANTED_SECONDS}
            self._found = {}
            ends = self._kafka.all_committed_ends({t: n for t, (n, _) in self._wanted.items()})
            self._found = {t: (offsets, now) for t, offsets in ends.items()}
        return self._found[topic][0]

    # -- waiting ------------------------------------------------------------------------------------------------

    def wait(self, topic: str, partitions: int, seen: Offsets, bell: Bell, seconds: float) -> None:
        """Return when the log ends elsewhere than at `seen`, when the bell rings, or after so long."""
        with self._changed:
            watch = self._watched.setdefault(topic, _Watch(partitions))
            first = not watch.seen  # the thread does not know yet that this log is to be looked at
            watch.seen[bell] = seen
            moved = seen != watch.last
            if moved:
                watch.moved(seen)
                watch.at = time.monotonic() + watch.pause
            if first or moved:
                self._changed.notify()
        bell.rest(seconds)
        with self._changed:
            watch.seen.pop(bell, None)

    def work(self) -> None:
        while (due := self._due()) is not None:
            try:
                found = self._kafka.all_committed_ends(due)
            except SourceError:
                with self._changed:
                    self._ring(due.keys())
                    self._changed.wait_for(lambda: self._ended, _FAILED_SECONDS)
                continue
            now = time.monotonic()
            with self._lock:
                self._found |= {t: (offsets, now) for t, offsets in found.items()}
            with self._changed:
                for topic, ends in found.items():
                    self._heed(self._watched[topic], ends, now)

    def _due(self) -> dict[str, int] | None:
        """Wait until it is time to look, and return at which logs; None when it is over."""
        with self._changed:
            while not self._ended:
                waited = {t: watch for t, watch in self._watched.items() if watch.seen}
                now = time.monotonic()
                # What is nearly due is asked about with what is: one question instead of two.
                due = {t: watch.partitions for t, watch in waited.items() if watch.at - now < watch.pause / 2}
                if any(watch.at <= now for watch in waited.values()):
                    return due
                self._changed.wait(min(watch.at for watch in waited.values()) - now if waited else None)
            return None

    def _heed(self, watch: _Watch, ends: Offsets, now: float) -> None:
        for bell in [bell for bell, seen in watch.seen.items() if seen != ends]:
            bell.set()
        watch.pause = min(IDLE_GROWTH * watch.pause, IDLE_MOST)
        if ends != watch.last:
            watch.moved(ends)
        watch.at = now + watch.pause

    def _ring(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for bell in self._watched[topic].seen:
                bell.set()

    def stop(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
