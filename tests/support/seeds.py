"""Seeds of the tests that try something else in every run. `DRIFTLESS_TEST_SEED` gives the one that failed again."""

from __future__ import annotations

import os
import random

_GIVEN = os.environ.get("DRIFTLESS_TEST_SEED")
_RUN = os.environ.setdefault("DRIFTLESS_TEST_RUN", str(random.randrange(10**9)))
"""The same in all processes of a run: each must find the same tests."""


def seeds(test: str, count: int) -> list[int]:
    return [int(_GIVEN)] if _GIVEN else random.Random(f"{_RUN} {test}").sample(range(10**6), count)
