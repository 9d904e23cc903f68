"""Where logs end: one question for many followers, and nobody's error is another's."""

from __future__ import annotations

from typing import cast

import pytest

from driftless.errors import SourceError
from driftless.kafka import Kafka, Offsets
from jobs import ends
from jobs.ends import Ends


class Brokers:
    """Two partitions in each topic; the second is always one ahead. `asked`: the topics of each request."""

    def __init__(self) -> None:
        self.topics = {"orders": 5, "lines": 50}
        self.asked: list[list[str]] = []

    def all_committed_ends(self, topics: dict[str, int]) -> dict[str, Offsets]:
        self.asked.append(sorted(topics))
        if gone := sorted(topics.keys() - self.topics.keys()):
            raise SourceError(f"there is no topic {gone[0]}")
        return {t: {p: self.topics[t] + p for p in range(n)} for t, n in topics.items()}

    def committed_ends(self, topic: str, partitions: int) -> Offsets:
        return self.all_committed_ends({topic: partitions})[topic]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("jobs.ends.time.monotonic", lambda: now[0])
    return now


def test_who_asks_at_the_same_time_is_answered_by_one_request(clock: list[float]) -> None:
    brokers = Brokers()
    known = Ends(cast("Kafka", brokers))
    assert known.committed("orders", 2) == {0: 5, 1: 6}
    assert known.committed("lines", 2) == {0: 50, 1: 51}
    clock[0] += ends.FRESH_SECONDS * 2
    brokers.topics["lines"] = 60
    for _ in range(3):
        assert known.committed("orders", 2) == {0: 5, 1: 6}
        assert known.committed("lines", 2) == {0: 60, 1: 61}
    assert brokers.asked == [["orders"], ["lines", "orders"], ["lines", "orders"]]


def test_an_answer_is_asked_for_again_when_it_is_old_and_what_nobody_wants_is_left_out(clock: list[float]) -> None:
    brokers = Brokers()
    known = Ends(cast("Kafka", brokers))
    known.committed("orders", 2)
    known.committed("lines", 2)
    clock[0] += 2.0
    brokers.topics["lines"] = 70
    assert known.committed("lines", 2) == {0: 70, 1: 71}
    assert brokers.asked[2:] == [["lines"]]


def test_a_topic_that_is_gone_is_told_to_its_follower_alone(clock: list[float]) -> None:
    """Everybody asks alone for a while; then together again, without the one whom nobody wants any more."""
    brokers = Brokers()
    known = Ends(cast("Kafka", brokers))
    known.committed("orders", 2)
    known.committed("lines", 2)
    del brokers.topics["orders"], brokers.asked[:]
    for _ in range(3):
        clock[0] += ends.FRESH_SECONDS * 2
        assert known.committed("lines", 2) == {0: 50, 1: 51}
        with pytest.raises(SourceError, match="there is no topic orders"):
            known.committed("orders", 2)
    assert [asked for asked in brokers.asked if len(asked) > 1] == [["lines", "orders"]]
    clock[0] += 6.0
    brokers.topics |= {"more": 7}
    for topic in ("lines", "more"):
        known.committed(topic, 1)
    assert brokers.asked[-2:] == [["lines"], ["lines", "more"]]
