"""How large a slice of a log is: in offsets, and in bytes by the first records of each partition."""

from __future__ import annotations

from driftless.kafka.client import Kafka, Offsets
from jobs.spark.source import DRIVER_OFFSETS

SLICE_OFFSETS, MOST_OFFSETS = 100_000, 1_000_000
"""Offsets of the first large slice, and the most. Others are as large as the seconds below allow: one costs 0.3 s."""
READY_OFFSETS = 50_000
"""Of each large slice that needs no job: how far it is is told in between."""
FEW_OFFSETS = 3 * DRIVER_OFFSETS
"""Up to so many are applied by small slices: whoever reads the first need not wait for the last."""
SLICE_SECONDS = 4.0
"""How long a slice may take before the next is no larger: bounds what is repeated after a crash or a stop."""
SLICE_BYTES = 256 << 20
"""Of a large slice: it is never held whole, but repeated whole after a crash or a stop."""
_PROBED = 20
"""Records of each partition that are looked at."""
_ENOUGH = 32 << 20
"""Bytes of records after which no more are looked at."""


class SliceSize:
    """How large the slices of one follower are: the next ones as large as the last ones were quick."""

    def __init__(self, kafka: Kafka, topic: str, *, jobs: bool) -> None:
        """`jobs`: whether large slices are read by jobs of Spark's."""
        self._kafka = kafka
        self._topic = topic
        self._jobs = jobs
        self._offsets, self._least = SLICE_OFFSETS if jobs else READY_OFFSETS, 0

    def next(self, positions: Offsets, ends: Offsets) -> Offsets:
        """Where the next slice ends."""
        few = sum(ends[p] - position for p, position in positions.items()) <= FEW_OFFSETS
        if not few and self._least == 0:
            self._offsets = self._least = min(self._offsets, fitting(self._kafka, self._topic, positions, ends))
        share = (DRIVER_OFFSETS if few else self._offsets) // len(positions)
        return {p: max(positions[p], min(end, positions[p] + share)) for p, end in ends.items()}

    def took(self, seconds: float, offsets: int) -> None:
        """A slice of so many offsets took so long."""
        if self._jobs and offsets > self._offsets // 2:
            factor = min(SLICE_SECONDS / max(seconds, 0.1), 2)
            self._offsets = int(min(max(self._offsets * factor, self._least), MOST_OFFSETS))


def fitting(kafka: Kafka, topic: str, begin: Offsets, ends: Offsets) -> int:
    """What follows may be larger or smaller: jobs hold less than a slice, whatever it has."""
    count, size = 0, 0
    some = {p: min(ends[p], position + _PROBED) for p, position in begin.items()}
    for message in kafka.read_between(topic, begin, some):
        count, size = count + 1, size + len(message.value() or b"")
        if size > _ENOUGH:
            break
    return max(1, SLICE_BYTES * max(count, 1) // max(size, 1))
