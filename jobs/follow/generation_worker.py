"""Follow one log into one generation of one follower, until told to stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from math import inf

import pyarrow as pa
from pyspark.sql import SparkSession

from driftless.errors import Fenced, SinkUnavailable, SourceUnavailable, SyncError
from driftless.kafka.client import Kafka, Offsets
from driftless.marker import Marker
from driftless.sink import Sink
from jobs.brokers.end_offsets import Ends
from jobs.brokers.identity_check import LogIdentityCheck
from jobs.brokers.open_transactions import OpenTransactionMonitor
from jobs.brokers.shared_answers import TopicFacts
from jobs.follow.apply import LogReader, OffsetRange, SliceResult, apply_slice, count_documents
from jobs.follow.batching import BulkLoadBatcher
from jobs.follow.checkpoint import Checkpoint
from jobs.follow.checkpoint_writer import CheckpointWriter
from jobs.follow.job_spec import Job
from jobs.follow.progress import AppliedState, Progress
from jobs.follow.quarantine import GenerationQuarantine, hold
from jobs.follow.readers_generation import ReadersGeneration
from jobs.follow.replay import Replay
from jobs.log.contract import SliceReader
from jobs.log.fitting import SliceSize
from jobs.log.frontier import Pending
from jobs.log.local_bulk import LocalBulkReader
from jobs.log.salvage import salvage_of
from jobs.spark.session import name_jobs, submitted
from jobs.supervise.leased import report_failure
from jobs.supervise.report import told
from jobs.threads.background import Bell, Ringing

_log = logging.getLogger(__name__)

LOOK_SECONDS = 3.0
"""How long to wait for changes at most: what rings no bell is looked at so often."""
GATHER_SECONDS = 0.1
"""How often it is asked whether a log that is being filled grows still, or the generation that readers
are being switched to is as far.
"""
RETRY_SECONDS = 5.0
_LOST = "the store lost what it had acknowledged; following again"
_RESTARTED = "the store was restarted or failed over; applying again what came after its checkpoint"
CLAIM_SECONDS = 3.0
"""How often a position is claimed where nothing but the time has changed: a lease, whose renewal tells it, is renewed
as often.
"""
STORE_SECONDS = 10.0
"""How often a store is asked for what it must be set to: it may be changed while it is written to."""


class GenerationWorker:
    """The loop of one follower: read what is new, apply it, say how far that is.

    After a crash at any point it starts again from the checkpoint in the store and applies up to a second of
    changes once more, which their versions make harmless. A store that forgot what it had acknowledged is noticed
    by its checkpoint and brought up from there, or from the log's floor.
    """

    def __init__(
        self,
        job: Job,
        kafka: Kafka,
        spark: SparkSession,
        small: SliceReader,
        ends: Ends,
        topics: TopicFacts,
        pending: Pending,
        token: int,
        quarantine: GenerationQuarantine,
        seen: ReadersGeneration,
    ) -> None:
        self.job = job
        self.progress = Progress(job.follower, job.view, job.generation, seen=seen, token=token)
        self.quarantine = quarantine
        self.bell = Bell()
        """Rings where there may be something to do."""
        self.stop: threading.Event = Ringing(self.bell)
        self.paused: threading.Event = Ringing(self.bell)
        """While it is set, the worker reads and writes nothing."""
        self.withhold_position = threading.Event()
        """While it is set, the worker claims no position: readers may not see all of this generation."""
        self.superseded = False
        """A newer epoch of its log has begun. The worker claims no position of it: it does not hold what that says."""
        self.promote_if_none = False
        """Show this generation to readers where they see none, as in a store that was emptied."""
        self.promotion_target: Progress | None = None
        """The generation that readers are being switched to. The worker claims no position before that one does."""
        self.replay: Replay | None = None
        self.check_lease: Callable[[], None] = lambda: None
        """Raises SourceUnavailable where another runner may have the lease before long: nothing is written then."""
        self._kafka = kafka
        self._identity = LogIdentityCheck(kafka, topics, [job.log])
        self._open_transactions = OpenTransactionMonitor(kafka, {job.log.topic: job.log.partitions})
        self._spark = spark
        # On a cluster there are executors for large slices.
        self._bulk = None if submitted() else LocalBulkReader(spark, job.source)
        self._log = LogReader(spark, job.source, small, self._bulk, salvage_of(spark, job.source))
        self._ends = ends
        self._size = SliceSize(kafka, job.log.topic, jobs=self._bulk is None)
        self._batcher = BulkLoadBatcher()
        self._pending = pending
        self._moved = False
        """Whether something was applied since the last position was claimed."""
        pending.heed = lambda marker: self.bell.set() if self._wants([marker]) else None
        self._seen = seen
        self._token = token
        self._sink: Sink = job.spec.open()
        self._checkpoints = CheckpointWriter(self._sink, self.progress)
        self._store_at = time.monotonic() + STORE_SECONDS
        self._at_head = 0.0
        self._claimed_at = -inf
        self._history = job.history
        self._unverified = False

    def run(self) -> None:
        """Follow until `stop` is set or an error ends it; the error is left in `progress.error`."""
        name_jobs(self._spark, self.group, f"follow {self.job.view}", self.job.follower)
        try:
            with report_failure(self):
                self._persist(self._begin)
                while not self.stop.is_set():
                    self._persist(self._step)
                self._persist(self._save, last=True)
                self.progress.state = "stopped"
        finally:
            self._sink.close()
            if self._bulk is not None:
                self._bulk.close()

    @property
    def history(self) -> int:
        return self.job.history

    @property
    def _before_resnapshot(self) -> bool:
        """Whether all tables were re-snapshotted after it was built."""
        return self._history != self.job.history

    @property
    def group(self) -> str:
        """The name of its Spark jobs, by which they can be cancelled."""
        return f"{self.job.follower}/{self.job.generation}"

    def fence(self, error: SyncError) -> None:
        """Stop at once: another runner holds the lease, or the log cannot be trusted any more."""
        self.progress.error = error
        self.bell.set()

    def _persist(self, step: Callable[[], None], *, last: bool = False) -> None:
        """Do a step, again and again while a server is away; followers of other stores are not held back."""
        pause = 0.2
        while True:
            try:
                if self.progress.error is not None:
                    raise self.progress.error
                self.check_lease()
                step()
            except (SinkUnavailable, SourceUnavailable) as exc:
                if self.stop.is_set() or last:
                    return
                self.progress.counts.retries += 1
                if not self.progress.last_error:
                    _log.warning("%s: waiting: %s", self.job.follower, exc)
                self.progress.last_error = told(exc)
                self.progress.changed.set()
                self._identity.invalidate()
                self.stop.wait(pause)
                pause = min(pause * 2, RETRY_SECONDS)
            else:
                if self.progress.last_error:
                    _log.warning("%s: resumed", self.job.follower)
                    self.progress.last_error = ""
                return

    def _begin(self) -> None:
        self._identity.check()
        self._sink.check()
        self._sink.create(self.job.generation)
        self.quarantine.load()
        self._resume(self._sink.load(self.job.generation))
        self._save()

    def _resume(self, text: str | None) -> None:
        """Take up from what the store says that it holds."""
        progress, log = self.progress, self.job.log
        found = None if text is None else Checkpoint.from_text(text)
        if found is not None and found.token > self._token:
            raise Fenced(f"another runner took over the follower `{self.job.follower}`")
        self._checkpoints.found(text)
        self._unverified = found.unvouched if found else bool(self._sink.count(self.job.generation))
        holding = AppliedState(dict(log.floor), dict(log.floor), quarantined=len(self.quarantine), known=True)
        if found is not None and found.topic_id == log.topic_id:
            self._history = found.history
            positions = {p: max(found.positions.get(p, 0), floor) for p, floor in log.floor.items()}
            marker = None if self._before_resnapshot else found.marker
            holding = replace(holding, positions=positions, marker=marker, built=found.built)
            self._at_head = found.at_head
            self._identity.leaders = {(log.topic, p): leader for p, leader in found.leaders.items()}
        else:
            self._at_head = time.time()
        self.job.require_records(self._kafka.beginnings(log.topic, log.partitions), holding.positions)
        self._seen.ask(self._sink)
        progress.put(**vars(holding))  # last, and whole: another thread decides by it whether to promote
        progress.state = self._state()
        progress.changed.set()

    def _state(self) -> str:
        if self.paused.is_set():
            return "paused"
        return "live" if self.progress.built else "bootstrapping"

    def _step(self) -> None:
        """Apply the next slice, or wait a moment where there is none."""
        progress, log = self.progress, self.job.log
        if progress.state != self._state():
            progress.state = self._state()
            progress.changed.set()
        if self.paused.is_set():
            self.bell.rest(LOOK_SECONDS)
            self._save_now_and_then()
            return
        self._identity.check(self._read)
        self._check_store()
        progress.ends = self._ends.committed(log.topic, log.partitions, self._pending.ends)
        if any(end < progress.positions[p] for p, end in progress.ends.items()):  # it may be older than the positions
            progress.ends = self._kafka.committed_ends(log.topic, log.partitions)
        behind = [p for p, end in progress.ends.items() if end < progress.positions[p]]
        if behind and self._before_resnapshot:
            self.stop.wait(LOOK_SECONDS)  # a generation that is built from where all was re-snapshotted takes its place
            return
        if behind:
            place = (log.topic, behind[0])
            self._identity.raise_truncated(place, progress.ends[behind[0]], "what this follower has applied")
        to, applied = self._size.next(progress.positions, progress.ends), False
        if to != progress.positions and not self._batcher.should_wait(progress, self._pending):
            outcome = self._apply(progress.positions, to)
            progress.put(positions=outcome.end, quarantined=len(self.quarantine))
            self._checkpoints.heed()
            applied = self._moved = True
        else:
            if to == progress.positions:
                self._at_head = time.time()
            if self.replay is None or self.replay.done:
                self._wait()
        self._step_again()
        self.job.require_deletes(self._at_head)
        self._tell_what_holds_up()
        self._claim()
        if applied:  # now, since what is claimed after it has been told would wait for the next time
            progress.changed.set()
        self._save_now_and_then()

    def _wait(self) -> None:
        """Wait until the log moves, or something else is to be done."""
        log, progress = self.job.log, self.progress
        if progress.positions == progress.ends:
            seconds = LOOK_SECONDS if self.promotion_target is None else GATHER_SECONDS
            self._ends.wait(log.topic, log.partitions, progress.ends, self.bell, seconds)
        else:
            self.bell.rest(GATHER_SECONDS)

    def _apply(self, begin: Offsets, end: Offsets, only: pa.StringArray | None = None) -> SliceResult:
        """Apply [begin, end); what the store refuses is quarantined before this returns."""
        job = self.job
        part = OffsetRange(begin, end, self.quarantine.keys, only)
        begun = time.monotonic()
        outcome = apply_slice(self._log, job.spec, self._sink, job.generation, part, self.stop.is_set)
        self._size.took(seconds := time.monotonic() - begun, part.offsets)
        hold(self.quarantine, self.progress, self._sink, outcome)
        self.progress.took(part, outcome, seconds)
        return outcome

    def _step_again(self) -> None:
        """A slice of what is to be applied once more. It changes no position: all of it has been applied."""
        again = self.replay
        if again is None or again.done:
            return
        to = self._size.next(again.at, again.to)
        if to != again.at:
            outcome = self._apply(again.at, to, again.only)
            again.total += outcome.applied
            again.at = outcome.end
            self.progress.put(quarantined=len(self.quarantine))
        again.done = all(again.at[p] >= end for p, end in again.to.items())
        self.progress.changed.set()

    def apply_again(self, begin: Offsets, only: pa.StringArray | None = None) -> Replay:
        """Have everything from `begin`, as far as it has been applied, applied once more."""
        to = dict(self.progress.positions)
        self.replay = Replay({p: min(max(begin.get(p, 0), self.progress.floor[p]), to[p]) for p in to}, to, only)
        self.bell.set()
        return self.replay

    def _tell_what_holds_up(self) -> None:
        # No transaction blocks a worker that has reached every marker.
        said = "" if self._pending.none else self._open_transactions.blocked_by(self.progress.blocked_by)
        if bool(said) != bool(self.progress.blocked_by):
            _log.warning("%s: %s", self.job.follower, said or "resumed")
            self.progress.changed.set()
        self.progress.blocked_by = said

    def _read(self) -> dict[tuple[str, int], int]:
        """How far each partition was read. Of what was built before a re-snapshot nothing more is expected."""
        positions = {} if self._before_resnapshot else self.progress.positions
        return {(self.job.log.topic, p): offset for p, offset in positions.items()}

    def _check_store(self) -> None:
        """Now and then, whether the store still keeps what it is given."""
        if time.monotonic() >= self._store_at:
            self._sink.check()
            self._store_at = time.monotonic() + STORE_SECONDS

    def _claim(self) -> None:
        """Raise the applied position to the newest frontier that has been passed.

        The store is asked first whether it still holds all of it: whoever is told a position believes that.
        """
        if self.withhold_position.is_set() or self.superseded:
            return
        progress, marker = self.progress, None
        if self._is_claim_due():
            if not self._checkpoints.is_held():
                self._hear_of_save(held=False)
                return
            self._claimed_at = time.monotonic()
            with self._seen.claims:  # a promotion that begins must not miss a claim that is under way
                target = self.promotion_target
                marker = self._pending.reached(progress.positions, inf if target is None else target.lsn)
                if marker is not None:
                    progress.put(marker=marker)
        tell = marker is not None and (marker.awaited or self._moved)
        if marker is not None:
            self._moved = False
        if marker is not None and not progress.built:
            self._check_built()
            self._unverified = False
            progress.put(built=True)
            progress.state = self._state()
            self._checkpoints.hurry()  # whoever sees that it is live wants to know of how many documents
            tell = True
        first = progress.built and self.promote_if_none and self._seen.number is None
        if first:
            self._seen.switch(self._sink, self.job.generation, only_first=True)
        if first or tell:
            progress.changed.set()  # where only time has passed, the next renewal of the lease tells

    def _is_claim_due(self) -> bool:
        """Whether a further position can be claimed, and somebody wants it at once, or it is time for it."""
        passed = self._pending.passed(self.progress.positions)
        return bool(passed) and (self._wants(passed) or time.monotonic() >= self._claimed_at + CLAIM_SECONDS)

    def _wants(self, markers: list[Marker]) -> bool:
        return self._moved or not self.progress.built or any(marker.awaited for marker in markers)

    def _check_built(self) -> None:
        """Count what the log has against what the store has, before readers are sent there; and where a store holds
        documents without a checkpoint, as one that was restored: it may hold what was deleted long ago.
        """
        if self.job.checked or (self._unverified and self.job.countable):
            wanted = count_documents(self._log, self.progress.floor, self.progress.positions)
            self.job.require_count(self._sink.count(self.job.generation), wanted, quarantined=len(self.quarantine))

    def _save_now_and_then(self) -> None:
        if self._checkpoints.due:
            self._checkpoints.begin(self._checkpoint())
        elif self._checkpoints.ended:
            self._hear_of_save()

    def _save(self) -> None:
        """Write the checkpoint, and notice a store that lost what it had acknowledged."""
        self._hear_of_save()
        self._checkpoints.begin(self._checkpoint())
        self._hear_of_save()

    def _hear_of_save(self, *, held: bool = True) -> None:
        """Start again from what the store holds, unless the checkpoint was saved. `held`: False where it is known
        already that the store has lost something.
        """
        if not self._checkpoints.hear() or not held:
            known = self._checkpoints.known
            self._sink.create(self.job.generation)
            self._resume(found := self._sink.load(self.job.generation))
            _log.warning("%s: %s", self.job.follower, _RESTARTED if found in known else _LOST)
            self._save()

    def _checkpoint(self) -> Checkpoint:
        held, topic_id = self.progress.holding, self.job.log.topic_id
        leaders = {p: leader for (_, p), leader in self._identity.leaders.items()}
        begun = self._token, topic_id, held.positions, held.marker, self._at_head, held.built
        return Checkpoint(*begun, self._history, leaders, self._unverified)
