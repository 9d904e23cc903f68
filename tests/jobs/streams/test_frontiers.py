"""Up to which moment all events have been read."""

from __future__ import annotations

import pytest

from jobs.streams.frontiers import SLACK_MS, EventFrontiers, Moment


@pytest.fixture
def written() -> dict[str, dict[int, int]]:
    return {"clicks": {0: 0, 1: 0}}


def test_a_moment_is_reached_when_all_that_was_written_by_then_is_read(
    written: dict[str, dict[int, int]], clock: list[float]
) -> None:
    now = [1_000.0]
    frontiers = EventFrontiers(lambda: Moment(now[0]), lambda: {topic: dict(ends) for topic, ends in written.items()})
    assert frontiers.look({})
    assert frontiers.reached_ms == 1_000_000 - SLACK_MS, "nothing was written by then"
    written["clicks"] = {0: 5, 1: 3}
    now[0], clock[0] = 1_001.0, clock[0] + 1
    assert not frontiers.look({"clicks": {0: 5, 1: 2}})
    written["clicks"] = {0: 9, 1: 9}
    now[0], clock[0] = 1_002.0, clock[0] + 1
    assert frontiers.look({"clicks": {0: 5, 1: 3}})
    assert frontiers.reached_ms == 1_001_000 - SLACK_MS, "what came after that moment need not be read"


def test_a_partition_that_is_new_holds_the_moment_back(written: dict[str, dict[int, int]]) -> None:
    written["clicks"] = {0: 1, 1: 1, 2: 4}
    frontiers = EventFrontiers(lambda: Moment(50.0), lambda: written)
    assert not frontiers.look({"clicks": {0: 1, 1: 1}})
    assert frontiers.look({"clicks": {0: 1, 1: 1, 2: 4}})


def test_every_topic_counts(written: dict[str, dict[int, int]]) -> None:
    written["views"] = {0: 1}
    frontiers = EventFrontiers(lambda: Moment(50.0), lambda: written)
    assert not frontiers.look({"clicks": {0: 0, 1: 0}})
    assert frontiers.look({"views": {0: 1}})


def test_a_clock_that_goes_back_takes_nothing_back(written: dict[str, dict[int, int]], clock: list[float]) -> None:
    now = [100.0]
    frontiers = EventFrontiers(lambda: Moment(now[0]), lambda: written)
    assert frontiers.look({})
    now[0], clock[0] = 90.0, clock[0] + 1
    assert not frontiers.look({})
    assert frontiers.reached_ms == 100_000 - SLACK_MS


def test_when_too_many_wait_the_newest_is_kept(written: dict[str, dict[int, int]], clock: list[float]) -> None:
    written["clicks"] = {0: 1}
    moment = [0.0]
    frontiers = EventFrontiers(lambda: Moment(moment[0]), lambda: written)
    for second in range(2_000):
        moment[0], clock[0] = 1_000.0 + second, clock[0] + 1
        assert not frontiers.look({})
    assert frontiers.look({"clicks": {0: 1}})
    assert frontiers.reached_ms == 2_999_000 - SLACK_MS


def test_the_newest_moment_within_what_is_planned_is_known_before_it_is_read(
    written: dict[str, dict[int, int]], clock: list[float]
) -> None:
    now = [1_000.0]
    frontiers = EventFrontiers(lambda: Moment(now[0]), lambda: dict(written))
    for second in range(3):
        written["clicks"] = {0: 1 + second}
        now[0], clock[0] = 1_000.0 + second, clock[0] + 1
        assert not frontiers.look({"clicks": {0: 0}})
    assert frontiers.newest_within({"clicks": {0: 0}}) == 0
    assert frontiers.newest_within({"clicks": {0: 2}}) == 1_001_000 - SLACK_MS
    assert frontiers.reached_ms == 0, "planned is not read"
    assert frontiers.look({"clicks": {0: 3}})
    assert frontiers.newest_within({"clicks": {0: 3}}) == 0, "nothing waits"
