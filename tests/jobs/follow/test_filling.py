"""When a follower leaves what is new for a larger slice."""

from __future__ import annotations

import pytest

from driftless.marker import Marker
from jobs.follow.batching import ENOUGH, STILL_SECONDS, BulkLoadBatcher
from jobs.follow.progress import Progress
from jobs.log.frontier import Frontier, Pending


class Follower:
    def __init__(self) -> None:
        self.now = 100.0
        self.pending = Pending("orders", 2)
        self.progress = Progress("search", "order", 1, ends={0: 1000, 1: 0})
        self.progress.put(positions={0: 1000, 1: 0})
        self._batcher = BulkLoadBatcher(lambda: self.now)

    def should_wait(self, after: float, **grown: int) -> bool:
        """When so many times the time of a log that stands still has passed, and the log has so many more."""
        self.now += after * STILL_SECONDS
        self.progress.ends = {**self.progress.ends, 0: self.progress.ends[0] + grown.get("by", 0)}
        return self._batcher.should_wait(self.progress, self.pending)


@pytest.fixture
def follower() -> Follower:
    return Follower()


def test_what_is_new_is_left_until_the_log_stands_still(follower: Follower) -> None:
    assert follower.should_wait(0, by=5000)
    assert follower.should_wait(0.9, by=1)
    assert follower.should_wait(0.9), "it has grown not long ago"
    assert not follower.should_wait(0.2)
    assert follower.should_wait(0.1, by=1), "it goes on"


def test_enough_is_taken_though_the_log_grows(follower: Follower) -> None:
    assert follower.should_wait(0, by=ENOUGH - 1)
    assert not follower.should_wait(0.1, by=1)
    follower.progress.put(positions=dict(follower.progress.ends))
    assert follower.should_wait(0.1, by=5000)


def test_who_is_read_takes_everything_at_once(follower: Follower) -> None:
    follower.progress.put(built=True)
    assert not follower.should_wait(0, by=5000)


def test_when_a_position_can_be_claimed_the_log_is_full(follower: Follower) -> None:
    follower.pending.add(Frontier(Marker(7, 1.0), {"orders": {0: 6000, 1: 0}}))
    assert not follower.should_wait(0, by=5000)
    follower.pending.reached({0: 6000, 1: 0})
    assert follower.should_wait(0, by=1)
