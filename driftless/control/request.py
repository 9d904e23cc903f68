"""Requests: how a command reaches whoever runs a follower, on whatever machine, through the control topic.

A request stays until it is answered: a runner that is killed in the middle finds it again, and does it again.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message, TopicPartition

from driftless.control.lease import Holder
from driftless.control.topic import Control, read_all
from driftless.errors import SyncError
from driftless.facts.state import LEASE_SECONDS, State
from driftless.kafka.client import TAIL

ANSWER_SECONDS = 3600.0
"""How long an answer is kept, at the least."""


class Misunderstood(SyncError):
    """A request that cannot be read: another program wrote it, or another version of this one. It is answered so."""

    HINT = "use the command of the same version as the run"


@dataclass(frozen=True)
class Request:
    """`verb` of a follower, with its arguments. Each is kept until it is answered; the oldest comes first.

    `arguments` may hold anything: the methods below give what is asked for, or raise Misunderstood. `name`: what
    follows the follower in its key, which is the verb alone where the version before wrote it.
    """

    follower: str
    verb: str
    id: str
    arguments: Mapping[str, Any]
    name: str

    @property
    def key(self) -> str:
        return f"request/{self.follower}/{self.name}"

    def answer(self, error: str = "", **result: object) -> dict[str, dict[str, object] | None]:
        """The facts that answer it and take it away."""
        return {self.key: None, f"answer/{self.follower}/{self.name}": {"id": self.id, "error": error, **result}}

    def number(self, name: str) -> int:
        return _number(self._argument(name), name)

    def number_or_none(self, name: str) -> int | None:
        return None if self.arguments.get(name) is None else self.number(name)

    def flag(self, name: str) -> bool:
        value = self._argument(name)
        if not isinstance(value, bool):
            raise Misunderstood(f"`{name}` of the request is neither true nor false")
        return value

    def texts(self, name: str) -> list[str] | None:
        """None where it is left out."""
        value = self.arguments.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(text, str) and _is_utf8(text) for text in value):
            raise Misunderstood(f"`{name}` of the request is no list of texts")
        return value

    def offsets(self, name: str) -> dict[int, int]:
        value = self.facts(name)
        if not all(p.isascii() and p.isdecimal() for p in value):
            raise Misunderstood(f"`{name}` of the request has something else than partitions")
        return {int(p): _number(offset, name) for p, offset in value.items()}

    def facts(self, name: str) -> dict[str, Any]:
        value = self._argument(name)
        if not isinstance(value, dict):
            raise Misunderstood(f"`{name}` of the request is no JSON object")
        return value

    def _argument(self, name: str) -> Any:
        if self.arguments.get(name) is None:
            raise Misunderstood(f"the request has no `{name}`")
        return self.arguments[name]


_MOST = 2**63 - 1


def _number(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise Misunderstood(f"`{name}` of the request is no whole number")
    return value


def _is_utf8(text: str) -> bool:
    """Half of a surrogate pair can be written in JSON, and nowhere else."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def requests(state: State, follower: str) -> list[Request]:
    """What is asked of a follower and not yet answered, oldest first."""
    facts = sorted(state.by_prefix(f"request/{follower}").items(), key=lambda item: item[1].offset)
    found = (_request(follower, name, fact.value) for name, fact in facts)
    return [request for request in found if request is not None]


def _request(follower: str, name: str, value: Mapping[str, Any]) -> Request | None:
    """None for what is asked of another: of `view order/1`, where those of `view order` are looked for."""
    verb, _, id_ = name.partition("/")
    if verb.isdecimal():
        return None
    if not id_:
        id_ = str(value.get("id") or "")
    return Request(follower, verb, id_, {k: v for k, v in value.items() if k != "id"}, name)


def ask(control: Control, follower: str, verb: str, **arguments: object) -> Request:
    """Leave a request. The same one as is waiting already is not asked again: its answer serves both."""
    arguments = json.loads(json.dumps(arguments))  # as it will be read
    for waiting in requests(control.read(), follower):
        if waiting.verb == verb and dict(waiting.arguments) == arguments:
            return waiting
    id_ = uuid.uuid4().hex
    request = Request(follower, verb, id_, arguments, f"{verb}/{id_}")
    control.write({request.key: {"id": request.id, **arguments}})
    return request


def answered(state: State, request: Request) -> dict[str, Any] | None:
    """The answer to a request, once there is one."""
    answer = state.get(f"answer/{request.follower}/{request.name}")
    return answer if answer is not None and answer.get("id") == request.id else None


def refuse_all(state: State, follower: str, why: str) -> dict[str, dict[str, object] | None]:
    """The facts that answer everything that is asked of a follower."""
    facts: dict[str, dict[str, object] | None] = {}
    for request in requests(state, follower):
        facts |= request.answer(why)
    return facts


def old_answers(state: State, follower: str) -> dict[str, dict[str, object] | None]:
    """The facts to forget: answers that whoever asked has had time to read."""
    answers = state.by_prefix(f"answer/{follower}").items()
    return {f"answer/{follower}/{name}": None for name, fact in answers if state.now > fact.time + ANSWER_SECONDS}


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
        self._consumer = control.kafka.consumer(**TAIL, **{"isolation.level": "read_uncommitted"})
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
