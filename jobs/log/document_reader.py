"""Large slices of a view's own topic as writes: read without a job, and one poll ahead of whoever applies them.

Its records are documents already: there is nothing to decode, so nothing that executors would be needed for. A job
would start Python workers and a plan of Spark's first, 5 s in a process that has just started (docs/benchmarks.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from pyspark.sql import SparkSession

from driftless.kafka.client import Offsets
from driftless.sink import WRITES
from jobs.decode.document_rows import DocumentRows
from jobs.log.reader import MANY_RECORDS, LocalReader
from jobs.spark.arrow import ArrowDecoder
from jobs.spark.source import LogSource

# Their stubs know fewer arguments than the functions take.
pc: Any = pyarrow.compute


class DocumentReader:
    """Not to be shared between threads. Nothing is open until it is first read."""

    def __init__(self, spark: SparkSession, source: LogSource) -> None:
        """`source`: one whose records are documents."""
        assert source.ready is not None
        self._partitions = source.ready.partitions
        decoder = ArrowDecoder(spark, DocumentRows(source.ready))
        self._reader = LocalReader(spark, source, decoder, poll=MANY_RECORDS)

    def read(self, begin: Offsets, end: Offsets) -> Iterator[tuple[Offsets, pa.Table]]:
        """The writes of [begin, end) or somewhat further, in order, a poll at a time, each with where they end.

        The caller may stop after any of them. Raises as LocalReader does.
        """
        for reached, rows in self._reader.parts(begin, end, ahead=True):
            yield reached, rows.select(WRITES.names)

    def count(self, begin: Offsets, end: Offsets) -> int:
        """How many keys have a document as their newest state in [begin, end). All keys are held meanwhile."""
        limits = np.array([end.get(p, 0) for p in range(self._partitions)])
        found = [pa.table({"key": pa.array([], pa.string()), "document": pa.array([], pa.bool_())})]
        for _, part in self._reader.parts(begin, end, ahead=True):
            within = part["offset"].to_numpy() < limits[part["partition"].to_numpy()]
            writes = part.filter(pa.array(within))
            found.append(pa.table({"key": writes["key"], "document": writes["document"].is_valid()}))
        rows = pa.concat_tables(found)
        # Of two rows of a key the later has the larger number, which is odd where it has a document.
        numbers = pc.add(pa.array(np.arange(0, 2 * len(rows), 2)), rows["document"].cast(pa.int64()))
        newest = pa.table({"key": rows["key"], "number": numbers}).group_by("key").aggregate([("number", "max")])
        return int(pc.sum(pc.bit_wise_and(newest["number_max"], 1)).as_py() or 0)

    def close(self) -> None:
        self._reader.close()
