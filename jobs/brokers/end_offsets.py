"""Where logs end, asked once for all followers of a process: each of them wants to know it many times a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from driftless.errors import SourceError, SyncError
from driftless.kafka.client import Kafka, Offsets
from jobs.brokers.quiet_logs import QuietLogs
from jobs.brokers.shared_answers import SharedAnswers
from jobs.threads.background import Background, Bell

FRESH_SECONDS = 0.015
"""How old an answer may be that is given again."""
IDLE_SECONDS, IDLE_MOST, IDLE_GROWTH = 0.01, 0.1, 1.1
"""How long to wait before looking for changes again, and how long at most where looks have found none: each waits a
tenth longer than the one before, so a change is seen late by a tenth of the time that it was waited for.
"""
QUIET_SECONDS = 5.0
"""How often a log is looked at that has been still for so long that no look finds any more: `QuietLogs` tells when it
moves, but of no transaction that ends without a record.
"""
_WANTED_SECONDS = 1.0
"""For so long, a topic that was asked about is asked about together with others."""
_FAILED_SECONDS = 0.5
"""After an error, whoever waits asks for himself; so long after it the next question is asked for all."""


@dataclass
class _Watch:
    """A log that somebody waits for. `seen`: of each that waits, where it has seen the log end. `last`: where it was
    seen to end last, at `looked_at`. `quiet`: QuietLogs tells when it moves.
    """

    partitions: int
    seen: dict[Bell, Offsets] = field(default_factory=dict)
    last: Offsets = field(default_factory=dict)
    pause: float = IDLE_SECONDS
    at: float = 0.0
    looked_at: float = 0.0
    quiet: bool = False


class Ends(Background):
    """Committed ends. Any thread may ask; an error is raised for who asked, and for nobody else.

    Those who have nothing to do wait: one thread asks for all of them, and wakes whose log has moved. A log that is
    still is left to `quiet`, and hardly asked for.
    """

    def __init__(self, kafka: Kafka, failed: Callable[[SyncError], None] = lambda _: None) -> None:
        super().__init__("ends of logs", failed)
        self._kafka = kafka
        self.quiet: QuietLogs | None = None
        """To be set before anybody waits; without it every log is looked at again and again."""
        self._asked = SharedAnswers[Offsets](
            kafka.all_committed_ends, kafka.committed_ends, fresh=FRESH_SECONDS, wanted=_WANTED_SECONDS
        )
        self._watched: dict[str, _Watch] = {}
        self._changed = threading.Condition()
        self._ended = False

    def committed(self, topic: str, partitions: int, written: Offsets | None = None) -> Offsets:
        """As Kafka's `committed_ends`, at most so old; or, of a log that has been still since, up to QUIET_SECONDS.

        `written`: where it is known to have been written to; an answer that lies before that must be new.
        """
        watch = self._watched.get(topic)
        if watch is not None and watch.quiet and time.monotonic() - watch.looked_at < QUIET_SECONDS + IDLE_MOST:
            last = watch.last
            if all(last.get(p, 0) >= offset for p, offset in (written or {}).items()):
                return last
        return self._asked.of(topic, partitions)

    # -- waiting ------------------------------------------------------------------------------------------------

    def wait(self, topic: str, partitions: int, seen: Offsets, bell: Bell, seconds: float) -> None:
        """Return when the log ends elsewhere than at `seen`, when the bell rings, or after so long."""
        with self._changed:
            watch = self._watched.setdefault(topic, _Watch(partitions))
            first = not watch.seen  # the thread does not know yet that this log is to be looked at
            watch.seen[bell] = seen
            moved = seen != watch.last
            if moved:
                self._move(topic, watch, seen)
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
            self._asked.know(found)
            now = time.monotonic()
            with self._changed:
                for topic, ends in found.items():
                    self._heed(topic, self._watched[topic], ends, now)

    def _due(self) -> dict[str, int] | None:
        """Wait until it is time to look, and return at which logs; None when it is over."""
        with self._changed:
            while not self._ended:
                waited = {t: watch for t, watch in self._watched.items() if watch.seen}
                now = time.monotonic()
                # What is nearly due is asked about with what is: one question instead of two.
                near = {t: QUIET_SECONDS if watch.quiet else watch.pause for t, watch in waited.items()}
                due = {t: watch.partitions for t, watch in waited.items() if watch.at - now < near[t] / 2}
                if any(watch.at <= now for watch in waited.values()):
                    return due
                self._changed.wait(min(watch.at for watch in waited.values()) - now if waited else None)
            return None

    def _heed(self, topic: str, watch: _Watch, ends: Offsets, now: float) -> None:
        for bell in [bell for bell, seen in watch.seen.items() if seen != ends]:
            bell.set()
        watch.looked_at = now
        watch.pause = min(IDLE_GROWTH * watch.pause, IDLE_MOST)
        if ends != watch.last:
            self._move(topic, watch, ends)
        elif watch.pause == IDLE_MOST and not watch.quiet and self.quiet is not None:
            self.quiet.watch(topic, ends)
            watch.quiet = True
        watch.at = now + (QUIET_SECONDS if watch.quiet else watch.pause)

    def _move(self, topic: str, watch: _Watch, ends: Offsets) -> None:
        """It ends elsewhere than last time: soon it may again."""
        if watch.quiet and self.quiet is not None:
            self.quiet.leave(topic)
        watch.last, watch.pause, watch.quiet = ends, IDLE_SECONDS, False

    def heed_record(self, topic: str) -> None:
        """A log that was still has a new record."""
        self._asked.forget(topic)
        with self._changed:
            watch = self._watched.get(topic)
            if watch is not None and watch.quiet:
                watch.quiet, watch.pause, watch.at = False, IDLE_SECONDS, time.monotonic()
                self._ring([topic])
                self._changed.notify()

    def _ring(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for bell in self._watched[topic].seen:
                bell.set()

    def stop(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
