"""Who holds a lease, and since when nobody does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from driftless.control import LEASE_SECONDS, Fact, State
from driftless.lease import Holder
from driftless.request import is_running

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
