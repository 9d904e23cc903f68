"""The last hour of each follower, in memory: lag, rate, and how long changes took to be readable."""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from driftless.facts.counts import BOUNDS, cumulative
from driftless.facts.state import State
from driftless.metrics.figures import current_work

STEP_SECONDS = 5.0
"""How often a point is taken."""
POINTS = 720
"""An hour of them."""
_QUANTILES = (0.5, 0.99)
NONE = float("nan")
_UPPER = (*BOUNDS, BOUNDS[-1] * 2)
"""What is shown for each part of the histogram; of the last one its end is not known."""


@dataclass
class _Series:
    """Of one follower, a column each; NaN where nothing is known."""

    times: deque[float] = field(default_factory=lambda: deque(maxlen=POINTS))
    columns: dict[str, deque[float]] = field(default_factory=dict)

    def add(self, at: float, **values: float) -> None:
        self.times.append(at)
        for name, value in values.items():
            self.columns.setdefault(name, deque(maxlen=POINTS)).append(value)


@dataclass(frozen=True)
class _Counted:
    """What generations, or shards, had counted at a moment, together. `parts`: of the histogram, cumulative."""

    at: float
    written: float
    parts: tuple[int, ...]


class FollowerHistory:
    """Taken from the facts at each step. Any thread may read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._series: dict[str, _Series] = {}
        self._before: dict[str, _Counted] = {}
        self._rates: dict[str, float] = {}

    def take(self, at: float, state: State, facts: Mapping[str, Any]) -> None:
        """A point of each follower, from the JSON of `status`; and what views and streams have published since."""
        lags = {follower["name"]: follower for follower in facts["followers"]}
        with self._lock:
            for name, now in _counted(at, current_work(state, facts)).items():
                before, self._before[name] = self._before.get(name), now
                self._rates[name] = _rate(before, now)
                if name in lags:
                    self._series.setdefault(name, _Series()).add(
                        at,
                        lag=_number(lags[name]["lag_seconds"]),
                        records=_number(lags[name]["lag_records"]),
                        rate=self._rates[name],
                        **{f"p{q * 100:.0f}": _quantile(q, before, now) for q in _QUANTILES},
                    )

    def rate(self, name: str) -> float | None:
        """Writes a second at the last step, of a follower, or of `view NAME` and `stream NAME`; None for unknown."""
        with self._lock:
            rate = self._rates.get(name, NONE)
            return None if math.isnan(rate) else rate

    def lags(self, follower: str, count: int) -> list[float]:
        """The last lags in seconds, oldest first; NaN where nothing is known."""
        with self._lock:
            return list(self._series.get(follower, _Series()).columns.get("lag", ()))[-count:]

    def of(self, follower: str) -> dict[str, list[float | None]]:
        """All columns, with the times, as JSON has them: null where nothing is known."""
        with self._lock:
            series = self._series.get(follower, _Series())
            times: dict[str, list[float | None]] = {"time": [round(at, 1) for at in series.times]}
            return times | {name: [_or_none(value) for value in values] for name, values in series.columns.items()}


def _counted(at: float, work: Mapping[str, Mapping[str, Any]]) -> dict[str, _Counted]:
    """Of each follower over all of its generations, of each `view NAME` and `stream NAME` over all of its shards."""
    written, parts = Counter[str](), dict[str, list[int]]()
    for key, fact in work.items():
        kind, name, *_ = key.split("/")
        if kind == "follower":
            counts = fact.get("counts") or {}
            written[name] += counts.get("written", 0)
            found = [count for _, count in cumulative(counts["readable"])] if counts.get("readable") else []
            parts[name] = [sum(both) for both in zip_longest(parts.get(name, []), found, fillvalue=0)]
        else:
            written[f"{'view' if kind == 'build' else 'stream'} {name}"] += fact.get("published") or 0
    return {name: _Counted(at, float(total), tuple(parts.get(name, ()))) for name, total in written.items()}


def _rate(before: _Counted | None, now: _Counted) -> float:
    """NaN where a run has begun meanwhile: it counts from 0."""
    if before is None or now.at <= before.at or now.written < before.written:
        return NONE
    return (now.written - before.written) / (now.at - before.at)


def _quantile(q: float, before: _Counted | None, now: _Counted) -> float:
    """Of what became readable between the two: the upper bound of the part that it lies in."""
    if before is None or len(before.parts) != len(now.parts) or not now.parts:
        return NONE
    grown = [after - earlier for after, earlier in zip(now.parts, before.parts, strict=True)]
    if grown[-1] <= 0 or min(grown) < 0:
        return NONE
    return _UPPER[bisect_left(grown, q * grown[-1])]


def _number(value: Any) -> float:
    return NONE if value is None else float(value)


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 3)
