"""One switch of readers to a generation, in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from driftless.errors import SinkError, SinkUnavailable, SyncError
from driftless.sink import Sink
from jobs.follow.generation_worker import GenerationWorker
from jobs.follow.readers_generation import ReadersGeneration
from jobs.threads.background import unforeseen

_log = logging.getLogger(__name__)


class Promotion:
    """Switch readers to one generation, while all go on being followed. Begun again by the next runner if it is killed.

    What readers see now claims no position meanwhile that the other has not claimed, and the switch begins when
    that one has come as far: who has waited for a position never reads an older state afterwards. `alive`: it is
    under way. Then `done` says that readers see it, `error` why not; neither where the run ended before.
    """

    def __init__(
        self,
        worker: GenerationWorker,
        others: Sequence[GenerationWorker],
        seen: ReadersGeneration,
        stopping: Callable[[], bool],
    ) -> None:
        self.number = worker.job.generation
        self.done = False
        self.error: SyncError | None = None
        self._worker = worker
        self._others = others
        self._seen = seen
        self._stopping = stopping
        self._thread = threading.Thread(target=self._work, name=f"promote {worker.group}", daemon=True)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        progress = self._worker.progress
        self._worker.withhold_position.clear()
        with self._seen.claims:
            for other in self._others:
                other.promotion_target = progress
        progress.promoting, progress.promotion_blocked_by = True, ""
        progress.changed.set()
        self._thread.start()

    def _work(self) -> None:
        progress = self._worker.progress
        sink = self._worker.job.spec.open()
        try:
            self._switch(sink)
        except SyncError as exc:
            self._refuse(exc, sink)
        except Exception as exc:  # noqa: BLE001 - whoever asked for it is answered
            _log.error("%s", self._thread.name, exc_info=exc)
            self._refuse(unforeseen(self._thread.name, exc), sink)
        finally:
            sink.close()
            progress.switching = ""
            for other in self._others:
                other.promotion_target = None
            progress.promoting = False
            progress.changed.set()

    def _refuse(self, error: SyncError, sink: Sink) -> None:
        self.error = error
        self._worker.progress.promotion_blocked_by = f"generation {self.number} is built but not promoted: {error}"
        with suppress(SyncError):
            self._seen.ask(sink)

    def _switch(self, sink: Sink) -> None:
        progress = self._worker.progress
        while not self._as_far():
            if self._over:
                return
            self._check()
            time.sleep(0.05)
        while True:
            try:
                self._seen.switch(sink, self.number)
                break
            except SinkUnavailable as exc:
                progress.switching = str(exc)
                progress.changed.set()
                if self._over:
                    return
                time.sleep(1.0)
        self.done = True
        for each in (self._worker, *self._others):
            each.progress.promotion_blocked_by = ""
            each.progress.changed.set()

    @property
    def _over(self) -> bool:
        return self._stopping() or self._worker.stop.is_set()

    def _check(self) -> None:
        """Raise where it can come no further by itself."""
        if self._worker.progress.error is not None:
            raise self._worker.progress.error
        if self._worker.paused.is_set():
            name = self._worker.job.follower
            raise SinkError(f"{name} is paused", hint=f"`driftless resume {name}` first")
        if self._worker.superseded:
            raise older_epoch(self.number)

    def _as_far(self) -> bool:
        """Whether it has reached every position that readers were told of."""
        told = (other.progress.lsn for other in self._others if other.progress.live)
        return self._worker.progress.lsn >= max(told, default=0)


def older_epoch(number: int) -> SinkError:
    return SinkError(
        f"generation {number} is of an older epoch of the log: it may hold rows that are gone",
        hint="`driftless rebuild` makes a new one from the log",
    )
