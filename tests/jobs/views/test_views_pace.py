"""How many documents of a large fan-out may be published before a follower has applied those before them."""

from __future__ import annotations

import pytest

from driftless.control.lease import Holder
from driftless.facts.state import Fact, State
from jobs.views import pace
from jobs.views.pace import AHEAD, PATIENCE, SLICE, FanoutThrottle, furthest
from tests.support.clock import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(100.0)
    monkeypatch.setattr(pace, "time", clock)
    return clock


@pytest.mark.usefixtures("clock")
def test_without_a_follower_that_keeps_up_nothing_is_held_back() -> None:
    some = FanoutThrottle()
    some.published(1_000_000)
    assert some.room(5_000) == 5_000
    some.heard(0)
    assert some.room(5_000) == 0
    some.heard(None)
    assert some.room(5_000) == 5_000


@pytest.mark.usefixtures("clock")
def test_so_many_are_published_until_a_follower_has_applied_them() -> None:
    some, end = FanoutThrottle(), 50_000
    some.heard(end)
    while some.room(5_000):
        assert some.room(5_000) == SLICE
        end += SLICE
        some.published(end)
    assert end == 50_000 + AHEAD
    some.heard(50_000 + SLICE - 1)
    assert some.room(5_000) == 0
    some.heard(50_000 + SLICE)
    assert some.room(5_000) == SLICE


def test_where_no_follower_moves_a_slice_goes_out_now_and_then(clock: Clock) -> None:
    some = FanoutThrottle()
    some.heard(0)
    some.published(2 * AHEAD)
    clock.now += PATIENCE
    assert some.room(5_000) == 0
    clock.now += 0.01
    assert some.room(5_000) == SLICE
    some.published(2 * AHEAD + SLICE)
    assert some.room(5_000) == 0


def _state(*followers: tuple[str, str, int, str, int, bool]) -> State:
    facts = {"clock": Fact({}, 1_000.0, 0)}
    for name, view, build, state, read, held in followers:
        facts[f"generation/{name}/1"] = Fact({"view": view, "build": build}, 1.0, 0)
        facts[f"follower/{name}/1"] = Fact({"state": state, "read_records": read}, 1.0, 0)
        facts[f"lease/{name}"] = Fact({"held": held, **vars(Holder.here())}, 999.0, 0)
    return State(facts)


def test_the_furthest_of_the_live_followers_of_a_build_sets_the_pace() -> None:
    slow, quick = ("slow", "order", 2, "live", 10, True), ("quick", "order", 2, "live", 20, True)
    others = (
        ("filling", "order", 2, "bootstrapping", 99, True),
        ("ended", "order", 2, "live", 99, False),
        ("older", "order", 1, "live", 99, True),
        ("other", "product", 2, "live", 99, True),
    )
    assert furthest(_state(slow, quick, *others), "order", 2) == 20
    assert furthest(_state(*others), "order", 2) is None
