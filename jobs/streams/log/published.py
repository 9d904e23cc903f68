"""What is in a stream's log: every document, with its window and how often it was corrected."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from driftless.facts.epochs import TopicLog
from driftless.kafka.client import Kafka

BEGIN, END, REVISION = "begin", "end", "rev"
"""Headers of a record: of the window, in milliseconds, and how many corrections there were."""
_NUMBERS = (BEGIN, END, REVISION)


@dataclass(frozen=True)
class Kept:
    """A document as a stream's log has it. `begin`, `end`: of its window, in milliseconds; None where nothing closes.
    `revision`: how many corrections of it there were.
    """

    document: str
    begin: int | None
    end: int | None
    revision: int


def published(kafka: Kafka, log: TopicLog, since_ms: int = 0) -> dict[str, Kept]:
    """Every document that is in a stream's log, by key, of those that were written since a moment. A key that is no
    text is a stranger's.
    """
    found: dict[str, Kept] = {}
    ends, begin = kafka.committed_ends(log.topic, log.partitions), kafka.beginnings(log.topic, log.partitions)
    if since_ms > 0:
        begin = kafka.offsets_at(log.topic, log.partitions, since_ms / 1000)
    for message in kafka.read_between(log.topic, begin, ends):
        key, value = message.key(), message.value()
        with suppress(UnicodeDecodeError, ValueError):
            if key is not None and value is not None:
                headers = dict(message.headers() or [])
                said = {name: int(headers[name] or 0) for name in _NUMBERS if name in headers}
                document = value.decode(errors="replace")
                found[key.decode()] = Kept(document, said.get(BEGIN), said.get(END), said.get(REVISION, 0))
            elif key is not None:
                found.pop(key.decode(), None)
    return found
