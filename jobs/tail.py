"""The head of a log, read once for all followers that stand at the same place."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

import pyarrow as pa
from pyspark.sql import SparkSession

from driftless.kafka import Offsets
from jobs.apply import LogSource
from jobs.records import Records
from jobs.steps import Steps, planning

_KEPT = 8
"""Slices that are remembered of each log: a follower that is a little slower than its sibling finds them here."""
IDLE_SECONDS = 600.0
"""What is not read for so long is closed when another log is opened: a generation that was dropped."""


class Tail:
    """Small slices, as tables of writes. Two followers of the same documents at the same offsets cause one read.

    Nobody waits for another's store: a slice is shared when it has been read, and each applies it by itself.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = planning(spark)
        self._lock = threading.Lock()
        self._logs: dict[object, _Log] = {}

    def read(self, source: LogSource, begin: Offsets, end: Offsets) -> tuple[Offsets, pa.Table]:
        """The writes of a slice that begins at `begin`, and where it ends: at `end`, or where there was more."""
        place = (source.topic, source.parse, source.shape)
        with self._lock:
            log = self._logs.get(place)
            if log is None:
                self._close_idle()
                log = self._logs[place] = _Log(self._spark, source)
        return log.read(begin, end)

    def _close_idle(self) -> None:
        now = time.monotonic()
        for place, log in list(self._logs.items()):
            if now - log.used_at > IDLE_SECONDS:
                del self._logs[place]
                log.close()


class _Log:
    def __init__(self, spark: SparkSession, source: LogSource) -> None:
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
            if place not in self._slices:
                self._steps = self._steps or Steps(self._spark, self._source)
                records, reached = self._records.read(begin, end)
                self._slices[place] = reached, self._steps.rows(records)
                if len(self._slices) > _KEPT:
                    self._slices.popitem(last=False)
            return self._slices[place]

    def close(self) -> None:
        with self._lock:
            self._records.close()
