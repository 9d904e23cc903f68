"""Large slices of a view's own topic as writes: read without a job, and one poll ahead of whoever applies them.

Its records are documents already: there is nothing to decode, so nothing that executors would be needed for. A job
would start Python workers and a plan of Spark's first, 5 s in a process that has just started (docs/benchmarks.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from pyspark.sql import SparkSession

from driftless.kafka.client import Offsets
from driftless.sink import WRITES
from jobs.decode.arrow_rows import versions
from jobs.log.row_reader import POLL
from jobs.spark.arrow import Batches, records_as_they_are
from jobs.spark.consumer import Records
from jobs.spark.source import LogSource

# Their stubs know fewer arguments than the functions take.
pc: Any = pyarrow.compute
_Some = tuple[Offsets, pa.Table]
"""Records as the Kafka source's columns, and where they end."""


class Documents:
    """Not to be shared between threads. Nothing is open until it is first read."""

    def __init__(self, spark: SparkSession, source: LogSource) -> None:
        """`source`: one whose records are documents."""
        assert source.ready is not None
        self._spark = spark
        self._source = source
        self._log = source.ready

    def read(self, begin: Offsets, end: Offsets) -> Iterator[tuple[Offsets, pa.Table]]:
        """The writes of [begin, end) or somewhat further, in order, a poll at a time, each with where they end.

        Whoever stops early has read as far as it was given. Raises as `Records.each` does, and ArrowInvalid for a
        record that is not text.
        """
        for reached, records in self._polls(begin, end):
            yield reached, self._writes(records)

    def count(self, begin: Offsets, end: Offsets) -> int:
        """How many keys have a document as their newest state in [begin, end). All keys are held meanwhile."""
        limits = np.array([end.get(p, 0) for p in range(self._log.partitions)])
        found = []
        for _, records in self._polls(begin, end):
            within = records["offset"].to_numpy() < limits[records["partition"].to_numpy()]
            writes = self._writes(records.filter(pa.array(within)))
            found.append(pa.table({"key": writes["key"], "document": writes["document"].is_valid()}))
        rows = pa.concat_tables(found)
        # Of two rows of a key the later has the larger number, which is odd where it has a document.
        numbers = pc.add(pa.array(np.arange(0, 2 * len(rows), 2)), rows["document"].cast(pa.int64()))
        newest = pa.table({"key": rows["key"], "number": numbers}).group_by("key").aggregate([("number", "max")])
        return int(pc.sum(pc.bit_wise_and(newest["number_max"], 1)).as_py() or 0)

    def close(self) -> None:
        if "_pool" in self.__dict__:
            self._pool.submit(self._records.close)  # after what is being read
            self._pool.shutdown(wait=False)

    def _polls(self, begin: Offsets, end: Offsets) -> Iterator[_Some]:
        ahead: Future[_Some] | None = self._pool.submit(self._poll, begin, end)
        while ahead is not None:
            reached, records = ahead.result()
            more = any(reached[p] < offset for p, offset in end.items())
            ahead = self._pool.submit(self._poll, reached, end) if more else None
            yield reached, records

    def _poll(self, begin: Offsets, end: Offsets) -> _Some:
        found = [self._batches.empty]

        def take(records: Any) -> bool:
            found.append(self._batches.table(records, self._records.size))
            return False

        reached = self._records.each(begin, end, take)
        return reached, pa.concat_tables(found)

    def _writes(self, records: pa.Table) -> pa.Table:
        """As `documents_sql` says."""
        columns = (
            records["key"].cast(pa.string()),
            versions(self._log, records["partition"].to_numpy(), records["offset"].to_numpy()),
            records["value"].cast(pa.string()),
        )
        return pa.table(list(columns), schema=WRITES)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "documents")

    @cached_property
    def _records(self) -> Records:
        return Records(self._spark, self._source, poll=POLL)

    @cached_property
    def _batches(self) -> Batches:
        return records_as_they_are(self._spark, headers=False)
