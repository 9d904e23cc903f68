"""Background threads: none of them ends silently."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable

from driftless.errors import SyncError

_log = logging.getLogger(__name__)


class Background(threading.Thread):
    """A thread that keeps no process from ending. An error that ends it is handed to whoever depends on it."""

    def __init__(self, name: str, failed: Callable[[SyncError], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._failed = failed

    def work(self) -> None:
        """What the thread is for; it returns when it is told to stop."""
        raise NotImplementedError

    def run(self) -> None:
        try:
            self.work()
        except SyncError as exc:
            _log.error("%s: stopped: %s", self.name, exc)
            self._failed(exc)
        except BaseException as exc:  # noqa: BLE001 - whatever it is, somebody waits for this thread
            error = unforeseen(self.name, exc)
            _log.error("%s", error, exc_info=exc)
            self._failed(error)


class Bell(threading.Event):
    """Rung for one thread when there may be something to do."""

    def rest(self, seconds: float) -> None:
        """Wait until it rings, or for so long."""
        self.wait(seconds)
        self.clear()


class Ringing(threading.Event):
    """An event that rings a bell with every change, for a thread that waits for one of several things."""

    def __init__(self, bell: Bell) -> None:
        super().__init__()
        self._bell = bell

    def set(self) -> None:
        super().set()
        self._bell.set()

    def clear(self) -> None:
        super().clear()
        self._bell.set()


def unforeseen(what: str, exc: BaseException) -> SyncError:
    """The error that stands for an unexpected one. It names the place, and none of the values there."""
    frames = traceback.extract_tb(exc.__traceback__)
    place = f" at {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else ""
    return SyncError(
        f"the thread `{what}` ended: {type(exc).__name__}{place}",
        hint="this is a defect of driftless: restart `driftless run`, and report it with the lines of the run's output",
    )
