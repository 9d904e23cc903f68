"""The head of a log, read once for all followers that stand at the same place."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import SparkSession

from driftless.kafka import Offsets
from jobs.apply import LogSource, read_slice

_KEPT = 8
"""Slices that are remembered of each log: a follower that is a little slower than its sibling finds them here."""
# A plan of a few rows costs more to compile than to interpret: 73 ms of CPU against 60 ms (docs/benchmarks.md).
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


class Tail:
    """Small slices, as tables of writes. Two followers of the same documents at the same offsets cause one read.

    Nobody waits for another's store: a slice is shared when it has been read, and each applies it by itself.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark.newSession()
        for name, value in _INTERPRETED.items():
            self._spark.conf.set(name, value)
        self._lock = threading.Lock()
        self._logs: dict[object, _Log] = {}

    def read(self, source: LogSource, begin: Offsets, end: Offsets) -> tuple[Offsets, pa.Table]:
        """The writes of a slice that begins at `begin`, and where it ends: at `end`, or where a sibling's ended."""
        with self._lock:
            log = self._logs.setdefault((source.topic, source.parse, source.shape), _Log())
        return log.read(begin, lambda: (end, read_slice(self._spark, source, begin, end).toArrow()))


class _Log:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slices: OrderedDict[tuple[tuple[int, int], ...], tuple[Offsets, pa.Table]] = OrderedDict()

    def read(self, begin: Offsets, fetch: Callable[[], tuple[Offsets, pa.Table]]) -> tuple[Offsets, pa.Table]:
        place = tuple(sorted(begin.items()))
        with self._lock:
            if place not in self._slices:
                self._slices[place] = fetch()
                if len(self._slices) > _KEPT:
                    self._slices.popitem(last=False)
            return self._slices[place]
