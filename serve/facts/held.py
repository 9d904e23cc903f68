"""What is quarantined, by reason and without keys, kept up by reading what is new of the quarantine's topic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from driftless.control.quarantine import Held


@dataclass(frozen=True)
class HeldCount:
    """How many documents of a generation are held for a reason. `since`: the first of them, seconds since 1970."""

    who: str
    generation: int
    reason: str
    count: int
    since: float


def held_counts(held: Iterable[Held]) -> list[HeldCount]:
    """By who, generation and reason, the most first."""
    found: dict[tuple[str, int, str], list[float]] = {}
    for one in held:
        found.setdefault((one.follower, one.generation, one.reason), []).append(one.time)
    counted = [HeldCount(*place, len(times), min(times)) for place, times in found.items()]
    return sorted(counted, key=lambda one: (-one.count, one.who, one.reason))
