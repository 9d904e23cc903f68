"""Which events of one key match a pattern: a function of the events alone, so a stream and a batch agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from driftless.streams.patterns import PatternStep


class PlacedEvent(NamedTuple):
    """`at_ms`: when it happened. `partition`, `offset`: its place, which decides between events of one moment. `holds`:
    bit 2n for the condition of step n, bit 2n + 1 for what must not happen before it. `text`: itself, as JSON.
    """

    at_ms: int
    partition: int
    offset: int
    holds: int
    text: str


class Match(NamedTuple):
    """`at_ms`: when it was complete. `events`: the last one of each step that has a name."""

    began_ms: int
    at_ms: int
    events: tuple[str, ...]


def matches(events: Sequence[PlacedEvent], steps: Sequence[PatternStep]) -> Iterator[Match]:
    """Each event for which the first step holds begins one attempt, whatever else it is part of; each step takes the
    first event after that which it can. So there is one match at most that begins with an event.

    `events`: in their order, of one key. Those that are missing before the first of them change nothing, and those that
    are missing after the last of them only what is complete later.
    """
    for number in range(len(events)):
        if events[number].holds & 1 and (found := _attempt(events, number, steps)) is not None:
            yield found


def _attempt(events: Sequence[PlacedEvent], number: int, steps: Sequence[PatternStep]) -> Match | None:
    """What comes of an event that the first step holds for; None where it comes to nothing, or is not known yet."""
    begun = last = events[number]
    found = list[str]()
    for order, step in enumerate(steps):
        wanted, refused = 1 << 2 * order, 2 << 2 * order
        missing, deadline = step.times - (order == 0), last.at_ms + step.within
        while missing or not step.name:
            number += 1
            if number == len(events) or events[number].at_ms > deadline:
                if step.name:
                    return None
                return Match(begun.at_ms, deadline, tuple(found))
            event = events[number]
            if event.holds & refused:
                return None
            if event.holds & wanted:
                missing, last = missing - 1, event
        found.append(last.text)
    return Match(begun.at_ms, last.at_ms, tuple(found))
