"""A clock for a module that has `time`."""

from __future__ import annotations


class Clock:
    """Only sleeping moves it, and whoever sets `now`."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
