"""What keeps a lease: a thread that does nothing else, so that nothing slow can make it run out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Protocol

from confluent_kafka import Message

from driftless.control.lease import SURE_SECONDS, Lease
from driftless.errors import Fenced, SourceUnavailable, SyncError
from jobs.threads.background import Background, unforeseen

_log = logging.getLogger(__name__)
RENEW_SECONDS = 3.0
"""How often a lease is renewed where there is nothing new to tell: often enough to try again before it runs out. Each
renewal is a transaction, and much of what an idle process costs.
"""
TELL_SECONDS = 0.1
"""How often a position that moves is told: who waits for one waits so much longer."""
AGAIN_SECONDS = 0.5
"""After this a write that failed is tried again."""
STOP_SECONDS = 5.0
"""How long a write that is under way may go on when the lease is to be given back."""
Facts = dict[str, dict[str, object] | None]


class LeasedWork(Protocol):
    """What a lease is kept for."""

    def current_facts(self) -> Facts:
        """The facts that say where it stands. It must be quick."""

    def halt(self, error: SyncError) -> None:
        """End everything: another runner has taken over, or the lease is kept no more."""


class NoWork:
    """What is run under a lease before anything is: Spark takes 10 s to start."""

    def current_facts(self) -> Facts:
        return {}

    def halt(self, error: SyncError) -> None:
        pass


class Keeper(Background):
    """Renews one lease until it is given back, tells where its workers stand, and alone writes through its producer.

    Each lease has a keeper of its own: one that waits for brokers that are away makes no other run out.
    """

    def __init__(self, lease: Lease, written: Callable[[Iterable[Message]], None] = lambda _: None) -> None:
        """`written`: is given every record that was written."""
        super().__init__(f"lease of {lease.follower}", self._give_up)
        self.lease = lease
        self.ended_by: SyncError | None = None
        """Why it is kept no more, where it was not given back."""
        self.written = written
        self._kept: LeasedWork = NoWork()
        self._wake = threading.Condition()
        self._asked: list[tuple[Facts, Future[None]]] = []
        self._moved = False
        self._stopping = False
        self._written_at = time.monotonic()

    def keep(self, kept: LeasedWork) -> None:
        """Keep it for this from now on."""
        self._kept = kept
        self.check()
        self.tell()

    def check(self) -> None:
        """Raise what has ended it."""
        if self.ended_by is not None:
            raise self.ended_by

    def tell(self) -> None:
        """There is something new to tell."""
        with self._wake:
            if not self._moved:
                self._moved = True
                self._wake.notify()

    def write(self, facts: Facts) -> None:
        """Renew the lease now, and write these facts with it; return when they can be read. Raises what `Lease.write`
        raises, Fenced once another runner has taken over.
        """
        future: Future[None] = Future()
        with self._wake:
            if self.ended_by is not None or self._stopping:
                raise self.ended_by or SourceUnavailable(
                    f"this process has given back the lease of {self.lease.follower}", hint="restart `driftless run`"
                )
            self._asked.append((facts, future))
            self._wake.notify()
        future.result()

    def work(self) -> None:
        while True:
            asked = self._next()
            if asked is None:
                return
            try:
                facts = self._kept.current_facts()
                for more, _ in asked:
                    facts |= more
                self.written(self.lease.write(facts))
            except Fenced as exc:
                self._end(exc, asked)
                return
            except SyncError as exc:
                _log.info("%s: progress cannot be written: %s", self.lease.follower, exc)
                for _, future in asked:
                    future.set_exception(exc)
                with self._wake:
                    self._moved = True
                    self._wake.wait_for(lambda: self._stopping, AGAIN_SECONDS)
            except BaseException as exc:
                for _, future in asked:
                    future.set_exception(unforeseen(self.name, exc))
                raise
            else:
                for _, future in asked:
                    future.set_result(None)

    def _next(self) -> list[tuple[Facts, Future[None]]] | None:
        """Wait until there is something to write; None when it is to be given back."""
        with self._wake:
            while not self._stopping and not self._asked:
                left = (TELL_SECONDS if self._moved else RENEW_SECONDS) - (time.monotonic() - self._written_at)
                if left <= 0:
                    break
                self._wake.wait(left)
            asked, self._asked = self._asked, []
            self._moved = False
            self._written_at = time.monotonic()
            return None if self._stopping and not asked else asked

    def _end(self, error: SyncError, asked: list[tuple[Facts, Future[None]]] | None = None) -> None:
        with self._wake:
            self.ended_by = error
            asked = [*(asked or []), *self._asked]
            self._asked = []
        self._kept.halt(error)
        for _, future in asked:
            future.set_exception(error)

    def _give_up(self, error: SyncError) -> None:
        """The thread ended by an unexpected error: say so in what is written last."""
        self._end(error)
        try:
            self.lease.release(self._kept.current_facts())
        except Exception as exc:  # noqa: BLE001 - the lease then runs out
            _log.info("%s: the lease could not be given back: %s", self.lease.follower, exc)

    def release(self, facts: Facts | None = None) -> None:
        """Give the lease back with the last facts, those of where it stands where none are given."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        if self.is_alive():
            self.join(STOP_SECONDS)
        if self.is_alive() or self.ended_by is not None or not self.lease.held:
            return
        if self.lease.renewed > SURE_SECONDS:
            return  # brokers that are away would be waited for, and it runs out by itself
        try:
            self.written(self.lease.release(self._kept.current_facts() if facts is None else facts))
        except SyncError as exc:
            _log.info("%s: the lease could not be given back: %s", self.lease.follower, exc)
