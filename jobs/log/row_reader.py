"""Large slices of a table's topic as rows: read by a consumer in Spark's JVM, as small ones, and decoded by Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from driftless.kafka.client import Offsets
from jobs.decode.arrow_rows import PlainRows
from jobs.spark.arrow import records_as_they_are
from jobs.spark.consumer import Records
from jobs.spark.source import LogSource

POLL = 10_000
"""Records of one poll. Of more, the JVM copies more whenever it collects garbage; of fewer, there are more calls."""
_SIZE = 128 << 20
"""Bytes of one read, whatever `most` allows: rows here are small, so it is hardly ever reached."""


class PlainLog:
    """A job for each slice would cost a JVM that has just started twice the CPU (docs/benchmarks.md).

    Not to be shared between threads at one time.
    """

    def __init__(self, spark: SparkSession, source: LogSource, decoded: PlainRows) -> None:
        self._records = Records(spark, source, poll=POLL)
        self._batches = records_as_they_are(spark, headers=True)
        self._decoded = decoded

    def read(self, begin: Offsets, end: Offsets, most: int) -> tuple[Offsets, pa.Table] | None:
        """The rows from `begin` on, until `end` or some `most` offsets; and how far that is, which may be beyond.

        None where anything of them is unusual (jobs/decode/arrow_rows.py). No more than one poll is then held of
        records that may have large columns. Raises as `Records.read` does.
        """
        found: list[pa.Table | None] = [self._decoded.schema.empty_table()]

        def take(records: Any) -> bool:
            found.append(self._decoded.rows(self._batches.table(records, self._records.size)))
            return found[-1] is not None

        reached = self._records.each(begin, end, take, most=most, size=_SIZE)
        usual = [rows for rows in found if rows is not None]
        return (reached, pa.concat_tables(usual)) if len(usual) == len(found) else None

    def close(self) -> None:
        self._records.close()
