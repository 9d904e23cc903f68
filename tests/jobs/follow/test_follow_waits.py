"""A follower that has nothing to do waits for a bell: its log moves, a marker comes, or it is asked for something."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from driftless.errors import SourceUnavailable
from driftless.facts.epochs import first_epoch
from driftless.kafka.client import Offsets, Topic
from driftless.marker import Marker
from driftless.sink import Applied
from jobs.brokers.end_offsets import Ends
from jobs.brokers.shared_answers import TopicFacts
from jobs.follow import generation_worker as follows
from jobs.follow.apply import SliceResult
from jobs.follow.generation_worker import GenerationWorker
from jobs.follow.job_spec import Job
from jobs.follow.readers_generation import ReadersGeneration
from jobs.log.frontier import Frontier, Pending
from jobs.spark.source import LogSource
from tests.support.machine import until

LOG = first_epoch("shop.public.items", "id", 1)


class Brokers:
    """Kafka with one log. `asked`: how often it was asked where it ends."""

    def __init__(self) -> None:
        self.end = 3
        self.asked = 0

    def described(self, names: dict[str, int]) -> dict[str, Topic]:
        return {name: Topic(name, "id", 1) for name in names}

    def topic_settings(self, name: str) -> dict[str, str]:  # noqa: ARG002
        return {"cleanup.policy": "compact", "delete.retention.ms": "604800000", "min.compaction.lag.ms": "0"}

    def beginnings(self, topic: str, partitions: int) -> Offsets:  # noqa: ARG002
        return {0: 0}

    def all_committed_ends(self, topics: dict[str, int]) -> dict[str, Offsets]:
        self.asked += 1
        return {topic: {0: self.end} for topic in topics}

    def committed_ends(self, topic: str, partitions: int) -> Offsets:  # noqa: ARG002
        return {0: self.end}

    def written_ends(self, topics: dict[str, int]) -> dict[str, Offsets]:
        return {topic: {0: self.end} for topic in topics}

    def leaders(self, topics: dict[str, int]) -> dict[str, Offsets]:
        return {topic: {0: 1} for topic in topics}


class Store:
    """Takes everything. `kept`: its checkpoint."""

    kept: str | None = None

    def check(self) -> None: ...

    def create(self, generation: int) -> None: ...

    def load(self, generation: int) -> str | None:  # noqa: ARG002
        return self.kept

    def save(self, generation: int, text: str, *, expected: str | None) -> bool:  # noqa: ARG002
        if self.kept not in (expected, text):
            return False
        self.kept = text
        return True

    def count(self, generation: int) -> int:  # noqa: ARG002
        return 0

    def promoted(self) -> int | None:
        return 1

    def close(self) -> None: ...


class NoQuarantine(list[object]):
    keys = None

    def load(self) -> None: ...

    def note(self, outcome: object) -> None: ...


@dataclass
class Running:
    follow: GenerationWorker
    brokers: Brokers
    pending: Pending
    store: Store
    applied: list[tuple[Offsets, int]]
    """Where each slice began, and the position that was claimed then."""
    steps: list[float] = field(default_factory=list)
    lost: list[bool] = field(default_factory=list)


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    brokers, pending = Brokers(), Pending(LOG.topic, 1)
    ends = Ends(cast("Any", brokers))
    ends.start()
    monkeypatch.setattr(follows, "LogReader", lambda *_: None)
    monkeypatch.setattr(follows, "name_jobs", lambda *_: None)
    monkeypatch.setattr("jobs.brokers.identity_check.keeps_all", lambda *_: None)
    store, applied = Store(), list[tuple[Offsets, int]]()

    def apply_slice(*given: Any) -> Any:
        applied.append((given[4].begin, follow.progress.lsn))
        return SliceResult(given[4].end, Applied(written=1))

    monkeypatch.setattr(follows, "apply_slice", apply_slice)
    source = LogSource("shop.public.item", {}, (), ())
    job = Job("item", "item", 1, LOG, source, cast("Any", SimpleNamespace(open=lambda: store)), 7e5)
    spark: Any = None
    held: Any = NoQuarantine()
    follow = GenerationWorker(
        job,
        cast("Any", brokers),
        spark,
        cast("Any", None),
        ends,
        TopicFacts(cast("Any", brokers)),
        pending,
        1,
        held,
        ReadersGeneration(),
    )
    found = Running(follow, brokers, pending, store, applied)

    def step(self: GenerationWorker, call: Callable[[GenerationWorker], None] = GenerationWorker._step) -> None:
        found.steps.append(time.monotonic())
        call(self)

    def check_lease() -> None:
        if found.lost:
            raise SourceUnavailable("the lease has not been renewed for 9 s")

    monkeypatch.setattr(GenerationWorker, "_step", step)
    follow.check_lease = check_lease
    thread = threading.Thread(target=follow.run, daemon=True)
    thread.start()
    yield found
    follow.stop.set()
    thread.join(10)
    ends.stop()
    assert not thread.is_alive()
    assert follow.progress.error is None, follow.progress.error


def mark(running: Running, lsn: int, *, awaited: bool = False) -> None:
    running.pending.add(Frontier(Marker(lsn, lsn / 10, awaited=awaited), {LOG.topic: {0: running.brokers.end}}))


def test_no_position_is_claimed_of_a_store_that_lost_what_it_had(running: Running) -> None:
    """The question comes long before the next checkpoint is due."""
    progress = running.follow.progress
    mark(running, 10)
    until("it to be live", lambda: (progress.state, progress.lsn) == ("live", 10))
    until("its checkpoint to say so", lambda: '"built": true' in (running.store.kept or ""))
    running.applied.clear()
    running.store.kept = None
    mark(running, 11, awaited=True)
    until("the position to be claimed", lambda: progress.lsn == 11)
    assert running.applied == [({0: 0}, 0)]


def test_what_is_new_is_applied_and_claimed_at_once(running: Running) -> None:
    progress = running.follow.progress
    until("all to be applied", lambda: progress.positions == {0: 3})
    mark(running, 10)
    until("the position to be claimed", lambda: progress.lsn == 10)
    assert progress.state == "live"
    running.brokers.end = 9
    until("what is new to be applied", lambda: progress.positions == {0: 9})
    late = []
    for lsn in range(11, 16):
        begun = time.monotonic()
        mark(running, lsn, awaited=True)
        while progress.lsn != lsn and time.monotonic() < begun + 10:
            time.sleep(0.001)
        late.append(time.monotonic() - begun)
    assert sorted(late)[2] < follows.LOOK_SECONDS / 2, f"it is rung for: {late}"


def test_where_only_time_has_passed_nothing_is_told_unless_somebody_waits(running: Running) -> None:
    """Every heartbeat of the source is a marker. The next renewal of the lease tells of what they say."""
    progress = running.follow.progress
    until("all to be applied", lambda: progress.positions == {0: 3})
    mark(running, 10)
    until("it to be live", lambda: progress.state == "live" and progress.documents is not None)
    until("the first position to be told", lambda: cast("threading.Event", progress.changed).is_set())
    progress.changed = told = threading.Event()
    mark(running, 11)
    until("the position to be claimed", lambda: progress.lsn == 11)
    assert not told.wait(0.5)
    running.brokers.end = 4
    until("the record to be applied", lambda: progress.positions == {0: 4})
    assert told.is_set(), "it moves"
    told.clear()
    mark(running, 12)
    assert told.wait(10), "the position of what was applied"
    told.clear()
    mark(running, 13)
    until("the position to be claimed", lambda: progress.lsn == 13)
    assert not told.wait(0.5)
    mark(running, 14, awaited=True)
    assert told.wait(10)
    assert progress.lsn == 14


def test_one_that_has_nothing_to_do_hardly_looks(running: Running) -> None:
    progress = running.follow.progress
    until("all to be applied", lambda: progress.positions == {0: 3})
    mark(running, 10)
    until("the position to be claimed", lambda: progress.lsn == 10)
    begun, before, lsn = time.monotonic(), len(running.steps), 11
    while time.monotonic() < begun + 2 * follows.LOOK_SECONDS:  # each heartbeat is a marker
        mark(running, lsn)
        lsn += 1
        time.sleep(0.2)
    assert len(running.steps) - before <= 4
    assert progress.lsn >= 11, "they are claimed all the same"


def test_one_that_is_paused_hears_that_it_is_to_go_on(running: Running) -> None:
    progress = running.follow.progress
    until("all to be applied", lambda: progress.positions == {0: 3})
    mark(running, 10)
    until("it to be live", lambda: progress.state == "live")
    running.follow.paused.set()
    until("it to be paused", lambda: progress.state == "paused")
    running.brokers.end = 5
    begun, before = time.monotonic(), len(running.steps)
    until("some time to pass", lambda: time.monotonic() > begun + 2 * follows.LOOK_SECONDS)
    assert len(running.steps) - before <= 4
    assert progress.positions == {0: 3}
    running.follow.paused.clear()
    until("it to go on", lambda: (progress.state, progress.positions) == ("live", {0: 5}))


def test_one_whose_lease_may_be_another_s_writes_nothing_until_it_is_renewed(running: Running) -> None:
    progress = running.follow.progress
    until("all to be applied", lambda: progress.positions == {0: 3})
    running.lost.append(True)
    running.brokers.end = 7
    until("it to wait", lambda: "has not been renewed" in progress.last_error)
    assert progress.positions == {0: 3}
    running.lost.clear()
    until("it to go on", lambda: progress.positions == {0: 7})
    until("the trouble to be over", lambda: not progress.last_error)
