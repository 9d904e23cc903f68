"""What is common to rows that Python looks at a key at a time: their places, and their columns as JSON."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

PARTITION, OFFSET = "_partition", "_offset"
"""Columns of events that say where each stands in its topic: of two that happened at once, they say which was first."""
EXACT = "map('timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\")"
"""The options with which `to_json` and `from_json` give back what was given to them."""
NEVER = "36500 days"
"""The delay by which events, and versions, never move the watermark."""
_ZERO = datetime(1970, 1, 1, tzinfo=UTC)


def moment(ms: int) -> datetime:
    """Of milliseconds since 1970."""
    return _ZERO + timedelta(milliseconds=ms)
