"""When Debezium reads all tables: what it tells of that on the notification topic.

It does so once for a new pipeline, and again whenever it finds no position to go on from: after it was killed in that
reading, or when Connect has lost the position. What was deleted meanwhile is then told by no record.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from driftless import names
from driftless.kafka.client import Kafka

_LATEST = 1 << 46
"""Milliseconds since 1970 beyond which no clock is right."""


@dataclass(frozen=True)
class InitialSnapshot:
    """Seconds since 1970 by the clock of the Connect worker, which stamps the records too. `ended`: None before.

    What it has read lies at or behind the first record of each partition that is not older than `begun`.
    """

    begun: float
    ended: float | None = None


def notification(value: bytes | None) -> dict[str, Any]:
    """A record of the notification topic; empty for one that Debezium cannot have written."""
    try:
        told = json.loads(value or b"")
    except (ValueError, RecursionError):
        return {}
    known = isinstance(told, dict) and isinstance(told.get("type"), str) and isinstance(told.get("aggregate_type"), str)
    time, more = (told.get("timestamp"), told.get("additional_data")) if known else (None, None)
    known = known and isinstance(time, int) and 0 <= time < _LATEST and isinstance(more, dict | None)
    return told if known else {}


def next_initial_snapshot(known: InitialSnapshot | None, value: bytes | None) -> InitialSnapshot | None:
    """The newest reading once this record of the notification topic is known; a stranger's changes nothing."""
    told = notification(value)
    if told.get("aggregate_type") != "Initial Snapshot":
        return known
    at = told["timestamp"] / 1000
    if told["type"] == "STARTED":
        return InitialSnapshot(at)
    if told["type"] == "COMPLETED" and known is not None:
        return replace(known, ended=at)
    return known


def newest_initial_snapshot(kafka: Kafka, pipeline: str) -> InitialSnapshot | None:
    """The newest that is told. None where there never was one, or it is so old that the topic has forgotten it."""
    reading = None
    for message in kafka.read_to_end(names.notification_topic(pipeline), isolation="read_committed"):
        reading = next_initial_snapshot(reading, message.value())
    return reading
