"""Beside a query that goes on: a thread looks for late events, and publishes what they change of what was final."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from driftless.errors import SourceUnavailable, SyncError
from jobs.spark.errors import spark_error
from jobs.spark.session import cancel, name_jobs
from jobs.streams.late.corrections import LateCorrections
from jobs.streams.progress import StreamProgress
from jobs.streams.publisher import StreamPublisher

_log = logging.getLogger(__name__)
LOOK_SECONDS = 10.0
"""How often it is looked for late events that are not counted yet."""
SHARE = 4
"""So many times what a correction took is the pause after it: the query goes first."""


class Corrector:
    """`error` is what ended it: whoever runs the query raises it."""

    def __init__(
        self,
        spark: SparkSession,
        found: LateCorrections,
        publisher: StreamPublisher,
        progress: StreamProgress,
        confirm: Callable[[], None],
    ) -> None:
        """`confirm`: raises Fenced where another runner has taken over."""
        self.error: SyncError | None = None
        self._spark = spark
        self._corrections = found
        self._publisher = publisher
        self._progress = progress
        self._confirm = confirm
        self._waits = True  # a run before may have left some in windows that were open
        self._stop = threading.Event()
        self._group = f"corrections of {progress.build.stream}/{progress.build.number}"
        self._thread = threading.Thread(target=self._run, name=self._group, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Nothing is published after this."""
        self._stop.set()
        while self._thread.is_alive():
            cancel(self._spark, self._group)
            self._thread.join(0.2)

    def _run(self) -> None:
        name_jobs(self._spark, self._group, f"correct {self._progress.build.stream}", self._group)
        pause = LOOK_SECONDS
        while not self._stop.wait(pause):
            begun = time.monotonic()
            try:
                self._correct()
            except SourceUnavailable as exc:
                _log.warning("%s: waiting: %s", self._group, exc)
            except SyncError as exc:
                self.error = exc
                return
            except PySparkException as exc:
                if not self._stop.is_set():
                    self.error = spark_error(exc)
                return
            pause = max(LOOK_SECONDS, SHARE * (time.monotonic() - begun))

    def _correct(self) -> None:
        publisher, progress = self._publisher, self._progress
        closed_ms, late, before = progress.closed_ms, publisher.left_out, publisher.corrected
        newest = publisher.newest  # after them: it has read what they tell of, unless it is computed again
        if newest is None or newest.is_refill or not newest.has_read(late.read) or closed_ms < before.closed_ms:
            return
        if late.late == before.events and not (self._waits and before.events and closed_ms > before.closed_ms):
            return
        found = self._corrections.find(before, late.read, newest.read, closed_ms)
        if found is None or self._stop.is_set():
            self._waits = False
            return
        self._confirm()
        publisher.correct(found.corrections, found.corrected)
        self._waits = found.waits
        progress.corrected = found.corrected.documents
        progress.published += len(found.corrections)
        progress.changed.set()
        if found.corrections:
            _log.info("%s: %d documents", self._group, len(found.corrections))
