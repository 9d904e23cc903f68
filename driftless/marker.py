"""Logical messages in the write-ahead log: markers, by which every stage learns a source position, and truncations.

Transactional messages arrive on the message topic in commit order; non-transactional ones overtake transactions.
So when a marker has been read, every commit at or before its LSN has been written to Kafka.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from driftless import names
from driftless.table import join_name


@dataclass(frozen=True)
class Marker:
    """`lsn`: its position in the source's log. `time`: seconds since 1970 by the source's clock."""

    lsn: int
    time: float


@dataclass(frozen=True)
class Truncation:
    """A TRUNCATE of a table, as its trigger told. `time`: seconds since 1970 at which Kafka got to know of it."""

    table: str
    lsn: int
    time: float


def marker_sql() -> str:
    """The statement that writes a marker and returns its position: needs no table and no grant."""
    return (
        f"select pg_logical_emit_message(true, '{names.MARKER_PREFIX}', "
        "(extract(epoch from clock_timestamp()) * 1000)::bigint::text)::text"
    )


def parse_message(value: bytes, time: float) -> Marker | Truncation | None:
    """What a record of the message topic is, written at `time`; None for somebody else's message.

    Debezium gives the content as hexadecimal, as `binary.handling.mode` says.
    """
    record = json.loads(value)
    if record.get("op") != "m":
        return None
    prefix, lsn = record["message"]["prefix"], int(record["source"]["lsn"])
    content = bytes.fromhex(record["message"]["content"]).decode()
    if prefix == names.MARKER_PREFIX:
        return Marker(lsn, int(content) / 1000)
    if prefix.startswith(names.TRUNCATE_PREFIX):
        return Truncation(join_name(*json.loads(content)), lsn, time)
    return None
