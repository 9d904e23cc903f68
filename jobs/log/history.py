"""Every record of a log between two places, as documents: for whoever compares it with something else."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import SparkSession

from driftless.kafka.client import Offsets
from driftless.verify.subject import UNREADABLE
from jobs.log.bulk import HELD_BYTES, Bounded
from jobs.log.reader import Tail
from jobs.log.salvage import salvage
from jobs.spark.errors import SPARK_ERRORS, spark_error
from jobs.spark.memory import out_of_memory
from jobs.spark.projection import FEW, planning
from jobs.spark.session import name_jobs
from jobs.spark.source import LogSource

SLICE_OFFSETS = 100_000
"""Offsets that are read at a time: bounds the memory that they take here."""


class DocumentHistory:
    """Reads a slice ahead while the last one is dealt with: Spark works in the JVM, and who compares in Python."""

    def __init__(self, spark: SparkSession, source: LogSource) -> None:
        self._compiled, self._interpreted = spark, planning(spark)
        self._source = source = replace(
            source, parse=(*source.parse, "`partition`"), shape=(*source.shape, "`partition`")
        )
        self._log = Bounded(source, Tail(spark, remembers=False))

    def read(self, begin: Offsets, end: Offsets) -> Iterator[pa.Table]:
        """Tables of `key`, `version`, `document` (null: a delete) and `partition`, in the order of each partition.

        In the place of one that no record will ever give stand UNREADABLE and the reason. Raises DecodeError for a
        record that must stop whoever reads it, and SourceUnavailable for what may pass.
        """
        spark = self._interpreted if sum(max(0, end[p] - begin[p]) for p in end) <= FEW else self._compiled
        pool = ThreadPoolExecutor(1, "history", lambda: name_jobs(spark, "verify", "read the log", "verify"))
        try:
            ahead = self._submit(spark, pool, dict(begin), end)
            while ahead is not None:
                reached, found = ahead.result()
                ahead = self._submit(spark, pool, reached, end)
                yield found
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _submit(
        self, spark: SparkSession, pool: ThreadPoolExecutor, at: Offsets, end: Offsets
    ) -> Future[tuple[Offsets, pa.Table]] | None:
        """Have the next slice read; None where nothing is left."""
        if all(at[p] >= offset for p, offset in end.items()):
            return None
        return pool.submit(self._slice, spark, at, end)

    def _slice(self, spark: SparkSession, begin: Offsets, end: Offsets) -> tuple[Offsets, pa.Table]:
        try:
            return self._log.read(spark, begin, end, SLICE_OFFSETS)
        except SPARK_ERRORS as exc:
            if out_of_memory(exc):
                raise spark_error(exc) from exc
            return self._salvaged(begin, end)

    def _salvaged(self, begin: Offsets, end: Offsets) -> tuple[Offsets, pa.Table]:
        """As far as what cannot be read is behind it: then it is read as before."""
        reached, tables, size = begin, list[pa.Table](), 0
        for some in salvage(self._compiled, self._source, begin, end):
            rows = [
                {"key": r.key, "version": r.version, "document": UNREADABLE + r.reason, "partition": r.partition}
                for r in some.bad
            ]
            tables += [some.rows, pa.Table.from_pylist(rows, some.rows.schema)]
            reached, size = some.end, size + some.rows.nbytes
            if some.bad or size > HELD_BYTES:
                break
        return reached, pa.concat_tables(tables).sort_by([("partition", "ascending"), ("version", "ascending")])
