"""The quarantine: which documents a store refused, with the reason; a compacted topic that any machine can read.

A record is keyed by follower, generation and document key, so the newest word on a document holds, and a tombstone
takes it out. It names the version that was refused, never the row: the table's topic has that, and keeps the newest.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message

from driftless import names
from driftless.errors import SourceError
from driftless.kafka import TIMEOUT, Kafka, kafka_error, produce

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

    def read(self, follower: str | None = None, generation: int | None = None) -> Iterator[Held]:
        """What is held now, of one follower or generation or of all, in the order of its last refusal."""
        found: dict[tuple[str, int, str], Held] = {}
        if self._kafka.topic(self.topic) is None:
            return
        for message in self._kafka.read_to_end(self.topic):
            who, number, key = place = _place(message)
            if follower not in (None, who) or generation not in (None, number):
                continue
            found.pop(place, None)
            value = message.value()
            if value is not None:
                found[place] = Held(who, number, key, **json.loads(value))
        yield from found.values()

    def write(
        self, follower: str, generation: int, held: Mapping[str, tuple[int, str]], cleared: Iterable[str] = ()
    ) -> None:
        """Hold documents, key -> (version, reason), and let others go. Durable when it returns; may be repeated."""
        producer = self._kafka.producer(**{"enable.idempotence": True, "message.timeout.ms": int(TIMEOUT * 1000)})
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                errors.append(error)

        now = round(time.time(), 3)
        values: dict[str, bytes | None] = dict.fromkeys(cleared)
        for key, (version, reason) in held.items():
            values[key] = json.dumps({"version": version, "reason": reason, "time": now}).encode()
        try:
            for key, value in values.items():
                name = json.dumps([follower, generation, key]).encode()
                produce(producer, self.topic, name, value, on_delivery=delivered)
            left = producer.flush(TIMEOUT)
        except KafkaException as exc:
            raise kafka_error(exc.args[0], self.topic) from exc
        if errors:
            raise kafka_error(errors[0], self.topic)
        if left:
            raise SourceError(f"{self.topic}: {left} records could not be written in {TIMEOUT:.0f} s")


def _place(message: Message) -> tuple[str, int, str]:
    follower, generation, key = json.loads(message.key() or b"[]")
    return follower, generation, key
