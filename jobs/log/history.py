"""Every record of a log between two places, as documents: for whoever compares it with something else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import SparkSession

from driftless.kafka.client import Offsets
from driftless.verify.subject import UNREADABLE
from jobs.log.bulk import HELD_BYTES, JobReader
from jobs.log.salvage import salvage
from jobs.log.small_slices import SmallSliceReader
from jobs.spark.errors import SPARK_ERRORS, spark_error
from jobs.spark.memory import out_of_memory
from jobs.spark.session import name_jobs
from jobs.spark.source import LogSource
from jobs.threads.prefetch import Prefetch

SLICE_OFFSETS = 100_000
"""Offsets that are read at a time: bounds the memory that they take here."""


class DocumentHistory:
    """Reads a slice ahead while the last one is dealt with: Spark works in the JVM, and who compares in Python."""

    def __init__(self, spark: SparkSession, source: LogSource) -> None:
        self._spark = spark
        self._source = source = replace(
            source, parse=(*source.parse, "`partition`"), shape=(*source.shape, "`partition`")
        )
        self._log = JobReader(spark, source, SmallSliceReader(spark, remembers=False))

    def read(self, begin: Offsets, end: Offsets) -> Iterator[pa.Table]:
        """Tables of `key`, `version`, `document` (null: a delete) and `partition`, in the order of each partition.

        In the place of one that no record will ever give stand UNREADABLE and the reason. Raises DecodeError for a
        record that must stop whoever reads it, and SourceUnavailable for what may pass.
        """
        ahead = Prefetch[pa.Table]("history", lambda: name_jobs(self._spark, "verify", "read the log", "verify"))
        try:
            yield from ahead.over(self._slices(begin, end))
        finally:
            ahead.close()

    def _slices(self, begin: Offsets, end: Offsets) -> Iterator[pa.Table]:
        at = dict(begin)
        while any(at[p] < offset for p, offset in end.items()):
            at, found = self._slice(at, end)
            yield found
            del found  # it need not be kept while the next one is read

    def _slice(self, begin: Offsets, end: Offsets) -> tuple[Offsets, pa.Table]:
        try:
            return self._log.read(begin, end, SLICE_OFFSETS)
        except SPARK_ERRORS as exc:
            if out_of_memory(exc):
                raise spark_error(exc) from exc
            return self._salvaged(begin, end)

    def _salvaged(self, begin: Offsets, end: Offsets) -> tuple[Offsets, pa.Table]:
        """As far as what cannot be read is behind it: then it is read as before."""
        reached, tables, size = begin, list[pa.Table](), 0
        for some in salvage(self._spark, self._source, begin, end):
            rows = [
                {"key": r.key, "version": r.version, "document": UNREADABLE + r.reason, "partition": r.partition}
                for r in some.bad
            ]
            tables += [some.rows, pa.Table.from_pylist(rows, some.rows.schema)]
            reached, size = some.end, size + some.rows.nbytes
            if some.bad or size > HELD_BYTES:
                break
        return reached, pa.concat_tables(tables).sort_by([("partition", "ascending"), ("version", "ascending")])
