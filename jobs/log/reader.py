"""One log, read in this process without a job: by a consumer in Spark's JVM, and a decoder for what it polls."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import pyarrow as pa
from pyspark.sql import SparkSession

from driftless.kafka.client import Offsets
from jobs.log.contract import Decoder, UnusualRecordsError
from jobs.spark.consumer import JvmConsumer, Poll
from jobs.spark.errors import SPARK_ERRORS
from jobs.spark.memory import no_memory, out_of_memory
from jobs.spark.private import is_private_spark_usable
from jobs.spark.public import ClientConsumer
from jobs.spark.source import DRIVER_OFFSETS, LogSource
from jobs.threads.prefetch import Prefetch

READ_BYTES = 32 << 20
"""About how many bytes of records are read at a time, if not told otherwise. What a poll has, the consumer bounds."""
MANY_RECORDS = 10_000
"""Records of one poll of a large slice. Of more, the JVM copies more whenever it collects garbage; of fewer, there are
more calls."""


class LocalReader:
    """Not to be shared between threads at one time, but that `close` does not wait for what is read ahead.

    Nothing is open until it is first read. After any error, and after `close`, it may be read again, from anywhere: no
    read goes on where another one stopped. An error of the decoder is raised as it is; else it raises
    SourceUnavailable for what may pass, SourceError where records are gone, OutOfMemory, and UnusualRecordsError where
    the decoder leaves records to another one.
    """

    def __init__(self, spark: SparkSession, source: LogSource, decoder: Decoder, *, poll: int = DRIVER_OFFSETS) -> None:
        """`poll`: how many records there may be in one."""
        self._spark = spark
        private = is_private_spark_usable(spark)
        self._consumer = JvmConsumer(spark, source, poll=poll) if private else ClientConsumer(source, poll=poll)
        self._decoder = decoder
        self._topic = source.topic
        self._ahead = Prefetch[tuple[Offsets, pa.Table]](f"read ahead {source.topic}")

    def read(
        self, begin: Offsets, end: Offsets, *, most: float = inf, size: float = READ_BYTES
    ) -> tuple[Offsets, pa.Table]:
        """What the records from `begin` on become, until `end` or some `most` offsets or `size` bytes; and how far that
        is, which may be beyond `end`.
        """
        reached, found, taken = dict(begin), list[pa.Table](), 0.0
        for poll in self._consumer.polls(begin, end):
            reached = poll.reached
            if poll.records is not None:
                found.append(self._decoded(poll))
                taken += poll.size
            if taken >= size or sum(reached.values()) - sum(begin.values()) >= most:
                break
        return reached, found[0] if len(found) == 1 else pa.concat_tables(found or [self._decoder.empty])

    def parts(self, begin: Offsets, end: Offsets, *, ahead: bool = False) -> Iterator[tuple[Offsets, pa.Table]]:
        """The same, a poll at a time, each with where it ends. The caller may stop after any of them.

        `ahead`: the next one is read in a thread of its own meanwhile.
        """
        parts = self._parts(begin, end)
        return self._ahead.over(parts) if ahead else parts

    def close(self) -> None:
        self._ahead.close(self._consumer.close)

    def _parts(self, begin: Offsets, end: Offsets) -> Iterator[tuple[Offsets, pa.Table]]:
        for poll in self._consumer.polls(begin, end):
            yield poll.reached, self._decoder.empty if poll.records is None else self._decoded(poll)

    def _decoded(self, poll: Poll) -> pa.Table:
        try:
            found = self._decoder.table(poll.records, poll.size)
        except SPARK_ERRORS as exc:
            if out_of_memory(exc):
                raise no_memory(self._spark, f"reading {self._topic}") from exc
            raise
        self._consumer.let_go(poll)
        if found is None:
            raise UnusualRecordsError(f"{self._topic}: records that only Spark's expressions decode")
        return found
