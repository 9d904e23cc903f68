"""Where a position of the source lies in a log: which records the source's snapshot surely has, and which surely not.

A row's header says where the transaction before its own ended (its `prev_commit_lsn`, see decision 0008). So the
next transaction's says where this one ended. The next one may be on any topic, and a marker that is written after the
position makes sure that there is one. Transactions that leave no record at all, as other applications' messages, can
only make the end of the one before look later than it was: some records are then told to be neither, never wrongly to
be either.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from confluent_kafka import Message

from driftless.kafka.client import Kafka, Offsets


@dataclass(frozen=True)
class Place:
    """A record. `prev_commit_lsn`: None for one that is of no transaction, as a snapshot's. `lsn`: of its change."""

    partition: int
    offset: int
    prev_commit_lsn: int | None
    lsn: int


def narrow(
    records: Iterable[Place], ends: Sequence[int], lsn: int, lo: Offsets, hi: Offsets
) -> tuple[Offsets, Offsets]:
    """The first record of each partition that the snapshot at `lsn` may lack, and the first that it surely lacks.

    `records`: all of [lo, hi), each partition's in their order. `ends`: where transactions ended, ascending.
    """
    first, last = dict(lo), dict(hi)
    open_ = set(lo)
    decided: set[int] = set()
    for record in records:
        p = record.partition
        if p in decided or record.prev_commit_lsn is None:
            continue
        at = bisect_right(ends, record.prev_commit_lsn)
        ended = ends[at] if at < len(ends) else inf
        if record.prev_commit_lsn >= lsn or record.lsn >= lsn:
            last[p] = record.offset
            decided.add(p)
        elif ended > lsn:
            open_.discard(p)
        elif p in open_:
            first[p] = record.offset + 1
    return first, {p: max(last[p], first[p]) for p in last}


def find(
    kafka: Kafka, topic: str, lsn: int, lo: Mapping[str, Offsets], hi: Mapping[str, Offsets]
) -> tuple[Offsets, Offsets]:
    """The same, read from Kafka. `lo`, `hi`: of every topic whose records tell where transactions ended."""
    records: list[Place] = []
    ends: set[int] = set()
    for name, begin in lo.items():
        for message in kafka.read_between(name, begin, hi[name]):
            place = place_of(message)
            if place.prev_commit_lsn is not None:
                ends.add(place.prev_commit_lsn)
            if name == topic:
                records.append(place)
    return narrow(records, sorted(ends), lsn, lo[topic], hi[topic])


def place_of(message: Message) -> Place:
    """A row's place by its headers, a message's by its own source block."""
    headers = dict(message.headers() or [])
    sequence, lsn = headers.get("seq"), headers.get("lsn")
    if not headers and b'"sequence"' in (message.value() or b""):
        source = json.loads(message.value() or b"{}").get("source")
        if isinstance(source, dict):
            sequence, lsn = source.get("sequence"), source.get("lsn")
    prev_commit_lsn = json.loads(sequence)[0] if sequence and headers.get("op") != b"r" else None
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Place(partition, offset, None if prev_commit_lsn is None else int(prev_commit_lsn), int(lsn or 0))
