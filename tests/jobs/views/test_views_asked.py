"""What `verify` asks of a view's builder: to look over its rows, to publish again, to be filled anew."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

import pytest

from driftless.control.quarantine import Held, QuarantineLog
from driftless.control.request import Request
from driftless.facts.builds import Build
from jobs.views.oversized import Oversized
from jobs.views.requests import AUDIT, DISCARD, REFILL, REPUBLISH, RETRY, MaintenanceRequests
from jobs.views.store.contract import FIRST_ROOT, RowsLost
from jobs.views.store.sqlite import SqliteRows
from tests.jobs.views.store.test_views_store import Shop, shop

__all__ = ["shop"]


def spoil(shop: Shop, number: int) -> None:
    """Flip what is kept of an order, as a disk would: nothing is marked."""
    changed = shop.store._connection.execute(
        f"UPDATE {shop.store._layout.root.kept.name} SET c0 = replace(c0, 'open', 'shut') WHERE id = {number}"
    )
    assert changed.rowcount == 1


def request(verb: str, **arguments: object) -> Request:
    return Request("view order", verb, f"{verb}-1", {"build": 1, **arguments}, f"{verb}/{verb}-1")


class Kept(QuarantineLog):
    """A quarantine without a broker."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, int, str], str] = {}

    def read(self, follower: str | None = None, generation: int | None = None) -> Iterator[Held]:
        for (who, number, key), reason in self.entries.items():
            if (who, number) == (follower, generation):
                yield Held(who, number, key, 0, reason, 0.0)

    def write(
        self, follower: str, generation: int, held: Mapping[str, tuple[int, str]], cleared: Iterable[str] = ()
    ) -> None:
        self.entries |= {(follower, generation, key): reason for key, (_, reason) in held.items()}
        for key in cleared:
            self.entries.pop((follower, generation, key), None)


def oversized(shop: Shop, log: Kept, most: int) -> Oversized:
    build = Build(1, shop.view, {}, 1, 0.0)
    return Oversized(log, build, most=most)


def nothing() -> Oversized:
    """Of a build whose documents all fit."""
    return cast("Oversized", None)


def done(asked: MaintenanceRequests, what: Request, shop: Shop) -> dict[str, object]:
    """What is answered, after so many steps as it takes."""
    for _ in range(20):
        facts = asked.answer(what)
        if facts:
            assert facts[f"request/view order/{what.verb}/{what.id}"] is None
            answer = facts[f"answer/view order/{what.verb}/{what.id}"]
            assert answer is not None
            return answer
        asked.work(shop.store, nothing(), clean=True)
    raise AssertionError("it was not done in 20 steps")


def test_rows_that_were_spoiled_are_found_wherever_they_are(shop: Shop) -> None:
    shop.apply(*(shop.order(number, "open") for number in (-(1 << 63), -7, 0, 3, 4, (1 << 63) - 1)), cut="one")
    shop.apply(shop.order(5, "open"), cut="two")
    shop.drain()
    assert shop.store.audit(FIRST_ROOT, 100) == ([], None)
    for number in (-(1 << 63), 3, (1 << 63) - 1):
        spoil(shop, number)
    shop.apply(shop.order(4, "paid"), cut="three")  # dirty: what is published of it is not what it is now
    begin: int | None = FIRST_ROOT
    found, looks = [], 0
    while begin is not None:
        wrong, begin = shop.store.audit(begin, 2)
        found += wrong
        looks += 1
    assert (found, looks) == ([str(-(1 << 63)), "3", str((1 << 63) - 1)], 4)


def test_a_deleted_order_and_one_that_was_never_there_are_right(shop: Shop) -> None:
    shop.apply(shop.order(1, "open"), shop.order(2, "open"), cut="one")
    shop.drain()
    shop.apply(shop.row("public.orders", "2"), shop.row("public.orders", "9"), cut="two")
    assert shop.drain() == {"2": None}
    assert shop.store.audit(FIRST_ROOT, 100) == ([], None)


