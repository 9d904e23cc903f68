"""The last hour of each follower, by facts and moments that the test gives."""

from __future__ import annotations

from typing import Any

import pytest

from driftless.facts.counts import WorkCounts
from driftless.facts.state import Fact, State
from serve.facts.history import POINTS, FollowerHistory

AT = 1_700_000_000.0


def facts(**more: Any) -> dict[str, Any]:
    follower = {"name": "a", "lag_seconds": 1.5, "lag_records": 7, **more}
    return {"followers": [follower], "views": [{"name": "v"}], "streams": [{"name": "s"}]}


def state(written: int, took: list[float], published: int = 0) -> State:
    counted = WorkCounts(written=written)
    counted.readable.observe(took)
    found: dict[str, dict[str, object]] = {
        "follower/a/1": {"counts": counted.to_json()},
        "follower/a/2": {"counts": WorkCounts(written=1).to_json()},
        "view/v/1": {"view": {"shards": 2}, "epochs": {}},
        "build/v/1/0": {"published": published},
        "build/v/1/1": {"published": 2 * published},
        "stream/s/3": {},
        "computed/s/3": {"published": published},
    }
    return State({key: Fact(value, AT, 0) for key, value in found.items()})


def test_rates_and_quantiles_are_those_of_what_came_since_the_last_point() -> None:
    history = FollowerHistory()
    history.take(AT, state(10, [9.0] * 50), facts())
    history.take(AT + 5, state(60, [9.0] * 50 + [0.04] * 98 + [0.3, 4.0], 10), facts(lag_seconds=None))
    assert history.of("a") == {
        "time": [AT, AT + 5],
        "lag": [1.5, None],
        "records": [7.0, 7.0],
        "rate": [None, 10.0],
        "p50": [None, 0.05],
        "p99": [None, 0.5],
    }
    assert history.rate("a") == 10.0
    assert history.rate("view v") == 6.0
    assert history.rate("stream s") == 2.0
    assert history.rate("nobody") is None


def test_a_run_that_has_begun_again_gives_no_rate() -> None:
    history = FollowerHistory()
    history.take(AT, state(1000, [0.01] * 9, 100), facts())
    history.take(AT + 5, state(3, [0.01], 1), facts())
    assert (history.rate("a"), history.rate("view v")) == (None, None)
    assert history.of("a")["p50"] == [None, None]
    history.take(AT + 10, state(8, [0.01] * 2, 2), facts())
    assert history.rate("a") == 1.0


@pytest.mark.parametrize("took", [[], [0.01]])
def test_where_nothing_became_readable_nothing_is_shown(took: list[float]) -> None:
    history = FollowerHistory()
    history.take(AT, state(1, took), facts())
    history.take(AT + 5, state(1, took), facts())
    assert history.of("a")["p99"] == [None, None]
    assert history.rate("a") == 0.0


def test_an_hour_is_kept_and_no_more() -> None:
    history = FollowerHistory()
    for n in range(POINTS + 10):
        history.take(AT + 5 * n, state(n, []), facts(lag_seconds=float(n)))
    shown = history.of("a")
    assert (len(shown["time"]), shown["time"][0], shown["lag"][-1]) == (POINTS, AT + 50, float(POINTS + 9))
    assert history.lags("a", 3) == [POINTS + 7, POINTS + 8, POINTS + 9]
