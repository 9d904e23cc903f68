"""How long a query rests after a batch: several share their part of the machine, and many events are read at once."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.streams.pace import FEW_EVENTS, LONGEST_SECONDS, SHARE, QueryPace


class Waited:
    """An event that remembers for how long it was waited for."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def wait(self, seconds: float) -> None:
        self.seconds.append(round(seconds, 12))


def rests(cores: int, *batches: tuple[float, int]) -> list[float]:
    """After each batch: (how long it took, how many events it had)."""
    pace, waited = QueryPace(cores), Waited()
    for seconds, events in batches:
        told: Any = SimpleNamespace(batchDuration=seconds * 1000, numInputRows=events)
        pace.ended(told)
        pace.rest(waited)  # type: ignore[arg-type]
    return waited.seconds


@pytest.mark.parametrize("queries", [1, 2, 8])
def test_queries_share_their_part_of_the_machine(queries: int) -> None:
    with ExitStack() as active:
        for _ in range(queries):
            active.enter_context(QueryPace(2))
        first, second = rests(2, (0.3, 5), (0.3, 5))
        assert first == pytest.approx(0.3 * (queries / (2 * SHARE) - 1))
        # What Spark tells of the next batch has the rest in it.
        assert rests(2, (0.3, 5), (0.3 + first, 5)) == pytest.approx([first, first])
        assert second < first
        assert queries * 0.3 / (0.3 + first) == pytest.approx(2 * SHARE)
        assert rests(2, (0.3, FEW_EVENTS)) == [0]
        assert rests(2, (600.0, 5)) == [LONGEST_SECONDS]


def test_many_cores_let_queries_go_on() -> None:
    with QueryPace(16), QueryPace(16):
        assert rests(16, (0.3, 5)) == [0]
    assert rests(2, (0.3, 5)) == [0]
