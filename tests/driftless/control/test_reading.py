"""What Debezium tells of reading all tables, and a log whose topic was made anew."""

from __future__ import annotations

import json

import pytest

from driftless.control.initial_snapshot import InitialSnapshot, next_initial_snapshot
from driftless.errors import SourceError
from driftless.facts.epochs import TopicLog, first_epoch


def told(kind: str, at: float, aggregate: str = "Initial Snapshot") -> bytes:
    return json.dumps({"aggregate_type": aggregate, "type": kind, "timestamp": round(at * 1000)}).encode()


def test_the_newest_reading_counts_and_has_ended_only_by_its_own_end() -> None:
    found: InitialSnapshot | None = None
    seen = []
    for record in (
        told("STARTED", 1),
        told("IN_PROGRESS", 2),
        told("COMPLETED", 3),
        told("STARTED", 4, "Incremental Snapshot"),
        told("SKIPPED", 5),
        told("STARTED", 6),
        told("ABORTED", 7),
    ):
        found = next_initial_snapshot(found, record)
        seen.append(found)
    first = InitialSnapshot(1, 3)
    assert seen == [InitialSnapshot(1), InitialSnapshot(1), first, first, first, InitialSnapshot(6), InitialSnapshot(6)]


def test_an_end_without_a_beginning_tells_nothing() -> None:
    assert next_initial_snapshot(None, told("COMPLETED", 3)) is None


def test_a_log_in_a_topic_made_anew_is_still_what_it_was_to_who_follows_the_older_one() -> None:
    old = first_epoch("t", "a", 2).begin({0: 5, 1: 7}, "TRUNCATE", 100, read=9.0)
    log = old.with_topic("b", 3).begin({0: 0, 1: 0, 2: 0}, "made anew", 200)
    assert TopicLog.from_json(log.to_json()) == log
    assert (log.newest.number, log.newest.read, log.floor) == (3, 9.0, {0: 0, 1: 0, 2: 0})
    assert log.until_epoch(3).epoch_of(0, 3) == 3, "an older epoch of another topic counts for nothing"
    assert len(log.until_epoch(3).epochs) == 1
    assert log.until_epoch(2).topic_id == "a"
    assert [e.number for e in log.until_epoch(2).epochs] == [1, 2]
    with pytest.raises(SourceError, match="no epoch 4 yet"):
        log.until_epoch(4)
