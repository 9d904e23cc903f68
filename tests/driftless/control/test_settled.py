"""What `status` says of what has ended with an error, once something was done about it."""

from __future__ import annotations

from driftless.control.lease import Holder
from driftless.control.status import settled
from driftless.facts.state import LEASE_SECONDS, Fact, State

NOW = 1000.0
ENDED = {"state": "failed", "trouble": "the log was cut off; run `driftless apply`", "documents": 7}


def held_by(holder: Holder) -> dict[str, object]:
    return {"held": True, **vars(holder)}


def state(**leases: float) -> State:
    """A follower and two shards of a view of its name that have failed, one follower that lives; who holds leases."""
    facts = {
        "follower/order/1": Fact(dict(ENDED), NOW, 1),
        "follower/product/2": Fact({**ENDED, "state": "live", "trouble": "it waits"}, NOW, 2),
        "build/order/1/0": Fact(dict(ENDED), NOW, 3),
        "build/order/1/1": Fact(dict(ENDED), NOW, 4),
        "generation/order/1": Fact({"state": "failed"}, NOW, 5),
    }
    facts |= {f"lease/{name.replace('_', ' ')}": Fact(held_by(Holder.here()), at, 6) for name, at in leases.items()}
    return State(facts)


def test_what_has_failed_is_only_stopped_and_nothing_else_changes() -> None:
    wanted = {**ENDED, "state": "stopped", "trouble": ""}
    found = settled(state(), NOW)
    assert found == dict.fromkeys(("follower/order/1", "build/order/1/0", "build/order/1/1"), wanted)


def test_who_runs_tells_of_itself() -> None:
    assert settled(state(order=NOW), NOW).keys() == {"build/order/1/0", "build/order/1/1"}
    assert settled(state(view_order=NOW), NOW).keys() == {"follower/order/1", "build/order/1/1"}
    assert len(settled(state(order=NOW - LEASE_SECONDS - 1), NOW)) == 3
