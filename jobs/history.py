"""Every record of a log between two places, as documents: for whoever compares it with something else."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import SparkSession

from driftless.kafka import Offsets
from jobs.apply import SPARK_ERRORS, LogSource, read_slice, spark_error
from jobs.leased import name_jobs
from jobs.steps import FEW, planning

SLICE_OFFSETS = 100_000
"""Offsets that are read at a time: bounds the memory that they take here."""


class History:
    """Reads a slice ahead while the last one is dealt with: Spark works in the JVM, and who compares in Python."""

    def __init__(self, spark: SparkSession, source: LogSource) -> None:
        self._compiled, self._interpreted = spark, planning(spark)
        self._source = replace(source, parse=(*source.parse, "`partition`"), shape=(*source.shape, "`partition`"))

    def read(self, begin: Offsets, end: Offsets) -> Iterator[pa.Table]:
        """Tables of `key`, `version`, `document` (null: a delete) and `partition`, in the order of each partition.

        Raises DecodeError for a record that cannot be read, and SourceUnavailable for what may pass.
        """
        at = dict(begin)
        spark = self._interpreted if sum(max(0, end[p] - at[p]) for p in end) <= FEW else self._compiled
        pool = ThreadPoolExecutor(1, "history", lambda: name_jobs(spark, "verify", "read the log", "verify"))
        try:
            ahead = self._submit(spark, pool, at, end)
            while ahead is not None:
                found = ahead.result()
                ahead = self._submit(spark, pool, at, end)
                yield found
        except SPARK_ERRORS as exc:
            raise spark_error(exc) from exc
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _submit(
        self, spark: SparkSession, pool: ThreadPoolExecutor, at: Offsets, end: Offsets
    ) -> Future[pa.Table] | None:
        """Have the next slice read, and move `at` behind it; None where nothing is left."""
        left = [p for p in end if at[p] < end[p]]
        if not left:
            return None
        share = SLICE_OFFSETS // len(left)
        begin = dict(at)
        at.update({p: min(end[p], at[p] + share) for p in left})
        to = dict(at)
        return pool.submit(lambda: read_slice(spark, self._source, begin, to).toArrow())
