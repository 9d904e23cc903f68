"""Compute one stream from its events into a log of its own, until told to stop."""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from driftless.control.health import clock
from driftless.control.topic import Control
from driftless.errors import SourceError, SourceUnavailable, SyncError
from driftless.facts.streams import CHANGES, StreamBuild
from driftless.kafka.client import Offsets
from driftless.marker import Marker
from jobs.brokers.identity_check import LogIdentityCheck
from jobs.log.frontier import Frontier
from jobs.spark.session import name_jobs
from jobs.spark.source import kafka_options
from jobs.streams.corrector import Corrector
from jobs.streams.ended import why_ended
from jobs.streams.event_topics import same_topics, written_ends
from jobs.streams.frontiers import EventFrontiers, Moment
from jobs.streams.late.corrections import LateCorrections
from jobs.streams.late.left_out import late_slices
from jobs.streams.log.batch import QueryCheckpoint
from jobs.streams.log.skipped import without_skipped
from jobs.streams.overload import OverloadCheck, skip_events
from jobs.streams.pace import QueryPace
from jobs.streams.progress import StreamProgress
from jobs.streams.publisher import StreamPublisher, differing
from jobs.streams.rows.reasons import COUNTED
from jobs.streams.sql import query as queries
from jobs.streams.sql.documents import Result, results
from jobs.streams.sql.kept_events import kept_events
from jobs.streams.sql.timed import timed_rows
from jobs.streams.table_events import TableEvents
from jobs.supervise.leased import Shared, report_failure

_log = logging.getLogger(__name__)
LOOK_SECONDS = 0.1
"""How often it is looked whether a tick is due, or something is to be told."""
TICK_SECONDS, TICK_SHARE = 10.0, 8
"""The longest time between two ticks of what closes at any time, and that time as so many times what a batch takes."""
LATE_SECONDS = 5.0
"""How often it is looked for events that are left out, where there are any: that is a job."""
PAUSE_SECONDS, RETRY_SECONDS = 0.5, 5.0
"""How long to wait before trying again, at first and at most."""
DROPPED = (
    "Spark left {0:,} events out that were not late: a broker's clock went back; `driftless verify` says which windows "
    "lack them"
)


