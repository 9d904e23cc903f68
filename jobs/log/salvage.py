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
from jobs.spark.consumer import Records
from jobs.spark.errors import SPARK_ERRORS, never_passes, spark_error
from jobs.spark.memory import out_of_memory
from jobs.spark.projection import Steps, planning
from jobs.spark.source import LogSource

SOME_OFFSETS = 2_000
"""Offsets that are read at a time."""


def salvage(spark: SparkSession, source: LogSource, begin: Offsets, end: Offsets) -> Iterator[Salvaged]:
    """All records of [begin, end) or somewhat further, some at a time. Slow: for slices that were read in vain.

    Raises DecodeError for one that must stop whoever reads it, and SourceUnavailable for what may pass.
    """
    with closing(_Salvage(spark, source)) as records:
        at = dict(begin)
        while left := [p for p, offset in end.items() if at[p] < offset]:
            share = max(1, SOME_OFFSETS // len(left))
            found = records.read(at, {p: min(end.get(p, at[p]), at[p] + share) for p in at})
            at = found.end
            yield found


def salvage_of(spark: SparkSession, source: LogSource) -> Salvage:
    """The same of one log, whatever is to be read of it."""
    return partial(salvage, spark, source)


class _Salvage:
    def __init__(self, spark: SparkSession, source: LogSource) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._topic = source.topic
        self._records = Records(spark, source)
        self._steps = Steps(planning(spark), source)
        named = [sql for sql in source.shape if sql in ("key", "version") or sql.endswith(" AS key")]
        self._names = Steps(planning(spark), replace(source, shape=tuple(named)))

    def read(self, begin: Offsets, end: Offsets) -> Salvaged:
        records, reached = self._records.read(begin, end)
        listed, convert = self._jvm.java.util.ArrayList(), self._jvm.scala.jdk.javaapi.CollectionConverters
        for some in records:  # which Java can only go through
            listed.addAll(convert.asJavaCollection(convert.asScala(some)))
        tables = [self._steps.rows([])]
        bad: list[Unread] = []
        self._split(listed, 0, listed.size(), tables, bad)
        return Salvaged(reached, pa.concat_tables(tables), tuple(bad))

    def _split(self, listed: Any, first: int, last: int, tables: list[pa.Table], bad: list[Unread]) -> None:
        """The rows of some records: of all at once, or, where that fails, of each half."""
        if first == last:
            return
        try:
            tables.append(self._steps.rows([self._some(listed, first, last)]))
        except SPARK_ERRORS as exc:
            if last - first == 1:
                bad.append(self._refused(listed, first, exc))
                return
            middle = (first + last) // 2
            self._split(listed, first, middle, tables, bad)
            self._split(listed, middle, last, tables, bad)

    def _some(self, listed: Any, first: int, last: int) -> Any:
        return self._jvm.java.util.ArrayList(listed.subList(first, last))

    def _refused(self, listed: Any, place: int, exc: Exception) -> Unread:
        record = listed.get(place)
        where = f"{self._topic}/{record.partition()}/{record.offset()}"
        why = never_passes(exc)
        if why is None:
            raise spark_error(exc, where) from exc
        try:
            (name,) = self._names.rows([self._some(listed, place, place + 1)]).to_pylist()
        except SPARK_ERRORS as unnamed:
            hint = "look at the record with a Kafka client; `driftless apply --anew` reads all tables again, behind it"
            raise DecodeError(f"{where}: {why}, and its key cannot be read either", hint=hint) from unnamed
        return Unread(name["key"], name["version"], f"{where}: {why}", record.partition())

    def close(self) -> None:
        self._records.close()


def first_unread(spark: SparkSession, source: LogSource, begin: Offsets, end: Offsets, exc: Exception) -> SyncError:
    """What stops whoever cannot leave a record out: with its place and its key, where one of them is to blame."""
    for some in salvage(spark, source, begin, end) if not out_of_memory(exc) else ():
        for unread in some.bad:
            hint = "correct the value in the source; then `driftless apply --anew` re-snapshots the table"
            return DecodeError(f"{unread.reason}, in the row with the key {unread.key}", hint=hint)
    return spark_error(exc)
