"""When a stream is overloaded: by how old its oldest unread event is, and not by what it cannot read yet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from driftless.facts.event_source import EventSource
from driftless.facts.streams import StreamBuild, stream_table
from jobs.streams import overload
from jobs.streams.overload import OverloadCheck

NOW = 1_000.0
WAITS = EventSource("waits", "", {0: 0, 1: 0}, {}, "at", None, 0)
SKIPS = replace(WAITS, topic="skips", behind=5_000)


class Log:
    """Of each topic: how far a reader may go, and when the first unread record was written, in seconds."""

    def __init__(self, ends: dict[str, dict[int, int]], oldest: float) -> None:
        self._ends, self._oldest = ends, oldest

    def committed_ends(self, topic: str, partitions: int) -> dict[int, int]:
        assert partitions == 2
        return self._ends[topic]

    def time_of(self, topic: str, partition: int, offset: int) -> int:
        assert (topic, partition, offset) == ("skips", 1, 7)
        return int(self._oldest * 1000)


@pytest.mark.parametrize(
    ("end", "oldest", "behind", "over"),
    [
        (9, NOW - 5.001, 6_000, True),
        (9, NOW - 5, 6_000, False),
        (9, NOW - 60, 5_000, False),
        (7, NOW - 60, 60_000, False),
    ],
    ids=["older than it may be", "as old as it may be", "the stream is not behind", "what is left is not decided"],
)
def test_the_oldest_event_that_could_be_read_decides(
    monkeypatch: pytest.MonkeyPatch, end: int, oldest: float, behind: int, over: bool
) -> None:
    monkeypatch.setattr(overload, "LOOK_SECONDS", 0)
    log: Any = Log({"skips": {0: 3, 1: end}, "waits": {0: 99, 1: 99}}, oldest)
    build = StreamBuild("s", 1, "", {"w": WAITS, "s": SKIPS}, stream_table("s", (), ()), "", 1)
    check = OverloadCheck(log, build, lambda: NOW)
    assert check.is_over({"skips": {0: 3, 1: 7}, "waits": {0: 0, 1: 0}}, behind) is over


def test_events_that_may_not_be_left_unread_never_are() -> None:
    log: Any = None  # it is not asked
    build = StreamBuild("s", 1, "", {"w": WAITS}, stream_table("s", (), ()), "", 1)
    assert not OverloadCheck(log, build, lambda: NOW).is_over({}, 10**9)
