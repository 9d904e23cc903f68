"""What the webhook is told, and when, by a clock that the test turns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from driftless.errors import SourceUnavailable
from driftless.facts.shapes import is_shaped
from driftless.facts.state import Fact, State
from driftless.metrics.alerts import alerts
from driftless.metrics.figures import LogTails
from serve.alerting.sender import AlertSender
from serve.alerting.webhook import Webhook, WebhookError
from serve.facts.collector import Snapshot
from tests.serve.service import FACTS

NOW = 1_700_000_000.0
DOWN = {"kind": "failed", "who": "follower a", "what": "it has failed: Redis is gone", "do": "x", "since": None}
SLOW = {"kind": "waiting", "who": "follower b", "what": "it waits", "do": "x", "since": None}
AWAY = {"kind": "source_unreachable", "who": "source", "what": "it is away", "do": "x", "since": None}


@dataclass
class World:
    """A pipeline's facts, its control topic, and a webhook that takes what it is given, or does not."""

    problems: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[str, Fact] = field(default_factory=dict)
    now: float = NOW
    taken: list[dict[str, Any]] = field(default_factory=list)
    refusing: bool = False
    tries: int = 0
    shows: bool = True

    def look(self) -> Snapshot:
        facts = {**FACTS, "problems": self.problems}
        shown = dict(self.facts) if self.shows else {k: f for k, f in self.facts.items() if k == "alerts/sender"}
        return Snapshot(self.now, self.now, State(shown), facts, LogTails(), None)

    def write(self, facts: Mapping[str, dict[str, object] | None]) -> float:
        for key, value in facts.items():
            if value is None:
                self.facts.pop(key, None)
            else:
                assert is_shaped(key, value), key
                self.facts[key] = Fact(value, self.now, 0)
        return self.now

    def post(self, message: Mapping[str, Any]) -> None:
        self.tries += 1
        if self.refusing:
            raise WebhookError("it answers with 503")
        self.taken.append(dict(message))

    def sender(self) -> AlertSender:
        return AlertSender("shop", alerts(), self.look, self, cast("Webhook", self), lambda: self.now)

    def told(self) -> list[tuple[str, str, str]]:
        return [(one["alert"], one["state"], one["labels"].get("who", "")) for one in self.taken]


class Unwritable:
    """A control topic whose brokers are away."""

    def write(self, _: object) -> float:
        raise SourceUnavailable("Kafka is away")


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def sender(world: World) -> AlertSender:
    sender = world.sender()
    sender.turn()  # it claims
    return sender


def turns(world: World, sender: AlertSender, seconds: float, step: float = 2.0) -> Iterator[None]:
    end = world.now + seconds
    while world.now < end:
        world.now += step
        sender.turn()
    yield


def go(world: World, sender: AlertSender, seconds: float) -> None:
    for _ in turns(world, sender, seconds):
        pass


def test_an_alert_is_told_once_and_once_when_it_is_over(world: World, sender: AlertSender) -> None:
    world.problems = [DOWN]
    go(world, sender, 600)
    assert world.told() == [("DriftlessFailed", "firing", "follower a")]
    first = world.taken[0]
    assert first["summary"] == "follower a has failed and is not tried again: it has failed: Redis is gone"
    assert first["text"] == f"shop: {first['summary']}; {first['do']}"
    assert (first["pipeline"], first["severity"], first["until"]) == ("shop", "critical", None)
    assert first["since"] == "2023-11-14T22:13:22.000+00:00"
    world.problems = []
    go(world, sender, 600)
    assert world.told()[1:] == [("DriftlessFailed", "resolved", "follower a")]
    last = world.taken[1]
    assert (last["id"], last["since"]) == (first["id"], first["since"])
    assert last["until"] == "2023-11-14T22:23:22.000+00:00"
    assert [key for key in world.facts if key.startswith("alert/")] == []


def test_it_has_to_hold_for_its_time(world: World, sender: AlertSender) -> None:
    for _ in range(5):
        world.problems = [SLOW]
        go(world, sender, 110)
        world.problems = []
        go(world, sender, 2)
    assert world.taken == []
    world.problems = [SLOW]
    go(world, sender, 124)
    assert world.told() == [("DriftlessWaiting", "firing", "follower b")]


def test_what_the_webhook_does_not_take_is_tried_again_less_and_less_often(world: World, sender: AlertSender) -> None:
    world.refusing, world.problems = True, [DOWN]
    go(world, sender, 3600)
    assert 10 < world.tries < 30
    world.refusing = False
    go(world, sender, 302)
    assert world.told() == [("DriftlessFailed", "firing", "follower a")]


def test_one_that_is_over_before_it_was_taken_is_told_once(world: World, sender: AlertSender) -> None:
    world.refusing, world.problems = True, [DOWN]
    go(world, sender, 20)
    world.problems = []
    go(world, sender, 20)
    world.refusing = False
    go(world, sender, 600)
    assert world.told() == [("DriftlessFailed", "resolved", "follower a")]
    assert world.taken[0]["since"] == "2023-11-14T22:13:22.000+00:00"


def test_another_serve_goes_on_from_what_was_told(world: World, sender: AlertSender) -> None:
    world.problems = [DOWN]
    go(world, sender, 10)
    sender.release()
    again = world.sender()
    go(world, again, 100)
    assert world.told() == [("DriftlessFailed", "firing", "follower a")]
    world.problems = []
    go(world, again, 10)
    assert world.told()[1:] == [("DriftlessFailed", "resolved", "follower a")]


def test_of_several_one_sends_and_another_takes_over_when_it_is_gone(world: World, sender: AlertSender) -> None:
    other = world.sender()
    world.problems = [DOWN]
    for _ in range(60):
        world.now += 2
        sender.turn()
        other.turn()
    assert len(world.taken) == 1
    world.problems = [DOWN, {**DOWN, "who": "follower c"}]
    go(world, other, 60)  # the first one is gone
    assert len(world.taken) == 1
    go(world, other, 40)
    assert world.told()[1:] == [("DriftlessFailed", "firing", "follower c")]


def test_nothing_is_told_twice_though_the_topic_shows_it_late(world: World, sender: AlertSender) -> None:
    world.shows, world.problems = False, [DOWN]
    go(world, sender, 60)
    assert len(world.taken) == 1


def test_while_the_source_is_away_nothing_else_is_over(world: World, sender: AlertSender) -> None:
    world.problems = [DOWN]
    go(world, sender, 10)
    world.problems = [AWAY]
    go(world, sender, 100)
    assert world.told() == [
        ("DriftlessFailed", "firing", "follower a"),
        ("DriftlessSourceUnreachable", "firing", "source"),
    ]
    world.problems = []
    go(world, sender, 10)
    assert sorted(world.told()[2:]) == [
        ("DriftlessFailed", "resolved", "follower a"),
        ("DriftlessSourceUnreachable", "resolved", "source"),
    ]


def test_a_topic_that_cannot_be_written_makes_no_message_twice(world: World, sender: AlertSender) -> None:
    sender._memory = cast("Any", Unwritable())
    world.problems = [DOWN]
    for _ in range(5):
        world.now += 1
        with suppress(SourceUnavailable):
            sender.turn()
    assert len(world.taken) == 1
