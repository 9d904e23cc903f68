"""Markers: logical messages in the write-ahead log by which every stage learns a source position.

Transactional messages arrive on the message topic in commit order; non-transactional ones overtake transactions.
So when a marker has been read, every commit at or before its LSN has been written to Kafka.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from driftless import names


@dataclass(frozen=True)
class Marker:
    """`lsn`: its position in the source's log. `time`: seconds since 1970 by the source's clock."""

    lsn: int
    time: float


def marker_sql() -> str:
    """The statement that writes a marker and returns its position: needs no table and no grant."""
    return (
        f"select pg_logical_emit_message(true, '{names.MARKER_PREFIX}', "
        "(extract(epoch from clock_timestamp()) * 1000)::bigint::text)::text"
    )


def parse_marker(value: bytes) -> Marker | None:
    """The marker in a record of the message topic, or None for somebody else's message.

    Debezium gives the content as hexadecimal, as `binary.handling.mode` says.
    """
    record = json.loads(value)
    if record.get("op") != "m" or record["message"]["prefix"] != names.MARKER_PREFIX:
        return None
    content = bytes.fromhex(record["message"]["content"]).decode()
    return Marker(int(record["source"]["lsn"]), int(content) / 1000)
