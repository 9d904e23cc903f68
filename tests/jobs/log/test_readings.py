"""Epochs that begin where Debezium has read all tables anew, decided on logs in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from driftless.facts.epochs import TopicLog, first_epoch
from driftless.facts.state import Fact, State
from driftless.kafka.client import Kafka, Offsets
from jobs.log.resnapshots import WHY, Readings

NOTICES = "shop.notifications"


@dataclass
class Record:
    """A record."""

    at: float = 0.0
    headers_: dict[str, bytes] = field(default_factory=dict)
    value_: bytes | None = b"{}"
    place: int = 0

    def headers(self) -> list[tuple[str, bytes]]:
        return list(self.headers_.items())

    def offset(self) -> int:
        return self.place

    def value(self) -> bytes | None:
        return self.value_


def notice(kind: str, at: float, place: int = 0) -> Record:
    """What Debezium tells of its reading of all tables."""
    told = {"aggregate_type": "Initial Snapshot", "type": kind, "timestamp": round(at * 1000)}
    return Record(at, value_=json.dumps(told).encode(), place=place)


@dataclass
class Logs:
    """Topics in memory: each partition a list of records, None for one that was compacted away."""

    topics: dict[str, list[list[Record | None]]]
    undecided: int = 0

    def add(self, topic: str, partition: int, at: float, **headers: bytes) -> None:
        log = self.topics[topic][partition]
        log.append(Record(at, headers, place=len(log)))

    def notice(self, kind: str, at: float) -> None:
        log = self.topics[NOTICES][0]
        log.append(notice(kind, at, len(log)))

    def written_ends(self, topics: Mapping[str, int]) -> dict[str, Offsets]:
        return {topic: {p: len(log) for p, log in enumerate(self.topics[topic])} for topic in topics}

    def committed_ends(self, topic: str, partitions: int) -> Offsets:
        held = self.undecided if topic == NOTICES else 0
        return {p: len(self.topics[topic][p]) - held for p in range(partitions)}

    def decided_ends(self, topic: str, partitions: int, seconds: float) -> Offsets:  # noqa: ARG002
        return self.committed_ends(topic, partitions)

    def beginnings(self, topic: str, partitions: int) -> Offsets:
        assert topic in self.topics
        return dict.fromkeys(range(partitions), 0)

    def read_to_end(self, topic: str, *, begin: int, isolation: str) -> Iterator[Record]:
        assert isolation == "read_committed"
        end = self.committed_ends(topic, 1)[0]
        yield from (record for record in self.topics[topic][0][begin:end] if record is not None)

    def offsets_at(self, topic: str, partitions: int, time: float) -> Offsets:
        found = {}
        for p in range(partitions):
            log = self.topics[topic][p]
            later = (n for n, record in enumerate(log) if record is not None and record.at >= time)
            found[p] = next(later, len(log))
        return found

    def read_between(self, topic: str, begin: Offsets, ends: Offsets) -> Iterator[Record]:
        for p, end in ends.items():
            yield from (record for record in self.topics[topic][p][begin[p] : end] if record is not None)


@dataclass
class Known:
    """The control topic."""

    state: State
    writes: list[dict[str, Any]] = field(default_factory=list)

    def read(self) -> State:
        return self.state

    def write(self, facts: dict[str, Any]) -> None:
        self.writes.append(facts)
        for key, value in facts.items():
            self.state.set(key, value)

    def log(self, table: str) -> TopicLog:
        return TopicLog.from_json(cast("dict[str, Any]", self.state.get(f"epochs/{table}")))


@pytest.fixture
def logs() -> Logs:
    """Two tables of two partitions each, the second one empty, as after the first reading."""
    logs = Logs({"items": [[], []], "empty": [[], []], NOTICES: [[]]})
    logs.notice("STARTED", 10)
    for p in (0, 0, 1):
        logs.add("items", p, 11, op=b"r", lsn=b"500")
    return logs


@pytest.fixture
def known() -> Known:
    facts = {f"epochs/{name}": first_epoch(name, "id", 2).to_json() for name in ("items", "empty")}
    return Known(State({key: Fact(value, 0.0, 0) for key, value in facts.items()}))


@pytest.fixture
def readings(logs: Logs, known: Known) -> Readings:
    readings = Readings(cast("Kafka", logs), "shop")
    readings._control = known  # type: ignore[assignment]
    return readings


def test_nothing_is_claimed_before_the_first_reading_has_ended(logs: Logs, readings: Readings, known: Known) -> None:
    assert readings.hear()
    readings.account(99)
    assert (readings.covers("items", 0.0), known.writes) == (False, [])
    logs.notice("COMPLETED", 12)
    assert readings.hear()
    readings.account(11.9)  # a marker of before
    assert (readings.covers("items", 0.0), known.writes) == (False, [])
    readings.account(12.1)
    assert readings.covers("items", 0.0)
    assert readings.covers("empty", 0.0)
    assert known.writes == [{"read/items": {"at": 12.0}, "read/empty": {"at": 12.0}}], "no epoch begins there"


def test_a_second_reading_begins_an_epoch_where_its_rows_do(logs: Logs, readings: Readings, known: Known) -> None:
    logs.notice("COMPLETED", 12)
    readings.hear()
    readings.account(13)
    logs.add("items", 0, 20, op=b"u", lsn=b"600")
    logs.notice("STARTED", 30)
    assert readings.hear()
    assert not readings.covers("items", 0.0), "what it does not tell is still there"
    logs.add("items", 0, 31, op=b"r", lsn=b"700")
    logs.add("items", 1, 31, op=b"r", lsn=b"700")
    logs.add("items", 0, 40, op=b"u", lsn=b"800")
    logs.notice("COMPLETED", 32)
    assert readings.hear()
    readings.account(33)
    newest = known.log("items").newest
    assert (newest.number, newest.floors, newest.lsn, newest.read, newest.why) == (2, {0: 3, 1: 1}, 700, 32.0, WHY)
    assert known.log("empty").newest.number == 1
    assert not readings.covers("items", 0.0), "a generation of the old epoch claims nothing more"
    assert readings.covers("items", 32.0)
    assert readings.covers("empty", 0.0)
    readings.account(34)
    assert len(known.writes) == 2


def test_a_reading_that_was_broken_off_counts_from_the_one_that_ended(
    logs: Logs, readings: Readings, known: Known
) -> None:
    logs.notice("STARTED", 20)
    logs.add("items", 1, 21, op=b"r", lsn=b"550")
    logs.notice("COMPLETED", 22)
    readings.hear()
    readings.account(23)
    assert known.log("items").newest.floors == {0: 2, 1: 1}
    assert known.log("items").newest.number == 2


def test_another_process_finds_the_same_and_writes_nothing(logs: Logs, readings: Readings, known: Known) -> None:
    logs.notice("STARTED", 20)
    logs.add("items", 1, 21, op=b"r", lsn=b"550")
    logs.notice("COMPLETED", 22)
    readings.hear()
    readings.account(23)
    written, other = len(known.writes), Readings(cast("Kafka", logs), "shop")
    other._control = known  # type: ignore[assignment]
    assert other.hear()
    other.account(23)
    assert len(known.writes) == written + 1
    assert known.writes[-1] == {"read/empty": {"at": 22.0}}, "which is what it was"
    assert (other.covers("items", 0.0), other.covers("items", 22.0), other.covers("empty", 0.0)) == (False, True, True)


def test_a_reading_that_was_asked_for_begins_an_epoch_where_there_was_nothing_too(
    logs: Logs, readings: Readings, known: Known
) -> None:
    """`apply` has made generations that begin with it; nobody would ever fill them."""
    logs.notice("COMPLETED", 12)
    readings.hear()
    readings.account(13)
    known.write({"read/empty": {"at": 12.0, "after": 10.0}})
    other = Readings(cast("Kafka", logs), "shop")
    other._control = known  # type: ignore[assignment]
    assert other.hear()
    other.account(13)
    assert known.log("empty").newest.number == 1, "it has not been read since"
    logs.notice("STARTED", 20)
    logs.notice("COMPLETED", 22)
    readings.hear()
    readings.account(23)
    newest = known.log("empty").newest
    assert (newest.number, newest.floors, newest.read) == (2, {0: 0, 1: 0}, 22.0)
    assert (readings.covers("empty", 0.0), readings.covers("empty", 22.0)) == (False, True)
    logs.notice("STARTED", 30)
    logs.notice("COMPLETED", 32)
    readings.hear()
    readings.account(33)
    assert known.log("empty").newest.number == 2, "once is enough"


def test_compaction_does_not_make_a_first_reading_look_like_a_second(
    logs: Logs, readings: Readings, known: Known
) -> None:
    """Its first rows are gone, since they were changed."""
    logs.notice("COMPLETED", 12)
    logs.topics["items"][0][0] = None
    readings.hear()
    readings.account(13)
    assert known.log("items").newest.number == 1
    assert readings.covers("items", 0.0)


def test_a_table_that_was_read_by_itself_later_needs_no_other_epoch(
    logs: Logs, readings: Readings, known: Known
) -> None:
    log = known.log("items").begin({0: 2, 1: 1}, "another column", 900, read=12.0)
    known.write(log.fact("items"))
    logs.notice("COMPLETED", 12)
    readings.hear()
    assert readings.covers("items", 12.0)
    readings.account(13)
    assert known.log("items").newest.number == 2


def test_what_is_not_decided_yet_is_waited_for(logs: Logs, readings: Readings) -> None:
    logs.undecided = 1
    assert not readings.hear()
    logs.undecided = 0
    assert readings.hear()
    assert not readings.covers("items", 0.0)
