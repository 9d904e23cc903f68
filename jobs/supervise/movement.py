"""How long something that should get on has stood still, for those who see it from outside."""

from __future__ import annotations

import time


class Movement:
    """Compares what it is given with the last, each time that it is asked. By one machine's clock, never two."""

    def __init__(self) -> None:
        self._last: object = None
        self._moved_at = time.monotonic()

    def still_seconds(self, *where: object) -> float:
        """Seconds since any part of `where` was another."""
        if where != self._last:
            self._last, self._moved_at = where, time.monotonic()
        return round(time.monotonic() - self._moved_at, 1)
