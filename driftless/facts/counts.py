"""What a run counts of its work: in memory, and in the control topic, where other machines read it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

BOUNDS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Seconds: upper bounds of the parts of a histogram. What took longer is in one more part."""
_REASONS = 16
"""How many reasons are counted separately: each is a time series in Prometheus."""
_REASON_CHARACTERS = 60
OTHER = "other"


@dataclass
class Histogram:
    """How long something took, by parts. `counts`: how many in each part of BOUNDS, and beyond; `sum`: seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    sum: float = 0.0

    def observe(self, seconds: Iterable[float]) -> None:
        """Take times in. One below 0 is 0: two machines' clocks differ."""
        for one in seconds:
            self.counts[bisect_left(BOUNDS, one)] += 1
            self.sum += max(0.0, one)

    @property
    def count(self) -> int:
        return sum(self.counts)

    def to_json(self) -> dict[str, object]:
        return {"counts": self.counts.copy(), "sum": round(self.sum, 3)}


@dataclass
class WorkCounts:
    """What one generation of a follower has done since its run began.

    `records`: of the log, read. `refused`: by reason. `slice_seconds`, `slice_bytes`: of all slices, from reading them
    until the store has answered. `readable`: from the commit in the source until the store has answered.
    """

    written: int = 0
    stale: int = 0
    retries: int = 0
    records: int = 0
    slices: int = 0
    slice_seconds: float = 0.0
    slice_bytes: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    readable: Histogram = field(default_factory=Histogram)

    def refuse(self, reasons: Iterable[str]) -> None:
        """Count refusals, each by the beginning of its reason: what a store says has no row values."""
        for reason in reasons:
            kind = reason.partition(":")[0].strip()[:_REASON_CHARACTERS] or OTHER
            known = kind in self.refused or len(self.refused) < _REASONS
            self.refused[kind if known else OTHER] += 1

    def to_json(self) -> dict[str, object]:
        return {
            "written": self.written,
            "stale": self.stale,
            "retries": self.retries,
            "records": self.records,
            "slices": self.slices,
            "slice_seconds": round(self.slice_seconds, 3),
            "slice_bytes": self.slice_bytes,
            "refused": dict(self.refused),
            "readable": self.readable.to_json(),
        }


COUNTED = ("written", "stale", "retries", "records", "slices", "slice_seconds", "slice_bytes")
"""The plain figures of WorkCounts."""


def is_counts(value: Any) -> bool:
    """Whether a value of the control topic is one that `WorkCounts.to_json` can have written."""
    if not isinstance(value, dict) or not all(_is_figure(value.get(name, 0)) for name in COUNTED):
        return False
    refused, readable = value.get("refused", {}), value.get("readable")
    if not isinstance(refused, dict) or not all(map(_is_figure, refused.values())):
        return False
    return readable is None or is_histogram(readable)


def is_histogram(value: Any) -> bool:
    """The same of a Histogram. One with other parts is another version's, and is not taken for ours."""
    return (
        isinstance(value, dict)
        and isinstance(counts := value.get("counts"), list)
        and all(map(_is_figure, counts))
        and _is_figure(value.get("sum", 0))
    )


def cumulative(histogram: Mapping[str, Any]) -> list[tuple[float, int]]:
    """(upper bound, how many took at most so long) of a histogram as the control topic holds it; empty for another
    version's.
    """
    counts = histogram["counts"]
    if len(counts) != len(BOUNDS) + 1:
        return []
    found, total = [], 0
    for bound, count in zip((*BOUNDS, float("inf")), counts, strict=True):
        total += count
        found.append((bound, total))
    return found


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1 << 63
