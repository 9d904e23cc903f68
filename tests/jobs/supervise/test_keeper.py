"""Leases are kept by threads that do nothing else: what is slow, hangs or fails elsewhere makes none run out."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from driftless.control.lease import Lease
from driftless.control.request import ControlReader
from driftless.errors import Fenced, SourceUnavailable, SyncError
from driftless.facts.state import Fact, State
from jobs.follow.progress import Progress
from jobs.log.frontier import FrontierReader
from jobs.supervise import keeper as keepers
from jobs.supervise import leased as turns
from jobs.supervise.feed import ControlFeed
from jobs.supervise.keeper import Facts, Keeper
from jobs.supervise.leased import LeasedWorkers, Shared
from jobs.threads.background import Background
from jobs.views.progress import BuildProgress
from tests.support.machine import until

VALUE = "what is in a row"


class Record:
    """A record of the control topic."""

    def __init__(self, key: str, value: dict[str, object] | None, offset: int) -> None:
        self._key, self._value, self._offset = key, value, offset

    def key(self) -> bytes:
        return self._key.encode()

    def value(self) -> bytes | None:
        return None if self._value is None else json.dumps(self._value).encode()

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 2, self._offset * 1000


@dataclass
class StandIn:
    """Stands for a lease. `meet`: raised by the next write; `away`: writes wait for it."""

    follower: str = "item"
    held: bool = True
    token: int = 1
    renewed: float = 0.0
    writes: list[Facts] = field(default_factory=list)
    released: Facts | None = None
    meet: list[BaseException] = field(default_factory=list)
    writers: set[str] = field(default_factory=set)

    def last(self) -> dict[str, Any]:
        """What was told last of the worker."""
        return self.writes[-1].get(f"follower/{self.follower}/1") or {} if self.writes else {}

    def write(self, facts: Facts) -> list[Record]:
        self.writers.add(threading.current_thread().name)
        if self.meet:
            raise self.meet.pop()
        self.writes.append(facts)
        return [Record(key, value, len(self.writes)) for key, value in facts.items()]

    def release(self, facts: Facts) -> list[Record]:
        self.held, self.released = False, facts
        return []


class Reader:
    """Stands for the reader of the control topic."""

    def __init__(self) -> None:
        self.state = State({})
        self.brings: list[list[Record] | BaseException] = []

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def arrived(self, seconds: float) -> list[Record]:
        if not self.brings:
            time.sleep(min(seconds, 0.01))
            return []
        found = self.brings.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found


@dataclass
class Worker:
    """Stands for what follows a log."""

    progress: Progress = field(default_factory=lambda: Progress("item", "item", 1))
    stop: threading.Event = field(default_factory=threading.Event)
    history: int = 0
    group: str = "item/1"

    def fence(self, error: SyncError) -> None:
        self.progress.error = error
        self.stop.set()


class Item(LeasedWorkers[Any]):
    """One worker, and turns that a test says."""

    def __init__(self, shared: Shared, keeper: Keeper, turn: Callable[[State], Facts]) -> None:
        super().__init__(shared, keeper.lease.follower, keeper)
        self.worker = Worker(Progress(self.name, "item", 1))
        self._does = turn
        self.taken = 0

    def begin(self, state: State) -> None:  # noqa: ARG002
        thread = threading.Thread(target=self.worker.stop.wait, args=(60,), daemon=True)
        self._add(1, SimpleNamespace(worker=self.worker, thread=thread))

    def _turn(self, state: State) -> Facts:
        self.taken += 1
        return self._does(state)

    def concerns(self, key: str) -> bool:
        return key.startswith(f"request/{self.name}")


@dataclass
class Run:
    """What is under way in a process."""

    reader: Reader = field(default_factory=Reader)
    halted: list[SyncError] = field(default_factory=list)
    leases: list[StandIn] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    hung: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.feed = ControlFeed(cast("ControlReader", self.reader), self.halted.append)
        self.feed.start()

    def add(self, name: str, turn: Callable[[State], Facts] = lambda _: {}) -> tuple[StandIn, Item]:
        lease = StandIn(name)
        keeper = Keeper(cast("Lease", lease), self.feed.take)
        keeper.start()
        shared = SimpleNamespace(feed=self.feed, frontiers=SimpleNamespace(blocked_by=""))
        item = Item(cast("Shared", shared), keeper, turn)
        item.begin(self.feed.state)
        item.start()
        self.leases.append(lease)
        self.items.append(item)
        return lease, item

    def hang(self, _: State) -> Facts:
        self.hung.wait(60)
        return {}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setattr(keepers, "RENEW_SECONDS", 0.05)
    monkeypatch.setattr(keepers, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(turns, "LOOK_SECONDS", 0.05)
    run = Run()
    yield run
    run.hung.set()
    for item in run.items:
        item.stop()
        item.release()
    run.feed.stop()


def renewed(lease: StandIn, times: int = 5) -> None:
    before = len(lease.writes)
    until(f"the lease of {lease.follower} to be renewed", lambda: len(lease.writes) >= before + times)


def answer(state: State) -> Facts:
    return {"request/sibling/replay": None, "answer/sibling/replay": {"id": 1}} if state.by_prefix("request") else {}


@pytest.mark.usefixtures("run")
def test_a_lease_is_kept_before_anything_runs_under_it() -> None:
    """Spark takes 10 s to start."""
    lease = StandIn()
    keeper = Keeper(cast("Lease", lease))
    keeper.start()
    renewed(lease)
    keeper.release()
    assert (lease.held, lease.released) == (False, {})
    assert lease.writers == {"lease of item"}, "one thread alone writes through a producer"


def test_a_turn_that_hangs_holds_up_neither_its_lease_nor_any_other(run: Run) -> None:
    slow, hangs = run.add("slow", run.hang)
    sibling, _ = run.add("sibling", answer)
    until("a turn to hang", lambda: hangs.taken)
    hangs.worker.progress.put(floor={0: 0}, positions={0: 7})
    hangs.worker.progress.changed.set()
    renewed(slow)
    renewed(sibling)
    assert slow.last()["read_records"] == 7
    run.reader.brings.append([Record("request/sibling/replay", {"id": 1}, 1)])
    until(
        "a request of the sibling to be answered",
        lambda: {"id": 1} in [w.get("answer/sibling/replay") for w in sibling.writes],
    )
    assert run.feed.state.get("request/sibling/replay") is None
    assert hangs.taken == 1


def test_nothing_is_taken_back_by_records_that_are_read_late(run: Run) -> None:
    """What this process has dropped is not begun once more because its fact arrives after that."""
    run.feed.take([Record("thing/item/1", {"n": 1}, 5), Record("thing/item/2", {"n": 2}, 6)])  # type: ignore[list-item]
    before = run.feed.state
    run.feed.take([Record("thing/item/1", None, 8), Record("thing/item/2", {"n": 3}, 9)])  # type: ignore[list-item]
    run.reader.brings.append([Record("thing/item/1", {"n": 1}, 5), Record("thing/item/2", {"n": 2}, 6)])
    run.reader.brings.append([Record("other", {}, 7)])
    until("they to be read", lambda: run.feed.state.get("other") is not None)
    assert {key: fact.value for key, fact in run.feed.state.by_prefix("thing").items()} == {"item/2": {"n": 3}}
    assert sorted(before.by_prefix("thing/item")) == ["1", "2"], "a state that somebody looks at stays as it is"
    run.reader.brings.append([Record("thing/item/1", {"n": 4}, 10)])
    until("a later one to be read", lambda: run.feed.state.get("thing/item/1") == {"n": 4})


def test_who_is_fenced_by_a_renewal_stops_at_once_and_destroys_nothing(run: Run) -> None:
    lease, item = run.add("item", run.hang)
    until("a turn to hang", lambda: item.taken)
    lease.meet.append(Fenced("another runner took over the follower `item`"))
    until("the worker to be fenced", lambda: item.worker.progress.error)
    assert isinstance(item.worker.progress.error, Fenced)
    with pytest.raises(Fenced):
        item.confirm_lease()
    item.release()
    assert lease.released is None, "the lease is another's"


def test_a_lease_that_cannot_be_confirmed_is_sure_for_nothing(run: Run) -> None:
    lease, item = run.add("item")
    item.confirm_lease()
    lease.meet += [SourceUnavailable("Kafka cannot be reached")] * 1000
    with pytest.raises(SourceUnavailable):
        item.confirm_lease()
    lease.meet.clear()
    item.confirm_lease()
    renewed(lease)


def test_a_write_that_fails_is_told_of_again(run: Run) -> None:
    lease, item = run.add("item")
    lease.meet.append(SourceUnavailable("Kafka cannot be reached"))
    item.worker.progress.put(quarantined=3)
    item.worker.progress.changed.set()
    until("it to be told", lambda: lease.last().get("quarantined") == 3)


def failed(item: Item) -> dict[str, Any]:
    until("the worker to be ended", lambda: item.worker.progress.error is not None)
    return cast("dict[str, Any]", item.current_facts()["follower/item/1"])


def test_a_keeper_that_dies_takes_its_workers_along(run: Run) -> None:
    lease, item = run.add("item")
    sibling, other = run.add("sibling")
    lease.meet.append(RuntimeError(VALUE))
    fact = failed(item)
    assert fact["state"] == "failed"
    assert "the thread `lease of item` ended: RuntimeError at test_keeper.py:" in fact["trouble"]
    assert "restart `driftless run`" in fact["trouble"]
    assert VALUE not in fact["trouble"]
    until("that to be told with the last breath", lambda: lease.released is not None)
    last = cast("dict[str, Any]", (lease.released or {})["follower/item/1"])
    assert (last["state"], last["trouble"]) == (fact["state"], fact["trouble"])
    renewed(sibling)
    assert other.worker.progress.error is None


def test_turns_that_die_take_their_workers_along(run: Run) -> None:
    def dies(_: State) -> Facts:
        raise KeyError(VALUE)

    lease, item = run.add("item", dies)
    fact = failed(item)
    assert "the thread `turns of item` ended: KeyError at test_keeper.py:" in fact["trouble"]
    assert VALUE not in fact["trouble"]
    until("that to be told", lambda: lease.last().get("state") == "failed")


def test_turns_go_on_after_what_is_provided_for(run: Run) -> None:
    def refuses(_: State) -> Facts:
        raise SourceUnavailable("Kafka cannot be reached")

    _, item = run.add("item", refuses)
    until("several turns", lambda: item.taken > 3)
    assert item.worker.progress.error is None


def test_a_reader_of_the_control_topic_that_dies_ends_the_run(run: Run) -> None:
    run.reader.brings += [SourceUnavailable("Kafka cannot be reached"), ValueError(VALUE)]
    until("the run to be halted", lambda: run.halted, 30)
    assert "the thread `control topic` ended: ValueError" in str(run.halted[0])
    assert "restart `driftless run`" in run.halted[0].hint
    assert not run.feed.is_alive()


def test_a_reader_of_markers_that_dies_ends_the_run() -> None:
    halted: list[SyncError] = []
    frontiers = FrontierReader(cast("Any", SimpleNamespace(consumer=None)), "shop", halted.append)
    frontiers.start()
    until("the run to be halted", lambda: halted)
    assert "the thread `frontiers` ended: TypeError at frontier.py:" in str(halted[0])


def test_what_is_provided_for_ends_a_thread_with_its_own_words() -> None:
    halted: list[SyncError] = []

    class Dies(Background):
        def work(self) -> None:
            raise SourceUnavailable("Kafka cannot be reached", hint="is it up?")

    Dies("x", halted.append).start()
    until("it to be told", lambda: halted)
    assert (str(halted[0]), halted[0].hint) == ("Kafka cannot be reached", "is it up?")


def test_trouble_tells_since_when(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    _, item = run.add("item")
    clock = [1000.0]
    monkeypatch.setattr(time, "time", lambda: clock[0])

    def since() -> object:
        clock[0] += 5
        return cast("dict[str, Any]", item.current_facts()["follower/item/1"])["trouble_since"]

    item.keeper.release()
    progress = item.worker.progress
    assert since() is None
    progress.last_error = "Redis does not answer"
    assert (since(), since()) == (1010.0, 1010.0)
    progress.last_error, progress.switching = "", "Redis is full"
    assert since() == 1010.0, "it goes on"
    progress.switching = ""
    assert since() is None
    progress.last_error = "Redis does not answer"
    assert since() == 1030.0
    progress.error = SyncError("no more")
    assert since() == 1035.0, "what ended it is another matter"


def test_a_view_says_what_ended_it() -> None:
    build = SimpleNamespace(log=SimpleNamespace(topic="t"))
    progress = BuildProgress(cast("Any", build))
    assert (progress.to_json()["error"], progress.to_json()["state"]) == (None, "bootstrapping")
    progress.error = SyncError("a document is too large", hint="leave a column out")
    assert progress.to_json()["error"] == "a document is too large; leave a column out"
    assert progress.to_json()["state"] == "failed"


def test_facts_are_of_the_kind_that_is_asked_for() -> None:
    state = State({"follower/a/1": Fact({"n": 1}, 5.0, 0), "followers/b": Fact({}, 6.0, 1), "x": Fact({}, 1.0, 2)})
    assert sorted(state.by_prefix("follower")) == ["a/1"]
    assert sorted(state.by_prefix("follower/a")) == ["1"]
    after = state.having({"follower/a/2": Fact({"n": 2}, 7.0, 3), "x": None})
    assert (sorted(after.by_prefix("follower/a")), after.get("x"), after.now) == (["1", "2"], None, 7.0)
    assert (sorted(state.by_prefix("follower/a")), state.get("x"), state.now) == (["1"], {}, 6.0)
    state.set("follower/a/3", {"n": 3})
    assert sorted(state.by_prefix("follower/a")) == ["1", "3"]
