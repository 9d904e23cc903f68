"""Reading all tables anew: broken off at every step, the next `apply` brings it to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from connectors.pipeline.plan_context import PlanContext
from connectors.pipeline.resnapshot import plan_renewal
from connectors.postgres.server import Slot
from driftless.config.load import load
from driftless.config.models import Config
from driftless.facts.epochs import first_epoch, registered_log
from driftless.facts.state import Fact, State
from driftless.kafka.client import Offsets, Topic
from tests.connectors.pipeline.test_guard import IDENTITY
from tests.jobs.log.test_readings import Record, notice

TOPICS = ("shop.message", "shop.transaction", "shop.public.items")
OTHER = {**IDENTITY, "timeline": 2}


class Crash(Exception):
    """The process is killed here."""


@dataclass
class World:
    """Postgres, Connect, Kafka and the control topic, as one; crashes before the step of that number."""

    identities: dict[str, object] = field(default_factory=lambda: dict(IDENTITY))
    found: Slot | None = field(default_factory=lambda: Slot("driftless_shop", 900, 7, 0, "lost"))
    running: bool = True
    stored: int | None = 950
    topics: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOPICS, 1))
    facts: dict[str, Any] = field(default_factory=dict)
    made: int = 1
    crash_at: int = -1
    step: int = 0
    done: list[str] = field(default_factory=list)

    def _do(self, what: str) -> None:
        if self.step == self.crash_at:
            self.crash_at = -1
            raise Crash(what)
        self.step += 1
        self.done.append(what)

    # -- the source
    def identity(self) -> dict[str, object]:
        return self.identities

    def walsender(self, _: str) -> list[tuple[str, bytes]]:
        return [("2.history", b"")]

    def slot(self, _: str) -> Slot | None:
        return self.found

    def drop_slot(self, _: str) -> None:
        self._do("drop slot")
        assert not self.running, "somebody reads from it"
        self.found = None

    def lsn(self) -> int:
        return 2000

    def parents(self) -> dict[str, list[str]]:
        return {}

    def carried(self, _: str) -> dict[str, str]:
        return {}

    # -- Connect
    def config(self, _: str) -> dict[str, str]:
        return {}

    def position(self, _: str) -> tuple[int | None, bool]:
        return self.stored, True

    def state(self, _: str) -> tuple[str, str]:
        return ("RUNNING" if self.running else "STOPPED"), ""

    def stop(self, _: str) -> None:
        self._do("stop")
        self.running = False
        if self.found is not None:
            self.found = Slot(self.found.name, self.found.confirmed, None, 0, self.found.wal_status)

    def forget(self, _: str) -> None:
        self._do("forget")
        assert not self.running, "Connect refuses that"
        self.stored = None

    # -- Kafka
    def topic(self, name: str) -> Topic | None:
        return Topic(name, str(self.topics[name]), 1) if name in self.topics else None

    def delete(self, name: str) -> None:
        self._do(f"delete {name}")
        self.topics.pop(name, None)

    def create(self, name: str, partitions: int, settings: dict[str, str]) -> None:
        self._do(f"create {name}")
        assert (partitions, bool(settings)) == (1, True)
        self.made += 1
        self.topics[name] = self.made

    def written_ends(self, topics: dict[str, int]) -> dict[str, Offsets]:
        assert topics == {"shop.public.items": 1}
        return {"shop.public.items": {0: 70}}

    def read_to_end(self, topic: str, *, isolation: str) -> Iterator[Record]:
        assert (topic, isolation) == ("shop.notifications", "read_committed")
        yield from (notice("STARTED", 10), notice("COMPLETED", 12))

    # -- the control topic
    def read(self) -> State:
        return State({key: Fact(value, 0.0, 0) for key, value in self.facts.items() if value is not None})

    def write(self, facts: dict[str, Any]) -> None:
        self._do("write")
        self.facts |= facts


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "sync.yaml").write_text(
        "name: shop\nsource: {dsn: 'postgresql://a@b/shop', tables: {public.items: {}}}\n"
        "kafka: {bootstrap: 'b:1'}\nconnect: {url: 'http://b:1'}\nviews: {}\nfollowers: {}\n"
    )
    return load(tmp_path / "sync.yaml", {})


def world(**more: Any) -> World:
    facts = {
        "pipeline/identity": {**IDENTITY, "history": 3},
        "follower/a/1": {"applied_lsn": "0/384", "marker_time": 1.0, "live": True},
        "build/order/1/0": {"frontier_lsn": "0/384"},
        "epochs/public.items": first_epoch("shop.public.items", "1", 1).begin({0: 99}, "x", 0).to_json(),
        "epochs/public.empty": first_epoch("shop.public.empty", "gone", 1).to_json(),
        "read/public.empty": {"at": 12.0},
    }
    return World(facts=facts, **more)


def apply(config: Config, world: World, *, resnapshot: bool = False) -> int:
    """What `apply` does of it; how many actions that was."""
    any_ = cast("Any", world)
    context = PlanContext(any_, any_, any_, any_, any_)
    actions = plan_renewal(config, context, world.read(), resnapshot=resnapshot)
    for action in actions:
        action.do()
    return len(actions)


def count_of(config: Config, make: Callable[[], World]) -> int:
    whole = make()
    apply(config, whole)
    return whole.step


MAKE: dict[str, Callable[[], World]] = {
    "a lost slot": world,
    "a slot that is gone": lambda: world(found=None),
    "another history": lambda: world(identities=dict(OTHER)),
}


@pytest.mark.parametrize("what", MAKE)
def test_it_is_brought_to_its_end_wherever_it_was_broken_off(config: Config, what: str) -> None:
    steps = count_of(config, MAKE[what])
    assert steps >= 4
    for crash_at in range(steps):
        found = MAKE[what]()
        found.crash_at = crash_at
        with pytest.raises(Crash):
            apply(config, found)
        assert apply(config, found) == 1, f"after a crash at step {crash_at} nothing is known of it: {found.done}"
        assert (found.found, found.stored, found.running) == (None, None, False)
        assert found.facts["pipeline/renewal"] is None
        assert found.facts["pipeline/identity"] == {**found.identities, "history": 4}
        assert found.facts["follower/a/1"] == {"applied_lsn": None, "marker_time": None, "live": True}
        assert found.facts["build/order/1/0"] is None
        assert found.facts["read/public.items"] == {"after": 10.0}
        assert found.facts["read/public.empty"] == {"at": 12.0, "after": 10.0}
        # A broker has lost the end of the log: rows that are read anew lie before where its epoch had begun.
        log = registered_log(found.read(), "public.items")
        assert log is not None
        assert (log.newest.number, log.floor) == (2, {0: 70})
        assert found.topics.keys() == set(TOPICS)
        assert (min(found.topics[name] for name in TOPICS[:2]) > 1) == (what == "another history")
        found.found = Slot("driftless_shop", 2000, 7, 0, "reserved")  # as Debezium makes it
        assert apply(config, found) == 0, "once is enough"


def test_it_is_done_when_it_is_asked_for_and_not_without(config: Config) -> None:
    sound = world(found=Slot("driftless_shop", 900, 7, 0, "reserved"))
    assert apply(config, sound) == 0
    assert sound.done == []
    assert apply(config, sound, resnapshot=True) == 1
    assert sound.found is None
