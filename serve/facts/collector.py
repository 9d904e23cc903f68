"""The newest facts of a pipeline, kept up in the background: however many ask, the servers are asked as often."""

from __future__ import annotations

import logging
import math
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import KafkaException

import driftless
from driftless.config.models import Config
from driftless.control.health import Kind, Problem
from driftless.control.quarantine import QuarantineLog
from driftless.control.request import ControlReader
from driftless.control.status import SourceStatus, status
from driftless.control.topic import Control, read_all
from driftless.errors import SyncError
from driftless.facts.state import State
from driftless.metrics.catalogue import BUILD
from driftless.metrics.figures import Figure, LogTails, pipeline_figures
from serve.facts.held import HeldCount, held_counts
from serve.facts.history import STEP_SECONDS, FollowerHistory
from serve.facts.log_tails import log_tails
from serve.facts.standing import source_status

_log = logging.getLogger(__name__)
T = TypeVar("T")
READ_SECONDS = 1.0
"""How often the control topic is read: what runs tell is so old at the most."""
SOURCE_SECONDS, IDLE_SECONDS = 10.0, 30.0
"""How often the source, Connect and the logs' ends are asked: while somebody looks, and while nobody does."""
LOOKED_SECONDS = 60.0
"""For so long after a request somebody looks."""
_AGAIN_SECONDS = 5.0
_CLOCK_RECORDS = 100
"""The newest records, by which the brokers' clock is known: of a few minutes, so that a clock may be corrected."""
_RATE_SECONDS = 600.0
"""Over how long the slot's rate is taken."""


@dataclass(frozen=True)
class Snapshot:
    """What was known at one moment. `at`: seconds since 1970, by this machine's clock; `now`: by the broker's.

    `facts`: the JSON of `driftless status`.
    """

    at: float
    now: float
    state: State
    facts: dict[str, Any]
    tails: LogTails
    slot_seconds: float | None
    kafka_up: bool = True

    def figures(self) -> list[Figure]:
        """All figures."""
        more = {"tails": self.tails, "slot_seconds": self.slot_seconds, "kafka_up": self.kafka_up}
        own = Figure(BUILD, (driftless.__version__,), 1)
        return [own, *pipeline_figures(self.state, self.facts, self.now, **more)]  # type: ignore[arg-type]