class StreamWorker:
    """The loop of one build: run its query, publish each batch once, and tell it when windows are over.

    Spark's checkpoint keeps what is open, the log's own topics what was published of which events. Where the two do not
    belong together, the query begins again from the first event, and only what differs is published.
    """

    def __init__(self, build: StreamBuild, shared: Shared, folder: Path, confirm: Callable[[], None]) -> None:
        """`folder`: for Spark's checkpoint. `confirm`: raises Fenced where another runner has taken over."""
        assert build.log is not None
        self.build = build
        self.folder = folder
        self.progress = StreamProgress(build)
        self.stop = threading.Event()
        self._own = build.log
        self._shared = shared
        self._kafka = shared.kafka
        self._confirm = confirm
        self._control = Control(shared.kafka, shared.config.name)
        self._tables = TableEvents(shared.spark, shared.kafka, self._control, shared.frontiers)
        self._identity = LogIdentityCheck(shared.kafka, shared.topics, [build.log])
        self._spark = queries.query_session(shared.spark)
        self._pace = QueryPace(shared.spark.sparkContext.defaultParallelism)
        self._pause = PAUSE_SECONDS
        self._failure: SyncError | None = None
        self._seen = -1
        self._looked = False
        self._claimed = 0
        self._told = -1
        self._ticked_ms, self._tick_at, self._batch_seconds = 0, 0.0, 0.0
        self._leaves_out, self._late_at = False, 0.0
        self._planned: Mapping[str, Offsets] = {}
        """Up to where the batch that runs reads, or the last one has."""
        self._held: dict[str, Result] = {}
        """The newest documents of what is computed again, and is not published before all of it is."""
        self._reached: Marker | None = None
        """The newest marker of which everything that was committed before has been read."""
        self._whole = False
        """Whether all windows are published that were over when the query was begun. Until then, its log lacks some."""

    @property
    def history(self) -> int:
        """Of the source: events are none of its tables'."""
        return 0

    @property
    def group(self) -> str:
        """The name of its Spark jobs."""
        return f"stream {self.build.stream}/{self.build.number}"

    def run(self) -> None:
        """Compute until `stop` is set or an error ends it; the error is left in `progress.error`."""
        name_jobs(self._shared.spark, self.group, f"compute {self.build.stream}", self.group)
        with report_failure(self):
            while not self.stop.is_set():
                try:
                    self._compute()
                    if self.progress.error is None and self.stop.is_set():
                        self.progress.state = "stopped"
                except SourceUnavailable as exc:
                    if not self.progress.last_error:
                        _log.warning("%s: waiting: %s", self.group, exc)
                    self.progress.last_error = str(exc)
                    self.progress.changed.set()
                    self.stop.wait(self._pause)
                    self._pause = min(self._pause * 2, RETRY_SECONDS)

    def fence(self, error: SyncError) -> None:
        """Stop at once: another runner holds the lease, or the log cannot be trusted any more."""
        self.progress.error, self.progress.state = error, "failed"
        self.stop.set()

    # -- one life of the query ----------------------------------------------------------------------------------

    def _compute(self) -> None:
        self._identity.invalidate()
        self._identity.check()
        self._confirm()  # opening a producer fences whoever has one
        self.build = self._tables.place(self.build)
        self.progress.build = self.build
        same_topics(self._kafka, self.build)
        publisher = StreamPublisher(self._kafka, self._shared.config.name, self.build)
        self.build = without_skipped(self.build, publisher.skipped)
        checkpoint = QueryCheckpoint(self.folder, self.build.join_wait)
        newest = publisher.newest
        lost = newest is not None and newest.is_refill and self.build.emit == CHANGES  # what it held back
        build = self.build
        if lost or not checkpoint.continues(newest):
            build = self._begin_again(publisher)
        elif newest is not None:
            build = replace(build, begin_ms=max(build.begin_ms, newest.begin_ms))
        refill = newest is not None and (checkpoint.id != newest.checkpoint or newest.is_refill)
        known = publisher.published() if refill else {}
        progress = self.progress
        progress.floor = self._places({s.topic: s.floors for s in build.sources.values()})
        progress.positions = dict(progress.floor)
        if checkpoint.committed >= 0:
            progress.positions |= self._places(checkpoint.planned(checkpoint.committed).read)
        progress.closed_ms = newest.closed_ms if newest is not None and not refill else 0
        progress.corrected, progress.skipped = publisher.corrected.documents, publisher.skipped.events
        self._planned = {}
        self._held, self._leaves_out = {}, True  # what a run before has not written may be there
        self._ticked_ms, self._tick_at, self._batch_seconds = 0, 0.0, 0.0
        self._seen, self._looked, self._failure, self._whole = -1, False, None, False

        def publish(rows: DataFrame, batch: int) -> None:
            try:
                self._publish(publisher, checkpoint, known, rows, batch, build.begin_ms)
            except SyncError as exc:
                self._failure = exc
                raise

        options = kafka_options(self._kafka, f"stream-{self.build.stream}")
        query = queries.start(self._spark, build, options, publisher.ticks, self.folder, publish)
        corrections = LateCorrections(self._shared.spark, self._kafka, self.build, options)
        corrector = Corrector(self._shared.spark, corrections, publisher, progress, self._confirm)
        if self.build.corrects:
            corrector.start()
        try:
            with self._pace:
                overloaded = self._follow(query, publisher, corrector)
        finally:
            query.stop()
            corrector.stop()
        if overloaded:
            self._confirm()
            planned = checkpoint.planned(checkpoint.newest).read
            publisher.skip(skip_events(self._shared.spark, self._kafka, self.build, planned, publisher.skipped))

    def _begin_again(self, publisher: StreamPublisher) -> StreamBuild:
        """Compute from the first event that there is. Windows of which some are gone stay as they were published.

        Raises SourceError where it cannot be told which results that are.
        """
        build = self.build
        if publisher.newest is not None:
            _log.warning(
                "%s: its checkpoint is not that of what was published; it is computed again from the first event, and "
                "only what differs is published",
                self.group,
            )
        kept = kept_events(self._kafka, build, {source.topic: source.floors for source in build.sources.values()})
        if kept.gone and not build.closes and self._remembers():
            raise SourceError(
                f"the stream {build.stream} is to be computed from its first event, and {min(kept.gone)} does not keep "
                "it any more",
                hint="give the topic a longer retention.ms; `driftless rebuild` begins with what is there",
            )
        if kept.gone:
            since = clock(kept.begin_ms / 1000)
            _log.warning(
                "%s: events are gone: windows that began before %s stay as they were published, and those of them that "
                "were still open are lost",
                self.group,
                since,
            )
        shutil.rmtree(self.folder, ignore_errors=True)
        build = build.with_sources(lambda source: replace(source, floors=kept.begin[source.topic]))
        return replace(build, begin_ms=max(build.begin_ms, kept.begin_ms))

    def _remembers(self) -> bool:
        """Whether a result may be made of several events, though nothing closes."""
        nothing = {source.topic: source.floors for source in self.build.sources.values()}
        session = queries.query_session(self._shared.spark)
        queries.batch_views(session, self.build, kafka_options(self._kafka, "look"), nothing, nothing)
        return queries.remembers(timed_rows(session, self.build))

    def _publish(
        self,
        publisher: StreamPublisher,
        checkpoint: QueryCheckpoint,
        known: Mapping[str, str],
        rows: DataFrame,
        batch: int,
        begin_ms: int,
    ) -> None:
        """What a batch gave. Spark's state moves on only where its rows are asked for, also of one published before."""
        planned = checkpoint.planned(batch)
        self._planned = planned.read
        table = rows.toArrow()
        newest = publisher.newest
        if newest is not None and newest.checkpoint == checkpoint.id and batch <= newest.batch:
            return
        found = results(self.build.stream, table, self.build.table.key)
        if known:
            # What was corrected stays so: the query knows of no late event.
            corrected_ms = publisher.corrected.closed_ms
            found = (result for result in found if result.end is None or result.end > corrected_ms)
        if known and self.build.emit == CHANGES:
            # Readers have seen what comes of later events: they are not shown again how it came about.
            self._held |= {result.key: result for result in found}
            refill = newest is not None and planned.closed_ms < newest.reached_ms
            found = iter(()) if refill else iter([self._held.pop(key) for key in [*self._held]])
        writes = list(differing(found, known))
        publisher.publish(checkpoint.id, batch, planned, writes, begin_ms)
        self.progress.published += len(writes)
        self.progress.closed_ms = max(self.progress.closed_ms, planned.closed_ms)
        self.progress.changed.set()
        if self._ticked_ms <= self.progress.closed_ms:  # no window waits for the next batch to be closed
            self._pace.rest(self.stop)

    # -- beside the query ---------------------------------------------------------------------------------------

    def _follow(self, query: StreamingQuery, publisher: StreamPublisher, corrector: Corrector) -> bool:
        """Whether it has ended since it cannot keep up."""
        frontiers = EventFrontiers(self._moment, self._written)
        overload = OverloadCheck(self._kafka, self.build, self._control.now)
        while not self.stop.wait(LOOK_SECONDS):
            if not query.isActive:
                raise self._failure or why_ended(query, self._kafka, self.build, self._read)
            if corrector.error is not None:
                raise corrector.error
            self._identity.check()
            if not self._looked and self._seen >= 0:
                self._looked = queries.assert_barrier(query)
            self._take_in(query)
            self._leave_out(publisher)
            if frontiers.look(self._read):
                self._close(frontiers.reached_ms, publisher)
                self._reached = frontiers.marker
            self._tick(frontiers.newest_within(self._planned), publisher)
            self._whole = self._whole or 0 < self._closed_at(frontiers.begun_ms) <= self.progress.closed_ms
            self._claim()
            if self._whole and overload.is_over(self._read, frontiers.behind_ms):
                return True
        return False

    def _close(self, moment_ms: int, publisher: StreamPublisher) -> None:
        """Have the windows closed that are over at a moment: by a tick, unless no window is open."""
        closed_ms = self._closed_at(moment_ms)
        if closed_ms <= self.progress.closed_ms:
            return
        ends, now = self.build.ends, time.monotonic()
        if self._seen >= 0 and self._ticked_ms <= self.progress.closed_ms:  # no tick is under way
            nothing = ends is not None and not ends.lies_between(self.progress.closed_ms, closed_ms)
            if not self.progress.state_rows or nothing:
                self.progress.closed_ms = closed_ms
                return
        elif ends is not None and not ends.lies_between(self._ticked_ms, closed_ms):
            return
        if ends is None and now < self._tick_at:
            return
        # What closes at any time is looked for as often as the machine can bear: each tick costs two batches.
        self._tick_at = now + min(TICK_SECONDS, TICK_SHARE * self._batch_seconds)
        self._ticked_ms = closed_ms
        publisher.tick(moment_ms)

    def _tick(self, moment_ms: int, publisher: StreamPublisher) -> None:
        """Have the windows closed that are over at a moment up to which the batch that runs reads all events: the next
        one reads the tick, and not the one after that.
        """
        ends, closed_ms = self.build.ends, self._closed_at(moment_ms)
        if ends is not None and ends.lies_between(max(self._ticked_ms, self.progress.closed_ms), closed_ms):
            self._ticked_ms = closed_ms
            publisher.tick(moment_ms)

    def _closed_at(self, moment_ms: int) -> int:
        """Up to when windows are closed, where all has been read that was received before a moment."""
        return moment_ms - self.build.lateness - 1 - self.build.join_wait

    def _leave_out(self, publisher: StreamPublisher) -> None:
        """Write what was left out of the events that have been read, where a batch has told of any."""
        progress, newest, now = self.progress, publisher.newest, time.monotonic()
        progress.left_out = publisher.left_out
        if newest is None or not self._leaves_out or now < self._late_at:
            return
        self._late_at, self._leaves_out = now + LATE_SECONDS, False
        options = kafka_options(self._kafka, f"stream-{self.build.stream}")
        for known, records in late_slices(
            self._spark, self._kafka, self.build, options, publisher.left_out, newest.read
        ):
            publisher.leave_out(known, records)
        progress.left_out = publisher.left_out
        progress.changed.set()

    def _take_in(self, query: StreamingQuery) -> None:
        """What Spark tells of the batches that have ended since the last look."""
        progress = self.progress
        for told in queries.ended_batches(query, self._seen):
            self._seen = told.batchId
            for source in told.sources:
                if source.endOffset and source.endOffset != "null":
                    progress.positions |= self._places(_offsets(source.endOffset))
            for name in self.build.events:
                counts = told.observedMetrics.get(name)
                self._leaves_out = self._leaves_out or (
                    counts is not None and any(counts[why] for why in COUNTED.values())
                )
            self._batch_seconds = told.batchDuration / 1000
            self._pace.ended(told)
            states = told.stateOperators
            progress.state_rows = sum(state.numRowsTotal for state in states)
            progress.state_bytes = sum(state.memoryUsedBytes for state in states)
            progress.dropped += sum(state.numRowsDroppedByWatermark for state in states)
            progress.last_error = DROPPED.format(progress.dropped) if progress.dropped else ""
            self._pause = PAUSE_SECONDS
            progress.changed.set()

    def _claim(self) -> None:
        """Raise the position of the source that the log claims. Where no events are the source's, it is the newest."""
        progress, log = self.progress, self._own
        read = self._reached if self.build.captured else self._shared.frontiers.newest
        progress.ends = self._places(self._ends)
        if read is None or read.lsn <= self._claimed or not self._whole:
            return
        tell = self._claimed < self._shared.frontiers.awaited <= read.lsn or self._told != progress.published
        self._claimed = read.lsn
        progress.frontier = Frontier(read, self._kafka.written_ends({log.topic: log.partitions}))
        tell, progress.state = tell or progress.state != "live", "live"
        if tell:
            self._told = progress.published
            progress.changed.set()  # where only time has passed, the next renewal of the lease tells

    def _moment(self) -> Moment | None:
        return self._tables.moment(self.build, self._shared.feed.state)

    def _written(self) -> Mapping[str, Offsets]:
        self._ends = written_ends(self._kafka, self.build)
        return self._ends

    _ends: Mapping[str, Offsets] = {}

    @property
    def _read(self) -> Mapping[str, Offsets]:
        found: dict[str, Offsets] = {}
        for (topic, p), offset in self.progress.positions.items():
            found.setdefault(topic, {})[p] = offset
        return found

    def _places(self, reach: Mapping[str, Offsets]) -> dict[tuple[str, int], int]:
        """Of the topics of events alone."""
        return {(t, p): o for t, offsets in reach.items() if t in self.build.topics for p, o in offsets.items()}


def _offsets(text: str) -> dict[str, Offsets]:
    found: dict[str, Offsets] = {}
    for topic, offsets in json.loads(text).items():
        found[topic] = {int(p): int(offset) for p, offset in offsets.items()}
    return found
