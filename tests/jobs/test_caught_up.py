"""When a run that ends once all is applied has nothing to wait for any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from driftless.errors import SyncError
from driftless.facts.state import Fact, State
from driftless.marker import Marker
from jobs.caught_up import failed_view, is_replaced, reached
from jobs.follow.progress import AppliedState, Progress
from jobs.log.frontier import Frontier
from jobs.views.progress import BuildProgress


def state(**shards: dict[str, Any]) -> State:
    facts: dict[str, Any] = {
        "generation/order-search/1": {"build": 2},
        "generation/item-search/1": {},
        "view/order/2": {"view": {"shards": 2}},
    }
    facts |= {f"build/order/2/{shard.removeprefix('s')}": fact for shard, fact in shards.items()}
    return State({key: Fact(value, 1.0, n) for n, (key, value) in enumerate(facts.items())})


def build(number: int = 2, error: str = "") -> BuildProgress:
    declared = SimpleNamespace(number=number, view=SimpleNamespace(name="order"))
    return BuildProgress(cast("Any", declared), error=SyncError(error) if error else None)


def test_who_is_live_at_the_logs_end_has_caught_up() -> None:
    item = Progress("item-search", "item", 1, holding=AppliedState({0: 0}, {0: 5}), ends={0: 6})
    assert not reached(item, [item], state(), None)
    item.put(positions={0: 6})
    assert not reached(item, [item], state(), None), "it has claimed no position yet"
    item.state = "live"
    assert reached(item, [item], state(), None)
    assert not reached(item, [item], state(), 1)


def test_what_ended_a_generation_is_mended_when_readers_see_a_newer_one() -> None:
    seen: Any = SimpleNamespace(number=None)
    old, new = (Progress("item-search", "item", n, seen=seen) for n in (1, 2))
    other = Progress("item-cache", "item", 2, seen=seen)
    old.error = SyncError("a column is gone")
    for number, mended in ((None, False), (1, False), (2, True)):
        seen.number = number
        assert is_replaced(old, [old, new, other]) is mended
    assert not is_replaced(old, [old, other])
    assert not is_replaced(new, [old, new])
    new.error = SyncError("it has failed too")
    assert not is_replaced(old, [old, new])


def test_what_ended_a_build_is_mended_when_a_newer_one_is_whole() -> None:
    old, new = build(1, "a column is gone"), build(2)
    assert not is_replaced(old, [old, new])
    new.frontier = Frontier(Marker(7, 0.1), {})
    assert is_replaced(old, [old, new])
    assert not is_replaced(new, [old, new])
    new.error = SyncError("it has failed too")
    assert not is_replaced(old, [old, new])


def test_nobody_waits_for_a_view_that_has_failed() -> None:
    """Its followers take in what it has published, and are then as far as they can be."""
    order = Progress("order-search", "order", 1, holding=AppliedState({0: 0}, {0: 5}), ends={0: 6})
    failed = build(error="a topic is gone")
    assert not reached(order, [failed, order], state(), 1)
    order.put(positions={0: 6})
    assert reached(order, [failed, order], state(), 1)
    assert str(failed_view(order, [failed, order], state())) == "a topic is gone"
    assert reached(failed, [failed, order], state(), 1)
    assert not reached(order, [build(), order], state(), 1)
    assert not reached(order, [build(1, "an older build"), build(), order], state(), 1)


def test_a_view_that_failed_elsewhere_is_known_by_what_was_told_of_it() -> None:
    order, item = Progress("order-search", "order", 1), Progress("item-search", "item", 1)
    told = state(s0={"state": "live"}, s1={"state": "failed", "trouble": "a topic is gone"})
    assert str(failed_view(order, [order], told)) == "the view order has failed: a topic is gone"
    assert failed_view(order, [build(), order], told) is None, "it is run here, and what was told is of another run"
    assert failed_view(order, [order], state(s0={"state": "live"})) is None
    assert failed_view(item, [item], told) is None