class Collector:
    """Two threads: one reads the control topic, one asks the source. `snapshot` may be asked by any thread."""

    def __init__(
        self,
        config: Config,
        control: Control,
        file: Path | None = None,
        *,
        step: float = STEP_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`file`: the sync.yaml, of which it is told when it changes. `step`: seconds between points of the history.

        Raises SourceError for a pipeline that was never applied, SourceUnavailable where Kafka is away.
        """
        self._file = file
        self._file_at = None if file is None else _changed_at(file)
        self._config = config
        self._control = control
        self._clock = clock
        self._reader = ControlReader(control)
        self._ahead = BrokerClock()
        self._kafka_up = True
        self._source = SourceStatus()
        self._source_at = time.time()
        self._tails = LogTails()
        self._slot_rate = SlotRate()
        self._quarantine = QuarantineLog(control.kafka, config.name)
        self._counted: object = None
        """By which it is known whether the quarantine has to be read again."""
        self.quarantine: list[HeldCount] | None = None
        """What is held back; None where it could not be read yet."""
        self.history = FollowerHistory()
        self._step = step
        self._history_at = 0.0
        self._looked_at = -math.inf
        self._ended = threading.Event()
        self._wanted = threading.Event()
        self._lock = threading.Lock()
        self._made: Snapshot | None = None
        self._threads = [
            threading.Thread(target=self._read, name="control topic", daemon=True),
            threading.Thread(target=self._ask, name="source", daemon=True),
        ]
        self.ready = threading.Event()
        """Set once the source has been asked."""

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let the threads end, without waiting for that."""
        self._ended.set()
        self._wanted.set()

    @property
    def state(self) -> State:
        """What the control topic held when it was read last."""
        return self._reader.state

    @property
    def kafka_up(self) -> bool:
        return self._kafka_up

    def look(self) -> Snapshot:
        """The newest facts, for somebody who wants to see them: they are kept newer for a while."""
        if self._clock() - self._looked_at > LOOKED_SECONDS:
            self._wanted.set()
        self._looked_at = self._clock()
        return self.snapshot()

    def wait_for(self, found: Callable[[State], T | None], seconds: float) -> T | None:
        """What `found` finds in the control topic, as soon as it does; None where that takes longer."""
        deadline = self._clock() + seconds
        while (answer := found(self.state)) is None and self._clock() < deadline:
            time.sleep(READ_SECONDS / 4)
        return answer

    def snapshot(self) -> Snapshot:
        """The newest facts; the same ones for a second."""
        with self._lock:
            if self._made is None or time.time() - self._made.at >= READ_SECONDS:
                self._made = self._make()
            return self._made

    def _make(self) -> Snapshot:
        at = time.time()
        source, state, now = self._source, self._reader.state, at + self._ahead.seconds
        if source.time is not None:  # it was asked a while ago
            source = replace(source, time=source.time + at - self._source_at)
        if not self._kafka_up:
            source = replace(source, troubles=[*source.troubles, _KAFKA_AWAY])
        if self._file is not None and _changed_at(self._file) != self._file_at:
            source = replace(source, warnings=[*source.warnings, f"{self._file.name} {_CHANGED}"])
        facts = status(self._config, state, source, now)
        return Snapshot(at, now, state, facts, self._tails, self._slot_rate.seconds_left, self._kafka_up)

    # -- the threads --------------------------------------------------------------------------------------------

    def _read(self) -> None:
        with self._reader as reader:
            while not self._ended.wait(READ_SECONDS):
                try:
                    while arrived := reader.arrived(0.0):
                        self._ahead.heard(arrived[-1].timestamp()[1] / 1000 - time.time())
                        reader.state = reader.state.having(read_all(arrived, reader.state.facts))
                except (SyncError, KafkaException) as exc:
                    _log.info("the control topic cannot be read: %s", exc)
                    self._ended.wait(_AGAIN_SECONDS)
                if self._clock() >= self._history_at:
                    self._history_at = self._clock() + self._step
                    snapshot = self.snapshot()
                    self.history.take(snapshot.at, snapshot.state, snapshot.facts)

    def _ask(self) -> None:
        while not self._ended.is_set():
            try:
                self._look_around()
            except Exception as exc:  # noqa: BLE001 - or the page would show one moment for ever
                where = "".join(traceback.format_tb(exc.__traceback__))
                _log.error("the source cannot be looked at: %s (please report it)\n%s", type(exc).__name__, where)
            self.ready.set()
            looked = self._clock() - self._looked_at < LOOKED_SECONDS
            self._wanted.wait(SOURCE_SECONDS if looked else IDLE_SECONDS)
            self._wanted.clear()

    def _look_around(self) -> None:
        state = State(dict(self._reader.state.facts))  # which takes in what is found of the slot
        kafka = self._control.kafka
        try:
            self._tails = log_tails(kafka, state, time.time() + self._ahead.seconds)
            self._read_quarantine()
            found, self._kafka_up = source_status(self._config, kafka, state), True
        except (SyncError, KafkaException) as exc:
            _log.info("Kafka cannot be reached: %s", exc)
            found, self._kafka_up = replace(self._source, time=None), False
        self._source, self._source_at = found, time.time()
        self._slot_rate.take(self._clock(), found.slot_left_bytes)

    def _read_quarantine(self) -> None:
        """Again, where it has changed. A pipeline that holds back many documents has a long topic."""
        topic = self._quarantine.topic
        end = self._control.kafka.written_ends({topic: 1}) if self._control.kafka.topic(topic) else None
        if self.quarantine is None or end != self._counted:
            self.quarantine = held_counts(self._quarantine.read())
            self._counted = end


def _changed_at(file: Path) -> float | None:
    """When a file was written last; None where it is gone."""
    try:
        return file.stat().st_mtime
    except OSError:
        return None


_CHANGED = "has changed since `driftless serve` was started: start it again to see what it says now"
_KAFKA_AWAY = Problem(
    Kind.KAFKA_UNREACHABLE,
    "Kafka",
    "it does not answer, so what is shown is from before",
    "see whether the brokers run, and `kafka.bootstrap` leads to them",
    unreachable=True,
)


class BrokerClock:
    """How far the brokers' clock is ahead of this machine's, as the records show that arrive. It asks nobody.

    A record was written before it arrives, so what it shows is too little by as long as it took; the most that was
    shown lately is nearly right. While none arrives nobody runs anything, and it does not matter.
    """

    def __init__(self) -> None:
        self._shown: deque[float] = deque(maxlen=_CLOCK_RECORDS)

    def heard(self, ahead: float) -> None:
        """A record has arrived whose time is so many seconds ahead."""
        self._shown.append(ahead)

    @property
    def seconds(self) -> float:
        return max(self._shown, default=0.0)


class SlotRate:
    """How fast the slot comes nearer to its end."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def take(self, at: float, left_bytes: int | None) -> None:
        """What was left of it, at a moment in seconds. None: it has no end, or nobody knows."""
        if left_bytes is None:
            self._seen.clear()
            return
        self._seen.append((at, left_bytes))
        while self._seen[0][0] < at - _RATE_SECONDS:
            self._seen.popleft()

    @property
    def seconds_left(self) -> float | None:
        """None while it does not come nearer."""
        if len(self._seen) < 2:
            return None
        (since, before), (now, left) = self._seen[0], self._seen[-1]
        rate = (before - left) / (now - since) if now > since else 0.0
        return max(0, left) / rate if rate > 0 else None
