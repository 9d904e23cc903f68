"""Which version of a row an event has, by the rule in words, with random versions of a printed seed."""

from __future__ import annotations

import random

from jobs.streams.lookups.as_of import Version, WaitingEvent, rows_then, still_needed
from tests.jobs.streams.random_events import SEED

VERSIONS = [Version(0, 0, 1, "a"), Version(50, 0, 2, "b"), Version(50, 0, 3, "c"), Version(80, 0, 4, None)]


def found(at_ms: int, versions: list[Version] = VERSIONS) -> str | None:
    ((_, text),) = rows_then([WaitingEvent(at_ms, 0, 0, "{}")], versions)
    return text


def test_an_event_has_the_last_version_that_was_committed_by_then() -> None:
    assert [found(at) for at in (0, 49, 50, 51, 79, 80, 81)] == ["a", "a", "c", "c", "c", None, None]
    assert found(7, VERSIONS[1:]) is None
    assert found(7, []) is None


def test_what_no_event_to_come_may_have_is_forgotten_and_nothing_else() -> None:
    assert [*still_needed(VERSIONS, 40)] == VERSIONS
    assert [*still_needed(VERSIONS, 50)] == VERSIONS[2:]
    assert [*still_needed(VERSIONS, 79)] == VERSIONS[2:]
    assert [*still_needed(VERSIONS, 80)] == []
    assert [*still_needed([], 80)] == []


def test_what_is_forgotten_changes_no_later_event() -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    for _ in range(300):
        some = sorted((chance.randrange(30), 0, offset) for offset in range(chance.randrange(8)))
        versions = [Version(*place, chance.choice(["x", "y", None])) for place in some]
        now = chance.randrange(-1, 31)
        kept = [*still_needed(versions, now)]
        assert len(kept) <= 1 + sum(version.since_ms > now for version in versions)
        for at in range(max(0, now), 32):
            assert found(at, kept) == found(at, versions)
