"""Where logs end: one question for many followers, and nobody's error is another's."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import cast

import pytest

from driftless.errors import SourceError, SyncError
from driftless.kafka.client import Kafka, Offsets
from jobs.brokers import end_offsets as ends
from jobs.brokers.end_offsets import Ends
from jobs.threads.background import Bell
from tests.support.machine import until


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


# -- waiting ------------------------------------------------------------------------------------------------------


@pytest.fixture
def waited() -> Iterator[tuple[Brokers, Ends, list[SyncError]]]:
    brokers, failed = Brokers(), list[SyncError]()
    known = Ends(cast("Kafka", brokers), failed.append)
    known.start()
    yield brokers, known, failed
    known.stop()
    known.join(10)
    assert not known.is_alive()


def wait(known: Ends, topic: str, seen: Offsets, seconds: float = 30) -> tuple[threading.Thread, Bell]:
    bell = Bell()
    thread = threading.Thread(target=known.wait, args=(topic, 2, seen, bell, seconds), daemon=True)
    thread.start()
    return thread, bell


def test_who_waits_is_woken_when_its_own_log_moves(waited: tuple[Brokers, Ends, list[SyncError]]) -> None:
    """One question is asked for all who wait, ten times a second where nothing happens."""
    brokers, known, _ = waited
    first, _ = wait(known, "orders", {0: 5, 1: 6})
    second, bell = wait(known, "lines", {0: 50, 1: 51})
    until("all to be asked for at once, again and again", lambda: brokers.asked.count(["lines", "orders"]) > 20)
    before, begun = len(brokers.asked), time.monotonic()
    until("a second to pass", lambda: time.monotonic() > begun + 1)
    assert len(brokers.asked) - before <= 15
    brokers.topics["orders"] = 6
    first.join(10)
    assert not first.is_alive()
    assert second.is_alive()
    assert known.committed("orders", 2) == {0: 6, 1: 7}
    bell.set()
    second.join(10)
    assert not second.is_alive(), "it has been told something else"


def test_who_has_seen_another_end_is_woken_at_once(waited: tuple[Brokers, Ends, list[SyncError]]) -> None:
    """The log has moved between its own look and its wait."""
    _, known, _ = waited
    thread, _ = wait(known, "orders", {0: 4, 1: 6})
    thread.join(10)
    assert not thread.is_alive()


def test_who_comes_back_to_wait_where_nobody_did_is_woken(waited: tuple[Brokers, Ends, list[SyncError]]) -> None:
    """Meanwhile nobody asks; the log ends where it was last seen to end, and moves only later."""
    brokers, known, _ = waited
    first, bell = wait(known, "orders", {0: 5, 1: 6})
    until("the log to be looked at", lambda: len(brokers.asked) > 3)
    bell.set()
    first.join(10)
    before = [-1]

    def quiet() -> bool:
        last, before[0] = before[0], len(brokers.asked)
        return last == before[0]

    until("nobody to ask any more", quiet)
    second, _ = wait(known, "orders", {0: 5, 1: 6}, seconds=3600)
    until("the log to be looked at again", lambda: len(brokers.asked) > before[0], 10)
    brokers.topics["orders"] = 6
    second.join(10)
    assert not second.is_alive()


def test_who_waits_meets_an_error_itself(waited: tuple[Brokers, Ends, list[SyncError]]) -> None:
    brokers, known, failed = waited
    del brokers.topics["orders"]
    thread, _ = wait(known, "orders", {0: 5, 1: 6})
    thread.join(10)
    assert not thread.is_alive()
    with pytest.raises(SourceError, match="there is no topic orders"):
        known.committed("orders", 2)
    brokers.topics["orders"] = 7
    thread, _ = wait(known, "orders", {0: 5, 1: 6})
    thread.join(10)
    assert not thread.is_alive(), "it is asked for again"
    assert not failed


class Quiet:
    """Logs that are watched: topic -> from where on."""

    def __init__(self) -> None:
        self.watched: dict[str, Offsets] = {}

    def watch(self, topic: str, ends: Offsets) -> None:
        self.watched[topic] = ends

    def leave(self, topic: str) -> None:
        self.watched.pop(topic, None)


@pytest.fixture
def quiet(waited: tuple[Brokers, Ends, list[SyncError]]) -> Quiet:
    waited[1].quiet = quiet = Quiet()
    return quiet


def test_of_a_log_that_is_still_nobody_is_asked_until_it_has_a_record(
    waited: tuple[Brokers, Ends, list[SyncError]], quiet: Quiet
) -> None:
    brokers, known, _ = waited
    first, _ = wait(known, "orders", {0: 5, 1: 6})
    until("the log to be watched", lambda: quiet.watched == {"orders": {0: 5, 1: 6}})
    asked, begun = len(brokers.asked), time.monotonic()
    until("a second to pass", lambda: time.monotonic() > begun + 1)
    assert known.committed("orders", 2) == {0: 5, 1: 6}
    assert len(brokers.asked) == asked, "it is known"
    brokers.topics["orders"] = 6
    assert known.committed("orders", 2, {0: 6, 1: 6}) == {0: 6, 1: 7}, "who knows of more asks"
    assert first.is_alive()
    quiet.leave("orders")
    known.heed_record("orders")
    first.join(1)
    assert not first.is_alive()
    assert known.committed("orders", 2) == {0: 6, 1: 7}


def test_a_log_that_is_still_is_asked_for_now_and_then(
    waited: tuple[Brokers, Ends, list[SyncError]], quiet: Quiet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mark that ends a transaction is no record, and moves it all the same."""
    monkeypatch.setattr(ends, "QUIET_SECONDS", 0.5)
    brokers, known, _ = waited
    first, _ = wait(known, "orders", {0: 5, 1: 6})
    until("the log to be watched", lambda: bool(quiet.watched))
    brokers.topics["orders"] = 6
    first.join(10)
    assert not first.is_alive()
    assert not quiet.watched, "it is looked at often now"


def test_a_record_between_a_look_and_a_wait_is_not_missed(
    waited: tuple[Brokers, Ends, list[SyncError]], quiet: Quiet
) -> None:
    brokers, known, _ = waited
    first, bell = wait(known, "orders", {0: 5, 1: 6})
    until("the log to be watched", lambda: bool(quiet.watched))
    bell.set()
    first.join(10)
    brokers.topics["orders"] = 6
    known.heed_record("orders")
    second, _ = wait(known, "orders", {0: 5, 1: 6})
    second.join(1)
    assert not second.is_alive()


def test_an_asker_that_dies_ends_the_run(waited: tuple[Brokers, Ends, list[SyncError]]) -> None:
    brokers, known, failed = waited
    brokers.topics["orders"] = None  # type: ignore[assignment]
    wait(known, "orders", {0: 5, 1: 6})
    until("the run to be told", lambda: failed)
    assert "the thread `ends of logs` ended: TypeError" in str(failed[0])
