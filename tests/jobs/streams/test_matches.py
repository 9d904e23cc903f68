"""Which events match a pattern: each rule of docs/streams.md by an example, and a random order of reading."""

from __future__ import annotations

import random

import pytest

from driftless.streams.patterns import Pattern, PatternStep
from jobs.streams.patterns.matches import Match, PlacedEvent, matches

CART, PAID, SEEN = PatternStep("cart", "c"), PatternStep("paid", "p", within=10), PatternStep("seen", "s", within=5)
ABANDONED = (CART, PatternStep("", "", within=10, unless="p"))
FAILED = (PatternStep("failed", "f", within=10, times=3, unless="ok"),)
ORDERED = (CART, PatternStep("paid", "p", within=10, unless="x"), SEEN)


def found(steps: tuple[PatternStep, ...], *happened: tuple[int, str]) -> list[Match]:
    """`happened`: (moment, letters of the conditions that hold)."""
    bits = dict[str, int]()
    for number, step in enumerate(steps):
        bits |= {step.where: 1 << 2 * number, step.unless: 2 << 2 * number}
    events = [
        PlacedEvent(at, 0, n, sum(bits.get(letter, 0) for letter in letters.split()), f"{at}{letters}")
        for n, (at, letters) in enumerate(happened)
    ]
    return list(matches(events, steps))


@pytest.mark.parametrize(
    ("steps", "happened", "wanted"),
    [
        ((CART, PAID), [(1, "c"), (11, "p")], [(1, 11, ("1c", "11p"))]),
        ((CART, PAID), [(1, "c"), (12, "p")], []),
        ((CART, PAID), [(1, "p"), (2, "c")], []),
        (
            (CART, PAID),
            [(1, "c"), (2, "z"), (3, "c"), (4, "p"), (5, "p")],
            [(1, 4, ("1c", "4p")), (3, 4, ("3c", "4p"))],
        ),
        ((CART, PAID), [(1, "c"), (1, "p")], [(1, 1, ("1c", "1p"))]),
        (ABANDONED, [(1, "c"), (11, "p")], []),
        (ABANDONED, [(1, "c"), (12, "p")], [(1, 11, ("1c",))]),
        (ABANDONED, [(1, "c"), (1, "c p"), (30, "z")], [(1, 11, ("1c p",))]),
        (FAILED, [(1, "f"), (2, "f"), (3, "z"), (11, "f")], [(1, 11, ("11f",))]),
        (FAILED, [(1, "f"), (2, "f"), (12, "f"), (12, "f")], [(2, 12, ("12f",))]),
        (FAILED, [(1, "f"), (2, "f"), (3, "ok"), (4, "f"), (5, "f"), (6, "f")], [(4, 6, ("6f",))]),
        (ORDERED, [(1, "c"), (2, "p"), (3, "x"), (7, "s")], [(1, 7, ("1c", "2p", "7s"))]),
        (ORDERED, [(1, "c"), (2, "x p"), (3, "p"), (7, "s")], []),
        (ORDERED, [(1, "c"), (2, "p"), (8, "s")], []),
    ],
)
def test_each_rule(
    steps: tuple[PatternStep, ...], happened: list[tuple[int, str]], wanted: list[tuple[int, int, tuple[str, ...]]]
) -> None:
    assert found(steps, *happened) == [Match(*one) for one in wanted]


def test_what_is_missing_changes_only_what_is_open() -> None:
    """So a query may forget what is older than a match can last, and give what is complete before it has read more."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for steps in ((CART, PAID), ABANDONED, FAILED, ORDERED):
        span, shown = Pattern("clicks", ("user",), steps).span, 0
        letters = ["c", "p", "f", "f", "s", "x", "ok", "z", "c p"]
        for _ in range(200):
            happened = sorted((chance.randrange(200), chance.choice(letters)) for _ in range(chance.choice([30, 120])))
            whole = found(steps, *happened)
            now, since = chance.randrange(50, 150), chance.randrange(50)
            known = [m for m in found(steps, *(o for o in happened if since <= o[0] <= now)) if m.at_ms <= now]
            assert known == [m for m in whole if since <= m.began_ms and m.at_ms <= now]
            assert all(m.at_ms - m.began_ms <= span for m in whole)
            shown += len(known)
        assert shown > 20, "the example shows nothing"
