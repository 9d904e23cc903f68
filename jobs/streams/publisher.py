"""A stream's documents into its log, each batch once: with what the batch has read, in one transaction of Kafka."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace

from driftless import names
from driftless.facts.streams import StreamBuild
from driftless.kafka.client import Kafka
from driftless.kafka.log_writer import LogWriter, Record
from jobs.streams.late.corrected import CORRECTED_KEY, Corrected, Correction, newest_corrected
from jobs.streams.late.left_out import LATE_KEY, LeftOut, newest_left_out
from jobs.streams.log.batch import BATCH_KEY, PlannedBatch, PublishedBatch, newest_batch
from jobs.streams.log.published import BEGIN, END, REVISION, published
from jobs.streams.log.skipped import SKIPPED_KEY, SkippedEvents, newest_skipped
from jobs.streams.sql.documents import Result

_TICK_KEY = b"tick"
_RESULT, _PROVISIONAL = ("kind", b"result"), ("kind", b"provisional")


class StreamPublisher:
    """Opening it fences whoever published before. Any thread may call its methods."""

    def __init__(self, kafka: Kafka, pipeline: str, build: StreamBuild) -> None:
        assert build.log is not None
        owner = names.stream_lease(build.stream)
        id_ = names.lease_id(pipeline, f"{owner}.{build.number}")
        self._log = LogWriter(kafka, build.log.topic, build.log.partitions, id_, owner)
        self._kafka = kafka
        self._own = build.log
        self._ticks = names.ticks_topic(pipeline, build.stream, build.number)
        self._late = names.late_topic(pipeline, build.stream, build.number)
        self._batches = names.batches_topic(pipeline, build.stream, build.number)
        self._number = str(build.number).encode()
        self._topics = build.topics
        self._lock = threading.Lock()
        self.newest = newest_batch(kafka, self._batches)
        """What was published last; None where nothing was."""
        self.left_out = newest_left_out(kafka, self._batches, build)
        """What has been left out, and told."""
        self.skipped = newest_skipped(kafka, self._batches)
        """What was left unread."""
        self.corrected = newest_corrected(kafka, self._batches, build)
        """Up to where late events have corrected what was final."""

    @property
    def ticks(self) -> tuple[str, int]:
        """Their topic, and where it ends: what was told to an older checkpoint is before that."""
        return self._ticks, self._kafka.written_ends({self._ticks: 1})[self._ticks][0]

    def published(self) -> dict[str, str]:
        """Every document that is in the log, by key."""
        return {key: kept.document for key, kept in published(self._kafka, self._own).items()}

    def publish(
        self, checkpoint: str, batch: int, planned: PlannedBatch, writes: Iterable[Result], begin_ms: int = 0
    ) -> None:
        """A batch's documents, and that it was published. `begin_ms`: windows from before then are not computed."""
        before = self.newest
        reached = max(planned.closed_ms, before.reached_ms if before else 0)
        newest = PublishedBatch(checkpoint, batch, planned.read, planned.closed_ms, reached, begin_ms)
        if before is not None:
            again = before.again if before.checkpoint == checkpoint or before.again else before.read
            again = {topic: offsets for topic, offsets in again.items() if topic in self._topics}
            newest = newest if newest.has_read(again) else replace(newest, again=again)
        with self._lock:
            self._log.write(self._records(writes, planned.closed_ms), [(self._batches, BATCH_KEY, newest.to_text())])
            self.newest = newest

    def leave_out(self, known: LeftOut, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Events that are left out, and how far that has been looked for, in one transaction."""
        said = [(self._late, key, value) for key, value in records]
        with self._lock:
            self._log.write([], [*said, (self._batches, LATE_KEY, known.to_text())])
            self.left_out = known

    def skip(self, skipped: SkippedEvents) -> None:
        """Tell whoever computes the stream again what is left unread, before it is."""
        with self._lock:
            self._log.write([], [(self._batches, SKIPPED_KEY, skipped.to_text())])
            self.skipped = skipped

    def correct(self, corrections: Iterable[Correction], corrected: Corrected) -> None:
        """Documents of windows that were final, and which late events they count now, in one transaction."""
        closed = str(corrected.closed_ms).encode()
        records = (self._correction(each, closed) for each in corrections)
        with self._lock:
            self._log.write(records, [(self._batches, CORRECTED_KEY, corrected.to_text())])
            self.corrected = corrected

    def _correction(self, each: Correction, closed: bytes) -> Record:
        headers = [("kind", b"correction"), (REVISION, str(each.revision).encode()), ("closed", closed)]
        headers += [("gen", self._number), *_window(each.begin, each.end)]
        return each.key.encode(), None if each.document is None else each.document.encode(), headers

    def tick(self, moment_ms: int) -> None:
        """Tell the query that it has read every event that was received before this moment."""
        with self._lock:
            self._log.write([], [(self._ticks, _TICK_KEY, str(moment_ms).encode())])

    def _records(self, writes: Iterable[Result], closed_ms: int) -> Iterable[Record]:
        closed, gen = ("closed", str(closed_ms).encode()), ("gen", self._number)
        for key, document, begin, end in writes:
            kind = _RESULT if end is None or end <= closed_ms else _PROVISIONAL
            yield key.encode(), document.encode(), [kind, closed, gen, *_window(begin, end)]


def _window(begin: int | None, end: int | None) -> list[tuple[str, bytes]]:
    found = [] if begin is None else [(BEGIN, b"%d" % begin)]
    return found if end is None else [*found, (END, b"%d" % end)]


def differing(writes: Iterable[Result], known: Mapping[str, str]) -> Iterable[Result]:
    """Those that the log does not have so already."""
    return (write for write in writes if known.get(write.key) != write.document)
