"""Events that a stream leaves out, each by its place and with the reason: nothing is lost in silence."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from driftless.facts.streams import StreamBuild
from driftless.kafka.client import Kafka, Offsets
from jobs.streams.log.batch import newest_record, places, read_places, written
from jobs.streams.rows.reasons import COUNTED, DELETED
from jobs.streams.sql.query import MOST_OFFSETS, left_out

LATE_KEY = b"late"


@dataclass(frozen=True)
class LeftOut:
    """How many events before `read` were left out: all of them are in the log of late events, but for rows of a table
    that were deleted.
    """

    read: Mapping[str, Offsets]
    late: int = 0
    invalid: int = 0
    too_late: int = 0
    changed: int = 0
    deleted: int = 0

    def to_text(self) -> bytes:
        return written({**vars(self), "read": places(self.read)})

    @classmethod
    def from_text(cls, text: bytes) -> LeftOut:
        """Raises ValueError, KeyError, TypeError or AttributeError for what is none."""
        data = json.loads(text)
        return cls(read_places(data), **{name: int(data.get(name, 0)) for name in COUNTED})


def newest_left_out(kafka: Kafka, batches: str, build: StreamBuild) -> LeftOut:
    """How far a build has come; it begins at its first events."""
    found = newest_record(kafka, batches, LATE_KEY, LeftOut.from_text)
    return LeftOut({source.topic: dict(source.floors) for source in build.events.values()}) if found is None else found


def late_slices(
    spark: SparkSession,
    kafka: Kafka,
    build: StreamBuild,
    options: Mapping[str, str],
    before: LeftOut,
    read: Mapping[str, Offsets],
) -> Iterator[tuple[LeftOut, list[tuple[bytes, bytes]]]]:
    """Up to `read`, a slice at a time: how far that is, and the records of its late events: (place, what is known). Of
    events that are gone, nothing can be told.
    """
    for name, source in build.events.items():
        topic, end = source.topic, read.get(source.topic, {})
        first = kafka.beginnings(topic, len(end))
        at = {p: max(first[p], before.read.get(topic, {}).get(p, 0)) for p in end}
        while any(at[p] < offset for p, offset in end.items()):
            to = {p: min(offset, at[p] + MOST_OFFSETS) for p, offset in end.items()}
            found = left_out(spark, source, options, at, to).toArrow().to_pylist()
            told = (row for row in found if row["reason"] != DELETED)
            records = [(f"{topic}/{r['partition']}/{r['offset']}".encode(), _told(name, r)) for r in told]
            reasons = Counter(row["reason"] for row in found)
            counts = {field: getattr(before, field) + reasons[why] for field, why in COUNTED.items()}
            before = LeftOut({**before.read, topic: to}, **counts)
            yield before, records
            at = to


def _told(name: str, row: Mapping[str, object]) -> bytes:
    return json.dumps({"events": name, **row}, separators=(",", ":")).encode()
