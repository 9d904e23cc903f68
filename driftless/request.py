"""Requests: how a command reaches whoever runs a follower, on whatever machine, through the control topic.

A request stays until it is answered: a runner that is killed in the middle finds it again, and does it again.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message, TopicPartition

from driftless.control import LEASE_SECONDS, Control, State, read_all
from driftless.lease import Holder


@dataclass(frozen=True)
class Request:
    """`verb` of a follower, with its arguments. At most one of each verb waits; a new one takes the old one's place."""

    follower: str
    verb: str
    id: str
    arguments: Mapping[str, Any]

    def answer(self, error: str = "", **result: object) -> dict[str, dict[str, object] | None]:
        """The facts that answer it and take it away."""
        answer: dict[str, object] = {"id": self.id, "error": error, **result}
        return {f"request/{self.follower}/{self.verb}": None, f"answer/{self.follower}/{self.verb}": answer}


def requests(state: State, follower: str) -> list[Request]:
    """What is asked of a follower and not yet answered, oldest first."""
    facts = sorted(state.under(f"request/{follower}").items(), key=lambda item: item[1].offset)
    return [
        Request(follower, verb, str(fact.value["id"]), {k: v for k, v in fact.value.items() if k != "id"})
        for verb, fact in facts
    ]


def ask(control: Control, follower: str, verb: str, **arguments: object) -> Request:
    """Leave a request. The same one as is waiting already is not asked again: its answer serves both."""
    for waiting in requests(control.read(), follower):
        if waiting.verb == verb and dict(waiting.arguments) == arguments:
            return waiting
    request = Request(follower, verb, uuid.uuid4().hex, arguments)
    control.write({f"request/{follower}/{verb}": {"id": request.id, **arguments}})
    return request


def answered(state: State, request: Request) -> dict[str, Any] | None:
    """The answer to a request, once there is one."""
    answer = state.get(f"answer/{request.follower}/{request.verb}")
    return answer if answer is not None and answer["id"] == request.id else None


def is_running(state: State, follower: str, now: float) -> bool:
    """Whether somebody runs the follower. `now`: the broker's time.

    Of a runner on this machine that was killed it is known at once; of another one, when its lease has run out.
    """
    lease = state.facts.get(f"lease/{follower}")
    if lease is None or not lease.value["held"] or now - lease.time > LEASE_SECONDS:
        return False
    return not Holder.of(lease).surely_gone()


class ControlReader:
    """The control topic's state, kept up as records arrive."""

    def __init__(self, control: Control) -> None:
        self.state = control.read()
        end = max((fact.offset for fact in self.state.facts.values()), default=-1) + 1
        self._consumer = control.kafka.consumer(**{"isolation.level": "read_uncommitted"})
        self._consumer.assign([TopicPartition(control.topic, 0, end)])

    def poll(self, seconds: float = 0.0) -> None:
        """Take in what has arrived, waiting at most `seconds` for the first."""
        if arrived := self.arrived(seconds):
            self.state = self.state.having(read_all(arrived, self.state.facts))

    def arrived(self, seconds: float) -> list[Message]:
        """What has arrived, waiting at most `seconds` for the first, without taking it in."""
        first = self._consumer.poll(seconds)
        # `consume` would wait for as many as it is asked for.
        messages = [] if first is None else [first, *self._consumer.consume(500, 0)]
        return [message for message in messages if message.error() is None]

    def follow(self, until: Callable[[State], bool], seconds: float) -> None:
        """Take in what arrives until `until` is true of the state, or the time is up."""
        deadline = time.monotonic() + seconds
        while not until(self.state) and (left := deadline - time.monotonic()) > 0:
            self.poll(min(left, 0.5))

    def __enter__(self) -> ControlReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()