def test_what_is_doubted_is_published_whatever_it_is_and_holds_the_frontier_until_then(shop: Shop) -> None:
    shop.apply(shop.order(1, "open"), shop.order(2, "open"), shop.customer(7, "Ada"), cut="one")
    shop.drain()
    assert shop.store.frontier() == "one"
    asked, what = MaintenanceRequests(), request(REPUBLISH, keys=["1", "3"])
    assert asked.answer(what) == {}
    shop.apply(shop.customer(7, "Eve"), cut="two")
    assert asked.work(shop.store, nothing(), clean=False)
    assert shop.store.frontier() is None
    shop.killed()
    assert asked.answer(what) != {}
    assert shop.drain() == {"1": {"id": 1, "status": "open", "customer": None, "lines": []}, "3": None}
    assert shop.store.frontier() == "two"
    assert shop.drain() == {}


def test_an_audit_goes_on_for_as_many_steps_as_it_takes(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.views.requests.ROOTS", 3)
    monkeypatch.setattr("jobs.views.requests.TOLD", 1)
    shop.apply(*(shop.order(number, "open") for number in range(8)), cut="one")
    shop.drain()
    for number in (2, 6):
        spoil(shop, number)
    asked, what = MaintenanceRequests(), request(AUDIT)
    assert asked.answer(what) == {}
    assert not asked.work(shop.store, nothing(), clean=False)
    assert asked.answer(what) == {}, "a third of it is done"
    answer = done(asked, what, shop)
    assert (answer["keys"], answer["wrong"], answer["error"]) == (["2"], 2, "")


def test_what_is_filled_anew_is_not_opened_again(shop: Shop) -> None:
    shop.apply(shop.order(1, "open"), cut="one")
    asked, what = MaintenanceRequests(), request(REFILL)
    assert asked.answer(what) == {}
    with pytest.raises(RowsLost, match="verify found"):
        asked.work(shop.store, nothing(), clean=False)
    assert asked.answer(what)["answer/view order/fill/fill-1"] is not None
    shop.store.close()
    with pytest.raises(RowsLost, match="differs from its log"):
        SqliteRows(shop.path, shop.view)
    shop.store = SqliteRows.create(shop.path, shop.view)
    assert not asked.work(shop.store, nothing(), clean=False)


def test_a_verb_of_another_version_is_refused(shop: Shop) -> None:
    answer = done(MaintenanceRequests(), request("polish"), shop)
    assert "cannot `polish`" in json.dumps(answer)


def test_a_document_that_is_too_large_is_held_alone_and_leaves_when_it_fits(shop: Shop) -> None:
    log = Kept()
    held = oversized(shop, log, 1_000)
    writes = [("1", "x" * 999), ("2", "ü" * 500), ("3", None), ("4", "x" * 1_000)]
    assert held.hold(writes) == [("1", "x" * 999), ("3", None)]
    assert log.entries == {
        ("view order", 1, "2"): "1,001 bytes: the log of the view takes 1,000",
        ("view order", 1, "4"): "1,001 bytes: the log of the view takes 1,000",
    }
    held.published([("1", "x" * 999), ("3", None)])
    assert held.keys() == ["2", "4"]
    again = oversized(shop, log, 1_000)
    again.load()
    assert again.keys() == ["2", "4"]
    again.published([("2", "{}"), ("4", None)])
    assert (len(again), log.entries) == (0, {})


def test_quarantined_documents_are_tried_again_or_let_go(shop: Shop) -> None:
    shop.apply(shop.order(1, "x" * 2_000), shop.order(2, "y" * 2_000), cut="one")
    log, asked = Kept(), MaintenanceRequests()
    held = oversized(shop, log, 1_000)

    def step(*, clean: bool) -> bool:
        dirty = asked.work(shop.store, held, clean=clean)
        while part := shop.store.assemble(10):
            held.published(held.hold(part.writes))
            shop.store.published(part)
        return dirty

    step(clean=True)
    assert held.keys() == ["1", "2"]
    shop.apply(shop.order(1, "x"), cut="two")
    retry, discard = request(RETRY, keys=None), request(DISCARD, keys=["2"])
    asked.answer(retry)
    assert step(clean=True)
    step(clean=True)
    answer = asked.answer(retry)["answer/view order/retry/retry-1"]
    assert answer is not None
    assert (answer["written"], answer["left"], held.keys()) == (1, 1, ["2"])
    asked.answer(discard)
    step(clean=True)
    answer = asked.answer(discard)["answer/view order/discard/discard-1"]
    assert answer is not None
    assert (answer["discarded"], len(held), log.entries) == (1, 0, {})
