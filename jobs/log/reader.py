"""The head of a log, read once for all followers that stand at the same place."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from driftless.kafka.client import Offsets
from jobs.spark.consumer import READ_BYTES, Records
from jobs.spark.projection import Steps, planning
from jobs.spark.source import LogSource

_KEPT = 8
"""Slices that are remembered of each log: a follower that is a little slower than its sibling finds them here."""
_KEPT_BYTES = 64 << 20
"""Of these slices, but for the last."""
IDLE_SECONDS = 600.0
"""What is not read for so long is closed when another log is opened: a generation that was dropped."""


class Tail:
    """Small slices, as tables of writes. Two followers of the same documents at the same offsets cause one read.

    Nobody waits for another's store: a slice is shared when it has been read, and each applies it by itself.
    """

    def __init__(self, spark: SparkSession, *, remembers: bool = True) -> None:
        """`remembers`: what was read, for whoever asks for it next."""
        self._spark = planning(spark)
        self._kept = _KEPT if remembers else 0
        self._lock = threading.Lock()
        self._logs: dict[object, _Log] = {}

    def read(self, source: LogSource, begin: Offsets, end: Offsets) -> tuple[Offsets, pa.Table]:
        """The writes of a slice that begins at `begin`, and where it ends: at `end`, or where there was more, or sooner
        where they are large.
        """
        place = (source.topic, source.parse, source.shape)
        with self._lock:
            log = self._logs.get(place)
            if log is None:
                self._close_idle()
                log = self._logs[place] = _Log(self._spark, source, self._kept)
        return log.read(begin, end)

    def _close_idle(self) -> None:
        now = time.monotonic()
        for place, log in list(self._logs.items()):
            if now - log.used_at > IDLE_SECONDS:
                del self._logs[place]
                log.close()


class _Log:
    def __init__(self, spark: SparkSession, source: LogSource, kept: int) -> None:
        self._kept = kept
        self.used_at = time.monotonic()
        self._spark = spark
        self._source = source
        self._records = Records(spark, source)
        self._steps: Steps | None = None
        self._lock = threading.Lock()
        self._slices: OrderedDict[tuple[tuple[int, int], ...], tuple[Offsets, pa.Table]] = OrderedDict()

    def read(self, begin: Offsets, end: Offsets) -> tuple[Offsets, pa.Table]:
        place = tuple(sorted(begin.items()))
        with self._lock:
            self.used_at = time.monotonic()
            found = self._slices.get(place)
            if found is None:
                found = self._slices[place] = self._read(begin, end)
                while len(self._slices) > self._kept or (len(self._slices) > 1 and self._size() > _KEPT_BYTES):
                    self._slices.popitem(last=False)
            return found

    def _read(self, begin: Offsets, end: Offsets) -> tuple[Offsets, pa.Table]:
        self._steps = steps = self._steps or Steps(self._spark, self._source)
        found, polled, size, at = list[pa.Table](), list[Any](), 0.0, begin

        def take(records: Any) -> bool:
            polled.append(records)
            return False

        while size < READ_BYTES and any(at[p] < offset for p, offset in end.items()):
            at = self._records.each(at, end, take)
            if polled:
                size += self._records.size
                found.append(steps.rows(polled, self._records.size))
                polled.clear()
        if len(found) == 1:
            return at, found[0]
        return at, pa.concat_tables(found) if found else steps.rows([])

    def _size(self) -> int:
        return sum(writes.nbytes for _, writes in self._slices.values())

    def close(self) -> None:
        with self._lock:
            self._records.close()
