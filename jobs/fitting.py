"""How many offsets of a log have so many bytes, by the first records of each partition."""

from __future__ import annotations

from driftless.kafka import Kafka, Offsets

SLICE_BYTES = 256 << 20
"""Of a large slice: it is never held whole, but repeated whole after a crash or a stop."""
_PROBED = 20
"""Records of each partition that are looked at."""
_ENOUGH = 32 << 20
"""Bytes of records after which no more are looked at."""


def fitting(kafka: Kafka, topic: str, begin: Offsets, ends: Offsets) -> int:
    """What follows may be larger or smaller: jobs hold less than a slice, whatever it has."""
    count, size = 0, 0
    some = {p: min(ends[p], position + _PROBED) for p, position in begin.items()}
    for message in kafka.read_between(topic, begin, some):
        count, size = count + 1, size + len(message.value() or b"")
        if size > _ENOUGH:
            break
    return max(1, SLICE_BYTES * max(count, 1) // max(size, 1))
