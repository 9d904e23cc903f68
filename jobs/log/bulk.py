"""Large slices of a log into this process: by jobs of Spark's, as long as its records are small.

A job's result is in the JVM whole, several times, before any of it is here; and nobody knows beforehand how large the
records between two offsets are. So a job takes in no record that is larger than its share of what may be held. Where
there was one, a consumer reads the slice, some megabytes at a time; and the next ones, until records are small again.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from driftless.kafka.client import Offsets
from jobs.log.contract import SliceReader
from jobs.spark.projection import FEW, planning
from jobs.spark.source import LogSource, read_slice

HELD_BYTES = 128 << 20
"""What the records of one job may have together."""
LEAST_OFFSETS = 5_000
"""Fewer are not worth a job: it costs 0.3 s."""
_ROOM = 4
"""How much larger than the mean record one may be: the mean alone decides how many a job reads."""
_WARY = 10
"""So many reads by the consumer follow on a slice with a large record."""


class JobReader:
    """Of one log. Not to be shared between threads at one time."""

    def __init__(self, spark: SparkSession, source: LogSource, small: SliceReader) -> None:
        """`small`: reads what has large records."""
        self._compiling, self._interpreting = spark, planning(spark)
        self._compiled = False
        self._source = source
        self._small = small
        self._mean = 1.0
        self._wary = 0

    def read(self, begin: Offsets, end: Offsets, most: int) -> tuple[Offsets, pa.Table]:
        """Rows from `begin` on, of some `most` offsets; and how far that is, which may be beyond `end`.

        Raises SPARK_ERRORS, and what `small` raises.
        """
        left = [p for p in end if begin[p] < end[p]]
        # What was compiled once is there from then on.
        self._compiled = self._compiled or sum(end[p] - begin[p] for p in left) > FEW
        room = min(most, int(HELD_BYTES / (_ROOM * self._mean)))
        if self._wary == 0 and room >= min(most, LEAST_OFFSETS):
            share = max(1, room // max(1, len(left)))
            to = {**begin, **{p: min(end[p], begin[p] + share) for p in left}}
            spark = self._compiling if self._compiled else self._interpreting
            rows = read_slice(spark, self._source, begin, to, largest=HELD_BYTES // room).toArrow()
            if not pc.any(rows["large"]).as_py():
                return to, self._measured(rows.drop_columns(["large"]))
            self._wary = _WARY
        self._wary = max(0, self._wary - 1)
        reached, rows = self._small.read(self._source, begin, end)
        return reached, self._measured(rows)

    def _measured(self, rows: pa.Table) -> pa.Table:
        self._mean = max(1.0, rows.nbytes / max(1, rows.num_rows))
        return rows
