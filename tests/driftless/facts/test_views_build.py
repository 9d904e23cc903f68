"""Builds of a view as the control topic has them: which is newest, which is superseded, and how far all shards are."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from driftless.facts.builds import Build, FollowedView, builds, newest_build, newest_number
from driftless.facts.epochs import first_epoch
from driftless.facts.state import Fact, State
from driftless.kafka.client import Topic
from driftless.table import Column, Table
from driftless.views.tree import Node, View
from jobs.supervise.frontier_feed import frontier_of
from jobs.supervise.keeper import Keeper
from jobs.supervise.leased import Shared
from jobs.views.view_runner import ViewRunner

TABLE = Table("public", "orders", (Column("id", "int8"),), ("id",))


def build(number: int, *, epoch: int = 1, shards: int = 1) -> Build:
    view = View("order", Node("", "root", "public.orders", {"id": "id"}), {"public.orders": TABLE}, None, shards)
    log = first_epoch(f"shop.view.order.{number}", f"id{number}", 2)
    return Build(number, view, {"public.orders": epoch}, 2, 7e8, "first", log)


def state(*found: Build, **more: dict[str, Any]) -> State:
    facts: dict[str, Any] = {b.key: b.to_json() for b in found} | {k.replace("__", "/"): v for k, v in more.items()}
    return State({key: Fact(value, 0.0, n) for n, (key, value) in enumerate(facts.items())})


def at(lsn: int, **ends: int) -> dict[str, Any]:
    return {"marker": [lsn, lsn / 10], "ends": {key.removeprefix("p"): offset for key, offset in ends.items()}}


def test_a_build_comes_back_from_its_fact_as_it_was() -> None:
    known = builds(state(build(10), build(9)), "order")
    assert list(known.items()) == [(9, build(9)), (10, build(10))]
    assert newest_build(state(build(10), build(9)), "order") == build(10)
    assert newest_number(state(), "order") == 0
    assert newest_build(state(), "order") is None


def test_a_build_is_superseded_by_a_later_epoch_alone() -> None:
    first, second = FollowedView("order", 1), FollowedView("order", 2)
    assert not first.is_superseded(state(build(1), build(2)))
    assert first.is_superseded(state(build(1), build(2, epoch=2)))
    assert not second.is_superseded(state(build(1), build(2, epoch=2)))
    # It was dropped before anybody could read it.
    assert second.is_superseded(state(build(3)))
    assert not first.is_superseded(state())


def test_a_view_is_as_far_as_the_last_of_its_shards_and_no_further() -> None:
    two, log = build(1, shards=2), FollowedView("order", 1)
    assert frontier_of(log.progress(state(two)), "t") is None
    assert frontier_of(log.progress(state(two, build__order__1__0=at(50, p0=5, p1=6))), "t") is None
    waiting = {"build__order__1__0": at(50, p0=5, p1=9), "build__order__1__1": {"marker": None, "ends": None}}
    assert frontier_of(log.progress(state(two, **waiting)), "t") is None
    both = {"build__order__1__0": at(50, p0=5, p1=9), "build__order__1__1": at(40, p0=7, p1=6)}
    found = frontier_of(log.progress(state(two, **both)), "t")
    assert found is not None
    assert (found.marker.lsn, found.marker.time, found.ends) == (40, 4.0, {"t": {0: 7, 1: 9}})


class Topics:
    """Stands for Kafka."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def create(self, name: str, partitions: int, settings: object) -> None:
        assert (partitions, bool(settings)) == (2, True)
        self.made.append(name)

    def topic(self, name: str) -> Topic | None:
        return Topic(name, f"id of {name}", 2) if name in self.made else None


def test_a_build_that_waits_for_a_snapshot_is_gone_on_from_and_not_written_over() -> None:
    """`apply` has asked for it, with what it changed: it must not be lost because another table begins anew."""
    tables = {name: Table("public", name, (Column("id", "int8"),), ("id",)) for name in ("orders", "lines")}
    tree = View("order", Node("", "root", "public.orders", {"id": "id"}), {f"public.{n}": t for n, t in tables.items()})
    live = Build(5, tree, {"public.orders": 1, "public.lines": 1}, 2, 7e8, log=first_epoch("shop.view.order.5", "5", 2))
    changed = replace(tree, root=replace(tree.root, fields={"number": "id"}))
    waits = replace(live, number=6, view=changed, epochs={"public.orders": 1, "public.lines": 2})
    logs = {f"public.{name}": first_epoch(f"shop.public.{name}", name, 2) for name in tables}
    logs["public.orders"] = logs["public.orders"].begin({0: 7, 1: 7}, "truncated", 100)
    registered: dict[str, Any] = {f"epochs/{name}": log.to_json() for name, log in logs.items()}
    known = state(live, waits, **registered)
    topics, frontiers = Topics(), SimpleNamespace(truncation=lambda _: None)
    shared = SimpleNamespace(kafka=topics, frontiers=frontiers, config=SimpleNamespace(name="shop", followers={}))
    viewer = ViewRunner(cast("Shared", shared), "order", cast("Keeper", SimpleNamespace(lease=None)))
    viewer._known = builds(known, "order")
    facts = viewer._follow_the_epochs(known)
    assert facts.keys() == {"view/order/7"}
    made = Build.from_json(7, cast("dict[str, Any]", facts["view/order/7"]))
    assert (made.epochs, made.view) == ({"public.orders": 2, "public.lines": 2}, changed)
    assert made.why == "public.orders: truncated"
    assert topics.made == ["shop.view.order.7"]
    viewer._known = builds(state(live, waits, made), "order")
    assert viewer._follow_the_epochs(known) == {}, "once is enough"
