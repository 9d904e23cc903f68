"""Which version of a row an event has: a function of events and versions alone, so a stream and a batch agree."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Version(NamedTuple):
    """`since_ms`: when it was committed. `partition`, `offset`: its place in the log, which decides between versions of
    one moment. `text`: the row as JSON; None where it was deleted.
    """

    since_ms: int
    partition: int
    offset: int
    text: str | None


class WaitingEvent(NamedTuple):
    """`at_ms`: when it happened. `partition`, `offset`: its place. `text`: itself, as JSON."""

    at_ms: int
    partition: int
    offset: int
    text: str


def rows_then(events: Sequence[WaitingEvent], versions: Sequence[Version]) -> Iterator[tuple[WaitingEvent, str | None]]:
    """Each event with the row as it was then; None where there was none. Both: in their order, of one key.

    A row that was committed at the very millisecond of the event was there.
    """
    for event in events:
        found = newest_at(versions, event.at_ms)
        yield event, None if found is None else found.text


def newest_at(versions: Sequence[Version], moment_ms: int) -> Version | None:
    """The last version that was committed at or before a moment."""
    number = bisect_right(versions, moment_ms, key=lambda version: version.since_ms)
    return versions[number - 1] if number else None


def still_needed(versions: Sequence[Version], moment_ms: int) -> Sequence[Version]:
    """Those that an event after a moment may have."""
    number = bisect_right(versions, moment_ms, key=lambda version: version.since_ms)
    kept = versions[max(0, number - 1) :]
    return kept[1:] if kept and kept[0].since_ms <= moment_ms and kept[0].text is None else kept
