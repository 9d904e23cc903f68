"""Build one view from its tables' logs into a log of its own, until told to stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from driftless.errors import SourceUnavailable, SyncError
from driftless.facts.builds import Build
from driftless.kafka.client import Offsets
from driftless.marker import Marker
from jobs.brokers.identity_check import LogIdentityCheck
from jobs.log.frontier import Frontier
from jobs.spark.session import name_jobs
from jobs.supervise.frontier_feed import FrontierFeed
from jobs.supervise.leased import Shared, report_failure
from jobs.views.cuts import Cut, CutReader, cut_text, marker_of
from jobs.views.oversized import Oversized
from jobs.views.pace import FanoutThrottle
from jobs.views.progress import BuildProgress
from jobs.views.publish import Publisher
from jobs.views.reader import Reader, TableLog
from jobs.views.requests import MaintenanceRequests
from jobs.views.store.contract import Partition, RowsLost
from jobs.views.store.rows_file import store_bytes
from jobs.views.store.sqlite import SqliteRows

_log = logging.getLogger(__name__)

DOCUMENTS = 5_000
"""Documents of one publication: bounds how long what is new waits for what is under way."""
IDLE_SECONDS, WAIT_SECONDS, HELD_SECONDS = 0.5, 0.05, 0.01
"""How long to wait for a cut: where there is nothing else to do; where a position waits for its marker, or a slice for
its cut; and where documents wait for followers.
"""
PAUSE_SECONDS, RETRY_SECONDS = 0.2, 5.0
"""How long to wait before trying again, at first and at most."""
_LEADER = -2
"""Kept among the positions: of partition p, at this number less p, the leader while it was read."""
END_SECONDS = 60.0
"""How long rows may wait for the end of their transaction before that is told."""
EXPIRE_SECONDS = 3600.0
"""How often tombstones are looked for that are older than those of the log."""
TOLD_SECONDS = 0.5
"""How often roots that wait are counted."""


class Builder:
    """The loop of one build: read to a cut, take the rows in, publish what they change, say how far that is.

    The row store keeps where reading goes on together with the rows, and which documents are not published yet. So a
    crash at any point repeats at most one publication, of the same documents.
    """

    def __init__(
        self,
        build: Build,
        logs: list[TableLog],
        shared: Shared,
        path: Path,
        confirm: Callable[[], None],
        shard: int = 0,
        *,
        before_resnapshot: bool = False,
    ) -> None:
        """`path`: of the row store. `confirm`: raises Fenced where another runner has taken over.

        `before_resnapshot`: all tables were re-snapshotted after the build was begun, so that it may lack anything. A
        build from the new snapshot replaces it.
        """
        assert build.log is not None
        self.build = build
        self.path = path
        self.progress = BuildProgress(build, shard)
        self.stop = threading.Event()
        self.asked = MaintenanceRequests()
        self.pace = FanoutThrottle()
        self._told_circles: set[str] = set()
        self.oversized = Oversized(shared.quarantine, build, shard, Oversized.limit(shared.kafka.settings()))
        self._own = build.log
        self._logs = logs
        self._of_tables = [t.log for t in logs if not t.members]
        self._ids = {t.log.topic: t.log.topic_id for t in logs}
        self._shared = shared
        self._kafka = shared.kafka
        # One for all lives of the row store: it knows for how long a topic is missing.
        self._identity = LogIdentityCheck(self._kafka, shared.topics, [*(t.log for t in logs), build.log])
        self._pipeline = shared.config.name
        self._confirm = confirm
        self._shard = shard
        self._before_resnapshot = before_resnapshot
        self._cut: Cut | None = None
        self._whole = False
        self._clean = False
        self._held = False
        self._computed: FrontierFeed | None = None
        """Of the stream that is the view's root: up to where it has published everything."""
        self._computed_lsn = 0
        self._claimed = 0
        self._told = -1
        """How many documents had been published when a position was told last."""
        self._own_ends: Mapping[str, Offsets] | None = None
        """Where its log ends, as asked for since the last publication; None where it has not been."""
        self._claims = False
        """Whether there is a cut since the last position was claimed."""
        self._pause = PAUSE_SECONDS
        self._cut_at = 0.0
        self._count_at = 0.0
        self._expire_at = time.monotonic() + EXPIRE_SECONDS

    @property
    def history(self) -> int:
        return self.build.history

    @property
    def group(self) -> str:
        """The name of its Spark jobs, by which they can be cancelled."""
        shard = f"/{self._shard}" if self._shard else ""
        return f"view {self.build.view.name}/{self.build.number}{shard}"

    def run(self) -> None:
        """Build until `stop` is set or an error ends it; the error is left in `progress.error`."""
        name_jobs(self._shared.spark, self.group, f"build {self.build.view.name}", self.group)
        with report_failure(self):
            while not self.stop.is_set():
                try:
                    self._build()
                    if self.progress.error is None:
                        self.progress.state = "stopped"
                except RowsLost as exc:
                    _log.warning("%s: %s", self.group, exc)  # opened again, it is filled from the log
                    self._rest()
                except SourceUnavailable as exc:
                    if not self.progress.last_error:
                        _log.warning("%s: waiting: %s", self.group, exc)
                    self.progress.last_error = str(exc)
                    self.progress.changed.set()
                    self._rest()

    def _rest(self) -> None:
        """Wait before the next life, longer each time until one has come to a cut again."""
        self.stop.wait(self._pause)
        self._pause = min(self._pause * 2, RETRY_SECONDS)

    def fence(self, error: SyncError) -> None:
        """Stop at once: another runner holds the lease, or the log cannot be trusted any more."""
        self.progress.error, self.progress.state = error, "failed"
        self.stop.set()

    def _build(self) -> None:
        """One life of the row store and the producer, to be begun again after whatever may pass."""
        self._identity.invalidate()
        self._identity.check()
        cuts = self._cuts()
        self._confirm()  # opening a producer fences whoever has one
        publisher = Publisher(self._kafka, self._pipeline, self.build, self._shard)
        self.oversized.load()
        store = self._open(publisher)
        reader = Reader(self._logs, self._shared.spark, self._shared.small_slices, self.group)
        try:
            self._cut, self._whole, self._clean, self._own_ends = None, False, False, None
            self._cut_at = time.monotonic()
            floor = {(t.log.topic, p): offset for t in self._logs for p, offset in t.log.floor.items()}
            known = store.positions()
            self.progress.floor = floor
            self.progress.positions = {
                (topic, p): max(known.get((self._ids[topic], p), 0), offset) for (topic, p), offset in floor.items()
            }
            self._identity.leaders = {
                place: known[self._ids[place[0]], _LEADER - place[1]]
                for place in floor
                if (self._ids[place[0]], _LEADER - place[1]) in known
            }
            while not self.stop.is_set():
                self._identity.check(lambda: {} if self._before_resnapshot else self.progress.positions)
                self._step(store, reader, cuts, publisher)
        finally:
            reader.close()
            cuts.close()
            store.close()

    def _cuts(self) -> CutReader:
        streams: dict[str, int] = {}
        for t in self._logs:
            if t.members:
                streams[t.log.topic] = t.log.partitions
                followed = self.build.sources[t.table]
                self._computed, self._computed_lsn = FrontierFeed(followed, t.log, self._shared.frontiers), 0
        return CutReader(self._kafka, self._pipeline, {log.topic: log.partitions for log in self._of_tables}, streams)

    def _open(self, publisher: Publisher) -> SqliteRows:
        """The row store; a new one, filled from the log again, where it is lost."""
        log = self._own
        try:
            store = SqliteRows(self.path, self.build.view, self._shard)
            known = {topic_id for topic_id, _ in store.positions()}
            why = self._too_old(store) if known <= {*self._ids.values(), log.topic_id} else "it is of other topics"
            if not why:
                return store
            store.close()
        except RowsLost as exc:
            why = str(exc)
        fresh = SqliteRows.create(self.path, self.build.view, self._shard)
        if any(self._kafka.written_ends({log.topic: log.partitions})[log.topic].values()):
            _log.warning("%s: %s; it is filled from the log again, and only what differs is published", self.group, why)
            fresh.seed(publisher.published())
            fresh.republish(self.oversized.keys())  # one may fit by now, and equal what is in the log
        return fresh

    def _too_old(self, store: SqliteRows) -> str:
        """Why rows cannot be gone on with, though they are whole: the log may have forgotten what was deleted since.

        The clocks of two machines may differ by minutes; retention is counted in days.
        """
        text = store.frontier()
        if text is None or time.time() - marker_of(text).time <= self.build.retention / 1000:
            return ""
        return "it has not been kept up for longer than the log keeps deletes"

    # -- one step -----------------------------------------------------------------------------------------------

    def _step(self, store: SqliteRows, reader: Reader, cuts: CutReader, publisher: Publisher) -> None:
        if self._cut is None:
            if self._computed is not None:
                self._computed.hear(self._shared.feed.state)
            self._cut = cuts.next(self._patience(), again=self._waits_for_stream)
            if self._cut is not None:
                self._cut_at = time.monotonic()
        if self._cut is not None:
            self._advance(store, reader, self._cut)
        if self._whole and self.asked.waits:
            if self.asked.work(store, self.oversized, clean=self._clean):
                self._clean = self._held = False
            self.progress.changed.set()
        if self._whole and not self._clean:
            self._publish(store, publisher)
        self.progress.quarantined = len(self.oversized)
        self._claim(store)

    def _patience(self) -> float:
        """How long to wait for a cut; one that comes ends the wait."""
        if self._whole and not self._clean:
            return HELD_SECONDS if self._held else 0.0
        return IDLE_SECONDS if self._whole and not self._claims and not self._waits_for_stream else WAIT_SECONDS

    @property
    def _waits_for_stream(self) -> bool:
        """Whether the stream has claimed a position that no cut has come to yet."""
        return self._computed is not None and not self._computed.pending.none

    def _advance(self, store: SqliteRows, reader: Reader, cut: Cut) -> None:
        """Take in what lies before a cut, a slice at a time; between two slices the rows are of no one moment."""
        progress, log = self.progress, self._own
        progress.ends = {(topic, p): end for topic, ends in cut.ends.items() for p, end in ends.items()}
        behind = [place for place, end in progress.ends.items() if end < progress.positions[place]]
        if behind and self._before_resnapshot:
            self._cut = None
            return
        if behind:
            self._identity.raise_truncated(behind[0], progress.ends[behind[0]], "what the view has taken in")
        part = reader.read(cut, progress.positions)
        kept = {(self._ids[topic], p): position for (topic, p), position in part.reached.items()}
        kept |= {(self._ids[topic], _LEADER - p): leader for (topic, p), leader in self._identity.leaders.items()}
        kept[log.topic_id, -1] = 0  # of whose documents it knows what is published
        text = cut_text(self._claimable(cut.marker, part.reached)) if part.whole else None
        changes = [(name, rows) for name, rows in part.changes if len(rows)]
        store.apply(changes, kept, text, now=int(time.time()))
        progress.positions = part.reached
        if changes:
            self._clean = self._held = False
            progress.changed.set()
        self._whole = part.whole
        if part.whole:
            self._cut, self._pause, self._claims = None, PAUSE_SECONDS, True
            if progress.last_error:
                progress.last_error = ""
                _log.warning("%s: resumed", self.group)

    def _claimable(self, marker: Marker, reached: Mapping[Partition, int]) -> Marker:
        """The position that the view may claim: that of the cut, or that of the stream where it is older."""
        if self._computed is None:
            return marker
        pending = self._computed.pending
        found = pending.reached({p: position for (topic, p), position in reached.items() if topic == pending.topic})
        self._computed_lsn = self._computed_lsn if found is None else found.lsn
        return replace(marker, lsn=min(marker.lsn, self._computed_lsn))

    def _publish(self, store: SqliteRows, publisher: Publisher) -> None:
        """Some documents; what is dirty beyond them waits for the next step, so that new changes come in between."""
        room = self.pace.room(DOCUMENTS)
        if self._held and room == 0:
            return
        part = store.assemble(DOCUMENTS, room)
        self._clean, self._held = not part and room > 0, not part and room == 0
        if not part:
            return
        if part.writes:
            fitting = self.oversized.hold(part.writes)
            self._own_ends = None
            publisher.publish(fitting, None if part.cut is None else marker_of(part.cut).time)
            self.oversized.published(fitting)
            self.progress.published += len(fitting)
        store.published(part)
        self._tell_circles(store)
        if part.large:
            log = self._own
            ends = self._kafka.written_ends({log.topic: log.partitions})[log.topic]
            self.pace.published(sum(ends.values()) - sum(log.floor.values()))
        self.progress.changed.set()

    def _tell_circles(self, store: SqliteRows) -> None:
        """Each table once: a path ends where it began, so that no document is endless."""
        for table, key in store.circles().items():
            if table not in self._told_circles:
                self._told_circles.add(table)
                _log.warning(
                    "%s: the row %s of %s is its own ancestor: its path has each row of the circle once",
                    self.group,
                    key,
                    table,
                )

    def _claim(self, store: SqliteRows) -> None:
        """Raise the frontier to the newest cut of which everything is published.

        Not beyond the newest marker that was read, since before that every TRUNCATE is known; and not at all after one
        that the build was not begun at: what it took away is still shown.
        """
        progress, log = self.progress, self._own
        now = time.monotonic()
        if now >= self._count_at:
            self._count_at = now + TOLD_SECONDS
            progress.dirty = 0 if self._clean else store.dirty()
            progress.store_bytes = store_bytes(self.path)
            self._heed_what_waits(now)
        if now >= self._expire_at:
            self._expire_at = now + EXPIRE_SECONDS
            store.expire(int(time.time() - self.build.retention / 1000))
        if not self._whole:
            return
        read, text = self._shared.frontiers.newest, store.frontier()
        if read is None or text is None:
            return
        marker = min(read, marker_of(text), key=lambda marker: marker.lsn)
        if marker.lsn <= self._claimed or self._truncated():
            return
        tell = self._claimed < self._shared.frontiers.awaited <= marker.lsn or self._told != progress.published
        self._claimed = marker.lsn
        self._claims = False
        if self._own_ends is None:  # what others write later is of other shards
            self._own_ends = self._kafka.written_ends({log.topic: log.partitions})
        progress.frontier = Frontier(marker, self._own_ends)
        tell, progress.state = tell or progress.state != "live", "live"
        if tell:
            self._told = progress.published
            progress.changed.set()  # where only time has passed, the next renewal of the lease tells

    def _truncated(self) -> bool:
        frontiers = self._shared.frontiers
        return any(frontiers.truncation(log) is not None or frontiers.is_resnapshotted(log) for log in self._of_tables)

    def _heed_what_waits(self, now: float) -> None:
        """Tell of rows whose transaction does not end."""
        if now - self._cut_at < END_SECONDS:
            return
        self._cut_at = now
        found = self._kafka.written_ends({log.topic: log.partitions for log in self._of_tables})
        for (topic, partition), position in self.progress.positions.items():
            if topic in found and found[topic][partition] > position:
                self.progress.last_error = (
                    f"{topic}/{partition} has rows of a transaction whose end has not come for {END_SECONDS:.0f} s: "
                    "it is a long one, or the connector has stopped; see `driftless check`"
                )
                _log.warning("%s: %s", self.group, self.progress.last_error)
                self.progress.changed.set()
                return
