"""What a follower decides in its turns: which generation is promoted, which is dropped, and what it says meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from driftless.control.wait import has_failed, stuck
from driftless.errors import SinkError, SinkUnavailable
from driftless.facts.epochs import Epoch, TopicLog
from driftless.facts.generation import Generation
from driftless.facts.state import Fact, State
from driftless.marker import Marker
from driftless.table import Column, Table
from jobs.follow.follower import Follower, _RunningGeneration
from jobs.follow.progress import Progress
from tests.support.machine import until

TABLE = Table("public", "items", (Column("id", "int4"),), ("id",))


class Store:
    """Stands for a sink: what readers see, and what was dropped. `gate`: a switch waits for it."""

    def __init__(self) -> None:
        self.live: int | None = 1
        self.dropped: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.began = threading.Event()
        self.away = False

    def promoted(self) -> int | None:
        return self.live

    def promote(self, number: int) -> None:
        self.began.set()
        assert self.gate.wait(20)
        self.live = number

    def drop(self, number: int, *, also_live: bool = False) -> None:
        if self.away:
            raise SinkUnavailable("the store is away")
        if number == self.live and not also_live:
            raise SinkError("readers see it")
        self.dropped.append(number)

    def close(self) -> None:
        pass


class Quarantined(list[str]):
    def load(self) -> None:
        pass

    def discard(self, _: None) -> int:
        return 0


class Scene:
    """A follower whose generations do nothing by themselves, and the facts of its control topic."""

    def __init__(self) -> None:
        self.store = Store()
        self.facts: dict[str, Fact] = {}
        self.epochs = [Epoch(1, {0: 0}, "first")]
        config = SimpleNamespace(followers={"item": SimpleNamespace(keep="1h")})
        feed = SimpleNamespace(state=State({}), listen=lambda *_: None)
        frontiers = SimpleNamespace(truncation=lambda _: None)
        shared = SimpleNamespace(config=config, feed=feed, frontiers=frontiers, kafka=None)
        keeper = SimpleNamespace(lease=None, write=lambda _: None, tell=lambda: None)
        self.follower = Follower(cast(Any, shared), "item", cast(Any, keeper), lambda _: None)
        self.follower._start = self._start  # type: ignore[method-assign]

    def _start(self, generation: Generation, state: State) -> None:  # noqa: ARG002
        number = generation.number
        progress = Progress("item", "item", number, seen=self.follower._seen)
        worker = SimpleNamespace(
            job=SimpleNamespace(follower="item", generation=number, spec=SimpleNamespace(open=lambda: self.store)),
            progress=progress,
            quarantine=Quarantined(),
            group=f"item/{number}",
            superseded=False,
            promote_if_none=False,
            promotion_target=None,
            replay=None,
        )
        worker.stop, worker.paused, worker.withhold_position = (threading.Event() for _ in range(3))
        thread = threading.Thread(target=worker.stop.wait, args=(30,), daemon=True)
        feed = SimpleNamespace(hear=lambda _: None, leave=lambda: None)
        self.follower._add(number, _RunningGeneration(generation, cast(Any, worker), cast(Any, feed), thread))

    def begin(self, number: int, **more: Any) -> None:
        """A generation, as a command or another turn begins it."""
        generation = Generation(number, "item", TABLE, "redis", {"id": "id"}, {}, None, f"f{number}", **more)
        self.facts[f"generation/item/{number}"] = Fact(generation.to_json(), 100.0, number)

    def built(self, number: int, *, quarantined: int = 0, lsn: int = 10) -> Progress:
        """It is as far as that, as its thread finds out."""
        progress = self.follower._running[number].progress
        self.follower._seen.ask(cast(Any, self.store))
        progress.put(known=True, built=True, quarantined=quarantined, marker=Marker(lsn, 1.0))
        return progress

    def turn(self) -> dict[str, Any]:
        """One turn, whose facts are written."""
        facts = self.follower._turn(self.state)
        for key, value in facts.items():
            self.facts.pop(key, None)
            if value is not None:
                self.facts[key] = Fact(value, 100.0, len(self.facts) + 100)
        return facts

    @property
    def state(self) -> State:
        log = TopicLog("t", "id", 1, tuple(self.epochs))
        return State({**self.facts, "epochs/public.items": Fact(cast(Any, log.to_json()), 1.0, 1)})

    @property
    def numbers(self) -> list[int]:
        return sorted(int(key.rpartition("/")[2]) for key in self.facts if key.startswith("generation/"))

    def settled(self) -> None:
        """Turns, until a promotion that is under way has ended, and one after it."""
        until("the promotion to end", lambda: not self.follower.promoting, 20)
        self.turn()


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    scene.begin(1, promoted_at=50.0)
    scene.turn()
    scene.built(1)
    scene.turn()
    yield scene
    scene.store.gate.set()
    scene.follower.stop()


@pytest.mark.parametrize("auto_promote", [False, True])
def test_what_is_being_promoted_is_not_dropped_for_a_newer_one(scene: Scene, auto_promote: bool) -> None:
    scene.begin(2)
    scene.turn()
    scene.built(2)
    scene.store.gate.clear()
    scene.turn()
    assert scene.store.began.wait(20)
    scene.begin(3, auto_promote=auto_promote)
    for _ in range(3):
        scene.turn()
    assert (scene.store.dropped, scene.numbers) == ([], [1, 2, 3])
    scene.store.gate.set()
    scene.settled()
    assert (scene.store.live, scene.store.dropped) == (2, [])
    scene.built(3)
    scene.turn()
    scene.settled()
    assert (scene.store.live, scene.store.dropped) == (3 if auto_promote else 2, [])


def test_nothing_is_dropped_before_the_store_has_said_what_readers_see(scene: Scene) -> None:
    """After a kill in the middle of a switch: the control topic says that 1 is live, the store that it is 2."""
    scene.store.live = 2
    again = Scene()
    again.store, again.facts = scene.store, scene.facts
    again.begin(2)
    again.begin(3)
    again.facts["follower/item/2"] = Fact({"state": "promoting"}, 100.0, 9)
    again.turn()
    assert (again.store.dropped, again.numbers) == ([], [1, 2, 3])
    for number in (1, 2):
        again.built(number)
        again.turn()
    assert (again.store.dropped, again.numbers) == ([], [1, 2, 3])
    again.follower.stop()


def test_where_readers_see_none_that_is_known_nothing_is_dropped(scene: Scene) -> None:
    scene.store.live = None
    scene.begin(2)
    scene.begin(3)
    scene.turn()
    for number in (1, 2):
        scene.built(number)
    scene.turn()
    assert (scene.store.dropped, scene.numbers) == ([], [1, 2, 3])
    scene.built(3)
    scene.turn()
    scene.settled()
    scene.turn()
    assert (scene.store.promoted(), scene.store.dropped, scene.numbers) == (3, [2], [1, 3])


def test_one_that_is_not_to_be_promoted_does_not_take_the_place_of_one_that_is(scene: Scene) -> None:
    scene.begin(2)
    scene.begin(3, auto_promote=False)
    scene.turn()
    scene.built(3)
    scene.turn()
    assert scene.numbers == [1, 2, 3]
    scene.built(2)
    scene.turn()
    scene.settled()
    assert (scene.store.live, scene.numbers) == (2, [1, 2, 3])


def test_what_a_store_refuses_to_drop_stays_and_is_followed(scene: Scene) -> None:
    scene.begin(2, promoted_at=60.0, retired_at=70.0)
    scene.turn()
    scene.built(2)
    scene.facts["clock"] = Fact({}, 10_000.0, 500)
    scene.store.live = 2  # somebody else has switched readers back, and nobody here knows
    scene.turn()
    assert scene.store.dropped == []
    scene.turn()
    assert (scene.numbers, scene.follower.numbers) == ([1, 2], [1, 2])


def test_a_store_that_is_away_is_asked_to_drop_later(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.follow.follower.DROP_AGAIN_SECONDS", 0.0)
    scene.begin(2)
    scene.begin(3)
    scene.store.away = True
    scene.turn()
    scene.built(2)
    for _ in range(3):
        scene.turn()
    assert (scene.store.dropped, scene.numbers, scene.follower.numbers) == ([], [1, 2, 3], [1, 3])
    scene.store.away = False
    scene.turn()
    assert (scene.store.dropped, scene.numbers) == ([2], [1, 3])


def test_what_is_asked_to_be_promoted_is_not_dropped_before_that_is_answered(scene: Scene) -> None:
    scene.begin(2, auto_promote=False)
    scene.turn()
    scene.built(2)
    scene.store.gate.clear()
    for n in (1, 2):
        asked: dict[str, object] = {"generation": 3 - n, "force": False}
        scene.facts[f"request/item/promote/{n}"] = Fact(asked, 100.0, 20 + n)
    scene.turn()  # 2 is switched to; back to 1 waits for that
    scene.begin(3)
    scene.turn()
    scene.store.gate.set()
    scene.settled()
    scene.settled()
    assert scene.facts["answer/item/promote/1"].value["error"] == ""
    assert scene.facts["answer/item/promote/2"].value["error"] == ""
    assert scene.store.live == 1
    assert scene.store.dropped == []


def test_a_quarantine_holds_back_through_any_look_at_what_is_half_known(scene: Scene) -> None:
    """What another thread finds out of a generation is seen whole or not at all."""
    scene.begin(2)
    scene.turn()
    ended = threading.Event()
    progress = scene.follower._running[2].progress

    def restart() -> None:
        while not ended.is_set():
            progress.put(known=False, built=False, quarantined=0)
            progress.put(known=True, built=True, quarantined=1, marker=Marker(10, 1.0))

    thread = threading.Thread(target=restart)
    thread.start()
    for _ in range(300):
        scene.turn()
    ended.set()
    thread.join()
    # The last turn above may have read the generation before its store answered; such a turn reports nothing.
    scene.turn()
    assert not scene.store.began.is_set()
    assert "1 documents are quarantined" in progress.promotion_blocked_by
    assert "`driftless promote item --generation 2 --force`" in progress.promotion_blocked_by


def test_whoever_waits_is_told_what_keeps_readers_where_they_are(scene: Scene) -> None:
    scene.epochs.append(replace(scene.epochs[0], number=2, floors={0: 5}))
    first = scene.follower._running[1]
    facts = scene.turn()
    assert facts["generation/item/2"]["epoch"] == 2
    scene.turn()
    assert (first.worker.superseded, first.progress.stuck) == (True, "")
    second = scene.built(2, quarantined=1)
    scene.turn()
    assert second.promotion_blocked_by
    assert first.progress.stuck.endswith(second.promotion_blocked_by)
    assert first.progress.to_json()["stuck"] == first.progress.stuck
    second.put(quarantined=0)
    scene.turn()
    scene.settled()
    assert (scene.store.live, scene.store.dropped, second.stuck) == (2, [1], "")


def test_a_promotion_is_refused_where_it_can_come_no_further(scene: Scene) -> None:
    scene.begin(2)
    scene.turn()
    second = scene.built(2, lsn=5)
    scene.turn()
    assert second.promoting
    scene.follower._running[2].worker.paused.set()
    scene.settled()
    assert not scene.store.began.is_set()
    assert second.promotion_blocked_by == "generation 2 is built but not promoted: item is paused"


def test_a_generation_that_cannot_be_followed_holds_up_no_other(scene: Scene) -> None:
    start = scene.follower._start

    def fails(generation: Generation, state: State) -> None:
        if generation.number == 2:
            raise SinkError("there is no such store")
        start(generation, state)

    scene.follower._start = fails  # type: ignore[method-assign]
    scene.begin(2)
    scene.begin(3)
    scene.turn()
    assert scene.follower.numbers == [1, 3]


def test_who_waits_is_told_that_it_is_in_vain_when_the_one_that_is_held_back_has_come_there() -> None:
    def told(*, token: int = 7, held: bool = True, applied: str | None = "0/9", state: str = "live") -> str:
        first = {"live": True, "applied_lsn": "0/1", "stuck": "see the next one", "token": token}
        second: dict[str, object] = {"live": False, "applied_lsn": applied, "token": token, "state": state}
        facts: dict[str, dict[str, object]] = {
            "lease/item": {"held": held, "token": 7},
            "follower/item/1": first,
            "follower/item/2": second,
        }
        return stuck(State({key: Fact(value, 1.0, n) for n, (key, value) in enumerate(facts.items())}), "item", 9)

    assert told() == "see the next one"
    assert told(applied="0/8") == "", "what is committed up to there may let it go"
    assert told(applied=None, state="failed") == "see the next one"
    assert told(token=6) == "", "a run that has ended said so"
    assert told(held=False) == ""


def test_who_waits_is_told_of_a_failure_unless_another_generation_is_built() -> None:
    def told(
        state: str | None, *, token: int = 7, first_token: int = 7, by_itself: bool = True, held_back: str = ""
    ) -> str:
        first = {"live": True, "state": "failed", "trouble": "its topic is gone", "token": first_token}
        facts: dict[str, dict[str, object]] = {
            "lease/item": {"held": True, "token": 7},
            "generation/item/1": {},
            "follower/item/1": first,
        }
        if state is not None:
            second = {"live": False, "state": state, "token": token, "held_back": held_back}
            facts |= {"generation/item/2": {"by_itself": by_itself}, "follower/item/2": second}
        return has_failed(State({key: Fact(value, 1.0, n) for n, (key, value) in enumerate(facts.items())}), "item")

    assert told(None) == told("failed") == "it has failed: its topic is gone"
    assert told("live", by_itself=False) == told("live", held_back="it holds less") == told(None)
    assert told("bootstrapping") == "", "readers are sent there when it is built"
    assert told("live") == told("promoting") == "", "readers are just being sent there"
    assert told("failed", token=6) == "", "a run that has ended said so"
    assert told(None, first_token=6) == ""
