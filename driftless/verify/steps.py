"""How far a comparison is, and how fast it may go."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass
class Step:
    """Reading one stage, as cli/output/progress.py shows it."""

    follower: str
    total: int = 0
    done: int = 0
    state: str = "reading"

    @property
    def positions(self) -> Mapping[int, int]:
        return {0: self.done}

    def end(self) -> None:
        self.total = self.done
        self.state = "read"


class RateLimiter:
    """Holds whoever reads to so many rows a second; 0: as fast as it goes. Each stage has one of its own."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._begun = time.monotonic()
        self._done = 0
        self._ended = threading.Event()

    def __call__(self, rows: int) -> None:
        if self._rate <= 0:
            return
        self._done += rows
        ahead = self._done / self._rate - (time.monotonic() - self._begun)
        if ahead > 0:
            self._ended.wait(ahead)
