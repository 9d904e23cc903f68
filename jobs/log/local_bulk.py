"""Reads large slices of a log in this process, without a job, and gives them as writes.

While a follower applies one poll, the next one is read.

A job would start Python workers and plan its expressions first, 5 s in a process that has just started
(docs/decisions/0014-documents-need-no-executors.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from pyspark.sql import SparkSession

from driftless.kafka.client import Offsets
from driftless.sink import WRITES
from jobs.decode.arrow_documents import PLACED_WRITES
from jobs.log.reader import MANY_RECORDS, LocalReader
from jobs.spark.arrow import ArrowDecoder
from jobs.spark.projection import RecordProjection
from jobs.spark.source import LogSource

# Their stubs know fewer arguments than the functions take.
pc: Any = pyarrow.compute

_WARY = 10
"""So many polls after unusual records are decoded by Spark's expressions: those would be decoded twice."""


class LocalBulkReader:
    """Not to be shared between threads. Nothing is open until it is first read."""

    def __init__(self, spark: SparkSession, source: LogSource) -> None:
        self._spark = spark
        self._source = source
        self._opened: LocalReader | None = None

    def read(self, begin: Offsets, end: Offsets) -> Iterator[tuple[Offsets, pa.Table]]:
        """The writes of [begin, end) or somewhat further, in order, a poll at a time, each with where they end.

        The caller may stop after any of them. Raises as LocalReader does.
        """
        for reached, rows in self._reader.parts(begin, end, ahead=True):
            yield reached, rows.select(WRITES.names)

    def count(self, begin: Offsets, end: Offsets) -> int:
        """How many keys have a document as their newest state in [begin, end). All keys are held meanwhile."""
        limits = np.array([end.get(p, 0) for p in range(1 + max(end))])
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
        if self._opened is not None:
            self._opened.close()

    @property
    def _reader(self) -> LocalReader:
        if self._opened is None:
            decoder = WritesDecoder(self._spark, self._source)
            self._opened = LocalReader(self._spark, self._source, decoder, poll=MANY_RECORDS)
        return self._opened


class WritesDecoder:
    """A decoder: PLACED_WRITES by Arrow where it knows them, else by Spark's expressions."""

    empty = PLACED_WRITES.empty_table()

    def __init__(self, spark: SparkSession, source: LogSource) -> None:
        self._spark = spark
        self._source = source
        self._usual = None if source.arrow is None else ArrowDecoder(spark, source.arrow)
        self._wary = 0

    def table(self, records: Any, size: float) -> pa.Table:
        """Raises PySparkException for a record that cannot be decoded."""
        if self._wary > 0:
            self._wary -= 1
        elif self._usual is not None:
            found = self._usual.table(records, size)
            if found is not None:
                return found
            self._wary = _WARY
        return self._expressions.table(records, size)

    @cached_property
    def _expressions(self) -> RecordProjection:
        places = ("`partition`", "`offset`")
        parse, shape = (*self._source.parse, *places), (*self._source.shape, *places)
        return RecordProjection(self._spark, replace(self._source, parse=parse, shape=shape))
