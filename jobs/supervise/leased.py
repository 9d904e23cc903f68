"""What one lease stands for in a process: threads that work, and one turn after another in the control topic."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from pyspark.sql import SparkSession

from driftless.config.models import Config
from driftless.control.quarantine import QuarantineLog
from driftless.errors import Fenced, LogLost, SourceError, SyncError
from driftless.facts.state import RENEWAL, State, history
from driftless.kafka.client import Kafka
from jobs.brokers.end_offsets import Ends
from jobs.brokers.shared_answers import TopicFacts
from jobs.log.frontier import FrontierReader
from jobs.log.small_slices import SmallSliceReader
from jobs.spark.memory import no_memory
from jobs.spark.session import GONE, cancel
from jobs.supervise.feed import ControlFeed
from jobs.supervise.keeper import Facts, Keeper
from jobs.supervise.report import Signal
from jobs.threads.background import Background

_log = logging.getLogger(__name__)
LOOK_SECONDS = 5.0
"""How often a turn is taken where nothing has happened: a generation may have been kept for as long as it is to be."""
TURN_SECONDS = 0.05
"""The least time between two turns."""


@dataclass(frozen=True)
class Shared:
    """What everything that runs in a process has in common. `rows`: the folder for what views keep. `checkpoints`: that
    for what streams keep, where it is another one.
    """

    config: Config
    kafka: Kafka
    spark: SparkSession
    small_slices: SmallSliceReader
    ends: Ends
    topics: TopicFacts
    frontiers: FrontierReader
    feed: ControlFeed
    quarantine: QuarantineLog
    rows: Path
    checkpoints: Path | None = None


class WorkerProgress(Protocol):
    """Where a worker stands. `error` ends it; `changed` is to be set when there is something to tell."""

    state: str
    error: SyncError | None
    changed: Signal

    @property
    def key(self) -> str: ...

    def to_json(self) -> dict[str, object]: ...


class Worker(Protocol):
    """What a thread does until `stop` is set. `group`: the name of its Spark jobs, by which they can be cancelled.

    `history`: how many re-snapshots of all tables there had been when its generation or build was begun.
    """

    stop: threading.Event

    @property
    def history(self) -> int: ...

    @property
    def group(self) -> str: ...

    @property
    def progress(self) -> WorkerProgress: ...

    def run(self) -> None: ...

    def fence(self, error: SyncError) -> None: ...


class Running(Protocol):
    """A worker with its thread."""

    @property
    def worker(self) -> Worker: ...

    @property
    def thread(self) -> threading.Thread: ...


R = TypeVar("R", bound=Running)


class LeasedWorkers(ABC, Generic[R]):
    """Workers under one lease, by number: begun and ended as the control topic says, which is told where they stand.

    Its turns have a thread of their own, so that one that takes long, as where a store hangs, holds up no other; its
    keeper keeps the lease and tells where the workers stand meanwhile.
    """

    def __init__(self, shared: Shared, name: str, keeper: Keeper) -> None:
        self.name = name
        self.keeper = keeper
        self.lease = keeper.lease
        self.removed = False
        self._shared = shared
        self._running: dict[int, R] = {}
        """Replaced whole: other threads look at it."""
        self._stopping = False
        self._ended_by: SyncError | None = None
        self._wake = threading.Event()
        self._turns = _Turns(self)
        self._said = ""
        self._troubled: dict[int, tuple[bool, float]] = {}

    @abstractmethod
    def begin(self, state: State) -> None:
        """Start everything that there is. Raises where it was never applied."""

    @abstractmethod
    def _turn(self, state: State) -> Facts:
        """Do what the control topic asks for; the facts that follow from it."""

    @abstractmethod
    def concerns(self, key: str) -> bool:
        """Whether a turn may do something about a fact of the control topic. A thread of the feed asks."""

    def start(self) -> None:
        """Take turns from now on. Raises Fenced where the lease has been lost by now."""
        self.keeper.keep(self)
        self._shared.feed.listen(self.concerns, self._wake.set)
        self._turns.start()

    def confirm_lease(self) -> None:
        """Raise unless the lease is ours, which is found out now: to be asked before anything that destroys."""
        self.keeper.write({})

    @property
    def alive(self) -> bool:
        return any(r.thread.is_alive() for r in self._running.values())

    def set(self) -> None:
        """A worker has moved: it is told, and the next turn may do something about it."""
        self.keeper.tell()
        self._wake.set()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        for r in self._running.values():
            r.worker.stop.set()

    def halt(self, error: SyncError) -> None:
        """End everything with an error. Any thread may ask."""
        self._ended_by = self._ended_by or error
        self._wake.set()
        for r in self._running.values():
            r.worker.fence(error)
        self.keeper.tell()

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

    def _add(self, number: int, r: R) -> None:
        """Take one in and start it."""
        r.worker.progress.changed = self
        self._running = {**self._running, number: r}
        if self._ended_by is not None:
            r.worker.fence(self._ended_by)
        if self._stopping:
            r.worker.stop.set()
        r.thread.start()

    def _halt(self, number: int) -> R:
        """Stop one and take it out."""
        r = self._running[number]
        self._running = {n: other for n, other in self._running.items() if n != number}
        r.worker.stop.set()
        r.thread.join(1.0)
        self._cancel(r)
        return r

    def release(self) -> None:
        """Give the lease back, with the last facts."""
        self.keeper.release()

    # -- turns --------------------------------------------------------------------------------------------------

    def take_turns(self) -> None:
        """One after another until there is nothing to do any more; for the thread of turns."""
        while not self._over:
            self._wake.wait(LOOK_SECONDS)
            self._wake.clear()
            if not self._over:
                self.take_turn(self._shared.feed.state)
            time.sleep(TURN_SECONDS)

    @property
    def _over(self) -> bool:
        return self._stopping or self.removed or self._ended_by is not None

    def take_turn(self, state: State) -> None:
        """Do what the control topic asks for, and write what follows from it."""
        try:
            facts = self._turn(state)
            if self.removed:
                self.keeper.release(facts)
            elif facts:
                self.keeper.write(facts)
            self._said = ""
        except Fenced as exc:
            self.halt(exc)
        except SyncError as exc:
            if str(exc) != self._said and not self._over:
                self._said = str(exc)
                _log.error("%s: %s", self.name, exc)

    # -- what the keeper tells ----------------------------------------------------------------------------------

    def current_facts(self) -> Facts:
        """Where all workers stand, and what is to be kept of records that are gone: when the log has grown again,
        nothing shows it any more.
        """
        if self.removed:
            return {}
        facts: Facts = {}
        for n, r in self._running.items():
            progress = r.worker.progress
            fact = progress.to_json()
            trouble = fact["trouble"] or self._shared.frontiers.blocked_by
            facts[progress.key] = {**fact, "trouble": trouble, "trouble_since": self._since(n, progress, bool(trouble))}
            error, state = progress.error, self._shared.feed.state
            if isinstance(error, LogLost) and r.worker.history == history(state) and state.get(RENEWAL) is None:
                facts[RENEWAL] = {"what": str(error), "history": False}
        return facts

    def _since(self, number: int, progress: WorkerProgress, troubled: bool) -> float | None:
        """Since when there has been trouble, in seconds since 1970; what ends a worker is another one than what it
        waited for.
        """
        if not troubled:
            self._troubled.pop(number, None)
            return None
        failed = progress.error is not None
        known = self._troubled.get(number)
        if known is None or known[0] != failed:
            known = self._troubled[number] = (failed, round(time.time(), 3))
        return known[1]


class _Turns(Background):
    """The thread of turns of one lease."""

    def __init__(self, leased: LeasedWorkers[Any]) -> None:
        super().__init__(f"turns of {leased.name}", leased.halt)
        self._leased = leased

    def work(self) -> None:
        self._leased.take_turns()


@contextmanager
def report_failure(worker: Worker) -> Iterator[None]:
    """The top of a worker's thread: whatever ends it must show, or it would stand still and look alive."""
    progress, stopped = worker.progress, worker.stop.is_set
    try:
        yield
    except SyncError as exc:
        if not stopped() or isinstance(exc, Fenced):
            progress.error, progress.state = exc, "failed"
            _log.error("%s: stopped: %s", worker.group, exc)
    except MemoryError:
        progress.error, progress.state = no_memory(None, "working on what was read"), "failed"
        _log.error("%s: stopped: %s", worker.group, progress.error)
    except GONE:
        if not stopped():
            hint = "restart `driftless run`: it resumes; if memory ran out, give it more with --memory"
            progress.error, progress.state = SourceError("Spark's JVM has ended", hint=hint), "failed"
            _log.error("%s: stopped: Spark's JVM has ended", worker.group)
    except Exception as exc:  # noqa: BLE001
        if not stopped():
            what = f"unexpected error: {type(exc).__name__} (please report it)"
            # Its own words may quote a row.
            _log.error("%s: stopped: %s\n%s", worker.group, what, "".join(traceback.format_tb(exc.__traceback__)))
            progress.error = SyncError(
                what, hint="this is a defect of driftless: report it with the lines of the run's output"
            )
            progress.state = "failed"
    finally:
        progress.changed.set()
