"""Records one by one, where together they cannot be read: what can never pass is found, and all others are.

Nothing here is tried again by hoping: a record becomes a write by expressions that look at nothing but that record. One
that fails by itself fails every time. Its document is refused, as if by the store, and the quarantine holds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from driftless.errors import DecodeError, SyncError
from driftless.kafka.client import Offsets
from jobs.log.contract import Salvage, Salvaged, Unread
from jobs.log.reader import LocalReader
from jobs.spark.errors import SPARK_ERRORS, never_passes, spark_error
from jobs.spark.memory import out_of_memory
from jobs.spark.projection import RecordList, RecordProjection
from jobs.spark.source import LogSource


def salvage(spark: SparkSession, source: LogSource, begin: Offsets, end: Offsets) -> Iterator[Salvaged]:
    """All records of [begin, end) or somewhat further, some at a time. Slow: for slices that were read in vain.

    Raises DecodeError for one that must stop whoever reads it, and SourceUnavailable for what may pass.
    """
    decoder = _SalvagingDecoder(spark, source)
    with closing(LocalReader(spark, source, decoder)) as reader:
        for reached, rows in reader.parts(begin, end):
            yield Salvaged(reached, rows, decoder.take_bad())


def salvage_of(spark: SparkSession, source: LogSource) -> Salvage:
    """The same of one log, whatever is to be read of it."""
    return partial(salvage, spark, source)


class _SalvagingDecoder:
    """Leaves out the records that cannot be read, and keeps why until it is asked."""

    def __init__(self, spark: SparkSession, source: LogSource) -> None:
        self._topic = source.topic
        self._projection = RecordProjection(spark, source)
        named = [sql for sql in source.shape if sql in ("key", "version") or sql.endswith(" AS key")]
        self._names = RecordProjection(spark, replace(source, shape=tuple(named)))
        self._bad: list[Unread] = []

    def take_bad(self) -> tuple[Unread, ...]:
        """Those that were left out since it was asked last."""
        bad, self._bad = self._bad, []
        return tuple(bad)

    @property
    def empty(self) -> pa.Table:
        return self._projection.empty

    def table(self, records: Any, size: float) -> pa.Table:  # noqa: ARG002 - halves have any size
        listed, tables = self._projection.listed(records), [self.empty]
        self._split(listed, 0, len(listed), tables)
        return pa.concat_tables(tables)

    def _split(self, listed: RecordList, first: int, last: int, tables: list[pa.Table]) -> None:
        """The rows of some records: of all at once, or, where that fails, of each half."""
        if first == last:
            return
        try:
            tables.append(self._projection.table(listed.some(first, last)))
        except SPARK_ERRORS as exc:
            if last - first == 1:
                self._bad.append(self._refused(listed, first, exc))
                return
            middle = (first + last) // 2
            self._split(listed, first, middle, tables)
            self._split(listed, middle, last, tables)

    def _refused(self, listed: RecordList, number: int, exc: Exception) -> Unread:
        partition, offset = listed.place(number)
        where = f"{self._topic}/{partition}/{offset}"
        why = never_passes(exc)
        if why is None:
            raise spark_error(exc, where) from exc
        try:
            (name,) = self._names.table(listed.some(number, number + 1)).to_pylist()
        except SPARK_ERRORS as unnamed:
            hint = "look at the record with a Kafka client; `driftless apply --anew` reads all tables again, behind it"
            raise DecodeError(f"{where}: {why}, and its key cannot be read either", hint=hint) from unnamed
        return Unread(name["key"], name["version"], f"{where}: {why}", partition)


def first_unread(spark: SparkSession, source: LogSource, begin: Offsets, end: Offsets, exc: Exception) -> SyncError:
    """What stops whoever cannot leave a record out: with its place and its key, where one of them is to blame."""
    for some in salvage(spark, source, begin, end) if not out_of_memory(exc) else ():
        for unread in some.bad:
            hint = "correct the value in the source; then `driftless apply --anew` re-snapshots the table"
            return DecodeError(f"{unread.reason}, in the row with the key {unread.key}", hint=hint)
    return spark_error(exc)
