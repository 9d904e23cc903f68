"""A stream at one moment, for whoever compares it: its SQL as a batch over the very events that it had read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession

from driftless import names
from driftless.control.health import clock
from driftless.counted import counted
from driftless.errors import SourceError
from driftless.facts.streams import StreamBuild
from driftless.kafka.client import Kafka, Offsets
from jobs.spark.session import name_jobs
from jobs.spark.source import kafka_options
from jobs.streams.late.corrected import Corrected, newest_corrected
from jobs.streams.log.batch import PublishedBatch, newest_batch
from jobs.streams.log.published import published
from jobs.streams.log.skipped import newest_skipped, without_skipped
from jobs.streams.sql.documents import results
from jobs.streams.sql.kept_events import KeptEvents, kept_events
from jobs.streams.sql.query import batch_views, query_session
from jobs.streams.sql.timed import FROM, TO, closed_batch, only, timed_rows

_PAGE = 5_000


class StreamMoment:
    """The documents of all windows that were closed by a batch that was published. It is a `PinnedSource`.

    Both sides are fixed: what the batch had read, and what its windows were closed by. Events that the topic does not
    keep any more bound what can be compared: of windows that began before the first that is left, nothing is said.
    """

    def __init__(
        self,
        spark: SparkSession,
        kafka: Kafka,
        build: StreamBuild,
        batch: PublishedBatch | None,
        corrected: Corrected,
        lsn: int,
        report: Callable[[str], None],
    ) -> None:
        """`lsn`: a position of the source at about that moment."""
        self.lsn = lsn
        self._report = report
        self._spark = spark
        self._kafka = kafka
        self._build = build
        self._batch = batch
        self._corrected = corrected

    def count(self, statement: str) -> int:
        del statement
        return len(self._documents)

    def documents(
        self, statement: str, keys: Sequence[str] | None = None, *, aside: bool = False
    ) -> Iterator[list[tuple[str, str]]]:
        """Pages of (key, document), of these keys alone where they are given."""
        del statement, aside
        wanted = None if keys is None else frozenset(keys)
        found = [(key, text) for key, text in self._documents if wanted is None or key in wanted]
        for first in range(0, len(found), _PAGE):
            yield found[first : first + _PAGE]

    def as_json(self, kind: str, text: str) -> str | None:
        """Nothing that a document of a stream holds is beyond JSON."""
        del kind, text
        return None

    @cached_property
    def _documents(self) -> list[tuple[str, str]]:
        build, batch = self._build, self._batch
        if batch is None:
            return []
        name_jobs(self._spark, "verify", f"compute {build.stream} as a batch", "verify")
        # Before any event is there, Spark has planned none of them.
        read = {source.topic: batch.read.get(source.topic, source.floors) for source in build.sources.values()}
        kept = kept_events(self._kafka, build, read)
        for topic in kept.gone:
            if not build.closes or any(kept.begin[topic][p] > end for p, end in read[topic].items()):
                raise SourceError(
                    f"{topic} does not keep the events any more that {build.stream} was computed from",
                    hint="nothing can be proven of them; give the topic a longer retention.ms",
                )
        return list((self._beyond_proof(kept.begin_ms) | self._computed(batch, kept, read)).items())

    def _computed(self, batch: PublishedBatch, kept: KeptEvents, read: Mapping[str, Offsets]) -> dict[str, str]:
        """Late events are counted in what they have corrected: up to a moment, and of those up to a place."""
        build, corrected, found = self._build, self._corrected, dict[str, str]()
        session, options = query_session(self._spark), kafka_options(self._kafka, "verify")

        def compute(rows: DataFrame) -> None:
            found.update((r.key, r.document) for r in results(build.stream, rows.toArrow(), build.table.key))

        after_ms = corrected.closed_ms if corrected.events else 0
        if build.closes or not corrected.events:
            batch_views(session, build, options, kept.begin, read)
            compute(closed_batch(session, build, batch.closed_ms, kept.begin_ms, after_ms=after_ms))
        if corrected.events:
            batch_views(session, build, options, kept.begin, read, corrected.read)
            rows = timed_rows(session, build)
            until = f"({TO} IS NULL OR {TO} <= {after_ms:d}) AND {FROM} >= {kept.begin_ms:d}"
            compute(only(rows, build, until) if build.closes else rows)
        return found

    def _beyond_proof(self, begin_ms: int) -> dict[str, str]:
        """Documents of windows that may have had events that are gone: they are taken as they are."""
        if not begin_ms:
            return {}
        assert self._build.log is not None
        kept = published(self._kafka, self._build.log)
        old = {key: d.document for key, d in kept.items() if d.begin is not None and d.begin < begin_ms}
        since = clock(begin_ms / 1000)
        self._report(
            f"{self._build.stream}: {counted(len(old), 'document')} of windows from before {since} cannot be "
            "compared, since their events are gone"
        )
        return old


@contextmanager
def stream_moment(
    spark: SparkSession,
    kafka: Kafka,
    pipeline: str,
    build: StreamBuild,
    mark: Callable[[], int],
    report: Callable[[str], None],
) -> Iterator[StreamMoment]:
    """The stream as of the newest batch that was published. `mark`: writes a marker, and gives its place.

    Everything that is in the log when this is called is of that batch or an older one. Raises SourceError while a lost
    checkpoint is being computed again.
    """
    assert build.log is not None
    batches = names.batches_topic(pipeline, build.stream, build.number)
    kafka.decided_ends(build.log.topic, build.log.partitions)
    kafka.decided_ends(batches, 1)
    corrected = newest_corrected(kafka, batches, build)  # first: the batch has read what it counts
    batch = newest_batch(kafka, batches)
    if batch is not None and (batch.is_refill or (corrected.events and not batch.has_read(corrected.read))):
        raise SourceError(
            f"the stream {build.stream} is being computed again, since its checkpoint was lost",
            hint="verify it when `driftless status` shows it as closed to about now",
        )
    build = without_skipped(build, newest_skipped(kafka, batches))
    yield StreamMoment(spark, kafka, build, batch, corrected, mark(), report)
