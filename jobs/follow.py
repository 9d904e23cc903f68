"""Follow one log into one store, until told to stop."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from driftless.errors import Fenced, SinkError, SinkUnavailable, SourceError, SourceUnavailable, SyncError
from driftless.kafka import Kafka, Offsets
from driftless.lsn import format_lsn
from driftless.marker import Marker
from driftless.registry import TopicLog
from driftless.sink import Sink
from jobs.apply import LogSource, SinkSpec, apply_slice
from jobs.frontier import Pending

_log = logging.getLogger(__name__)

SLICE_OFFSETS = 100_000
"""Offsets of one slice: bounds what is repeated after a crash, and how long a stop waits."""
IDLE_SECONDS = 0.01
SAVE_SECONDS = 1.0
"""How often the checkpoint is written: bounds what is repeated, and how soon a store that lost data is noticed."""
COUNT_SECONDS = 5.0
"""How often documents are counted while they change: it costs a search index a refresh."""
RETRY_SECONDS = 5.0


@dataclass
class Progress:
    """Where a follower stands; written by its thread, read by whoever reports. `error` ends it."""

    follower: str
    view: str
    generation: int
    state: str = "bootstrapping"
    floor: Offsets = field(default_factory=dict)
    positions: Offsets = field(default_factory=dict)
    ends: Offsets = field(default_factory=dict)
    marker: Marker | None = None
    live: bool = False
    documents: int | None = None
    written: int = 0
    stale: int = 0
    trouble: str = ""
    error: SyncError | None = None
    changed: threading.Event = field(default_factory=threading.Event)

    @property
    def done(self) -> int:
        return sum(self.positions[p] - self.floor[p] for p in self.positions)

    @property
    def total(self) -> int:
        return sum(self.ends[p] - self.floor[p] for p in self.ends)

    @property
    def lag(self) -> int:
        """Offsets still to read: records, and the few that end transactions."""
        return max(0, self.total - self.done)

    def to_json(self) -> dict[str, object]:
        return {
            "view": self.view,
            "state": self.state,
            "live": self.live,
            "applied_lsn": None if self.marker is None else format_lsn(self.marker.lsn),
            "marker_time": None if self.marker is None else self.marker.time,
            "lag_records": self.lag,
            "documents": self.documents,
            "trouble": self.trouble if self.error is None else str(self.error),
        }


@dataclass(frozen=True)
class Checkpoint:
    """What the store holds of the log: kept in the store itself, so that it is lost with the documents.

    `token`: of the lease it was written under; a higher one means that another runner has taken over.
    `at_head`: seconds since 1970 when it last stood at the log's end, or began at its floor.
    """

    token: int
    topic_id: str
    positions: Offsets
    marker: Marker | None
    at_head: float

    def to_text(self) -> str:
        marker = None if self.marker is None else [self.marker.lsn, self.marker.time]
        positions = {str(p): o for p, o in sorted(self.positions.items())}
        return json.dumps({**vars(self), "positions": positions, "marker": marker})

    @classmethod
    def from_text(cls, text: str) -> Checkpoint:
        data: dict[str, Any] = json.loads(text)
        marker = None if data["marker"] is None else Marker(*data["marker"])
        positions = {int(p): offset for p, offset in data["positions"].items()}
        return cls(**{**data, "positions": positions, "marker": marker})


@dataclass(frozen=True)
class Job:
    """What to follow, into what. `retention`: seconds for which the log keeps deletes."""

    follower: str
    view: str
    generation: int
    log: TopicLog
    source: LogSource
    spec: SinkSpec
    retention: float


class Follow:
    """The loop of one follower: read what is new, apply it, say how far that is.

    After a crash at any point it starts again from the checkpoint in the store and applies up to a second of
    changes once more, which their versions make harmless. A store that forgot what it had acknowledged is noticed
    by its checkpoint and brought up from there, or from the log's floor.
    """

    def __init__(
        self, job: Job, kafka: Kafka, spark: SparkSession, pending: Pending, token: int, stop: threading.Event
    ) -> None:
        self.job = job
        self.progress = Progress(job.follower, job.view, job.generation)
        self._kafka = kafka
        self._spark = spark
        self._pending = pending
        self._token = token
        self._stop = stop
        self._sink: Sink = job.spec.open()
        self._saved: str | None = None
        self._save_at = 0.0
        self._at_head = 0.0
        self._count_at = 0.0
        self._counted = 0

    def run(self) -> None:
        """Follow until `stop` is set or an error ends it; the error is left in `progress.error`."""
        self._spark.sparkContext.setJobGroup(self.job.follower, f"follow {self.job.view}", interruptOnCancel=True)
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", self.job.follower)
        try:
            self._persist(self._begin)
            while not self._stop.is_set():
                self._persist(self._step)
            self._persist(self._save, last=True)
            self.progress.state = "stopped"
        except SyncError as exc:
            if not self._stop.is_set() or isinstance(exc, Fenced):
                self.progress.error = exc
                self.progress.state = "failed"
                _log.error("%s: stopped: %s", self.job.follower, exc)
        except Exception as exc:  # noqa: BLE001
            # The top of a thread: whatever ends it must show, or a follower would stand still and look alive.
            if not self._stop.is_set():
                _log.exception("%s: stopped by an error that is not provided for", self.job.follower)
                self.progress.error = SyncError(f"{type(exc).__name__}: {exc}", hint="this is a defect of driftless")
                self.progress.state = "failed"
        finally:
            self._sink.close()
            self.progress.changed.set()

    def fence(self, error: Fenced) -> None:
        """Stop at once: another runner holds the lease."""
        self.progress.error = error

    def _persist(self, step: Callable[[], None], *, last: bool = False) -> None:
        """Do a step, again and again while a server is away; followers of other stores are not held back."""
        pause = 0.2
        while True:
            try:
                if self.progress.error is not None:
                    raise self.progress.error
                step()
            except (SinkUnavailable, SourceUnavailable) as exc:
                if self._stop.is_set() or last:
                    return
                if not self.progress.trouble:
                    _log.warning("%s: waiting: %s", self.job.follower, exc)
                self.progress.trouble = str(exc)
                self.progress.changed.set()
                self._stop.wait(pause)
                pause = min(pause * 2, RETRY_SECONDS)
            else:
                if self.progress.trouble:
                    _log.warning("%s: goes on", self.job.follower)
                    self.progress.trouble = ""
                return

    def _begin(self) -> None:
        self._check_log()
        self._sink.check()
        self._sink.create(self.job.generation)
        self._resume(self._sink.load(self.job.generation))
        self._save()

    def _check_log(self) -> None:
        log, found = self.job.log, self._kafka.topic(self.job.log.topic)
        if found is None or found.id != log.topic_id or found.partitions != log.partitions:
            raise SourceError(
                f"the topic {log.topic} is not the one that was registered: offsets in it mean something else",
                hint="run `driftless check`, which says what changed",
            )

    def _resume(self, text: str | None) -> None:
        """Take up from what the store says that it holds."""
        progress, log = self.progress, self.job.log
        found = None if text is None else Checkpoint.from_text(text)
        if found is not None and found.token > self._token:
            raise Fenced(f"another runner took over the follower `{self.job.follower}`")
        self._saved = text
        progress.floor = dict(log.floor)
        progress.positions, progress.marker = dict(log.floor), None
        if found is not None and found.topic_id == log.topic_id:
            progress.positions = {p: max(found.positions.get(p, 0), floor) for p, floor in log.floor.items()}
            progress.marker, self._at_head = found.marker, found.at_head
        else:
            self._at_head = time.time()
        begin = self._kafka.beginnings(log.topic, log.partitions)
        lost = [p for p, first in begin.items() if first > progress.positions[p]]
        if lost:
            raise SourceError(
                f"{log.topic}: records that this follower has not read are gone from partition {lost[0]}",
                hint="is cleanup.policy=compact? `driftless check` compares the topic with what is needed",
            )
        progress.live = self._sink.promoted() == self.job.generation
        progress.state = "bootstrapping" if progress.marker is None else "live"
        progress.changed.set()

    def _step(self) -> None:
        """Apply the next slice, or wait a moment where there is none."""
        progress, log = self.progress, self.job.log
        progress.ends = self._kafka.committed_ends(log.topic, log.partitions)
        behind = [p for p, end in progress.ends.items() if end < progress.positions[p]]
        if behind:
            raise SourceError(
                f"{log.topic}/{behind[0]} ends at {progress.ends[behind[0]]}, before what this follower has applied",
                hint="the broker lost records, or the topic was made anew; `driftless check` says which",
            )
        share = SLICE_OFFSETS // log.partitions
        to = {p: min(end, progress.positions[p] + share) for p, end in progress.ends.items()}
        if to != progress.positions:
            applied = apply_slice(
                self._spark, self.job.source, self.job.spec, self._sink, self.job.generation, progress.positions, to
            )
            if applied.rejected:
                first = applied.rejected[0]
                raise SinkError(
                    f"the store refuses {len(applied.rejected)} documents, "
                    f"the first at version {first.version}: {first.reason}",
                    hint="make room for them in the follower's mapping; they are not skipped",
                )
            progress.written += applied.written
            progress.stale += applied.stale
            progress.positions = to
            progress.changed.set()
        else:
            self._at_head = time.time()
            self._stop.wait(IDLE_SECONDS)
        self._check_away()
        self._claim()
        if time.monotonic() >= self._save_at:
            self._save()

    def _check_away(self) -> None:
        """Refuse to go on where the log may have forgotten deletes that this follower has not seen.

        The clocks of two machines may differ by minutes; retention is counted in days.
        """
        away = time.time() - self._at_head
        if away > self.job.retention:
            raise SourceError(
                f"the follower has not reached the log's end for {away / 86400:.1f} days; the log keeps deletes for "
                f"{self.job.retention / 86400:.1f}, so it may still hold rows that are gone",
                hint="remove it and let it be built anew from the log",
            )

    def _claim(self) -> None:
        """Raise the applied position to the newest frontier that has been passed."""
        marker = self._pending.reached(self.progress.positions)
        if marker is None:
            return
        self.progress.marker = marker
        if self.progress.state == "bootstrapping":
            if not self.progress.live and self._sink.promoted() is None:
                self._sink.promote(self.job.generation)
                self.progress.live = True
            self.progress.state = "live"
        self.progress.changed.set()

    def _save(self) -> None:
        """Write the checkpoint, and notice a store that lost what it had acknowledged."""
        progress = self.progress
        text = Checkpoint(
            self._token, self.job.log.topic_id, progress.positions, progress.marker, self._at_head
        ).to_text()
        self._save_at = time.monotonic() + SAVE_SECONDS
        if not self._sink.save(self.job.generation, text, expected=self._saved):
            self._sink.create(self.job.generation)
            self._resume(self._sink.load(self.job.generation))
            _log.warning("%s: the store lost what it had acknowledged; following again", self.job.follower)
            return
        self._saved = text
        if progress.documents is None or (progress.written != self._counted and time.monotonic() >= self._count_at):
            progress.documents = self._sink.count(self.job.generation)
            self._counted = progress.written
            self._count_at = time.monotonic() + COUNT_SECONDS
        progress.changed.set()


def kafka_options(settings: Mapping[str, object], follower: str) -> dict[str, str]:
    """The Kafka source's options from librdkafka's settings; names that differ between the two are translated."""
    ours = {"socket.timeout.ms"}
    options = {f"kafka.{key}": str(value) for key, value in settings.items() if key not in ours}
    return {
        **options,
        "kafka.isolation.level": "read_committed",
        # A tail that ends in a transaction's mark would wait for it 500 ms.
        "kafka.fetch.max.wait.ms": "10",
        # One name for all batches, so that executors keep their consumers; no offset is ever committed.
        "kafka.group.id": f"driftless-{follower}",
        "failOnDataLoss": "true",
    }
