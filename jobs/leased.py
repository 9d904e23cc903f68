"""What one lease stands for in a process: threads that work, and one turn after another in the control topic."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from pyspark.sql import SparkSession

from driftless.config import Config
from driftless.control import RENEWAL, State, history
from driftless.errors import Fenced, LogLost, SourceError, SyncError
from driftless.kafka import Kafka
from driftless.lease import Lease
from driftless.quarantine import QuarantineLog
from jobs.ends import Ends
from jobs.frontier import FrontierReader
from jobs.spark import GONE, cancel
from jobs.tail import Tail

_log = logging.getLogger(__name__)
RENEW_SECONDS = 2.0
"""How often a lease is renewed where there is nothing new to tell: a fifth of its length."""
TELL_SECONDS = 0.1
"""How often a position that moves is told: who waits for one waits so much longer."""
Facts = dict[str, dict[str, object] | None]


@dataclass(frozen=True)
class Shared:
    """What everything that runs in a process has in common. `rows`: the folder for what views keep."""

    config: Config
    kafka: Kafka
    spark: SparkSession
    head: Tail
    ends: Ends
    frontiers: FrontierReader
    quarantine: QuarantineLog
    rows: Path


class Stands(Protocol):
    """Where a worker stands. `error` ends it; `changed`: there is something to tell."""

    state: str
    error: SyncError | None
    changed: threading.Event

    def to_json(self) -> dict[str, object]: ...


class Worker(Protocol):
    """What a thread does until `stop` is set. `group`: the name of its Spark jobs, by which they can be cancelled.

    `history`: how often all tables had been read anew when what it goes on with was begun.
    """

    stop: threading.Event

    @property
    def history(self) -> int: ...

    @property
    def group(self) -> str: ...

    @property
    def progress(self) -> Stands: ...

    def run(self) -> None: ...

    def fence(self, error: SyncError) -> None: ...


class Running(Protocol):
    """A worker with its thread."""

    @property
    def worker(self) -> Worker: ...

    @property
    def thread(self) -> threading.Thread: ...


R = TypeVar("R", bound=Running)


class Leased(ABC, Generic[R]):
    """Workers under one lease, by number: begun and ended as the control topic says, which is told where they stand."""

    def __init__(self, shared: Shared, name: str, lease: Lease) -> None:
        self.name = name
        self.lease = lease
        self.removed = False
        self._shared = shared
        self._running: dict[int, R] = {}
        self._stopping = False
        self._written = 0.0
        self._said = ""

    @abstractmethod
    def begin(self, state: State) -> None:
        """Start everything that there is. Raises where it was never applied."""

    @abstractmethod
    def _turn(self, state: State) -> Facts:
        """Do what the control topic asks for; the facts that follow from it."""

    @abstractmethod
    def _key(self, number: int) -> str:
        """Of the fact that says where a worker stands."""

    @property
    def alive(self) -> bool:
        return any(r.thread.is_alive() for r in self._running.values())

    def stop(self) -> None:
        self._stopping = True
        for r in self._running.values():
            r.worker.stop.set()

    def halt(self, error: SyncError) -> None:
        """End everything with an error."""
        for r in self._running.values():
            r.worker.fence(error)

    def join(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for r in self._running.values():
            r.thread.join(max(0.0, deadline - time.monotonic()))

    def cancel(self) -> None:
        """End Spark's work for what has not stopped: it will be done again."""
        for r in self._running.values():
            self._cancel(r)

    def _cancel(self, r: R) -> None:
        if r.thread.is_alive():
            cancel(self._shared.spark, r.worker.group)
            r.thread.join(5.0)

    def _halt(self, number: int) -> R:
        """Stop one and take it out. The lease must not run out meanwhile."""
        r = self._running.pop(number)
        r.worker.stop.set()
        r.thread.join(1.0)
        self._cancel(r)
        return r

    def release(self) -> None:
        """Give the lease back, with the last facts."""
        try:
            self.lease.release(self._standing())
        except SyncError as exc:
            _log.info("%s: the lease could not be given back: %s", self.name, exc)

    def tick(self, state: State) -> None:
        """Do what the control topic asks for, and tell it where this stands."""
        if self.removed:
            return
        facts: Facts = {}
        if not self._stopping:
            try:
                facts = self._turn(state)
            except SyncError as exc:
                if str(exc) != self._said:
                    self._said = str(exc)
                    _log.error("%s: %s", self.name, exc)
        facts |= self._lost(state)
        changed = [r for r in self._running.values() if r.worker.progress.changed.is_set()]
        now = time.monotonic()
        if not facts and now - self._written < (TELL_SECONDS if changed else RENEW_SECONDS):
            return
        for r in changed:
            r.worker.progress.changed.clear()
        self._written = now
        if not self.removed:
            facts = {**self._standing(), **facts}
        try:
            (self.lease.release if self.removed else self.lease.write)(facts)
        except Fenced as exc:
            for r in self._running.values():
                r.worker.fence(exc)
        except SyncError as exc:
            _log.info("%s: progress cannot be written: %s", self.name, exc)
        else:
            # Ours to know at once; the reader of the topic brings the same a moment later.
            state.take(facts)

    def _lost(self, state: State) -> Facts:
        """What is to be kept of records that are gone: when the log has grown again, nothing shows it any more."""
        for r in self._running.values():
            error = r.worker.progress.error
            if isinstance(error, LogLost) and r.worker.history == history(state) and state.get(RENEWAL) is None:
                return {RENEWAL: {"what": str(error), "history": False}}
        return {}

    def _standing(self) -> Facts:
        facts: Facts = {}
        for n, r in self._running.items():
            fact = r.worker.progress.to_json()
            facts[self._key(n)] = {**fact, "trouble": fact["trouble"] or self._shared.frontiers.held_up}
        return facts


def name_jobs(spark: SparkSession, group: str, what: str, pool: str) -> None:
    """Have what this thread asks of Spark bear a name, by which it can be cancelled, and share the machine fairly."""
    spark.sparkContext.setJobGroup(group, what, interruptOnCancel=True)
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)


@contextmanager
def shown(worker: Worker) -> Iterator[None]:
    """The top of a worker's thread: whatever ends it must show, or it would stand still and look alive."""
    progress, stopped = worker.progress, worker.stop.is_set
    try:
        yield
    except SyncError as exc:
        if not stopped() or isinstance(exc, Fenced):
            progress.error, progress.state = exc, "failed"
            _log.error("%s: stopped: %s", worker.group, exc)
    except GONE:
        if not stopped():
            hint = "start the run again: it goes on where it was; where memory ran out, --memory gives it more"
            progress.error, progress.state = SourceError("Spark's JVM has ended", hint=hint), "failed"
            _log.error("%s: stopped: Spark's JVM has ended", worker.group)
    except Exception as exc:  # noqa: BLE001
        if not stopped():
            _log.exception("%s: stopped by an error that is not provided for", worker.group)
            progress.error = SyncError(f"{type(exc).__name__}: {exc}", hint="this is a defect of driftless")
            progress.state = "failed"
    finally:
        progress.changed.set()
