"""Trying again: exponential backoff with full jitter, bounded in time."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from itertools import count

BASE_SECONDS = 0.1
CAP_SECONDS = 10.0


def pause(tries: int) -> float:
    """Seconds to wait after so many failed tries: anywhere from none to twice as many as the time before.

    Full jitter: writers that were refused together must not come back together.
    """
    # Not a secret: random is there to spread the load.
    return random.uniform(0, min(CAP_SECONDS, BASE_SECONDS * 2.0 ** min(tries, 32)))


def attempts(seconds: float) -> Iterator[int]:
    """Count tries, waiting between them; ends when `seconds` have passed. There is always a first and a last try."""
    deadline = time.monotonic() + seconds
    for tries in count():
        yield tries
        left = deadline - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(left, pause(tries)))
