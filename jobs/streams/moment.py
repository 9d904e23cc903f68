"""A stream at one moment, for whoever compares it: its SQL as a batch over the very events that it had read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

from pyspark.sql import SparkSession

from driftless import names
from driftless.control.health import clock
from driftless.counted import counted
from driftless.errors import SourceError
from driftless.facts.streams import StreamBuild
from driftless.kafka.client import Kafka
from jobs.spark.session import name_jobs
from jobs.spark.source import kafka_options
from jobs.streams.batch import PublishedBatch, newest_batch
from jobs.streams.documents import results
from jobs.streams.publisher import published
from jobs.streams.query import batch_views, closed_batch, query_session

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
        begin, begin_ms = {}, 0
        # Before any event is there, Spark has planned none of them.
        read = {source.topic: batch.read.get(source.topic, source.floors) for source in build.events.values()}
        for source in build.events.values():
            first = self._kafka.beginnings(source.topic, len(read[source.topic]))
            floors = {p: source.floors.get(p, 0) for p in read[source.topic]}
            begin[source.topic] = {p: max(floor, first[p]) for p, floor in floors.items()}
            gone = [p for p, floor in floors.items() if first[p] > floor]
            begin_ms = max([begin_ms, *(self._kafka.time_of(source.topic, p, first[p]) for p in gone)])
            if gone and (
                not build.closes or any(begin[source.topic][p] > end for p, end in read[source.topic].items())
            ):
                raise SourceError(
                    f"{source.topic} does not keep the events any more that {build.stream} was computed from",
                    hint="nothing can be proven of them; give the topic a longer retention.ms",
                )
        session = query_session(self._spark)
        batch_views(session, build, kafka_options(self._kafka, "verify"), begin, read)
        rows = closed_batch(session, build, batch.closed_ms, begin_ms).toArrow()
        found = {result.key: result.document for result in results(build.stream, rows, build.table.key)}
        return list((self._beyond_proof(begin_ms) | found).items())

    def _beyond_proof(self, begin_ms: int) -> dict[str, str]:
        """Documents of windows that may have had events that are gone: they are taken as they are."""
        if not begin_ms:
            return {}
        assert self._build.log is not None
        kept = published(self._kafka, self._build.log)
        old = {key: text for key, (text, begin) in kept.items() if begin is not None and begin < begin_ms}
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
    batch = newest_batch(kafka, batches)
    if batch is not None and batch.is_refill:
        raise SourceError(
            f"the stream {build.stream} is being computed again, since its checkpoint was lost",
            hint="verify it when `driftless status` shows it as closed to about now",
        )
    yield StreamMoment(spark, kafka, build, batch, mark(), report)
