"""Who holds a lease, and since when nobody does."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from driftless.control import lease as leases
from driftless.control.lease import Holder, Lease
from driftless.control.request import is_running
from driftless.errors import SourceUnavailable
from driftless.facts.state import LEASE_SECONDS, Fact, State

NOW = 1000.0
HERE = Holder.here()


def running(holder: Holder, *, held: bool = True, age: float = 1.0) -> bool:
    lease = Fact({"held": held, "token": 1, **vars(holder)}, NOW - age, 7)
    return is_running(State({"lease/product": lease}), "product", NOW)


@pytest.mark.parametrize("holder", [HERE, replace(HERE, host="another machine", started=1.0)])
def test_a_lease_that_is_renewed_is_of_somebody_who_runs(holder: Holder) -> None:
    assert running(holder, age=LEASE_SECONDS)
    assert not running(holder, age=LEASE_SECONDS + 0.1)
    assert not running(holder, held=False)


def test_who_ran_on_this_machine_and_is_gone_runs_no_more() -> None:
    """Without waiting for the lease to run out; another process may have its pid by now."""
    assert not running(replace(HERE, started=HERE.started - 1))
    assert not running(replace(HERE, pid=(1 << 22) + 1))


def test_nobody_has_run_what_has_no_lease() -> None:
    assert not is_running(State({}), "product", NOW)


GONE = (1 << 22) + 1
"""No process ever has this pid."""


ELSEWHERE = [replace(HERE, boot="another start"), replace(HERE, space="pid:[1]"), replace(HERE, host="another machine")]


@pytest.mark.parametrize("other", ELSEWHERE)
def test_of_who_ran_where_pids_mean_something_else_nothing_is_known(other: Holder) -> None:
    """Two containers may have one host name: the pid of the one is nobody, or somebody else, in the other."""
    assert replace(HERE, pid=GONE).surely_gone()
    assert not replace(other, pid=GONE).surely_gone()
    assert running(replace(other, pid=GONE))


def test_a_lease_of_an_older_version_is_read_and_waited_for() -> None:
    """It says nothing of where its pid is one."""
    older = Fact({"held": True, "token": 4, "host": HERE.host, "pid": GONE, "started": 1.5}, NOW, 7)
    assert Holder.of(older) == Holder(HERE.host, GONE, 1.5)
    assert not Holder.of(older).surely_gone()


def test_a_holder_is_read_as_it_was_written() -> None:
    """Also by an older version, which reads three of the fields."""
    fact = Fact({"held": True, "token": 1, **vars(HERE)}, NOW, 7)
    assert Holder.of(fact) == HERE
    assert all(vars(HERE).values())
    assert Holder.of(fact) != replace(HERE, instance="another process"), (
        "with the same pid, since the machine is a copy"
    )


def test_a_lease_that_was_not_renewed_in_time_is_sure_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anybody may take it over; also where this process, or the machine, slept meanwhile."""
    clock = [100.0]
    monkeypatch.setattr(leases, "elapsed", lambda: clock[0])
    lease = object.__new__(Lease)
    lease.follower, lease._why, lease._renewed_at = "item", "", 100.0
    clock[0] += LEASE_SECONDS * 0.8
    lease.sure()
    clock[0] += 0.1
    with pytest.raises(
        SourceUnavailable, match=r"the lease of `item` has not been renewed for 8 s: this process was asleep"
    ):
        lease.sure()


class BrokenProducer:
    """Stands for Kafka's producer: a mistake of ours ends its first transaction halfway."""

    def __init__(self, *, broken: bool) -> None:
        self.broken, self.open, self.committed = broken, False, 0

    def begin_transaction(self) -> None:
        assert not self.open, "a producer has one transaction at a time"
        self.open = True

    def produce(self, *_: Any, **__: Any) -> None:
        if self.broken:
            raise ValueError("a mistake of ours")

    def commit_transaction(self, _: float) -> None:
        self.open, self.committed = False, self.committed + 1


def test_after_a_mistake_within_a_transaction_the_last_facts_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would be told why the follower has stopped: the producer takes no second transaction."""
    first, second = BrokenProducer(broken=True), BrokenProducer(broken=False)
    opened = iter((first, second))
    lease = object.__new__(Lease)
    lease.follower, lease.token, lease._key, lease._holder = "item", 1, "lease/item", HERE
    lease._lock, lease._producer, lease._taken_at, lease.held = threading.Lock(), None, 0.0, True
    lease._control = cast("Any", SimpleNamespace(topic="shop.control"))
    monkeypatch.setattr(Lease, "_open", lambda _: next(opened))
    with pytest.raises(ValueError, match="a mistake of ours"):
        lease.write({})
    lease.release({"follower/item/1": {"state": "failed"}})
    assert (first.committed, second.committed) == (0, 1)
