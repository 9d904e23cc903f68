"""Every record of a log between two places, as documents: for whoever compares it with something else."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import SparkSession

from driftless.kafka import Offsets
from jobs.apply import SPARK_ERRORS, LogSource, spark_error
from jobs.bounded import Bounded
from jobs.leased import name_jobs
from jobs.steps import FEW, planning
from jobs.tail import Tail

SLICE_OFFSETS = 100_000
"""Offsets that are read at a time: bounds the memory that they take here."""


class History:
    """Reads a slice ahead while the last one is dealt with: Spark works in the JVM, and who compares in Python."""

    def __init__(self, spark: SparkSession, source: LogSource) -> None:
        self._compiled, self._interpreted = spark, planning(spark)
        source = replace(source, parse=(*source.parse, "`partition`"), shape=(*source.shape, "`partition`"))
        self._log = Bounded(source, Tail(spark, remembers=False))

    def read(self, begin: Offsets, end: Offsets) -> Iterator[pa.Table]:
        """Tables of `key`, `version`, `document` (null: a delete) and `partition`, in the order of each partition.

        Raises DecodeError for a record that cannot be read, and SourceUnavailable for what may pass.
        """
        spark = self._interpreted if sum(max(0, end[p] - begin[p]) for p in end) <= FEW else self._compiled
        pool = ThreadPoolExecutor(1, "history", lambda: name_jobs(spark, "verify", "read the log", "verify"))
        try:
            ahead = self._submit(spark, pool, dict(begin), end)
            while ahead is not None:
                reached, found = ahead.result()
                ahead = self._submit(spark, pool, reached, end)
                yield found
        except SPARK_ERRORS as exc:
            raise spark_error(exc) from exc
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _submit(
        self, spark: SparkSession, pool: ThreadPoolExecutor, at: Offsets, end: Offsets
    ) -> Future[tuple[Offsets, pa.Table]] | None:
        """Have the next slice read; None where nothing is left."""
        if all(at[p] >= offset for p, offset in end.items()):
            return None
        return pool.submit(self._log.read, spark, at, end, SLICE_OFFSETS)
