"""The quarantine: which documents a store refused, with the reason; a compacted topic that any machine can read.

A record is keyed by follower, generation and document key, so the newest word on a document holds, and a tombstone
takes it out. It names the version that was refused, never the row: the table's topic has that, and keeps the newest.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite

from driftless import names
from driftless.kafka.client import Kafka
from driftless.kafka.record_writer import RecordWriter

SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(32 << 20), "min.cleanable.dirty.ratio": "0.3"}


@dataclass(frozen=True)
class Held:
    """A document that is held back. `time`: seconds since 1970 at which it was refused, by the runner's clock."""

    follower: str
    generation: int
    key: str
    version: int
    reason: str
    time: float


class QuarantineLog:
    """Read and write a pipeline's quarantine topic."""

    def __init__(self, kafka: Kafka, pipeline: str) -> None:
        self.topic = names.quarantine_topic(pipeline)
        self._kafka = kafka
        self._writer = RecordWriter(kafka, self.topic)

    def read(self, follower: str | None = None, generation: int | None = None) -> Iterator[Held]:
        """What is held now, of one follower or generation or of all, in the order of its last refusal."""
        found: dict[tuple[str, int, str], Held] = {}
        if self._kafka.topic(self.topic) is None:
            return
        for message in self._kafka.read_to_end(self.topic):
            place = held_place(message.key())
            if place is None or follower not in (None, place[0]) or generation not in (None, place[1]):
                continue
            value = message.value()
            held = None if value is None else held_of(place, value)
            if value is None or held is not None:
                found.pop(place, None)
            if held is not None:
                found[place] = held
        yield from found.values()

    def write(
        self, follower: str, generation: int, held: Mapping[str, tuple[int, str]], cleared: Iterable[str] = ()
    ) -> None:
        """Hold documents, key -> (version, reason), and let others go. Durable when it returns; may be repeated."""
        now = round(time.time(), 3)
        values: dict[str, bytes | None] = dict.fromkeys(cleared)
        for key, (version, reason) in held.items():
            values[key] = json.dumps({"version": version, "reason": reason, "time": now}).encode()
        self._writer.write({json.dumps([follower, generation, key]).encode(): v for key, v in values.items()})


Place = tuple[str, int, str]
"""Follower, generation, and the document's key."""


def held_place(key: bytes | None) -> Place | None:
    """Which document a record is of; None for a stranger's."""
    try:
        follower, generation, name = json.loads(key or b"")
    except (ValueError, TypeError, RecursionError):
        return None
    if isinstance(follower, str) and type(generation) is int and isinstance(name, str):
        return follower, generation, name
    return None


def held_of(place: Place, value: bytes) -> Held | None:
    """The document that a record holds back; None for a stranger's."""
    try:
        facts = json.loads(value)
        held = Held(*place, **facts)
    except (ValueError, TypeError, RecursionError):
        return None
    known = type(held.version) is int and isinstance(held.reason, str) and type(held.time) in (int, float)
    return held if known and isfinite(held.time) else None
