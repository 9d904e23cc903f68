"""The control topic: what a pipeline knows of itself, readable by any machine that reaches Kafka.

One partition, compacted, stamped with the broker's clock. Keys are `kind/name`; the newest record of a key holds.
Facts are only ever written when they hold, so a reader need not wait for a transaction that a killed runner left.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Message

from driftless import names
from driftless.errors import SourceError
from driftless.facts.shapes import parse
from driftless.facts.state import Fact, State
from driftless.kafka.client import Kafka
from driftless.kafka.record_writer import RecordWriter

SETTINGS = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",
    # Small segments keep the topic short: progress is written twice a second by every follower.
    "segment.bytes": str(8 << 20),
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
}


class Control:
    """Read and write a pipeline's control topic."""

    def __init__(self, kafka: Kafka, pipeline: str) -> None:
        self.topic = names.control_topic(pipeline)
        self.pipeline = pipeline
        self.kafka = kafka
        self._writer = RecordWriter(kafka, self.topic)

    def exists(self) -> bool:
        return self.kafka.topic(self.topic) is not None

    def read(self) -> State:
        """Everything that holds now. Raises SourceError for a pipeline that was never applied."""
        self.require()
        facts: dict[str, Fact] = {}
        for message in self.kafka.read_to_end(self.topic):
            absorb(facts, message)
        return State(facts)

    def require(self) -> None:
        """Raise SourceError for a pipeline that was never applied."""
        if not self.exists():
            hint = "run `driftless apply` first, or check `name` and `kafka.bootstrap`"
            raise SourceError(
                f"the pipeline `{self.pipeline}` is not known to this Kafka: no topic {self.topic}", hint=hint
            )

    def write(self, facts: Mapping[str, dict[str, object] | None]) -> float:
        """Write facts (None forgets one); returns the broker's time. Durable when it returns. For any thread."""
        return self._writer.write({key.encode(): encode(value) for key, value in facts.items()})

    def now(self) -> float:
        """The broker's clock, which every record of this topic is stamped with."""
        return self.write({"clock": {}})


def absorb(facts: dict[str, Fact], message: Message) -> None:
    """Take one record of the topic in."""
    key, fact = read_fact(message, facts)
    if fact is not None:
        facts[key] = fact
    else:
        facts.pop(key, None)


def read_all(messages: Iterable[Message], known: Mapping[str, Fact]) -> dict[str, Fact | None]:
    """What records say, beside what is `known`; None forgets a fact."""
    found: dict[str, Fact | None] = {}
    for message in messages:
        strange = found.get(STRANGE) or known.get(STRANGE)
        key, fact = read_fact(message, {} if strange is None else {STRANGE: strange})
        found[key] = fact
    return found


def read_fact(message: Message, known: Mapping[str, Fact]) -> tuple[str, Fact | None]:
    """The key of a record and what it says; None forgets it. One that is none of ours changes no fact; it is counted as
    one of its own, beside those that are `known`.
    """
    time, offset = message.timestamp()[1] / 1000, message.offset() or 0
    try:
        key, value = parse(message.key() or b"", message.value())
    except ValueError as exc:
        return STRANGE, _counted(known.get(STRANGE), time, offset, str(exc))
    return key, None if value is None else Fact(value, time, offset)


STRANGE = "strangers/control"
"""The fact that says how many strange records this topic holds. It is made as the topic is read, and never written."""


def _counted(fact: Fact | None, time: float, offset: int, why: str) -> Fact:
    known: dict[str, Any] = {"count": 0, "since": time} if fact is None else fact.value
    counted = {"count": known["count"] + 1, "since": known["since"], "last": time, "why": why, "end": offset, "by": ""}
    return Fact(counted, time, offset)


def encode(value: dict[str, object] | None) -> bytes | None:
    return None if value is None else json.dumps(value, separators=(",", ":")).encode()
