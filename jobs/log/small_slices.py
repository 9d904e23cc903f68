"""The head of a log, read once for all followers that stand at the same place."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

import pyarrow as pa
from pyspark.sql import SparkSession

from driftless.kafka.client import Offsets
from jobs.log.reader import LocalReader
from jobs.spark.projection import RecordProjection
from jobs.spark.source import LogSource

_KEPT = 8
"""Slices that are remembered of each log: a follower that is a little slower than its sibling finds them here."""
_KEPT_BYTES = 64 << 20
"""Of these slices, but for the last."""
IDLE_SECONDS = 600.0
"""What is not read for so long is closed when another log is opened: a generation that was dropped."""


class SmallSliceReader:
    """Small slices, as tables of writes. Two followers of the same documents at the same offsets cause one read.

    Nobody waits for another's store: a slice is shared when it has been read, and each applies it by itself.
    """

    def __init__(self, spark: SparkSession, *, remembers: bool = True) -> None:
        """`remembers`: what was read, for whoever asks for it next."""
        self._spark = spark
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
        self._reader = LocalReader(spark, source, RecordProjection(spark, source))
        self._lock = threading.Lock()
        self._slices: OrderedDict[tuple[tuple[int, int], ...], tuple[Offsets, pa.Table]] = OrderedDict()

    def read(self, begin: Offsets, end: Offsets) -> tuple[Offsets, pa.Table]:
        place = tuple(sorted(begin.items()))
        with self._lock:
            self.used_at = time.monotonic()
            found = self._slices.get(place)
            if found is None:
                found = self._slices[place] = self._reader.read(begin, end)
                while len(self._slices) > self._kept or (len(self._slices) > 1 and self._size() > _KEPT_BYTES):
                    self._slices.popitem(last=False)
            return found

    def _size(self) -> int:
        return sum(writes.nbytes for _, writes in self._slices.values())

    def close(self) -> None:
        with self._lock:
            self._reader.close()
